// What this machine has and lacks for pool memory, in words for people: `cxlpool-agent check`.
//
// Reads the files below the root that it is given, and nothing else; changes nothing. Any thread.
#ifndef CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_MACHINE_EXAMINE_HOST_H_
#define CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_MACHINE_EXAMINE_HOST_H_

#include <vector>

#include "host-agent/adapters/linux/machine/host_files.h"
#include "host-agent/adapters/linux/machine/host_needs.h"

namespace cxlpool::agent {

// The needs (host_needs.h), and besides: the kernel's version, the caller's rights, window space,
// decoders, what would online memory by itself, and what the machine forbids. Always the same
// findings in the same order, except for those about something that is missing. A host of whole
// devices is asked for no slots, decoders and window space; ExamineWholeDevices (linux_space.h)
// shows those.
std::vector<Finding> ExamineHost(const HostFiles& files, HostUse use = HostUse::kPlugged);

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_MACHINE_EXAMINE_HOST_H_
