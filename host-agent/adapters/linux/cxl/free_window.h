// The room that regions and orphans leave in a fixed memory window. Pure.
//
// The kernel keeps the addresses of a region that lost all its targets. An anonymous orphan takes
// nothing away: CreateHostRegion clears it before it looks for room.
#ifndef CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_CXL_FREE_WINDOW_H_
#define CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_CXL_FREE_WINDOW_H_

#include "host-agent/adapters/linux/cxl/cxl_snapshot.h"

namespace cxlpool::agent {

// Lowers largest_free_bytes of the windows to what lies between regions, known orphans among them.
void CountFree(CxlSnapshot& snapshot);

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_CXL_FREE_WINDOW_H_
