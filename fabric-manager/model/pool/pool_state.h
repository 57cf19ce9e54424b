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
#ifndef CXLPOOL_FABRIC_MANAGER_MODEL_POOL_POOL_STATE_H_
#define CXLPOOL_FABRIC_MANAGER_MODEL_POOL_POOL_STATE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/container/node_hash_map.h"
#include "absl/hash/hash.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "fabric-manager/model/pool/device.h"
#include "fabric-manager/model/pool/host.h"
#include "fabric-manager/model/pool/region.h"
#include "fabric-manager/model/pool/revocation.h"
#include "fabric-manager/model/pool/tenant.h"
#include "fabric-manager/model/pool/topology.h"
#include "fabric-manager/model/pool/topology_entry.h"
#include "fabric-manager/model/space/free_space.h"

namespace cxlpool::fm {

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
using Item =
    std::variant<RegionPtr, Host, Device, Tombstone, Erased, Tenant, Revocation, TopologyEntry>;
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

// How the bytes of one device are used, and by how many extents.
struct DeviceUse {
  uint64_t held_bytes = 0;
  uint64_t scrubbing_bytes = 0;
  uint64_t quarantined_bytes = 0;
  uint32_t lds = 0;
  friend bool operator==(const DeviceUse&, const DeviceUse&) = default;
};

class PoolState {
 public:
  // Applies `change` and returns its inverse. A change that breaks an invariant is refused as a
  // whole with INTERNAL and nothing has changed: whoever planned it has a bug. A Device that is
  // known keeps its `reachable`.
  absl::StatusOr<Change> Apply(const Change& change);

  // The same for the records of a store, in any order, into a state that is empty; what remains of
  // it after an error is of no use.
  absl::Status Restore(const Change& records);

  // Reads. Pointers live until the next Apply. Null: there is none.
  const RegionPtr* FindRegion(Key key) const;
  const RegionPtr* FindRegionById(absl::string_view id) const;  // Name's last segment.
  const RegionPtr* FindRegionByTag(const Uuid& tag) const;
  const RegionPtr* FindRegionBySerial(uint64_t serial) const;  // That has a segment so numbered.
  const Host* FindHost(absl::string_view id) const;
  const Host* FindHostByIdentity(absl::string_view uri) const;  // Retired ones left out.
  const Device* FindDevice(absl::string_view id) const;
  // Default-made if unknown. The pointer is never null, and what it points to never changes.
  const HostRuntime& Runtime(absl::string_view host) const { return *RuntimeOf(host); }
  const HostRuntimePtr& RuntimeOf(absl::string_view host) const;
  const std::vector<OccupiedSlot>& Occupied(absl::string_view host) const;  // In order of slot.

  // Where there is room. Every device that is known has an index, also one that may not be used.
  const FreeSpace& space() const { return space_; }
  std::optional<DeviceIndex> IndexOf(Interned device) const;
  const Device& DeviceAt(DeviceIndex index) const { return *by_index_[index]; }
  Interned NameAt(DeviceIndex index) const { return names_[index]; }
  const DeviceUse& UseOf(DeviceIndex index) const { return use_[index]; }
  // How many LDs it may carry; UINT32_MAX: no limit.
  uint32_t MaxLds(DeviceIndex index) const {
    uint32_t most = UINT32_MAX;
    for (const uint32_t limit : {limits_.max_lds_per_device, by_index_[index]->max_lds}) {
      if (limit != 0) most = std::min(most, limit);
    }
    return most;
  }
  // Devices that the fabric shows, in service: `placeable` also below the limit of LDs.
  const DeviceSet& usable() const { return usable_; }
  const DeviceSet& placeable() const { return placeable_; }
  // Devices that the topology leads the host to; all for a host it does not know, where it
  // connects all, else none.
  const DeviceSet& ReachOf(absl::string_view host) const;
  // Devices of one failure domain, and the domain of a device: dense numbers.
  const std::vector<DeviceSet>& domains() const { return domains_; }
  size_t DomainOf(DeviceIndex index) const { return domain_of_[index]; }
  const Topology& topology() const { return topology_; }
  const std::map<Key, TopologyEntry>& topology_entries() const { return topology_entries_; }
  // What the pool is made of now, in order of key: without devices that were removed.
  TopologyTables GetTopologyTables() const;
  const FabricLimits& limits() const { return limits_; }

  // Null: it has no record. Then the default tenant has no limits, and another is unknown.
  const Tenant* FindTenant(absl::string_view id) const;
  const std::map<std::string, Tenant, std::less<>>& tenants() const { return tenants_; }
  TenantUse UseOf(Interned tenant) const;
  const Revocations& revocations() const { return revocations_; }
  // Bytes of the tenant's Regions attached to the host, whatever their Attachments' states.
  uint64_t AttachedBytes(absl::string_view host, Interned tenant) const;
  // What is promised to tenants other than `tenant` and not used by them.
  uint64_t ReservedForOthers(Interned tenant) const;

  // What an earlier request made or changed: its Region, live or gone, and the payload's hash.
  struct Remembered {
    RegionPtr region;
    uint64_t payload_hash = 0;
  };
  std::optional<Remembered> FindRequest(const RequestId& id) const;

  const absl::flat_hash_map<Key, RegionPtr>& regions() const { return regions_; }
  bool KnowsGeneration(uint64_t generation) const { return generations_.contains(generation); }
  std::vector<Key> RegionKeys() const;  // Ascending.
  const std::map<std::string, Host, std::less<>>& hosts() const { return hosts_; }
  const std::map<std::string, Device, std::less<>>& devices() const { return devices_; }
  size_t region_count() const { return regions_.size(); }
  // Regions with bytes on the device, in order of key. Looks at every Region.
  std::vector<RegionPtr> RegionsOn(absl::string_view device) const;
  Capacity GetCapacity() const;

  // Tombstones that are older than kTombstoneLife or beyond kMaxTombstones, oldest first, at most
  // `limit`.
  Change ExpiredTombstones(absl::Time now, size_t limit) const;

  // Not durable, so no Change: what a host can take, whether a device is seen. How they hang
  // together is set by itself where no topology entry is on record.
  void SetRuntime(absl::string_view host, HostRuntime runtime);
  // `why_not`: for people; empty: it can be reached.
  void SetReachable(absl::string_view device, absl::string_view why_not);
  void SetTopology(Topology topology);
  void SetLimits(const FabricLimits& limits);

  // Recomputes everything derived and compares. INTERNAL says what differs. Slow.
  absl::Status CheckInvariants() const;

 private:
  struct HostUse {
    HostRuntimePtr runtime;  // Null: nobody said anything yet.
    std::vector<OccupiedSlot> occupied;
    std::map<Interned, uint64_t> attached;  // Bytes by tenant.
  };
  // Regions are found by id and tag without a copy of either.
  struct ById {
    using is_transparent = void;
    static absl::string_view Of(absl::string_view id) { return id; }
    static absl::string_view Of(const RegionPtr& region) { return region->id; }
    template <typename T>
    size_t operator()(const T& key) const {
      return absl::Hash<absl::string_view>()(Of(key));
    }
    template <typename A, typename B>
    bool operator()(const A& a, const B& b) const {
      return Of(a) == Of(b);
    }
  };
  struct ByTag {
    using is_transparent = void;
    static const Uuid& Of(const Uuid& tag) { return tag; }
    static const Uuid& Of(const RegionPtr& region) { return region->tag; }
    template <typename T>
    size_t operator()(const T& key) const {
      return absl::Hash<Uuid>()(Of(key));
    }
    template <typename A, typename B>
    bool operator()(const A& a, const B& b) const {
      return Of(a) == Of(b);
    }
  };

  // What of a Region is indexed where, so that a change touches no more than it must.
  enum Part : unsigned { kNames = 1, kRequests = 2, kExtents = 4, kAttachments = 8 };
  static constexpr unsigned kAllParts = kNames | kRequests | kExtents | kAttachments;
  static unsigned PartsThatDiffer(const Region& before, const Region& after);

  // Each gives the item that undoes it, or changes nothing.
  absl::StatusOr<Item> ApplyOne(const Item& item);
  absl::StatusOr<Item> PutRegion(const RegionPtr& region);
  absl::StatusOr<Item> PutTombstone(const Tombstone& tombstone);
  absl::StatusOr<Item> PutHost(const Host& host);
  absl::StatusOr<Item> PutDevice(const Device& device);
  absl::StatusOr<Item> PutTenant(const Tenant& tenant);
  absl::StatusOr<Item> PutRevocation(const Revocation& revocation);
  absl::StatusOr<Item> PutTopologyEntry(const TopologyEntry& entry);
  absl::StatusOr<Item> Erase(Key key);
  absl::StatusOr<Item> EraseNamed(Key key);

  static absl::Status CheckShape(const Region& region);
  absl::Status CheckHostsOf(const Change& change, const Change& inverse) const;
  absl::Status CheckNewKey(Key key, absl::string_view id) const;
  absl::Status CheckAttachments(const Region& region) const;
  absl::Status IndexNames(const RegionPtr& region);
  absl::Status IndexRequests(const Region& region);
  absl::Status TakeExtents(const Region& region);
  void GiveExtents(const Region& region);
  void IndexAttachments(const Region& region);
  // The same Attachments with the same segments, each further on: nothing else of them is indexed
  // anew. False, and nothing was done: they are others, or take what they had given back.
  bool MoveAttachments(const Region& before, const Region& now);
  void UnindexAttachments(const Region& region);
  absl::Status Index(const RegionPtr& region, unsigned parts);  // All of it or nothing.
  void Unindex(const RegionPtr& region, unsigned parts);
  void Charge(const Region& region, int64_t sign);  // What devices and tenants are counted for.
  void ChargeTenant(Interned tenant, int64_t bytes, int64_t regions);
  uint64_t Unused(const Tenant& tenant) const;  // Of its reservation.
  void BuryRequests(const Tombstone& tombstone, bool bury);

  absl::StatusOr<DeviceIndex> AddIndex(const Device& device);
  absl::Status DropDevice(const Device& device);
  absl::Status Reshape(const Device& before, const Device& after);
  void UpdateUsable(DeviceIndex index);
  absl::Status RebuildTopology();  // Where an entry changed.
  void UpdateTopology();
  void AddToDomain(DeviceIndex index);

  absl::flat_hash_map<Key, RegionPtr> regions_;
  absl::flat_hash_set<RegionPtr, ById, ById> by_id_;
  absl::flat_hash_set<RegionPtr, ByTag, ByTag> by_tag_;
  absl::flat_hash_map<uint64_t, Key> by_serial_;
  absl::flat_hash_set<uint64_t> generations_;  // Of Attachments.
  absl::flat_hash_map<RequestId, Key> requests_;
  std::map<Key, Tombstone> tombstones_;
  std::set<std::pair<absl::Time, Key>> by_gone_time_;  // Of tombstones_.
  std::map<std::string, Host, std::less<>> hosts_;
  std::map<std::string, Device, std::less<>> devices_;
  std::map<std::string, Tenant, std::less<>> tenants_;
  Revocations revocations_;
  std::map<Key, TopologyEntry> topology_entries_;
  std::set<std::string> topology_names_;  // Of entries that are no links.
  absl::node_hash_map<std::string, HostUse> host_use_;
  absl::flat_hash_map<Interned, TenantUse> tenant_use_;
  uint64_t promised_bytes_ = 0;  // Reserved and not used, over all tenants.
  enum class Kind : uint8_t { kHost, kDevice, kTenant, kRevocation, kTopologyEntry };
  absl::flat_hash_map<Key, std::pair<Kind, std::string>> named_;
  absl::flat_hash_map<std::string, std::string> by_identity_;  // Of hosts not retired.

  FreeSpace space_;
  absl::flat_hash_map<Interned, DeviceIndex> index_of_;
  std::vector<const Device*> by_index_;
  std::vector<Interned> names_;
  std::vector<DeviceUse> use_;
  DeviceSet usable_;
  DeviceSet placeable_;
  std::map<std::string, DeviceSet, std::less<>> reach_;
  std::vector<DeviceSet> domains_;
  std::vector<size_t> domain_of_;
  std::map<std::string, size_t, std::less<>> domain_numbers_;
  bool restoring_ = false;  // The topology is looked at once, in the end.
  Topology topology_;
  bool stale_topology_ = false;  // An entry changed since topology_ was made.
  FabricLimits limits_;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_MODEL_POOL_POOL_STATE_H_
