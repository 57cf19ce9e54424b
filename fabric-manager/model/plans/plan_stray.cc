// PlanStray.

#include <algorithm>
#include <memory>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "fabric-manager/model/plans/planner.h"
#include "proto/support/cxl_host.h"
#include "proto/support/mutant.h"

namespace cxlpool::fm {
namespace {

// The parts of `extent` that nobody holds.
std::vector<Extent> FreeParts(const PoolState& state, const Extent& extent) {
  std::vector<Extent> parts;
  const auto index = state.IndexOf(extent.device);
  if (!index.has_value()) return parts;
  for (const FreeSpace::Run& run :
       state.space().FreeIn(*index, extent.dpa_bytes, extent.length_bytes)) {
    parts.push_back({extent.device, run.dpa_bytes, run.length_bytes});
  }
  return parts;
}

// Without a name, a tag and bytes.
std::shared_ptr<Region> NewRegion(Key key, const PlanContext& context) {
  auto region = std::make_shared<Region>();
  region->key = key;
  region->generation = key;
  region->tenant = kDefaultTenant;
  region->create_time = context.now;
  region->revision = context.revision;
  return region;
}

std::shared_ptr<Region> NewRegion(const StrayLd& ld, PlanContext& context) {
  auto region = NewRegion(context.next_id(), context);
  region->id = absl::StrCat("stray-", ld.generation, "-", region->key);
  return region;
}

// Whether these LDs can be held as one Attachment as they are: their host is known and not retired
// (then it has no Attachment, and may come back in another life), nobody holds any of their bytes,
// slots or serials, and their key, if they bear one, is no Region's.
bool WholeAndFree(const PoolState& state, const std::vector<StrayLd>& lds) {
  const StrayLd& first = lds.front();
  const Host* host = state.FindHost(first.host);
  if (lds.size() > kMaxExtentsPerRegion || host == nullptr) return false;
  if (host->retired && !CXLPOOL_MUTANT("stray-of-retired-host-is-attached")) return false;
  const bool named = first.generation != 0;
  if (named && (first.tag.empty() || state.FindRegionByTag(first.tag) != nullptr ||
                state.KnowsGeneration(first.generation))) {
    return false;
  }
  std::set<uint64_t> serials;
  std::set<uint32_t> slots;
  for (const OccupiedSlot& slot : state.Occupied(first.host)) slots.insert(slot.slot);
  for (const StrayLd& ld : lds) {
    if (ld.serial == 0 || !serials.insert(ld.serial).second || !slots.insert(ld.slot).second) {
      return false;
    }
  }
  return std::all_of(lds.begin(), lds.end(), [&](const StrayLd& ld) {
    const std::vector<Extent> parts = FreeParts(state, ld.extent);
    return parts.size() == 1 && parts.front() == ld.extent &&
           state.FindRegionBySerial(ld.serial) == nullptr;
  });
}

// The driver of shared devices shows a DAX device that the pool did not make in a slot that no host
// has, and without a serial: only its host can take it away.
bool IsMadeByHand(const StrayLd& ld) { return ld.serial == 0 && ld.slot > kSharedSlots; }

// What is there, and how it ends, for people.
std::string TextOf(const StrayLd& ld) {
  if (!IsMadeByHand(ld)) {
    return absl::StrCat("host \"", ld.host, "\" has it bound at slot ", ld.slot,
                        ", which no record intends: `cxlpool host fence ", ld.host,
                        " --reason WHY`");
  }
  return absl::StrCat(
      "host \"", ld.host, "\" has a DAX device that the pool did not make on bytes ",
      ld.extent.dpa_bytes, " to ", ld.extent.dpa_bytes + ld.extent.length_bytes, " of device ",
      ld.extent.device.str(),
      ", counted from behind its mark: save what is needed, find it on that host "
      "(`daxctl list`), and remove it there (`daxctl destroy-device daxN.M --force`)");
}

}  // namespace

// Holds the bytes of these LDs in QUARANTINED Regions, so that nobody is given them. Where they are
// whole and free, as one Attachment, which an operator can detach as any other; else only such
// bytes as nobody holds already, for then it cannot be said whose use of them is the right one.
Change PlanStray(const PoolState& state, const std::vector<StrayLd>& lds, PlanContext& context) {
  const std::string& host = lds.front().host;
  if (WholeAndFree(state, lds)) {
    auto region = NewRegion(lds.front(), context);
    const bool named = lds.front().generation != 0;
    region->tag = named ? lds.front().tag : context.make_tag();
    region->state = RegionState::kQuarantined;
    Attachment attachment;
    attachment.host = host;
    attachment.settled().state = AttachmentState::kBound;
    attachment.held = true;
    attachment.generation = named ? lds.front().generation : context.next_id();
    attachment.settled().reason = "STRAY: found bound, and held until you decide";
    std::vector<uint32_t> slots;
    for (const StrayLd& ld : lds) {
      Segment segment;
      segment.extent_index = static_cast<uint32_t>(region->extents.size());
      segment.slot = ld.slot;
      segment.serial = ld.serial;
      if (ld.ld_index != segment.extent_index) segment.ld_index = ld.ld_index;
      attachment.segments.push_back(segment);
      region->extents.push_back(ld.extent);
      region->requested_bytes += ld.extent.length_bytes;
      slots.push_back(ld.slot);
    }
    region->attachments = {attachment};
    region->state_reason = absl::StrCat(
        "STRAY: host \"", host, "\" has it bound at slot ", absl::StrJoin(slots, ", "),
        " and no record knew it: save what is needed, then `cxlpool region detach ", region->id,
        " --host ", host, "` (or `cxlpool host fence ", host,
        " --reason WHY`), then `cxlpool region release ", region->id, " --force --reason WHY`");
    // What a tired person would do: nobody knows it, so it goes.
    if (CXLPOOL_MUTANT("stray-goes-down")) {
      region->state = RegionState::kReleasing;
      region->attachments[0].settled().detaching = true;
    }
    return {RegionPtr(region)};
  }
  Change change;
  for (const StrayLd& ld : lds) {
    for (const Extent& part : FreeParts(state, ld.extent)) {
      auto region = NewRegion(ld, context);
      region->tag = context.make_tag();
      region->state = RegionState::kQuarantined;
      region->state_reason = absl::StrCat("STRAY: ", TextOf(ld), ", then `cxlpool region release ",
                                          region->id, " --force --reason WHY`");
      region->extents = {part};
      region->requested_bytes = part.length_bytes;
      change.push_back(RegionPtr(region));
    }
  }
  return change;
}

}  // namespace cxlpool::fm
