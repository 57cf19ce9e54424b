// The truth: which bytes of which device belong to whom, and who uses them where.
//
// Changed only by Apply(Change). A planner reads PoolState and makes a Change; the Writer applies
// it at once, so that later plans of the same group see it, and has the Store commit the whole
// group. If that fails, the Writer applies the inverses that Apply returned.
//
// It holds the records, and the indices that are derived from them, each a class of its own that
// knows how a record comes and goes: names, requests and tombstones (region_index.h), slots
// (attachment_index.h), devices and their bytes (device_table.h), tenants (tenant.h). A change
// takes a Region out of the indices that it touches and puts it in again as it is then.
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
#include "absl/container/node_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "fabric-manager/model/audit/audit_chain.h"
#include "fabric-manager/model/pool/access_rules.h"
#include "fabric-manager/model/pool/attachment_index.h"
#include "fabric-manager/model/pool/device_table.h"
#include "fabric-manager/model/pool/host.h"
#include "fabric-manager/model/pool/region.h"
#include "fabric-manager/model/pool/region_index.h"
#include "fabric-manager/model/pool/tenant.h"
#include "fabric-manager/model/pool/topology_entry.h"

namespace cxlpool::fm {

// One record's new value. A record keeps its key for life; a Region turns into its Tombstone.
struct Erased {
  Key key = 0;
};
using Item = std::variant<RegionPtr, Host, Device, Tombstone, Erased, Tenant, Revocation,
                          RoleBinding, TopologyEntry, AuditRowPtr>;
Key KeyOf(const Item& item);

// What one request changes; applied whole or not at all, in order. At most one item a key.
using Change = std::vector<Item>;

class PoolState {
 public:
  // Applies `change` and returns its inverse. A change that breaks an invariant is refused as a
  // whole with INTERNAL and nothing has changed: what planned it has a bug. A Device that is
  // known keeps its `reachable`.
  absl::StatusOr<Change> Apply(const Change& change);

  // The same for the records of a store, in any order, into a state that is empty; what remains of
  // it after an error is of no use. Rows of the audit trail are passed over: they say what became
  // of the pool, and are no part of it.
  absl::Status Restore(const Change& records);

  // Reads. Pointers live until the next Apply. Null: there is none.
  const RegionPtr* FindRegion(Key key) const;
  // Whether the record is a Region, or one that is gone; or any of the others, but for audit rows.
  bool IsRegion(Key key) const {
    return regions_.contains(key) || tombstones_.Find(key) != nullptr;
  }
  bool IsNamed(Key key) const { return named_.contains(key); }
  const RegionPtr* FindRegionById(absl::string_view id) const { return names_.FindById(id); }
  const RegionPtr* FindRegionByTag(const Uuid& tag) const { return names_.FindByTag(tag); }
  const RegionPtr* FindRegionBySerial(uint64_t serial) const;  // That has a segment so numbered.
  const Host* FindHost(absl::string_view id) const;
  const Host* FindHostByIdentity(absl::string_view uri) const;  // Retired ones left out.
  const Device* FindDevice(absl::string_view id) const { return devices_.Find(id); }
  // Default-made if unknown. The pointer is never null, and what it points to never changes.
  const HostRuntime& Runtime(absl::string_view host) const { return *RuntimeOf(host); }
  const HostRuntimePtr& RuntimeOf(absl::string_view host) const;
  // What the hosts that may attach something now have as region_granule_bytes, and how many of them
  // each: few values, of however many hosts.
  const std::map<uint64_t, size_t>& host_granules() const { return host_granules_; }
  const std::vector<OccupiedSlot>& Occupied(absl::string_view host) const {  // In order of slot.
    return attachments_.Occupied(host);
  }

  // As DeviceTable has it: where there is room, what may be used, how the topology leads there.
  const std::map<std::string, Device, std::less<>>& devices() const { return devices_.all(); }
  const FreeSpace& space() const { return devices_.space(); }
  std::optional<DeviceIndex> IndexOf(Interned device) const { return devices_.IndexOf(device); }
  const Device& DeviceAt(DeviceIndex index) const { return devices_.At(index); }
  Interned NameAt(DeviceIndex index) const { return devices_.NameAt(index); }
  const DeviceUse& UseOf(DeviceIndex index) const { return devices_.UseOf(index); }
  uint32_t MaxLds(DeviceIndex index) const { return devices_.MaxLds(index); }
  const DeviceSet& usable() const { return devices_.usable(); }
  const DeviceSet& placeable() const { return devices_.placeable(); }
  const DeviceSet& ReachOf(absl::string_view host) const { return devices_.ReachOf(host); }
  const std::vector<DeviceSet>& domains() const { return devices_.domains(); }
  size_t DomainOf(DeviceIndex index) const { return devices_.DomainOf(index); }
  const Topology& topology() const { return devices_.topology(); }
  const FabricLimits& limits() const { return devices_.limits(); }
  Capacity GetCapacity() const { return devices_.GetCapacity(); }

  const std::map<Key, TopologyEntry>& topology_entries() const { return topology_entries_; }
  // What the pool is made of now, in order of key: without devices that were removed, and
  // their links.
  TopologyTables GetTopologyTables() const;
  // Whether it was removed, and is known still.
  bool IsRemoved(absl::string_view device) const;
  std::set<std::string> RemovedDevices() const;

  // As TenantTable has it.
  const Tenant* FindTenant(absl::string_view id) const { return tenants_.Find(id); }
  const std::map<std::string, Tenant, std::less<>>& tenants() const { return tenants_.all(); }
  TenantUse UseOf(Interned tenant) const { return tenants_.UseOf(tenant); }
  uint64_t ReservedForOthers(Interned tenant) const { return tenants_.ReservedForOthers(tenant); }
  // Bytes of the tenant's Regions attached to the host, whatever their Attachments' states.
  uint64_t AttachedBytes(absl::string_view host, Interned tenant) const {
    return attachments_.AttachedBytes(host, tenant);
  }
  const AccessRules& access_rules() const { return access_rules_; }

  // What an earlier request made or changed: its Region, live or gone, and the payload's hash.
  struct Remembered {
    RegionPtr region;
    uint64_t payload_hash = 0;
  };
  std::optional<Remembered> FindRequest(const RequestId& id) const;

  const absl::flat_hash_map<Key, RegionPtr>& regions() const { return regions_; }
  bool KnowsGeneration(uint64_t generation) const {
    return attachments_.KnowsGeneration(generation);
  }
  const std::map<std::string, Host, std::less<>>& hosts() const { return hosts_; }
  size_t region_count() const { return regions_.size(); }
  // Regions with bytes on the device, in order of key. Looks at every Region.
  std::vector<RegionPtr> RegionsOn(absl::string_view device) const;

  // Tombstones that are older than kTombstoneLife or beyond kMaxTombstones, oldest first, at most
  // `limit`.
  Change ExpiredTombstones(absl::Time now, size_t limit) const;

  // Not durable, so no Change: what a host can take, whether a device is seen. How they hang
  // together is set by itself where no topology entry is on record.
  void SetRuntime(absl::string_view host, HostRuntime runtime);
  // Of a host that was removed: what its agent said is not of the next host of that id. What the
  // fabric shows under the id stays.
  void ForgetAgent(absl::string_view host);
  // `why_not`: for people; empty: it can be reached.
  void SetReachable(absl::string_view device, absl::string_view why_not,
                    absl::Time now = absl::InfinitePast()) {
    devices_.SetReachable(device, why_not, now);
  }
  void SetTopology(Topology topology) { devices_.SetTopology(std::move(topology)); }
  void SetLimits(const FabricLimits& limits) { devices_.SetLimits(limits); }

  // Recomputes everything derived and compares. INTERNAL says what differs. Slow.
  absl::Status CheckInvariants() const;

 private:
  enum class Kind : uint8_t { kHost, kDevice, kTenant, kRevocation, kRoleBinding, kTopologyEntry };

  // What of a Region is indexed where, so that a change touches no more than it must.
  enum Indices : unsigned { kNames = 1, kRequests = 2, kExtents = 4, kAttachments = 8 };
  static constexpr unsigned kAll = kNames | kRequests | kExtents | kAttachments;
  static unsigned IndicesThatDiffer(const Region& before, const Region& after);

  // Each gives the item that undoes it, or changes nothing.
  absl::StatusOr<Item> ApplyOne(const Item& item);
  absl::StatusOr<Item> PutRegion(const RegionPtr& region);
  absl::StatusOr<Item> PutTombstone(const Tombstone& tombstone);
  absl::StatusOr<Item> PutHost(const Host& host);
  absl::StatusOr<Item> PutDevice(const Device& device);
  absl::StatusOr<Item> PutTenant(const Tenant& tenant);
  // Of Revocations or RoleBindings: `name` is the key of `table`.
  template <typename Named>
  absl::StatusOr<Item> PutNamed(std::map<std::string, Named, std::less<>>& table, Kind kind,
                                const std::string& name, const Named& wanted);
  absl::StatusOr<Item> PutTopologyEntry(const TopologyEntry& entry);
  absl::StatusOr<Item> Erase(Key key);
  absl::StatusOr<Item> EraseNamed(Key key);

  // Counts the granule of the host, as it is now, or takes it out of the count.
  void CountGranule(absl::string_view host, bool there);
  absl::Status CheckHostsOf(const Change& change, const Change& inverse) const;
  absl::Status CheckNewKey(Key key, absl::string_view id) const;
  absl::Status Index(const RegionPtr& region, unsigned indices);  // In all of them or in none.
  void Unindex(const RegionPtr& region, unsigned indices);
  absl::Status RebuildTopology();  // Where an entry changed.

  absl::flat_hash_map<Key, RegionPtr> regions_;
  Tombstones tombstones_;
  std::map<std::string, Host, std::less<>> hosts_;
  AccessRules access_rules_;
  std::map<Key, TopologyEntry> topology_entries_;
  DeviceTable devices_;
  TenantTable tenants_;

  RegionNames names_;
  RequestIndex requests_;  // Of Regions and of tombstones.
  AttachmentIndex attachments_;
  absl::node_hash_map<std::string, HostRuntimePtr> runtimes_;
  std::map<uint64_t, size_t> host_granules_;
  absl::flat_hash_map<std::string, std::string> by_identity_;  // Of hosts not retired.
  absl::flat_hash_map<Key, std::pair<Kind, std::string>> named_;
  std::set<std::string> topology_names_;  // Of entries that are no links.
  bool stale_topology_ = false;           // An entry changed since the topology was made.
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_MODEL_POOL_POOL_STATE_H_
