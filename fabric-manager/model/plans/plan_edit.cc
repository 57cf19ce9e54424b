// PlanRename and PlanRenew: what changes a Region and moves no byte.

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "fabric-manager/model/plans/plan_parts.h"
#include "fabric-manager/model/plans/planner.h"
#include "proto/support/mutant.h"
#include "proto/support/names.h"

namespace cxlpool::fm {
namespace {

bool GoesDown(const Region& region) {
  return region.compensating || region.state == RegionState::kReleasing ||
         region.state == RegionState::kScrubbing || region.state == RegionState::kFailed;
}

absl::Status Releasing(const Region& region) {
  return Refuse(absl::StatusCode::kFailedPrecondition, "REGION_RELEASING",
                absl::StrCat(LabelOf(region), " is being released (", ToString(region.state), ")"),
                "allocate another Region", {{"region", region.id}});
}

}  // namespace

// The tag is the Region's identity and stays. The generation is new: agents and watchers see by it
// that the name they knew is not the Region's any more.
absl::StatusOr<Plan> PlanRename(const PoolState& state, const RenameSpec& spec,
                                PlanContext& context) {
  auto retry = BeginPlan(state, spec.caller, Right::kMoveMemory, spec.request);
  if (!retry.ok()) return retry.status();
  if (retry->has_value()) return **std::move(retry);

  if (absl::Status status = CheckRegionId(spec.new_region_id); !status.ok()) return status;
  const auto found = GetRegion(state, spec.caller, spec.region_id);
  if (!found.ok()) return found.status();
  const Region& region = **found;
  if (absl::Status status = CheckEtag(region, spec.etag); !status.ok()) return status;
  if (region.id == spec.new_region_id) return Unchanged(*found, spec.request, context);
  if (absl::Status status = CheckNameSpace(spec.caller, spec.new_region_id, region.tenant.str());
      !status.ok()) {
    return status;
  }
  if (GoesDown(region)) return Releasing(region);
  if (state.FindRegionById(spec.new_region_id) != nullptr) {
    return Refuse(absl::StatusCode::kAlreadyExists, "REGION_EXISTS",
                  absl::StrCat("there is a region ", Quoted(spec.new_region_id), " already"),
                  "choose another name, or release that one", {{"region", spec.new_region_id}});
  }
  auto edited = Edit(region, spec.request, context);
  edited->id = spec.new_region_id;
  edited->generation = context.next_id();
  return Plan{edited, {RegionPtr(edited)}};
}

// The term begins again now. Only who allocated the Region, or an operator, may prolong it.
absl::StatusOr<Plan> PlanRenew(const PoolState& state, const RenewSpec& spec,
                               PlanContext& context) {
  auto retry = BeginPlan(state, spec.caller, Right::kUseMemory, spec.request);
  if (!retry.ok()) return retry.status();
  if (retry->has_value()) return **std::move(retry);

  if (spec.ttl.has_value() && (*spec.ttl < kMinTtl || *spec.ttl > kMaxTtl)) {
    return Refuse(absl::StatusCode::kInvalidArgument, "BAD_TTL",
                  absl::StrCat("ttl is ", absl::FormatDuration(*spec.ttl)), "give 10 s to 10 years",
                  {{"field", "ttl"}});
  }
  const auto found = GetRegion(state, spec.caller, spec.region_id);
  if (!found.ok()) return found.status();
  const Region& region = **found;
  const bool owner =
      !region.requests.empty() && region.requests.front().id.principal == spec.request.id.principal;
  if (!owner && spec.caller.is_host() && !CXLPOOL_MUTANT("anybody-renews")) {
    return Refuse(absl::StatusCode::kPermissionDenied, "NOT_OWNER",
                  absl::StrCat(LabelOf(region), " was allocated by somebody else"),
                  "let them renew it, or an operator", {{"region", region.id}});
  }
  if (absl::Status status = CheckEtag(region, spec.etag); !status.ok()) return status;
  if (GoesDown(region)) return Releasing(region);
  const absl::Duration ttl = spec.ttl.value_or(region.ttl);
  if (ttl == absl::InfiniteDuration()) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "NO_LEASE",
                  absl::StrCat(LabelOf(region), " has no lease: it stays until it is released"),
                  "give a ttl to put it under one", {{"region", region.id}});
  }
  auto edited = Edit(region, spec.request, context);
  // Renewals come for ever; the last one is all that a retry can be of.
  if (edited->requests.size() > 2) {
    edited->requests.erase(
        std::remove_if(edited->requests.begin() + 1, edited->requests.end() - 1,
                       [&](const Request& r) { return r.id.method == spec.request.id.method; }),
        edited->requests.end() - 1);
  }
  edited->ttl = ttl;
  edited->expire_time = context.now + ttl;
  return Plan{edited, {RegionPtr(edited)}};
}

}  // namespace cxlpool::fm
