// The host's CXL as it is, with what the kernel no longer tells of it.
#ifndef CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_CXL_LOOK_AT_CXL_H_
#define CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_CXL_LOOK_AT_CXL_H_

#include "host-agent/adapters/linux/cxl/cxl_snapshot.h"
#include "host-agent/adapters/linux/machine/machine.h"

namespace cxlpool::agent {

// ReadCxlSnapshot, completed by what is known of targets that are gone, and what is free in the
// windows counted. Any thread.
CxlSnapshot LookAtCxl(Machine& machine);

// Lowers largest_free_bytes of the windows to what lies between regions, known orphans among them:
// the kernel keeps the addresses of a region that lost all its targets. An anonymous orphan takes
// nothing away, because CreateHostRegion clears it before it looks for room. Pure.
void CountFree(CxlSnapshot& snapshot);

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_CXL_LOOK_AT_CXL_H_
