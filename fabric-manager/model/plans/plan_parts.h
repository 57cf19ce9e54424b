// What the plans share: refusals, retries, finding a Region, and checking how it may be shared.
//
// Private to the planner. Pure functions.
#ifndef CXLPOOL_FABRIC_MANAGER_MODEL_PLANS_PLAN_PARTS_H_
#define CXLPOOL_FABRIC_MANAGER_MODEL_PLANS_PLAN_PARTS_H_

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "fabric-manager/model/plans/planner.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {

using Metadata = std::vector<std::pair<std::string, std::string>>;

// In quotes, escaped, cut to 80 characters: what a caller wrote may be anything.
std::string Quoted(absl::string_view text);

// A QUARANTINED Region that keeps the bytes of `extent` from everybody, until an operator releases
// it with force. Its id is "PREFIX-DEVICE-KEY"; why it is there is the caller's to say
// (state_reason).
std::shared_ptr<Region> MakeKept(const PoolState& state, absl::string_view prefix,
                                 absl::string_view device, const Extent& extent,
                                 PlanContext& context);

// How every plan of a Region begins. Judges the caller (errors of CheckCaller), then looks for an
// earlier call with this request_id: its answer, or nothing: plan on.
// ALREADY_EXISTS/REQUEST_ID_REUSED: it had another payload.
absl::StatusOr<std::optional<Plan>> BeginPlan(const PoolState& state, const Caller& caller,
                                              Right right, const Request& request);

// By id or UUID. What the caller may not see (MaySee) is refused in the same words as what is not
// there, so that nobody finds out the names of other hosts' Regions by asking.
// NOT_FOUND/UNKNOWN_REGION.
absl::StatusOr<RegionPtr> GetRegion(const PoolState& state, const Caller& caller,
                                    absl::string_view region_id);

// Those words. NOT_FOUND/UNKNOWN_REGION.
absl::Status UnknownRegion(const Caller& caller, absl::string_view region_id);

// Whether a Region of `tenant` may be named so: a name that begins with a tenant ("ml.kv") is for
// its Regions only, and a caller with a role for tenants gives no others. So nobody learns by a
// name that was refused what other tenants have, or takes a name before them.
// PERMISSION_DENIED/NAME_NOT_YOURS. An empty id is nobody's.
absl::Status CheckNameSpace(const Caller& caller, absl::string_view region_id,
                            absl::string_view tenant);

// Whether a caller with a role for tenants may attach one of `tenant`'s Regions to `host`.
// PERMISSION_DENIED/HOST_NOT_YOURS. Others may: what the host is like they learn elsewhere.
absl::Status CheckHostOf(const PoolState& state, const Caller& caller, absl::string_view host,
                         absl::string_view tenant);

// Keeps `request` with the Region; the oldest but the first makes room.
void Remember(Region& region, const Request& request);

// A copy to edit: with the change's revision and request.
std::shared_ptr<Region> Edit(const Region& region, const Request& request,
                             const PlanContext& context);

// For a call that finds things as it wants them. The Region keeps its revision, and so its etag,
// and watchers hear nothing. The request is kept all the same, so that a late retry does not undo
// what came after it.
Plan Unchanged(const RegionPtr& region, const Request& request, const PlanContext& context);

// Whether (mode, access) on `host` goes with the Attachments that are there.
// FAILED_PRECONDITION/SHARING_CONFLICT names them (metadata holders).
absl::Status CheckSharing(absl::string_view label, Sharing sharing,
                          const std::vector<Attachment>& present, absl::string_view host, Mode mode,
                          Access access);

// Whether the fabric can do what `sharing` lets hosts do. FAILED_PRECONDITION/NOT_SHAREABLE.
absl::Status CheckShareable(absl::string_view label, Sharing sharing, const PlanContext& context);

// An Attachment of `region`'s extents on `host`, placed and numbered. Errors of PlaceOnHost;
// RESOURCE_EXHAUSTED/HOST_CAP_EXCEEDED. `bridges` gets what it means for the host's bridges.
absl::StatusOr<Attachment> MakeAttachment(const PoolState& state, absl::string_view label,
                                          const Region& region, const std::string& host, Mode mode,
                                          Access access, PlanContext& context,
                                          std::vector<HostPlacement::OnBridge>& bridges);

// Segments for `extents`, which come after `first_extent` others. Errors as in MakeAttachment.
absl::StatusOr<std::vector<Segment>> MakeSegments(const PoolState& state, absl::string_view label,
                                                  const Region& region,
                                                  const std::vector<Extent>& extents,
                                                  size_t first_extent, const std::string& host,
                                                  PlanContext& context,
                                                  std::vector<HostPlacement::OnBridge>& bridges);

// Whether the fabric enforces an Attachment of `access`, where the Region (`demanded`) or its
// tenant demands that. Where several Attachments are in question the weakest is asked for:
// kReadOnly. FAILED_PRECONDITION/ISOLATION_NOT_ENFORCED.
absl::Status CheckIsolation(const PoolState& state, absl::string_view label,
                            absl::string_view tenant, bool demanded, Access access,
                            const PlanContext& context);

// region "kv"
std::string LabelOf(const Region& region);

// FAILED_PRECONDITION/ETAG_MISMATCH unless `etag` is empty or the Region's.
absl::Status CheckEtag(const Region& region, absl::string_view etag);

// OK: ALLOCATED and not being resized. FAILED_PRECONDITION: REGION_NOT_READY, REGION_RELEASING,
// REGION_QUARANTINED, RESIZE_IN_PROGRESS.
absl::Status CheckReady(const Region& region);

// INVALID_ARGUMENT/BAD_MAX_EXTENTS.
absl::Status CheckMaxExtents(uint32_t max_extents);

// NOT_FOUND/UNKNOWN_TENANT.
absl::Status UnknownTenant(const std::string& id);

// OK: each of the tenants is there. Otherwise the first that is not, as UnknownTenant says it.
absl::Status CheckTenantsAreThere(const PoolState& state, const std::vector<std::string>& ids);

// Whether the tenant may hold so much more. NOT_FOUND/UNKNOWN_TENANT; RESOURCE_EXHAUSTED:
// QUOTA_EXCEEDED, RESERVED_FOR_OTHERS.
absl::Status CheckTenant(const PoolState& state, absl::string_view label, const std::string& id,
                         uint64_t more_bytes);

// What extents must be multiples of, beyond the device's granule, so that `host` can use them
// (empty, or `others`: every host that is there now). FAILED_PRECONDITION/GRANULE_MISMATCH.
absl::StatusOr<uint64_t> UnitFor(const PoolState& state, absl::string_view host, Mode mode,
                                 bool others);

// Takes a known device into service, whatever stands behind its name. NOT_FOUND/UNKNOWN_DEVICE;
// FAILED_PRECONDITION/DEVICE_FAILED.
absl::StatusOr<Change> PutInService(const PoolState& state, const std::string& id);

// Whether a device that was removed may come back: its storage is no other device's by now, but for
// those that are `leaving` with the same change. FAILED_PRECONDITION/DEVICE_REPLACED.
absl::Status CheckComesBack(const PoolState& state, const Device& device,
                            const std::set<std::string>& leaving);

// The host's entry in the topology and the links to it, to be erased; empty: it has none.
Change EraseHostEntry(const PoolState& state, const std::string& host);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_MODEL_PLANS_PLAN_PARTS_H_
