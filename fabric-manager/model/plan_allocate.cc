// PlanAllocate.

#include <algorithm>
#include <memory>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "fabric-manager/model/bytes.h"
#include "fabric-manager/model/placement.h"
#include "fabric-manager/model/plan_parts.h"
#include "fabric-manager/model/planner.h"
#include "proto/support/names.h"

namespace cxlpool::fm {
namespace {

absl::Status CheckSpec(const AllocateSpec& spec) {
  if (!spec.region_id.empty()) {
    if (absl::Status status = CheckResourceId(spec.region_id); !status.ok()) return status;
  }
  if (absl::Status status = CheckResourceId(spec.tenant); !status.ok()) return status;
  if (spec.size_bytes == 0) {
    return Refuse(absl::StatusCode::kInvalidArgument, "BAD_SIZE",
                  "size_bytes is 0: a Region has at least one byte", "say how much memory you need",
                  {{"field", "size_bytes"}});
  }
  if (spec.max_extents > kMaxExtentsPerRegion) {
    return Refuse(
        absl::StatusCode::kInvalidArgument, "BAD_MAX_EXTENTS",
        absl::StrCat("max_extents is ", spec.max_extents, "; at most ", kMaxExtentsPerRegion),
        absl::StrCat("ask for 1 to ", kMaxExtentsPerRegion, " extents"),
        {{"field", "max_extents"}});
  }
  return absl::OkStatus();
}

// What extents must be multiples of, beyond the device's granule, so that the hosts that will use
// them can: the one that is asked for, or every one that is there now.
absl::StatusOr<uint64_t> UnitFor(const PoolState& state, const AllocateSpec& spec) {
  std::optional<uint64_t> unit = 0;
  const bool others = spec.host.empty() || spec.sharing != Sharing::kExclusive;
  for (const auto& [id, host] : state.hosts()) {
    const HostRuntime& runtime = state.Runtime(id);
    const bool wanted = id == spec.host || (others && runtime.online && !host.retired);
    if (wanted) unit = CommonUnit(*unit, runtime.region_granule_bytes);
    if (unit && id == spec.host && spec.mode == Mode::kSystemRam) {
      unit = CommonUnit(*unit, runtime.memory_block_bytes);
    }
    if (!unit) {
      return Refuse(absl::StatusCode::kFailedPrecondition, "GRANULE_MISMATCH",
                    absl::StrCat("no size is a multiple of what the hosts report; host \"", id,
                                 "\" has regions of ", FormatBytes(runtime.region_granule_bytes)),
                    "see `cxlpool host list`, and mend that host's agent", {{"host", id}});
    }
  }
  return *unit;
}

// A free name made of a new tag. The name is for people: the tag alone is identity.
absl::Status NameRegion(const PoolState& state, PlanContext& context, Region& region) {
  constexpr int kTries = 16;
  for (int i = 0; i < kTries; ++i) {
    region.tag = context.make_tag();
    if (state.FindRegionByTag(region.tag) != nullptr) continue;
    if (!region.id.empty()) return absl::OkStatus();
    const std::string id = absl::StrCat("r-", absl::BytesToHexString(region.tag.substr(0, 6)));
    if (state.FindRegionById(id) != nullptr) continue;
    region.id = id;
    return absl::OkStatus();
  }
  return Refuse(absl::StatusCode::kResourceExhausted, "NAMES_EXHAUSTED",
                "no free name could be made for the region", "give it a name", {});
}

}  // namespace

absl::StatusOr<Plan> PlanAllocate(const PoolState& state, const AllocateSpec& spec,
                                  PlanContext& context) {
  auto retry = FindRetry(state, spec.request);
  if (!retry.ok()) return retry.status();
  if (retry->has_value()) return **std::move(retry);

  if (absl::Status status = CheckSpec(spec); !status.ok()) return status;
  if (!spec.region_id.empty() && state.FindRegionById(spec.region_id) != nullptr) {
    return Refuse(absl::StatusCode::kAlreadyExists, "REGION_EXISTS",
                  absl::StrCat("there is a region ", Quoted(spec.region_id), " already"),
                  "choose another name, or release that one", {{"region", spec.region_id}});
  }
  const std::string label =
      spec.region_id.empty() ? "the region" : absl::StrCat("region \"", spec.region_id, "\"");
  if (!spec.host.empty()) {
    if (absl::Status status = CheckHost(state, spec.host); !status.ok()) return status;
    if (absl::Status status =
            CheckSharing(label, spec.sharing, {}, spec.host, spec.mode, spec.access);
        !status.ok()) {
      return status;
    }
  }
  const auto unit = UnitFor(state, spec);
  if (!unit.ok()) return unit.status();
  auto extents = PlaceExtents(
      state, {label, spec.size_bytes, *unit, spec.device, std::max(spec.max_extents, 1u)});
  if (!extents.ok()) return extents.status();

  auto region = std::make_shared<Region>();
  region->id = spec.region_id;
  if (absl::Status status = NameRegion(state, context, *region); !status.ok()) return status;
  region->key = context.next_id();
  region->generation = context.next_id();
  region->tenant = spec.tenant;
  region->requested_bytes = spec.size_bytes;
  region->sharing = spec.sharing;
  region->state = RegionState::kAllocated;
  region->extents = *std::move(extents);
  region->create_time = context.now;
  region->revision = context.revision;
  Remember(*region, spec.request);
  if (!spec.host.empty()) {
    auto attachment =
        MakeAttachment(state, label, region->extents, spec.host, spec.mode, spec.access, context);
    if (!attachment.ok()) return attachment.status();
    region->state = RegionState::kReserved;
    region->attachments.push_back(*std::move(attachment));
  }
  return Plan{region, {RegionPtr(region)}};
}

}  // namespace cxlpool::fm
