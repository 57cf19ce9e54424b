// PlanRelease.

#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "fabric-manager/model/plan_parts.h"
#include "fabric-manager/model/planner.h"

namespace cxlpool::fm {
namespace {

bool GoesDownAlready(const Region& region) {
  return region.compensating || region.state == RegionState::kReleasing ||
         region.state == RegionState::kScrubbing || region.state == RegionState::kFailed;
}

// Hosts whose Attachments stand in the way. One on its way down does not.
std::vector<std::string> Blockers(const Region& region, const ReleaseSpec& spec) {
  std::vector<std::string> hosts;
  if (spec.detach_all && spec.only_host.empty()) return hosts;
  for (const Attachment& attachment : region.attachments) {
    if (!attachment.detaching && attachment.host != spec.only_host) {
      hosts.push_back(attachment.host);
    }
  }
  return hosts;
}

absl::Status CheckMayRelease(const Region& region, const ReleaseSpec& spec) {
  const std::string label = absl::StrCat("region \"", region.id, "\"");
  if (!spec.only_host.empty() &&
      region.FindAttachment(absl::string_view(spec.only_host)) == nullptr) {
    return Refuse(absl::StatusCode::kPermissionDenied, "NOT_ATTACHED_HERE",
                  absl::StrCat(label, " is not attached to host \"", spec.only_host,
                               "\": a host releases only what it uses"),
                  "let an operator release it", {{"region", region.id}, {"host", spec.only_host}});
  }
  if (region.state == RegionState::kQuarantined) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "REGION_QUARANTINED",
                  absl::StrCat(label, " is quarantined: ", region.state_reason),
                  "fence the hosts it was attached to: that proves that they let go",
                  {{"region", region.id}});
  }
  if (!spec.etag.empty() && spec.etag != region.etag()) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "ETAG_MISMATCH",
                  absl::StrCat(label, " has changed since it was read: its etag is ", region.etag(),
                               ", not ", Quoted(spec.etag)),
                  "read it again, and decide again",
                  {{"region", region.id}, {"etag", region.etag()}});
  }
  const std::vector<std::string> hosts = Blockers(region, spec);
  if (hosts.empty()) return absl::OkStatus();
  const std::string names = absl::StrJoin(hosts, ", ");
  return Refuse(absl::StatusCode::kFailedPrecondition, "REGION_ATTACHED",
                absl::StrCat(label, " is attached to ", names),
                spec.only_host.empty()
                    ? "detach it there first, or release it with detach_all (--detach-all)"
                    : "let an operator detach it there, or release it when they have",
                {{"region", region.id}, {"hosts", absl::StrJoin(hosts, ",")}});
}

}  // namespace

absl::StatusOr<Plan> PlanRelease(const PoolState& state, const ReleaseSpec& spec,
                                 PlanContext& context) {
  auto retry = FindRetry(state, spec.request);
  if (!retry.ok()) return retry.status();
  if (retry->has_value()) return **std::move(retry);

  const auto found = GetRegion(state, spec.region_id);
  if (!found.ok()) return found.status();
  const bool may_see = spec.only_host.empty() ||
                       (*found)->FindAttachment(absl::string_view(spec.only_host)) != nullptr;
  if (may_see && GoesDownAlready(**found)) return Plan{*found, {}};
  if (absl::Status status = CheckMayRelease(**found, spec); !status.ok()) return status;
  auto edited = Edit(**found, spec.request, context);
  edited->state = RegionState::kReleasing;
  edited->state_reason.clear();
  for (Attachment& attachment : edited->attachments) {
    if (attachment.detaching) continue;
    attachment.detaching = true;
    attachment.reason = "the Region is released";
  }
  return Plan{edited, {RegionPtr(edited)}};
}

}  // namespace cxlpool::fm
