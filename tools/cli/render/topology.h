// How the pool hangs together, as a tree: device -> extents and who holds them, host -> bridges ->
// slots and what is bound there, and the devices it reaches. Pure.
#ifndef CXLPOOL_TOOLS_CLI_RENDER_TOPOLOGY_H_
#define CXLPOOL_TOOLS_CLI_RENDER_TOPOLOGY_H_

#include <string>

#include "cxlpool/v1/inventory_service.pb.h"
#include "cxlpool/v1/pool_service.pb.h"

namespace cxlpool::cli {

// `regions` gives the Extents; read a moment after `topology`, it may be newer.
std::string TopologyTree(const v1::Topology& topology, const v1::ListRegionsResponse& regions);

}  // namespace cxlpool::cli

#endif  // CXLPOOL_TOOLS_CLI_RENDER_TOPOLOGY_H_
