// PlanResize: growth by whole new extents at the end, shrinking by whole last ones.

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "fabric-manager/model/plans/plan_media.h"
#include "fabric-manager/model/plans/plan_parts.h"
#include "fabric-manager/model/plans/planner.h"
#include "fabric-manager/model/space/bytes.h"
#include "proto/support/mutant.h"

namespace cxlpool::fm {
namespace {

// Every Attachment stands: a resize is one more way, and one at a time is enough.
absl::Status CheckSettled(const Region& region) {
  for (const Attachment& attachment : region.attachments) {
    if (attachment.settled().is_up()) continue;
    return Refuse(absl::StatusCode::kFailedPrecondition, "NOT_RESIZABLE",
                  absl::StrCat(LabelOf(region), " is ", ToString(attachment.settled().state),
                               " on host \"", attachment.host, "\", not ONLINE"),
                  "retry when it is ONLINE or gone there",
                  {{"region", region.id}, {"host", attachment.host}});
  }
  return absl::OkStatus();
}

// The unit that suits every host that uses the Region.
absl::StatusOr<uint64_t> UnitForAll(const PoolState& state, const Region& region) {
  const bool others = region.attachments.empty() || region.sharing != Sharing::kExclusive;
  if (region.attachments.empty()) return UnitFor(state, "", Mode::kDevdax, others);
  return UnitFor(state, region.attachments.front().host, region.attachments.front().mode, others);
}

// New extents become a tail that every host brings online; the Region's size is the greater one
// from here on, and a tail that fails takes it back (RecordTailMove). The tenant is asked twice:
// for what was wished, and for what whole units make of it.
absl::StatusOr<Plan> Grow(const PoolState& state, const Region& region, const ResizeSpec& spec,
                          PlanContext& context) {
  const std::string label = LabelOf(region);
  const uint64_t more = spec.size_bytes - region.size_bytes();
  if (absl::Status status = CheckTenant(state, label, region.tenant, more); !status.ok()) {
    return status;
  }
  // What is attached already stays; more is another matter.
  const bool some_read =
      std::any_of(region.attachments.begin(), region.attachments.end(),
                  [](const Attachment& a) { return a.access == Access::kReadOnly; });
  if (absl::Status status =
          CheckIsolation(state, label, region.tenant.str(), region.fabric_isolation,
                         some_read ? Access::kReadOnly : Access::kReadWrite, context);
      !status.ok()) {
    return status;
  }
  const auto unit = UnitForAll(state, region);
  if (!unit.ok()) return unit.status();
  ExtentRequest request{.label = label,
                        .size_bytes = more,
                        .unit_bytes = *unit,
                        .device = {},
                        .max_extents = std::max(spec.max_extents, 1u),
                        .policy = region.policy};
  request.grown = &region;
  request.interleave_ways = region.interleave_ways > 1 ? region.interleave_ways : 0;
  request.interleave_granularity_bytes = region.interleave_granularity_bytes;
  // One way stays one way, whatever the policy would make of a new Region.
  if (region.interleave_ways == 1 && region.policy == Policy::kBandwidth) {
    request.policy = Policy::kPack;
  }
  if (!region.attachments.empty() && !CXLPOOL_MUTANT("growth-forgets-the-host")) {
    request.host = region.attachments.front().host;
  }
  auto placed = PlaceExtents(state, request);
  if (!placed.ok()) return placed.status();
  if (region.extents.size() + placed->extents.size() > kMaxExtentsPerRegion) {
    return Refuse(absl::StatusCode::kResourceExhausted, "TOO_MANY_EXTENTS",
                  absl::StrCat(label, " has ", region.extents.size(), " extents and would get ",
                               placed->extents.size(), " more; at most ", kMaxExtentsPerRegion),
                  "grow it in fewer, larger steps, or allocate another Region",
                  {{"region", region.id}, {"extents", absl::StrCat(region.extents.size())}});
  }
  Plan plan;
  auto edited = Edit(region, spec.request, context);
  uint64_t held = 0;
  for (const Extent& extent : placed->extents) held += extent.length_bytes;
  if (absl::Status status = CheckTenant(state, label, region.tenant, held); !status.ok()) {
    return status;
  }
  edited->requested_bytes = spec.size_bytes;
  edited->state_reason = MediaReasonOf(*edited);
  edited->extents.insert(edited->extents.end(), placed->extents.begin(), placed->extents.end());
  for (Attachment& attachment : edited->attachments) {
    auto segments = MakeSegments(state, label, region, placed->extents, region.extents.size(),
                                 attachment.host, context, plan.bridges);
    if (!segments.ok()) return segments.status();
    attachment.parts.push_back(
        {.first_segment = static_cast<uint32_t>(attachment.segments.size())});
    attachment.request_id = spec.request.id.id;
    for (Segment& segment : *segments) attachment.segments.push_back(std::move(segment));
  }
  // Nobody has to bring it online: it is there.
  if (!edited->attachments.empty()) {
    edited->tail_extents = static_cast<uint32_t>(placed->extents.size());
  }
  plan.region = edited;
  plan.change = {RegionPtr(edited)};
  return plan;
}

// How many extents stay: whole stripe sets from the front that hold `bytes`.
size_t KeepFor(const Region& region, uint64_t bytes) {
  uint64_t sum = 0;
  size_t keep = 0;
  while (keep < region.extents.size() && sum < bytes) {
    for (uint32_t i = 0; i < region.interleave_ways; ++i)
      sum += region.extents[keep++].length_bytes;
  }
  return keep;
}

// Says to which sizes it can shrink: the ends of its extents, or of its stripe sets. A size that it
// was made, grown or shrunk to before, and that takes more in whole units, is no mistake: whoever
// asks again is told that it is done.
absl::Status InsideExtent(const Region& region, uint64_t bytes) {
  std::vector<std::string> sizes;
  std::vector<std::string> shown;
  uint64_t sum = 0;
  for (size_t i = 0; i + region.interleave_ways < region.extents.size(); ++i) {
    sum += region.extents[i].length_bytes;
    if ((i + 1) % region.interleave_ways != 0) continue;
    sizes.push_back(absl::StrCat(sum));
    shown.push_back(FormatBytes(sum));
  }
  std::string remedy = "it has one extent: allocate a smaller Region, and release this one";
  if (bytes == region.requested_bytes) {
    remedy = absl::StrCat("nothing: it was asked for ", FormatBytes(bytes),
                          " before, which whole extents hold");
  } else if (!sizes.empty()) {
    remedy = absl::StrCat("shrink it to ", absl::StrJoin(shown, " or "));
  }
  return Refuse(absl::StatusCode::kFailedPrecondition, "RESIZE_INSIDE_EXTENT",
                absl::StrCat(LabelOf(region), " cannot shrink to ", FormatBytes(bytes),
                             ": its last extent is needed"),
                remedy, {{"region", region.id}, {"sizes", absl::StrJoin(sizes, ",")}});
}

// Whole last extents become a tail that leaves; no byte of it is anybody else's before every host
// has let go. Not while an application has it open: its map would lose its end.
absl::StatusOr<Plan> Shrink(const Region& region, const ResizeSpec& spec, const InUseFn& in_use,
                            PlanContext& context) {
  const size_t keep = KeepFor(region, spec.size_bytes);
  if (keep == region.extents.size()) return InsideExtent(region, spec.size_bytes);
  const std::vector<std::string> users = in_use ? in_use(region, keep) : std::vector<std::string>();
  if (!CXLPOOL_MUTANT("shrink-under-users") && !users.empty()) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "REGION_IN_USE",
                  absl::StrCat(LabelOf(region), " is open on ", absl::StrJoin(users, ", "),
                               " where it would shrink"),
                  "let the applications there close it, and retry",
                  {{"region", region.id}, {"hosts", absl::StrJoin(users, ",")}});
  }
  auto edited = Edit(region, spec.request, context);
  edited->requested_bytes = spec.size_bytes;
  edited->state_reason = MediaReasonOf(*edited);
  edited->tail_extents = static_cast<uint32_t>(region.extents.size() - keep);
  edited->tail_leaving = true;
  for (Attachment& attachment : edited->attachments) {
    const auto first = std::find_if(attachment.segments.begin(), attachment.segments.end(),
                                    [&](const Segment& s) { return s.extent_index >= keep; });
    attachment.parts.push_back(
        {.first_segment = static_cast<uint32_t>(first - attachment.segments.begin()),
         .state = AttachmentState::kOnline,
         .detaching = true,
         .reason = "the Region is shrunk"});
    attachment.request_id = spec.request.id.id;
  }
  return Plan{edited, {RegionPtr(edited)}};
}

}  // namespace

absl::StatusOr<Plan> PlanResize(const PoolState& state, const ResizeSpec& spec,
                                const InUseFn& in_use, PlanContext& context) {
  auto retry = BeginPlan(state, spec.caller, Right::kMoveMemory, spec.request);
  if (!retry.ok()) return retry.status();
  if (retry->has_value()) return **std::move(retry);

  if (spec.size_bytes == 0) {
    return Refuse(absl::StatusCode::kInvalidArgument, "BAD_SIZE",
                  "size_bytes is 0: a Region has at least one byte", "release it instead",
                  {{"field", "size_bytes"}});
  }
  if (absl::Status status = CheckMaxExtents(spec.max_extents); !status.ok()) return status;
  const auto found = GetRegion(state, spec.caller, spec.region_id);
  if (!found.ok()) return found.status();
  const Region& region = **found;
  if (absl::Status status = CheckEtag(region, spec.etag); !status.ok()) return status;
  if (absl::Status status = CheckReady(region); !status.ok()) return status;
  // Before CheckSettled: what changes nothing needs nobody ONLINE.
  if (spec.size_bytes == region.size_bytes()) return Unchanged(*found, spec.request, context);
  if (absl::Status status = CheckSettled(region); !status.ok()) return status;
  if (spec.size_bytes > region.size_bytes()) return Grow(state, region, spec, context);
  return Shrink(region, spec, in_use, context);
}

}  // namespace cxlpool::fm
