// The host's CXL as it is, with what the kernel no longer tells of it.
#ifndef CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_LOOK_AT_CXL_H_
#define CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_LOOK_AT_CXL_H_

#include "host-agent/adapters/linux/cxl_snapshot.h"
#include "host-agent/adapters/linux/host_files.h"
#include "host-agent/adapters/linux/known_targets.h"

namespace cxlpool::agent {

// ReadCxlSnapshot, completed by `known`, and what is free in the windows counted. Any thread.
CxlSnapshot LookAtCxl(const HostFiles& files, KnownTargets& known);

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_LOOK_AT_CXL_H_
