// What a host must have before any CXL memory is bound, checked; and the DAX policy, set.
#ifndef CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_MACHINE_PREPARE_HOST_H_
#define CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_MACHINE_PREPARE_HOST_H_

#include <string>

#include "absl/status/status.h"
#include "host-agent/adapters/linux/machine/host_files.h"

namespace cxlpool::agent {

// Switches off DAX autoprobe, so that no driver takes a new DAX device by itself, then looks for
// everything that the rungs need. `kernel` (uname -r) goes into messages.
// FAILED_PRECONDITION/HOST_UNFIT lists all that is missing and how to fix each.
absl::Status PrepareHost(const HostFiles& files, const std::string& kernel);

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_MACHINE_PREPARE_HOST_H_
