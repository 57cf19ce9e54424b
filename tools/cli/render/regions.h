// Regions as text for people. Pure; every text ends with a newline.
#ifndef CXLPOOL_TOOLS_CLI_RENDER_REGIONS_H_
#define CXLPOOL_TOOLS_CLI_RENDER_REGIONS_H_

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "cxlpool/v1/pool_service.pb.h"

namespace cxlpool::cli {

// One row a Region in the order given, and below them each reason that a state carries.
std::string RegionTable(const v1::ListRegionsResponse& regions);

// All of one Region: its Extents and Attachments too.
std::string RegionDetails(const v1::Region& region);

// One row a process, and below them how many others there are, and of which hosts nothing is known.
std::string HolderTable(const v1::ListRegionHoldersResponse& response);

// What a dry run plans beside the Region: figures, and where it enters the host.
std::string PlanText(const v1::PlacementPlan& plan);

// One row a request of a batch, and below them why some were refused. `asked`: the name that each
// asked for; empty: none.
std::string BatchTable(const google::protobuf::RepeatedPtrField<v1::BatchResult>& results,
                       const std::vector<std::string>& asked);

// `region watch` prints this first, then a line an event with the time when it came.
std::string WatchHeader();
std::string WatchLine(const v1::WatchRegionsResponse& event, absl::Time now);
// Its part that is not the time and the revision: two events of which it is equal look the same.
std::string WatchText(const v1::WatchRegionsResponse& event);
// Changes were missed.
std::string WatchGapLine(absl::Time now);

std::string CapacityTable(const v1::Capacity& capacity);

}  // namespace cxlpool::cli

#endif  // CXLPOOL_TOOLS_CLI_RENDER_REGIONS_H_
