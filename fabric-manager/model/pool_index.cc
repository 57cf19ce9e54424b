// PoolState's indices: what a Region takes of devices, hosts and names, and what it may not.

#include <algorithm>
#include <cstdlib>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "fabric-manager/model/pool_state.h"

namespace cxlpool::fm {
namespace {

template <typename... Args>
absl::Status Broken(const Args&... what) {
  return absl::InternalError(absl::StrCat(what...));
}

// What a segment takes of its host; nothing once it is proven unbound.
bool Occupies(const Attachment& attachment) {
  return attachment.state != AttachmentState::kUnbound;
}

OccupiedSlot SlotOf(const Region& region, const Attachment& attachment, const Segment& segment) {
  OccupiedSlot slot;
  slot.region = region.key;
  slot.region_id = region.id;
  slot.generation = attachment.generation;
  slot.state = attachment.state;
  slot.detaching = attachment.detaching;
  slot.slot = segment.slot;
  slot.host_bridge = segment.host_bridge;
  slot.serial = segment.serial;
  slot.hpa_bytes = segment.hpa_bytes;
  slot.length_bytes = region.extents[segment.extent_index].length_bytes;
  return slot;
}

bool BySlot(const OccupiedSlot& a, const OccupiedSlot& b) { return a.slot < b.slot; }

// What a Region must be like by itself.
absl::Status CheckShape(const Region& region) {
  if (region.key == 0 || region.tag.size() != 16 || region.id.empty()) {
    return Broken("region \"", region.id, "\" lacks a key, a tag of 16 bytes or an id");
  }
  if (region.extents.empty() || region.extents.size() > kMaxExtentsPerRegion) {
    return Broken("region \"", region.id, "\" has ", region.extents.size(), " extents");
  }
  if (region.attachments.size() > kMaxAttachmentsPerRegion) {
    return Broken("region \"", region.id, "\" has ", region.attachments.size(), " attachments");
  }
  if (region.state == RegionState::kScrubbing && !region.attachments.empty()) {
    return Broken("region \"", region.id, "\" is being scrubbed while it is attached");
  }
  absl::flat_hash_set<uint64_t> serials;
  absl::flat_hash_set<uint64_t> generations;
  for (size_t i = 0; i < region.attachments.size(); ++i) {
    const Attachment& attachment = region.attachments[i];
    if (i > 0 && !(region.attachments[i - 1].host < attachment.host)) {
      return Broken("region \"", region.id, "\": attachments are not in order of host");
    }
    if (!generations.insert(attachment.generation).second) {
      return Broken("region \"", region.id, "\": generation ", attachment.generation, " twice");
    }
    for (const Segment& segment : attachment.segments) {
      if (segment.extent_index >= region.extents.size()) {
        return Broken("region \"", region.id, "\": a segment of extent ", segment.extent_index);
      }
      if (segment.serial == 0 || !serials.insert(segment.serial).second) {
        return Broken("region \"", region.id, "\": serial ", segment.serial, " twice or zero");
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

ExtentMap::Use PoolState::UseOf(RegionState state) {
  switch (state) {
    case RegionState::kScrubbing:
      return ExtentMap::Use::kScrubbing;
    case RegionState::kQuarantined:
      return ExtentMap::Use::kQuarantined;
    default:
      return ExtentMap::Use::kHeld;
  }
}

absl::Status PoolState::CheckRequests(const Region& region) const {
  absl::flat_hash_set<RequestId> own;
  for (const Request& request : region.requests) {
    if (requests_.contains(request.id) || !own.insert(request.id).second) {
      return Broken("region \"", region.id, "\": a request of ", request.id.method,
                    " made another change already");
    }
  }
  return absl::OkStatus();
}

absl::Status PoolState::CheckUnique(const Region& region) const {
  if (by_id_.contains(region.id)) return Broken("there is a region \"", region.id, "\" already");
  if (by_tag_.contains(region.tag)) {
    return Broken("region \"", region.id, "\": its tag belongs to another");
  }
  for (const Attachment& attachment : region.attachments) {
    if (generations_.contains(attachment.generation)) {
      return Broken("region \"", region.id, "\": generation ", attachment.generation, " twice");
    }
    const std::vector<OccupiedSlot>& occupied = Occupied(attachment.host);
    absl::flat_hash_set<uint32_t> own;
    for (const Segment& segment : attachment.segments) {
      if (by_serial_.contains(segment.serial)) {
        return Broken("region \"", region.id, "\": serial ", segment.serial, " twice");
      }
      if (!Occupies(attachment)) continue;
      const bool taken = std::any_of(occupied.begin(), occupied.end(),
                                     [&](const auto& other) { return other.slot == segment.slot; });
      if (taken || !own.insert(segment.slot).second) {
        return Broken("region \"", region.id, "\": slot ", segment.slot, " of host \"",
                      attachment.host, "\" is taken");
      }
    }
  }
  return CheckRequests(region);
}

absl::Status PoolState::TakeExtents(const Region& region) {
  for (size_t i = 0; i < region.extents.size(); ++i) {
    const Extent& extent = region.extents[i];
    const auto map = extents_.find(extent.device);
    absl::Status status =
        map == extents_.end()
            ? Broken("no such device")
            : map->second.Take(extent.dpa_bytes, extent.length_bytes, UseOf(region.state));
    if (status.ok()) continue;
    for (size_t taken = 0; taken < i; ++taken) {
      const Extent& back = region.extents[taken];
      if (!extents_.find(back.device)->second.Free(back.dpa_bytes, back.length_bytes).ok()) {
        std::abort();
      }
    }
    return Broken("region \"", region.id, "\", extent ", i, " on device \"", extent.device,
                  "\": ", status.message());
  }
  return absl::OkStatus();
}

absl::Status PoolState::Index(const RegionPtr& region) {
  if (absl::Status status = CheckShape(*region); !status.ok()) return status;
  if (absl::Status status = CheckUnique(*region); !status.ok()) return status;
  if (absl::Status status = TakeExtents(*region); !status.ok()) return status;
  by_id_[region->id] = region->key;
  by_tag_[region->tag] = region->key;
  for (const Request& request : region->requests) requests_[request.id] = region->key;
  for (const Attachment& attachment : region->attachments) {
    generations_.insert(attachment.generation);
    for (const Segment& segment : attachment.segments) {
      by_serial_[segment.serial] = region->key;
      if (!Occupies(attachment)) continue;
      std::vector<OccupiedSlot>& occupied = host_use_[attachment.host].occupied;
      const OccupiedSlot slot = SlotOf(*region, attachment, segment);
      occupied.insert(std::upper_bound(occupied.begin(), occupied.end(), slot, BySlot), slot);
    }
  }
  return absl::OkStatus();
}

void PoolState::Unindex(const RegionPtr& region) {
  for (const Extent& extent : region->extents) {
    if (!extents_.find(extent.device)->second.Free(extent.dpa_bytes, extent.length_bytes).ok()) {
      std::abort();
    }
  }
  by_id_.erase(region->id);
  by_tag_.erase(region->tag);
  for (const Request& request : region->requests) requests_.erase(request.id);
  for (const Attachment& attachment : region->attachments) {
    generations_.erase(attachment.generation);
    for (const Segment& segment : attachment.segments) by_serial_.erase(segment.serial);
    std::erase_if(host_use_[attachment.host].occupied,
                  [&](const OccupiedSlot& slot) { return slot.region == region->key; });
  }
}

}  // namespace cxlpool::fm
