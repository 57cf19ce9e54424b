// The Regions in a manager's answers, and all that a manager lists.
#ifndef CXLPOOL_TOOLS_BENCHES_REGIONS_H_
#define CXLPOOL_TOOLS_BENCHES_REGIONS_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cxlpool/v1/pool_service.pb.h"

namespace cxlpool::bench {

using RegionFn = std::function<void(const v1::Region&)>;

// Each Region of `answers`: serialised BatchAllocateRegionsResponses, or AllocateRegionResponses.
// INTERNAL: one does not parse, or refuses a request.
absl::Status ForEachAnswered(const std::vector<std::string>& answers, bool batch,
                             const RegionFn& take);

// Each Region of the manager at `address`, page by page.
absl::Status ForEachListed(const std::string& address, absl::Duration connect_limit,
                           const RegionFn& take);

// How many Regions the manager at `address` has. Waits for a manager that is starting.
absl::StatusOr<uint64_t> CountRegions(const std::string& address, absl::Duration connect_limit);

}  // namespace cxlpool::bench

#endif  // CXLPOOL_TOOLS_BENCHES_REGIONS_H_
