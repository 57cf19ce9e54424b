// PoolState's reads.

#include <algorithm>

#include "fabric-manager/model/pool/pool_state.h"
#include "proto/support/mutant.h"

namespace cxlpool::fm {

const RegionPtr* PoolState::FindRegion(Key key) const {
  const auto it = regions_.find(key);
  return it == regions_.end() ? nullptr : &it->second;
}

const RegionPtr* PoolState::FindRegionById(absl::string_view id) const {
  const auto it = by_id_.find(id);
  return it == by_id_.end() ? nullptr : &*it;
}

const RegionPtr* PoolState::FindRegionByTag(const Uuid& tag) const {
  const auto it = by_tag_.find(tag);
  return it == by_tag_.end() ? nullptr : &*it;
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

const Tenant* PoolState::FindTenant(absl::string_view id) const {
  const auto it = tenants_.find(id);
  return it == tenants_.end() ? nullptr : &it->second;
}

TenantUse PoolState::UseOf(Interned tenant) const {
  const auto it = tenant_use_.find(tenant);
  return it == tenant_use_.end() ? TenantUse{} : it->second;
}

uint64_t PoolState::AttachedBytes(absl::string_view host, Interned tenant) const {
  const auto use = host_use_.find(host);
  if (use == host_use_.end()) return 0;
  const auto it = use->second.attached.find(tenant);
  return it == use->second.attached.end() ? 0 : it->second;
}

uint64_t PoolState::ReservedForOthers(Interned tenant) const {
  const Tenant* own = tenants_.empty() ? nullptr : FindTenant(tenant);
  return promised_bytes_ - (own == nullptr ? 0 : Unused(*own));
}

std::vector<Key> PoolState::RegionKeys() const {
  std::vector<Key> keys;
  keys.reserve(regions_.size());
  for (const auto& [key, region] : regions_) keys.push_back(key);
  std::sort(keys.begin(), keys.end());
  return keys;
}

std::vector<RegionPtr> PoolState::RegionsOn(absl::string_view device) const {
  const Interned id(device);
  std::vector<RegionPtr> found;
  for (const auto& [key, region] : regions_) {
    if (std::any_of(region->extents.begin(), region->extents.end(),
                    [&](const Extent& extent) { return extent.device == id; })) {
      found.push_back(region);
    }
  }
  std::sort(found.begin(), found.end(),
            [](const RegionPtr& a, const RegionPtr& b) { return a->key < b->key; });
  return found;
}

const HostRuntimePtr& PoolState::RuntimeOf(absl::string_view host) const {
  static const auto& kNone = *new HostRuntimePtr(std::make_shared<const HostRuntime>());
  const auto it = host_use_.find(host);
  return it == host_use_.end() || it->second.runtime == nullptr ? kNone : it->second.runtime;
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
  for (DeviceIndex index = 0; index < by_index_.size(); ++index) {
    if (by_index_[index] == nullptr) continue;
    if (by_index_[index]->service == DeviceService::kRemoved) continue;
    const DeviceUse& use = use_[index];
    const uint64_t free = space_.free_bytes(index);
    capacity.total_bytes += space_.capacity_bytes(index);
    capacity.held_bytes += use.held_bytes;
    capacity.scrubbing_bytes += use.scrubbing_bytes;
    capacity.quarantined_bytes += use.quarantined_bytes;
    // What is free on a broken device is free for nobody.
    const bool failed = by_index_[index]->service == DeviceService::kFailed;
    (failed ? capacity.quarantined_bytes : capacity.free_bytes) += free;
    if (placeable_.Contains(index)) {
      capacity.largest_free_bytes =
          std::max(capacity.largest_free_bytes, space_.largest_free_bytes(index));
    }
  }
  return capacity;
}

Change PoolState::ExpiredTombstones(absl::Time now, size_t limit) const {
  Change change;
  size_t beyond = tombstones_.size() - std::min(tombstones_.size(), kMaxTombstones);
  for (const auto& [gone_time, key] : by_gone_time_) {
    if (change.size() >= limit) break;
    const bool keep = !CXLPOOL_MUTANT("tombstones-expire-at-once");
    if (keep && beyond == 0 && now - gone_time <= kTombstoneLife) break;
    if (beyond > 0) --beyond;
    change.emplace_back(Erased{key});
  }
  return change;
}

}  // namespace cxlpool::fm
