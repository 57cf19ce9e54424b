// PoolState's invariants, recomputed from the records alone.

#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "fabric-manager/model/pool_state.h"

namespace cxlpool::fm {
namespace {

template <typename... Args>
absl::Status Broken(const Args&... what) {
  return absl::InternalError(absl::StrCat("pool state: ", what...));
}

// No two Extents share a byte; deliberately without ExtentMap.
absl::Status CheckDisjoint(const absl::flat_hash_map<Key, RegionPtr>& regions) {
  std::vector<std::tuple<absl::string_view, uint64_t, uint64_t, absl::string_view>> all;
  for (const auto& [key, region] : regions) {
    for (const Extent& extent : region->extents) {
      all.emplace_back(extent.device, extent.dpa_bytes, extent.length_bytes, region->id);
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
  for (const auto& [id, device] : devices_) change.push_back(device);
  for (const auto& [id, host] : hosts_) change.push_back(host);
  for (const auto& [key, region] : regions_) change.push_back(region);
  for (const auto& [key, tombstone] : tombstones_) change.push_back(tombstone);
  if (const auto built = fresh.Apply(change); !built.ok()) return built.status();

  if (fresh.by_id_ != by_id_) return Broken("the index by name differs");
  if (fresh.by_tag_ != by_tag_) return Broken("the index by tag differs");
  if (fresh.by_serial_ != by_serial_) return Broken("the index by serial differs");
  if (fresh.by_identity_ != by_identity_) return Broken("the index by identity differs");
  if (fresh.by_gone_time_ != by_gone_time_) return Broken("the order of tombstones differs");
  if (fresh.generations_ != generations_) return Broken("the set of generations differs");
  if (fresh.requests_ != requests_) return Broken("the index of requests differs");
  if (fresh.named_ != named_) return Broken("the index of hosts and devices differs");
  if (fresh.extents_.size() != extents_.size()) return Broken("there are extents of no device");
  for (const auto& [id, map] : extents_) {
    if (absl::Status status = map.Check(); !status.ok()) return Broken(id, ": ", status.message());
    const ExtentMap& expected = fresh.extents_.at(id);
    uint64_t sum = map.free_bytes();
    for (const auto use :
         {ExtentMap::Use::kHeld, ExtentMap::Use::kScrubbing, ExtentMap::Use::kQuarantined}) {
      sum += map.held_bytes(use);
      if (map.held_bytes(use) != expected.held_bytes(use)) return Broken(id, ": use differs");
    }
    if (sum != map.capacity_bytes()) return Broken(id, ": the bytes do not sum up");
    if (map.free_by_length() != expected.free_by_length()) return Broken(id, ": free differs");
  }
  for (const auto& [id, use] : host_use_) {
    if (fresh.Occupied(id) != use.occupied) return Broken("slots of host \"", id, "\" differ");
  }
  for (const auto& [id, use] : fresh.host_use_) {
    if (Occupied(id) != use.occupied) return Broken("slots of host \"", id, "\" differ");
  }
  return absl::OkStatus();
}

}  // namespace cxlpool::fm
