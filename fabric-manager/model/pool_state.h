// The truth: which bytes of which device belong to whom, and who uses them where.
//
// Changed only by Apply(Change), which is what makes it durable-first: a planner reads PoolState
// and makes a Change, the Store commits it, and then it is applied; a failed commit applies the
// inverse that Apply returned. Indices are derived, never stored.
//
// Invariants (CheckInvariants): no byte has two owners; free + held + scrubbing + quarantined =
// capacity of each device; a host's slot holds one segment; names, tags, generations and serials
// are unique; a request made one change; nobody is attached to a Region that is being scrubbed or
// is gone.
//
// Not thread-safe: one writer owns it.
#ifndef CXLPOOL_FABRIC_MANAGER_MODEL_POOL_STATE_H_
#define CXLPOOL_FABRIC_MANAGER_MODEL_POOL_STATE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "fabric-manager/model/extent_map.h"
#include "fabric-manager/model/host.h"
#include "fabric-manager/model/region.h"

namespace cxlpool::fm {

// A device of the pool. Durable except `reachable`.
struct Device {
  Key key = 0;
  std::string id;
  std::string serial;
  uint64_t capacity_bytes = 0;
  uint64_t granule_bytes = 0;
  bool reachable = false;
  friend bool operator==(const Device&, const Device&) = default;
};

// A Region that is gone, kept so that a late retry of its requests finds it.
struct Tombstone {
  RegionPtr region;
  absl::Time gone_time;
};
inline constexpr size_t kMaxTombstones = 100'000;
inline constexpr absl::Duration kTombstoneLife = absl::Hours(1);

// One record's new value. A record keeps its key for life; a Region turns into its Tombstone.
struct Erased {
  Key key = 0;
};
using Item = std::variant<RegionPtr, Host, Device, Tombstone, Erased>;
Key KeyOf(const Item& item);

// What one request changes; applied whole or not at all, in order. At most one item a key.
using Change = std::vector<Item>;

struct Capacity {
  uint64_t total_bytes = 0;
  uint64_t free_bytes = 0;
  uint64_t held_bytes = 0;
  uint64_t scrubbing_bytes = 0;
  uint64_t quarantined_bytes = 0;
  uint64_t largest_free_bytes = 0;  // On reachable devices.
};

class PoolState {
 public:
  // Applies `change` and returns its inverse. A change that breaks an invariant is refused as a
  // whole with INTERNAL and nothing has changed: whoever planned it has a bug. A Device that is
  // known keeps its `reachable`.
  absl::StatusOr<Change> Apply(const Change& change);

  // Reads. Pointers live until the next Apply. Null: there is none.
  const RegionPtr* FindRegion(Key key) const;
  const RegionPtr* FindRegionById(absl::string_view id) const;    // Name's last segment.
  const RegionPtr* FindRegionByTag(absl::string_view tag) const;  // 16 bytes.
  const RegionPtr* FindRegionBySerial(uint64_t serial) const;     // That has a segment so numbered.
  const Host* FindHost(absl::string_view id) const;
  const Host* FindHostByIdentity(absl::string_view uri) const;  // Retired ones left out.
  const Device* FindDevice(absl::string_view id) const;
  const ExtentMap* FindExtents(absl::string_view device) const;
  const HostRuntime& Runtime(absl::string_view host) const;  // Default-made if unknown.
  const std::vector<OccupiedSlot>& Occupied(absl::string_view host) const;  // In order of slot.

  // What an earlier request made or changed: its Region, live or gone, and the payload's hash.
  struct Remembered {
    RegionPtr region;
    uint64_t payload_hash = 0;
  };
  std::optional<Remembered> FindRequest(const RequestId& id) const;

  const absl::btree_map<std::string, Key>& regions_by_id() const { return by_id_; }
  const std::map<std::string, Host, std::less<>>& hosts() const { return hosts_; }
  const std::map<std::string, Device, std::less<>>& devices() const { return devices_; }
  size_t region_count() const { return regions_.size(); }
  Capacity GetCapacity() const;

  // Tombstones that are older than kTombstoneLife or beyond kMaxTombstones, oldest first, at most
  // `limit`.
  Change ExpiredTombstones(absl::Time now, size_t limit) const;

  // Not durable, so no Change: what a host can take, whether a device is seen.
  void SetRuntime(absl::string_view host, HostRuntime runtime);
  void SetReachable(absl::string_view device, bool reachable);

  // Recomputes everything derived and compares. INTERNAL says what differs. Slow.
  absl::Status CheckInvariants() const;

 private:
  struct HostUse {
    HostRuntime runtime;
    std::vector<OccupiedSlot> occupied;
  };

  // Each gives the item that undoes it, or changes nothing.
  absl::StatusOr<Item> ApplyOne(const Item& item);
  absl::StatusOr<Item> PutHost(const Host& host);
  absl::StatusOr<Item> PutDevice(const Device& device);
  absl::StatusOr<Item> Erase(Key key);

  static ExtentMap::Use UseOf(RegionState state);
  absl::Status CheckHostsOf(const Change& change, const Change& inverse) const;
  absl::Status CheckNewKey(Key key, absl::string_view id) const;
  absl::Status CheckRequests(const Region& region) const;
  absl::Status CheckUnique(const Region& region) const;
  absl::Status TakeExtents(const Region& region);
  absl::Status Index(const RegionPtr& region);  // All of it or nothing.
  void Unindex(const RegionPtr& region);
  void BuryRequests(const Tombstone& tombstone, bool bury);

  absl::flat_hash_map<Key, RegionPtr> regions_;
  absl::btree_map<std::string, Key> by_id_;
  absl::flat_hash_map<std::string, Key> by_tag_;
  absl::flat_hash_map<uint64_t, Key> by_serial_;
  absl::flat_hash_set<uint64_t> generations_;  // Of Attachments.
  absl::flat_hash_map<RequestId, Key> requests_;
  std::map<Key, Tombstone> tombstones_;
  std::set<std::pair<absl::Time, Key>> by_gone_time_;  // Of tombstones_.
  std::map<std::string, Host, std::less<>> hosts_;
  std::map<std::string, Device, std::less<>> devices_;
  std::map<std::string, ExtentMap, std::less<>> extents_;
  std::map<std::string, HostUse, std::less<>> host_use_;
  absl::flat_hash_map<Key, std::pair<bool, std::string>> named_;  // Is it a Host, and its id.
  absl::flat_hash_map<std::string, std::string> by_identity_;     // Of hosts not retired.
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_MODEL_POOL_STATE_H_
