// What the plans share: refusals, retries, finding a Region, and checking how it may be shared.
//
// Private to the planner. Pure functions.
#ifndef CXLPOOL_FABRIC_MANAGER_MODEL_PLAN_PARTS_H_
#define CXLPOOL_FABRIC_MANAGER_MODEL_PLAN_PARTS_H_

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "fabric-manager/model/planner.h"

namespace cxlpool::fm {

using Metadata = std::vector<std::pair<std::string, std::string>>;

absl::Status Refuse(absl::StatusCode code, const std::string& reason, const std::string& message,
                    const std::string& remedy, Metadata metadata);

// In quotes, escaped, cut to 80 characters: what a caller wrote may be anything.
std::string Quoted(absl::string_view text);

// The answer of an earlier call with this request_id, or nothing: plan on.
// ALREADY_EXISTS/REQUEST_ID_REUSED: it had another payload.
absl::StatusOr<std::optional<Plan>> FindRetry(const PoolState& state, const Request& request);

// By id or UUID. NOT_FOUND/UNKNOWN_REGION.
absl::StatusOr<RegionPtr> GetRegion(const PoolState& state, absl::string_view region_id);

// Keeps `request` with the Region; the oldest but the first makes room.
void Remember(Region& region, const Request& request);

// A copy to edit: with the change's revision and request.
std::shared_ptr<Region> Edit(const Region& region, const Request& request,
                             const PlanContext& context);

// Whether (mode, access) on `host` goes with the Attachments that are there.
// FAILED_PRECONDITION/SHARING_CONFLICT names them (metadata holders).
absl::Status CheckSharing(absl::string_view label, Sharing sharing,
                          const std::vector<Attachment>& present, absl::string_view host, Mode mode,
                          Access access);

// An Attachment of `extents` on `host`, placed and numbered. Errors of PlaceOnHost.
absl::StatusOr<Attachment> MakeAttachment(const PoolState& state, absl::string_view label,
                                          const std::vector<Extent>& extents,
                                          const std::string& host, Mode mode, Access access,
                                          PlanContext& context);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_MODEL_PLAN_PARTS_H_
