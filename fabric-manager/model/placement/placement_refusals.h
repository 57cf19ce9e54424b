// Why no extents were found, in words that name the blocker and the remedy.
//
// Private to placement. Slow: it looks at everything again.
#ifndef CXLPOOL_FABRIC_MANAGER_MODEL_PLACEMENT_PLACEMENT_REFUSALS_H_
#define CXLPOOL_FABRIC_MANAGER_MODEL_PLACEMENT_PLACEMENT_REFUSALS_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "fabric-manager/model/placement/placement_policy.h"

namespace cxlpool::fm {

using RefusalData = std::vector<std::pair<std::string, std::string>>;

absl::Status Exhausted(const std::string& reason, const std::string& message,
                       const std::string& remedy, RefusalData metadata);
absl::Status Unfit(const std::string& reason, const std::string& message, const std::string& remedy,
                   RefusalData metadata);

// For messages: "in the pool", "on device "x"", "where host "a" has a path".
std::string WhereOf(const ExtentRequest& request, const PoolState& state);
// The ids, in order of index: "cmm-0, cmm-1, ..." for as many as one reads.
std::string NamesOf(const PoolState& state, const DeviceSet& devices, const char* between = ", ");

// FAILED_PRECONDITION/NO_PATH: the fabric found that the host does not reach the device, and `why`.
absl::Status NotReached(absl::string_view label, const std::string& host, const std::string& device,
                        const std::string& why);

// NOT_FOUND/UNKNOWN_DEVICE.
absl::Status UnknownDevice(const ExtentRequest& request);

// POOL_FULL, or POOL_FRAGMENTED with the number of extents that would do: `would_do` says for so
// many at most.
using WouldDoFn = std::optional<PlacedExtents> (*)(const PlacementTask& task);
absl::Status FullOrFragmented(const PlacementTask& task, WouldDoFn would_do = Pack);

// Whatever is in the way of `policy`.
absl::Status WhyNotPlaced(const PlacementPolicy& policy, const PlacementTask& task);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_MODEL_PLACEMENT_PLACEMENT_REFUSALS_H_
