// PlanRelease and PlanExpiry.

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "fabric-manager/model/plans/plan_media.h"
#include "fabric-manager/model/plans/plan_parts.h"
#include "fabric-manager/model/plans/planner.h"
#include "fabric-manager/model/space/bytes.h"
#include "proto/support/mutant.h"
#include "proto/support/text.h"

namespace cxlpool::fm {
namespace {

bool GoesDownAlready(const Region& region) {
  return region.compensating || region.state == RegionState::kReleasing ||
         region.state == RegionState::kScrubbing || region.state == RegionState::kFailed;
}

// Whether the Region is what an agent said of it when it let a local user release it. The agent
// judges first; here an agent that judged another Region of the same name does no harm.
bool IsAsFound(const Region& region, const ReleaseSpec& spec) {
  if (CXLPOOL_MUTANT("release-believes-the-agent")) return true;
  if (!spec.tenant.empty() && region.tenant.str() != spec.tenant) return false;
  if (!spec.maker_uid.has_value()) return true;
  return region.maker.has_value() && region.maker->uid == *spec.maker_uid &&
         (!spec.caller.is_host() || region.maker->host.str() == spec.caller.host());
}

// Hosts whose Attachments stand in the way. One that is being detached does not.
std::vector<std::string> Blockers(const Region& region, const ReleaseSpec& spec) {
  std::vector<std::string> hosts;
  const bool may_detach = CXLPOOL_MUTANT("host-detaches-others") || !spec.caller.is_host();
  if ((spec.detach_all || spec.force) && may_detach) return hosts;
  for (const Attachment& attachment : region.attachments) {
    if (!attachment.settled().detaching && attachment.host != spec.caller.host()) {
      hosts.push_back(attachment.host);
    }
  }
  return hosts;
}

// Whether the Region's state, the etag and its Attachments let this caller release it.
absl::Status CheckMayRelease(const Region& region, const ReleaseSpec& spec) {
  const std::string label = LabelOf(region);
  const bool forced = CXLPOOL_MUTANT("release-quarantined") || spec.force;
  if (region.state == RegionState::kQuarantined && !forced) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "REGION_QUARANTINED",
                  absl::StrCat(label, " is quarantined: ", region.state_reason),
                  "release it with force and a reason (--force --reason), if you know that nobody "
                  "uses its bytes",
                  {{"region", region.id}});
  }
  if (absl::Status status = CheckEtag(region, spec.etag); !status.ok()) return status;
  const std::vector<std::string> hosts = Blockers(region, spec);
  if (CXLPOOL_MUTANT("dry-run-promises-too-much") && spec.validate_only) return absl::OkStatus();
  if (CXLPOOL_MUTANT("release-under-others") || hosts.empty()) return absl::OkStatus();
  const std::string names = absl::StrJoin(hosts, ", ");
  return Refuse(absl::StatusCode::kFailedPrecondition, "REGION_ATTACHED",
                absl::StrCat(label, " is attached to ", names),
                !spec.caller.is_host()
                    ? "detach it there first, or release it with detach_all (--detach-all)"
                    : "let an operator detach it there, or release it when they have",
                {{"region", region.id}, {"hosts", absl::StrJoin(hosts, ",")}});
}

// The hosts that the operator's word may not stand for: it may be bound there, and the host's agent
// is alive or the fabric reaches it, so that proof can be had. One that is fenced needs none.
// `all`: also those that nothing is heard of, for whom force without a fence takes the word.
std::vector<std::string> HostsToFence(const PoolState& state, const Region& region, bool all) {
  std::vector<std::string> hosts;
  for (const Attachment& attachment : region.attachments) {
    if (attachment.settled().state == AttachmentState::kUnbound)
      continue;  // Fenced, or proven otherwise.
    const HostRuntime& runtime = state.Runtime(attachment.host);
    if (all || runtime.online || runtime.fabric_reachable) hosts.push_back(attachment.host);
  }
  return hosts;
}

// Whether an operator's word may stand for the proof.
absl::Status CheckWord(const PoolState& state, const Region& region, const ReleaseSpec& spec) {
  const std::vector<std::string> hosts = HostsToFence(state, region, spec.fence);
  if (hosts.empty() || CXLPOOL_MUTANT("word-without-fence")) return absl::OkStatus();
  return Refuse(absl::StatusCode::kFailedPrecondition, "FENCE_REQUIRED",
                absl::StrCat(LabelOf(region), " is attached to ", absl::StrJoin(hosts, ", "),
                             ", and the pool is in touch with what may still use it"),
                absl::StrCat("detach it there (without force), or cut the host off: `cxlpool host "
                             "fence ",
                             hosts[0], " --reason TEXT`, or --force --fence --reason TEXT"),
                {{"region", region.id}, {"hosts", absl::StrJoin(hosts, ",")}});
}

constexpr size_t kMaxReason = 512;

// `request_id`: of who asked for it; empty: nobody.
void StartRelease(Region& region, const std::string& why, const Uuid& request_id, absl::Time now) {
  region.state = RegionState::kReleasing;
  region.state_since = now;
  region.state_reason.clear();
  // Whatever was joining or leaving goes down with the rest.
  region.tail_extents = 0;
  region.tail_leaving = false;
  for (Attachment& attachment : region.attachments) {
    if (attachment.settled().detaching) continue;
    attachment.TurnDown(why, request_id);
  }
}

}  // namespace

// The release begins here, and no byte is free by it: proof and scrub come after. With force the
// operator vouches for what the pool cannot prove, and only where nobody could prove it: see
// CheckWord. Bad extents are given free by force only.
absl::StatusOr<Plan> PlanRelease(const PoolState& state, const ReleaseSpec& spec,
                                 PlanContext& context) {
  auto retry = BeginPlan(state, spec.caller, Right::kUseMemory, spec.request);
  if (!retry.ok()) return retry.status();
  if (retry->has_value()) return **std::move(retry);

  if (spec.fence && !spec.force) {
    return Refuse(absl::StatusCode::kInvalidArgument, "BAD_FENCE",
                  "only a release with force fences hosts",
                  "set force and a reason (--force --fence --reason), or leave fence out",
                  {{"field", "fence"}});
  }
  if (spec.force && spec.reason.empty()) {
    return Refuse(absl::StatusCode::kInvalidArgument, "REASON_REQUIRED",
                  "a forced release rests on your word: say why it is safe",
                  "give a reason (--reason); it is kept in the audit record",
                  {{"field", "reason"}});
  }
  if (spec.force && !spec.caller.Has(Right::kAdminister)) {
    return Refuse(absl::StatusCode::kPermissionDenied, "ROLE_NOT_ALLOWED",
                  absl::StrCat(spec.request.id.principal.str(), " may not release with force"),
                  "let an admin do it", {{"identity", spec.request.id.principal.str()}});
  }
  const auto found = CXLPOOL_MUTANT("host-releases-anybodys")
                         ? GetRegion(state, Caller::Local({}), spec.region_id)
                         : GetRegion(state, spec.caller, spec.region_id);
  if (!found.ok()) return found.status();
  if (!IsAsFound(**found, spec)) return UnknownRegion(spec.caller, spec.region_id);
  const bool operator_vouched =
      std::all_of((*found)->attachments.begin(), (*found)->attachments.end(),
                  [](const Attachment& a) { return a.operator_vouched; });
  if (GoesDownAlready(**found) && (!spec.force || operator_vouched)) {
    absl::Status status = CheckEtag(**found, spec.etag);
    if (!status.ok() && !CXLPOOL_MUTANT("no-op-takes-any-etag")) return status;
    return Unchanged(*found, spec.request, context);
  }
  if (absl::Status status = CheckMayRelease(**found, spec); !status.ok()) return status;
  if (spec.force) {
    if (absl::Status status = CheckWord(state, **found, spec); !status.ok()) return status;
  }
  auto edited = Edit(**found, spec.request, context);
  // The operator's word is of the bytes themselves: they may be used again.
  if (spec.force && KeepsBadAlone(**found)) edited->bad.clear();
  if (!GoesDownAlready(**found)) {
    StartRelease(*edited, "the Region is released", spec.request.id.id, context.now);
  }
  if (spec.force) {
    edited->forced = true;
    edited->state_reason = absl::StrCat("FORCED: ", CutText(spec.reason, kMaxReason));
    for (Attachment& attachment : edited->attachments) attachment.operator_vouched = true;
  }
  return Plan{edited, {RegionPtr(edited)}};
}

// An expiry proves nothing: it begins as a release that detaches everywhere does.
Change PlanExpiry(const PoolState& state, Key region, absl::Time expire_time,
                  PlanContext& context) {
  const RegionPtr* found = state.FindRegion(region);
  const bool renewed = found != nullptr && (*found)->expire_time != expire_time;
  if (found == nullptr || (renewed && !CXLPOOL_MUTANT("renewed-lease-expires")) ||
      GoesDownAlready(**found) || (*found)->state == RegionState::kQuarantined) {
    return {};
  }
  auto edited = Edit(**found, Request{}, context);
  StartRelease(*edited, "LEASE_EXPIRED: nobody renewed it", Uuid(), context.now);
  if (CXLPOOL_MUTANT("expiry-is-proof")) edited->attachments.clear();
  edited->state_reason = "LEASE_EXPIRED: nobody renewed it in time";
  return {RegionPtr(edited)};
}

// Extents on a failed device and extents that lost bytes are not scrubbed, and it says so of each.
std::string EndOfBytes(const PoolState& state, const Region& region) {
  uint64_t freed_bytes = 0;
  std::vector<std::string> kept;
  for (uint32_t i = 0; i < region.extents.size(); ++i) {
    const Extent& extent = region.extents[i];
    const Device* device = state.FindDevice(extent.device);
    const bool failed = device == nullptr || device->service == DeviceService::kFailed;
    if (failed && !CXLPOOL_MUTANT("say-all-is-scrubbed")) {
      kept.push_back(absl::StrCat(FormatBytes(extent.length_bytes), " stay on failed device ",
                                  extent.device.str(), ", NOT scrubbed"));
    } else if (region.FindBad(i) != nullptr) {
      kept.push_back(absl::StrCat(FormatBytes(extent.length_bytes), " of ", extent.device.str(),
                                  " have lost bytes and are kept from everybody, NOT scrubbed"));
    } else {
      freed_bytes += extent.length_bytes;
    }
  }
  if (freed_bytes > 0 || kept.empty()) {
    kept.insert(kept.begin(), absl::StrCat(FormatBytes(freed_bytes), " scrubbed and free"));
  }
  return absl::StrJoin(kept, "; ");
}

}  // namespace cxlpool::fm
