// What `cxlpool top` and `cxlpool report` say of a pool, from what the manager's lists say. Pure.
#ifndef CXLPOOL_TOOLS_CLI_RENDER_POOL_USE_H_
#define CXLPOOL_TOOLS_CLI_RENDER_POOL_USE_H_

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "cxlpool/v1/inventory_service.pb.h"
#include "cxlpool/v1/pool_service.pb.h"
#include "tools/cli/render/sections.h"

namespace cxlpool::cli {

// The lists are of one moment each, and not of the same.
struct PoolFacts {
  v1::ListDevicesResponse devices;
  v1::ListHostsResponse hosts;
  v1::ListRegionsResponse regions;
  v1::ListTenantsResponse tenants;
  // By Region's name, of those that were asked for.
  std::map<std::string, v1::ListRegionHoldersResponse> holders = {};
  v1::Topology topology = {};  // Links and paths. Without links every host is led to every device.
};

// Devices, hosts and tenants, the one that has most first.
std::vector<Section> TopSections(const PoolFacts& facts);

// So many of the oldest Regions are reported,
inline constexpr size_t kOldestRegions = 10;
// and of so many it is asked who has them open: a call each.
inline constexpr size_t kAskedRegions = 1000;
// The oldest Regions that may be used: those that are made, taken down or kept from everybody are
// not among them.
std::vector<const v1::Region*> OldestRegions(const v1::ListRegionsResponse& regions, size_t most);

// What may not be used and why, how broken up free memory is, Regions that somebody may have
// forgotten, the oldest Regions, those that nobody ever opened, and who holds what.
// `facts.holders` has the oldest kAskedRegions.
std::vector<Section> ReportSections(const PoolFacts& facts, absl::Time now);

}  // namespace cxlpool::cli

#endif  // CXLPOOL_TOOLS_CLI_RENDER_POOL_USE_H_
