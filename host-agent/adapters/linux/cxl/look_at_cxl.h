// The host's CXL as it is, with what the kernel no longer tells of it.
#ifndef CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_CXL_LOOK_AT_CXL_H_
#define CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_CXL_LOOK_AT_CXL_H_

#include "host-agent/adapters/linux/cxl/cxl_snapshot.h"
#include "host-agent/adapters/linux/machine/machine.h"

namespace cxlpool::agent {

// ReadCxlSnapshot, completed by what is known of targets that are gone, and what is free in the
// windows counted. Any thread.
CxlSnapshot LookAtCxl(Machine& machine);

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_CXL_LOOK_AT_CXL_H_
