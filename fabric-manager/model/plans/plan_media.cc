#include "fabric-manager/model/plans/plan_media.h"

#include <algorithm>
#include <map>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "fabric-manager/model/plans/plan_parts.h"
#include "proto/support/mutant.h"
#include "proto/support/text.h"

namespace cxlpool::fm {
namespace {

constexpr size_t kMaxWhat = 64;

std::string Hex(uint64_t value) { return absl::StrCat("0x", absl::Hex(value)); }

// Where on the device, for people.
std::string ReasonOf(const Extent& extent, const MediaError& error) {
  const uint64_t length = extent.length_bytes;
  // An address that the Extent does not have says only that something of it is gone.
  const bool inside = error.length_bytes > 0 && error.dpa_bytes < length;
  const uint64_t first = extent.dpa_bytes + (inside ? error.dpa_bytes : 0);
  const uint64_t bytes = inside ? std::min(error.length_bytes, length - error.dpa_bytes) : length;
  return absl::StrCat(CutText(error.what, kMaxWhat), " on device ", extent.device.str(),
                      inside ? " at " : " somewhere in ", Hex(first), "-", Hex(first + bytes - 1));
}

// The Extent that `host` reaches by that serial; null: none.
const Segment* FindSegment(const Region& region, absl::string_view host, uint64_t serial) {
  const Attachment* attachment = region.FindAttachment(host);
  if (attachment == nullptr) return nullptr;
  for (const Segment& segment : attachment->segments) {
    if (segment.serial == serial) return &segment;
  }
  return nullptr;
}

}  // namespace

bool MarkBad(Region& region, uint32_t extent, std::string reason) {
  if (extent >= region.extents.size() || region.FindBad(extent) != nullptr) return false;
  const auto behind = std::find_if(region.bad.begin(), region.bad.end(),
                                   [&](const BadExtent& bad) { return bad.extent_index > extent; });
  region.bad.insert(behind, {extent, std::move(reason)});
  return true;
}

std::string MediaReasonOf(const Region& region) {
  if (region.bad.empty()) return "";
  const size_t more = region.bad.size() - 1;
  return absl::StrCat(
      "MEDIA_ERROR: ", region.bad.front().reason,
      more == 0 ? "" : absl::StrCat(", and ", more, more == 1 ? " extent more" : " extents more"),
      ": bytes are lost; save what can be read, allocate another Region and release this one");
}

Change PlanMediaErrors(const PoolState& state, absl::string_view host,
                       const std::vector<MediaError>& errors, PlanContext& context) {
  std::map<Key, std::shared_ptr<Region>> edited;
  for (const MediaError& error : errors) {
    const RegionPtr* found = state.FindRegionBySerial(error.serial);
    if (found == nullptr) continue;
    const Segment* segment = FindSegment(**found, host, error.serial);
    if (segment == nullptr) continue;
    std::shared_ptr<Region>& region = edited[(*found)->key];
    if (region == nullptr) region = std::make_shared<Region>(**found);
    const uint32_t extent = segment->extent_index;
    MarkBad(*region, extent, ReasonOf(region->extents[extent], error));
  }
  Change change;
  for (auto& [key, region] : edited) {
    if (region->bad == (*state.FindRegion(key))->bad) continue;
    // What goes down, or is kept from everybody, has a better reason to show.
    if (region->state == RegionState::kReserved || region->state == RegionState::kAllocated) {
      region->state_reason = MediaReasonOf(*region);
    }
    region->revision = context.revision;
    change.push_back(RegionPtr(std::move(region)));
  }
  return change;
}

Change QuarantineBad(const PoolState& state, const Region& region, size_t first_extent,
                     PlanContext& context) {
  Change change;
  if (CXLPOOL_MUTANT("free-bad-bytes")) return change;
  for (const BadExtent& bad : region.bad) {
    if (bad.extent_index < first_extent) continue;
    const Extent& extent = region.extents[bad.extent_index];
    const Device* device = state.FindDevice(extent.device);
    if (device != nullptr && device->service == DeviceService::kFailed) continue;
    auto kept = MakeKept(state, "bad", extent.device.str(), extent, context);
    const bool lost = !absl::StartsWith(bad.reason, "NOT_SCRUBBABLE");
    kept->state_reason =
        absl::StrCat(lost ? "MEDIA_ERROR: " : "", bad.reason, ", when Region \"", region.id,
                     "\" had it; release it with force once the device ",
                     lost ? "is repaired or trusted again" : "can be cleared");
    kept->bad = {{0, bad.reason}};
    change.push_back(RegionPtr(std::move(kept)));
  }
  return change;
}

bool KeepsBadAlone(const Region& region) {
  return region.state == RegionState::kQuarantined && region.attachments.empty() &&
         !region.bad.empty() && region.bad.size() == region.extents.size();
}

}  // namespace cxlpool::fm
