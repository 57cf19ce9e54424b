// DAX autoprobe, which must be off whenever a DAX device appears: else the kernel gives it to a
// driver at once, and may put its memory online where it never leaves again.
#ifndef CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_DAX_AUTOPROBE_H_
#define CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_DAX_AUTOPROBE_H_

#include "absl/status/status.h"
#include "host-agent/adapters/linux/machine/host_files.h"

namespace cxlpool::agent {

// Writes it, and reads it back: somebody (modprobe, a udev rule) may have switched it on since.
// NOT_FOUND: there is no DAX bus. Else FAILED_PRECONDITION. Both HOST_UNFIT.
absl::Status SwitchAutoprobeOff(const HostFiles& files);

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_DAX_AUTOPROBE_H_
