// PoolState's reads.

#include <algorithm>

#include "fabric-manager/model/pool_state.h"

namespace cxlpool::fm {

const RegionPtr* PoolState::FindRegion(Key key) const {
  const auto it = regions_.find(key);
  return it == regions_.end() ? nullptr : &it->second;
}

const RegionPtr* PoolState::FindRegionById(absl::string_view id) const {
  const auto it = by_id_.find(id);
  return it == by_id_.end() ? nullptr : FindRegion(it->second);
}

const RegionPtr* PoolState::FindRegionByTag(absl::string_view tag) const {
  const auto it = by_tag_.find(tag);
  return it == by_tag_.end() ? nullptr : FindRegion(it->second);
}

const RegionPtr* PoolState::FindRegionBySerial(uint64_t serial) const {
  const auto it = by_serial_.find(serial);
  return it == by_serial_.end() ? nullptr : FindRegion(it->second);
}

const Host* PoolState::FindHost(absl::string_view id) const {
  const auto it = hosts_.find(id);
  return it == hosts_.end() ? nullptr : &it->second;
}

const Host* PoolState::FindHostByIdentity(absl::string_view uri) const {
  const auto it = by_identity_.find(uri);
  return it == by_identity_.end() ? nullptr : FindHost(it->second);
}

const Device* PoolState::FindDevice(absl::string_view id) const {
  const auto it = devices_.find(id);
  return it == devices_.end() ? nullptr : &it->second;
}

const ExtentMap* PoolState::FindExtents(absl::string_view device) const {
  const auto it = extents_.find(device);
  return it == extents_.end() ? nullptr : &it->second;
}

const HostRuntime& PoolState::Runtime(absl::string_view host) const {
  static const HostRuntime* const kNone = new HostRuntime();
  const auto it = host_use_.find(host);
  return it == host_use_.end() ? *kNone : it->second.runtime;
}

const std::vector<OccupiedSlot>& PoolState::Occupied(absl::string_view host) const {
  static const auto* const kNone = new std::vector<OccupiedSlot>();
  const auto it = host_use_.find(host);
  return it == host_use_.end() ? *kNone : it->second.occupied;
}

std::optional<PoolState::Remembered> PoolState::FindRequest(const RequestId& id) const {
  const auto it = requests_.find(id);
  if (it == requests_.end()) return std::nullopt;
  Remembered found;
  if (const RegionPtr* live = FindRegion(it->second)) {
    found.region = *live;
  } else {
    found.region = tombstones_.at(it->second).region;
  }
  for (const Request& request : found.region->requests) {
    if (request.id == id) found.payload_hash = request.payload_hash;
  }
  return found;
}

Capacity PoolState::GetCapacity() const {
  Capacity capacity;
  for (const auto& [id, map] : extents_) {
    capacity.total_bytes += map.capacity_bytes();
    capacity.free_bytes += map.free_bytes();
    capacity.held_bytes += map.held_bytes(ExtentMap::Use::kHeld);
    capacity.scrubbing_bytes += map.held_bytes(ExtentMap::Use::kScrubbing);
    capacity.quarantined_bytes += map.held_bytes(ExtentMap::Use::kQuarantined);
    if (devices_.find(id)->second.reachable) {
      capacity.largest_free_bytes = std::max(capacity.largest_free_bytes, map.largest_free_bytes());
    }
  }
  return capacity;
}

Change PoolState::ExpiredTombstones(absl::Time now, size_t limit) const {
  Change change;
  size_t beyond = tombstones_.size() - std::min(tombstones_.size(), kMaxTombstones);
  for (const auto& [gone_time, key] : by_gone_time_) {
    if (change.size() >= limit) break;
    if (beyond == 0 && now - gone_time <= kTombstoneLife) break;
    if (beyond > 0) --beyond;
    change.emplace_back(Erased{key});
  }
  return change;
}

}  // namespace cxlpool::fm
