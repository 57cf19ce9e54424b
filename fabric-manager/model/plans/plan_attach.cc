// PlanAttach and PlanDetach.

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "fabric-manager/model/placement/placement.h"
#include "fabric-manager/model/plans/plan_parts.h"
#include "fabric-manager/model/plans/planner.h"
#include "fabric-manager/model/space/bytes.h"
#include "proto/support/mutant.h"
#include "proto/support/text.h"

namespace cxlpool::fm {
namespace {

// What is attached there already: OK if it is what is asked for.
absl::Status CheckSame(const Region& region, const Attachment& present, const AttachSpec& spec) {
  if (present.settled().detaching) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "DETACH_IN_PROGRESS",
                  absl::StrCat(LabelOf(region), " is being detached from host \"", present.host,
                               "\" (", ToString(present.settled().state), ")"),
                  "retry when it is gone from there",
                  {{"region", region.id}, {"host", present.host}});
  }
  if (present.mode == spec.mode && present.zone == spec.zone && present.access == spec.access) {
    return absl::OkStatus();
  }
  return Refuse(absl::StatusCode::kFailedPrecondition, "SHARING_CONFLICT",
                absl::StrCat(LabelOf(region), " is attached to host \"", present.host, "\" as ",
                             ToString(present.mode), " ", ToString(present.access), " already"),
                "detach it there first", {{"region", region.id}, {"holders", present.host}});
}

// Whether the Region's extents, cut when it was allocated, suit this host.
absl::Status CheckExtents(const PoolState& state, const Region& region, const AttachSpec& spec) {
  const HostRuntime& runtime = state.Runtime(spec.host);
  const uint64_t block = spec.mode == Mode::kSystemRam ? runtime.memory_block_bytes : 0;
  for (const Extent& extent : region.extents) {
    const Device* device = state.FindDevice(extent.device);
    if (device == nullptr || !device->reachable) {
      return Refuse(absl::StatusCode::kFailedPrecondition, "DEVICE_UNREACHABLE",
                    absl::StrCat(LabelOf(region), " has bytes on device \"", extent.device.str(),
                                 "\", which the fabric does not see now"),
                    "fix the fabric and retry", {{"device", extent.device.str()}});
    }
    for (const uint64_t unit : {runtime.region_granule_bytes, block}) {
      if (unit == 0 || extent.length_bytes % unit == 0) continue;
      return Refuse(
          absl::StatusCode::kFailedPrecondition, "GRANULE_MISMATCH",
          absl::StrCat(LabelOf(region), " has an extent of ", FormatBytes(extent.length_bytes),
                       "; host \"", spec.host, "\" takes multiples of ", FormatBytes(unit)),
          "allocate a Region for this host (with --host), and use that",
          {{"region", region.id}, {"host", spec.host}, {"unit_bytes", absl::StrCat(unit)}});
    }
  }
  return absl::OkStatus();
}

}  // namespace

// Adds an Attachment, WANTED: its slots are taken with this change, so that nothing placed after it
// gets them. An equal one that is there already is the answer, and nothing changes.
absl::StatusOr<Plan> PlanAttach(const PoolState& state, const AttachSpec& spec,
                                PlanContext& context) {
  auto retry = BeginPlan(state, spec.caller, Right::kMoveMemory, spec.request);
  if (!retry.ok()) return retry.status();
  if (retry->has_value()) return **std::move(retry);

  const auto found = GetRegion(state, spec.caller, spec.region_id);
  if (!found.ok()) return found.status();
  const Region& region = **found;
  if (absl::Status status = CheckEtag(region, spec.etag); !status.ok()) return status;
  const bool going_down = region.compensating || (region.state != RegionState::kAllocated &&
                                                  region.state != RegionState::kReserved);
  if (absl::Status status = CheckHostOf(state, spec.caller, spec.host, region.tenant.str());
      !status.ok()) {
    return status;
  }
  if (const Attachment* present = region.FindAttachment(absl::string_view(spec.host));
      present != nullptr && !going_down) {
    if (absl::Status status = CheckSame(region, *present, spec); !status.ok()) return status;
    return Unchanged(*found, spec.request, context);
  }
  if (absl::Status status = CheckReady(region); !status.ok()) return status;
  if (absl::Status status = CheckHost(state, spec.host); !status.ok()) return status;
  if (absl::Status status = CheckSharing(LabelOf(region), region.sharing, region.attachments,
                                         spec.host, spec.mode, spec.access);
      !status.ok()) {
    return status;
  }
  // One that another fabric allocated may still go to one host.
  if (!region.attachments.empty()) {
    absl::Status status = CheckShareable(LabelOf(region), region.sharing, context);
    if (!status.ok()) return status;
  }
  if (region.attachments.size() >= kMaxAttachmentsPerRegion) {
    return Refuse(absl::StatusCode::kResourceExhausted, "TOO_MANY_ATTACHMENTS",
                  absl::StrCat(LabelOf(region), " is attached to ", region.attachments.size(),
                               " hosts, as many as a Region may be"),
                  "detach it from one first", {{"region", region.id}});
  }
  if (absl::Status status = CheckExtents(state, region, spec); !status.ok()) return status;
  Plan plan;
  auto attachment = MakeAttachment(state, LabelOf(region), region, spec.host, spec.mode,
                                   spec.access, context, plan.bridges);
  if (!attachment.ok()) return attachment.status();
  if (!CXLPOOL_MUTANT("attach-zone-is-lost")) attachment->zone = spec.zone;
  attachment->request_id = spec.request.id.id;
  auto edited = Edit(region, spec.request, context);
  const auto at = std::find_if(edited->attachments.begin(), edited->attachments.end(),
                               [&](const Attachment& a) { return spec.host < a.host; });
  edited->attachments.insert(at, *std::move(attachment));
  plan.region = edited;
  plan.change = {RegionPtr(edited)};
  return plan;
}

// Turns the Attachment round. Its slots and bytes stay taken until it is proven unbound.
absl::StatusOr<Plan> PlanDetach(const PoolState& state, const DetachSpec& spec,
                                PlanContext& context) {
  auto retry = BeginPlan(state, spec.caller, Right::kMoveMemory, spec.request);
  if (!retry.ok()) return retry.status();
  if (retry->has_value()) return **std::move(retry);

  const auto found = GetRegion(state, spec.caller, spec.region_id);
  if (!found.ok()) return found.status();
  if (absl::Status status = CheckEtag(**found, spec.etag);
      !status.ok() && !CXLPOOL_MUTANT("detach-ignores-etag")) {
    return status;
  }
  const Attachment* present = (*found)->FindAttachment(absl::string_view(spec.host));
  if (present == nullptr) {
    absl::Status status = CheckHostOf(state, spec.caller, spec.host, (*found)->tenant.str());
    if (!status.ok()) return status;
  }
  // A name that nobody has is more likely misspelt than detached.
  if (present == nullptr && state.FindHost(spec.host) == nullptr &&
      !CXLPOOL_MUTANT("detach-from-nobody")) {
    return Refuse(absl::StatusCode::kNotFound, "UNKNOWN_HOST",
                  absl::StrCat("host ", Quoted(spec.host), " is not enrolled, and ",
                               LabelOf(**found), " is not attached there"),
                  "see `cxlpool host list`", {{"host", CutText(spec.host, 80)}});
  }
  if (present == nullptr || present->settled().detaching)
    return Unchanged(*found, spec.request, context);
  auto edited = Edit(**found, spec.request, context);
  Attachment& attachment = *edited->FindAttachment(absl::string_view(spec.host));
  attachment.TurnDown("detached by request", spec.request.id.id);
  // Where its owner's host has it no more, or no host at all, no agent watches the owner: it stays,
  // also where its own host detached it.
  const bool from_its_own = edited->maker.has_value() && edited->maker->host.str() == spec.host &&
                            !CXLPOOL_MUTANT("owner-that-nobody-watches");
  if (from_its_own || std::all_of(edited->attachments.begin(), edited->attachments.end(),
                                  [](const Attachment& a) { return a.settled().detaching; })) {
    edited->owner.reset();
  }
  return Plan{edited, {RegionPtr(edited)}};
}

}  // namespace cxlpool::fm
