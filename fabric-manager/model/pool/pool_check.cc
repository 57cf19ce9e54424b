// PoolState's invariants, recomputed from the records alone.

#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "fabric-manager/model/pool/pool_state.h"

namespace cxlpool::fm {
namespace {

template <typename... Args>
absl::Status Broken(const Args&... what) {
  return absl::InternalError(absl::StrCat("pool state: ", what...));
}

// No two Extents share a byte; deliberately without FreeSpace.
absl::Status CheckDisjoint(const absl::flat_hash_map<Key, RegionPtr>& regions) {
  std::vector<std::tuple<absl::string_view, uint64_t, uint64_t, absl::string_view>> all;
  for (const auto& [key, region] : regions) {
    for (const Extent& extent : region->extents) {
      all.emplace_back(extent.device.str(), extent.dpa_bytes, extent.length_bytes, region->id);
    }
  }
  std::sort(all.begin(), all.end());
  for (size_t i = 1; i < all.size(); ++i) {
    const auto& [device, dpa, length, id] = all[i - 1];
    const auto& [next_device, next_dpa, next_length, next_id] = all[i];
    if (device == next_device && next_dpa - dpa < length) {
      return Broken("regions \"", id, "\" and \"", next_id, "\" both own byte ", next_dpa, " of ",
                    device);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status PoolState::CheckInvariants() const {
  if (absl::Status status = CheckDisjoint(regions_); !status.ok()) return status;
  PoolState fresh;
  Change change;
  change.reserve(devices_.size() + hosts_.size() + tenants_.size() + revocations_.size() +
                 regions_.size() + tombstones_.size());
  for (const auto& [id, device] : devices_) change.push_back(device);
  for (const auto& [id, host] : hosts_) change.push_back(host);
  for (const auto& [id, tenant] : tenants_) change.push_back(tenant);
  for (const auto& [subject, revocation] : revocations_) change.push_back(revocation);
  for (const auto& [key, entry] : topology_entries_) change.push_back(entry);
  for (const auto& [key, region] : regions_) change.push_back(region);
  for (const auto& [key, tombstone] : tombstones_) change.push_back(tombstone);
  if (absl::Status built = fresh.Restore(change); !built.ok()) return built;

  if (fresh.by_id_.size() != by_id_.size()) return Broken("the index by name differs");
  if (fresh.by_tag_.size() != by_tag_.size()) return Broken("the index by tag differs");
  for (const auto& [key, region] : regions_) {
    const auto by_id = by_id_.find(region->id);
    if (by_id == by_id_.end() || *by_id != region) return Broken("the index by name differs");
    const auto by_tag = by_tag_.find(region->tag);
    if (by_tag == by_tag_.end() || *by_tag != region) return Broken("the index by tag differs");
  }
  if (fresh.by_serial_ != by_serial_) return Broken("the index by serial differs");
  if (fresh.by_identity_ != by_identity_) return Broken("the index by identity differs");
  if (fresh.by_gone_time_ != by_gone_time_) return Broken("the order of tombstones differs");
  if (fresh.generations_ != generations_) return Broken("the set of generations differs");
  if (fresh.requests_ != requests_) return Broken("the index of requests differs");
  if (fresh.named_ != named_) return Broken("the index of hosts and devices differs");
  if (fresh.promised_bytes_ != promised_bytes_) return Broken("the sum of reservations differs");
  for (const auto& [tenant, use] : tenant_use_) {
    if (fresh.UseOf(tenant) != use) return Broken("the use of tenant ", tenant.str(), " differs");
  }
  if (fresh.index_of_.size() != index_of_.size()) return Broken("there are bytes of no device");
  if (absl::Status status = space_.Check(); !status.ok()) return Broken(status.message());
  for (const auto& [id, index] : index_of_) {
    const DeviceIndex expected = fresh.index_of_.at(id);
    const DeviceUse& use = use_[index];
    if (use != fresh.use_[expected]) return Broken(id.str(), ": use differs");
    const uint64_t sum =
        space_.free_bytes(index) + use.held_bytes + use.scrubbing_bytes + use.quarantined_bytes;
    if (sum != space_.capacity_bytes(index)) return Broken(id.str(), ": the bytes do not sum up");
    if (space_.free_bytes(index) != fresh.space_.free_bytes(expected)) {
      return Broken(id.str(), ": free differs");
    }
    const Device& device = *by_index_[index];
    const bool usable = device.reachable && device.service == DeviceService::kInService;
    if (usable != usable_.Contains(index)) return Broken(id.str(), ": usable differs");
  }
  for (const auto& [id, use] : host_use_) {
    if (fresh.Occupied(id) != use.occupied) return Broken("slots of host \"", id, "\" differ");
    for (const auto& [tenant, bytes] : use.attached) {
      if (fresh.AttachedBytes(id, tenant) != bytes)
        return Broken("bytes on host \"", id, "\" differ");
    }
  }
  for (const auto& [id, use] : fresh.host_use_) {
    if (Occupied(id) != use.occupied) return Broken("slots of host \"", id, "\" differ");
  }
  return absl::OkStatus();
}

}  // namespace cxlpool::fm
