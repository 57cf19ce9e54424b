#include "fabric-manager/model/pool/pool_state.h"

#include <algorithm>
#include <tuple>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "proto/support/check.h"

namespace cxlpool::fm {
namespace {

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

Key KeyOf(const Item& item) {
  struct Visitor {
    Key operator()(const RegionPtr& region) const { return region->key; }
    Key operator()(const Host& host) const { return host.key; }
    Key operator()(const Device& device) const { return device.key; }
    Key operator()(const Tombstone& tombstone) const { return tombstone.region->key; }
    Key operator()(const Erased& erased) const { return erased.key; }
    Key operator()(const Tenant& tenant) const { return tenant.key; }
    Key operator()(const Revocation& revocation) const { return revocation.key; }
    Key operator()(const RoleBinding& binding) const { return binding.key; }
    Key operator()(const TopologyEntry& entry) const { return entry.key; }
    Key operator()(const AuditRowPtr& row) const { return row->key; }
  };
  return std::visit(Visitor{}, item);
}

// Applies a change whole or not at all; the answer is the change that undoes it. What is refused
// half-way is undone by the inverse of each record that went in before, last first.
absl::StatusOr<Change> PoolState::Apply(const Change& change) {
  absl::flat_hash_set<Key> keys;
  Change inverse;
  absl::Status status;
  for (const Item& item : change) {
    if (change.size() > 1 && !keys.insert(KeyOf(item)).second) {
      status = Broken("record ", KeyOf(item), " is twice in one change");
      break;
    }
    absl::StatusOr<Item> undo = ApplyOne(item);
    status = undo.status();
    if (!status.ok()) break;
    inverse.push_back(*std::move(undo));
  }
  if (status.ok()) status = CheckHostsOf(change, inverse);
  if (status.ok()) status = RebuildTopology();
  std::reverse(inverse.begin(), inverse.end());
  if (status.ok()) return inverse;
  for (const Item& undo : inverse) {
    CXLPOOL_CHECK_OK(ApplyOne(undo).status(), "a change that was refused cannot be undone: record ",
                     KeyOf(undo));
  }
  CXLPOOL_CHECK_OK(RebuildTopology(), "a topology that was refused cannot be undone");
  return status;
}

// As Apply, of all records of a database, and without an inverse: where it is refused the state is
// of no use. Devices come first, since Regions hold bytes of them, and the topology is followed
// once for all.
absl::Status PoolState::Restore(const Change& records) {
  regions_.reserve(records.size());
  names_.Reserve(records.size());
  requests_.Reserve(records.size());
  // Regions hold bytes of devices.
  const auto restore = [&](bool devices) {
    for (const Item& item : records) {
      if (std::holds_alternative<Device>(item) != devices) continue;
      if (std::holds_alternative<AuditRowPtr>(item)) continue;
      const auto undo = ApplyOne(item);
      if (!undo.ok()) return undo.status();
      if (!std::holds_alternative<Erased>(*undo))
        return Broken("record ", KeyOf(item), " is twice");
    }
    return absl::OkStatus();
  };
  devices_.HoldTopology();
  absl::Status status = restore(true);
  devices_.FollowTopology();
  if (status.ok()) status = restore(false);
  if (status.ok()) status = RebuildTopology();
  if (status.ok()) status = CheckHostsOf(records, {});
  return status;
}

// Whatever the order within the change, in the end each Attachment's host is known.
absl::Status PoolState::CheckHostsOf(const Change& change, const Change& inverse) const {
  for (const Item& item : change) {
    if (const auto* region = std::get_if<RegionPtr>(&item)) {
      for (const Attachment& attachment : (*region)->attachments) {
        if (!hosts_.contains(attachment.host)) {
          return Broken("region \"", (*region)->id, "\" is attached to host \"", attachment.host,
                        "\", which is not enrolled");
        }
      }
    }
  }
  for (const Item& undo : inverse) {
    const auto* host = std::get_if<Host>(&undo);
    if (host == nullptr || hosts_.contains(host->id)) continue;
    for (const auto& [key, region] : regions_) {
      if (region->FindAttachment(absl::string_view(host->id)) != nullptr) {
        return Broken("host \"", host->id, "\" has an Attachment of region \"", region->id, "\"");
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Item> PoolState::ApplyOne(const Item& item) {
  const Key key = KeyOf(item);
  if (const auto* erased = std::get_if<Erased>(&item)) return Erase(erased->key);
  if (const auto* host = std::get_if<Host>(&item)) return PutHost(*host);
  if (const auto* device = std::get_if<Device>(&item)) return PutDevice(*device);
  if (const auto* tenant = std::get_if<Tenant>(&item)) return PutTenant(*tenant);
  if (const auto* revocation = std::get_if<Revocation>(&item)) {
    return PutNamed(access_rules_.revocations, Kind::kRevocation, revocation->subject, *revocation);
  }
  if (const auto* binding = std::get_if<RoleBinding>(&item)) {
    return PutNamed(access_rules_.bindings, Kind::kRoleBinding, binding->identity, *binding);
  }
  if (const auto* entry = std::get_if<TopologyEntry>(&item)) return PutTopologyEntry(*entry);
  if (named_.contains(key) || key == 0 || std::holds_alternative<AuditRowPtr>(item)) {
    return Broken("record ", key, " is not a Region's");
  }
  const auto* tombstone = std::get_if<Tombstone>(&item);
  return tombstone != nullptr ? PutTombstone(*tombstone) : PutRegion(std::get<RegionPtr>(item));
}

// Makes a Region, replaces one, or brings one back from its tombstone; the record that it replaced.
// Only the indices that the difference touches are written: most changes are one rung of one
// Attachment. Where one refuses, the others are as they were.
absl::StatusOr<Item> PoolState::PutRegion(const RegionPtr& region) {
  if (absl::Status status = CheckShape(*region); !status.ok()) return status;
  const auto [it, fresh] = regions_.try_emplace(region->key);
  if (fresh) {
    // The inverse of a change that buried it brings it back from its tombstone.
    const Tombstone* gone = tombstones_.Find(region->key);
    Item before = Erased{region->key};
    if (gone != nullptr) {
      before = *gone;
      requests_.Remove(*gone->region);
    }
    if (absl::Status status = Index(region, kAll); !status.ok()) {
      regions_.erase(region->key);
      if (gone != nullptr) {
        CXLPOOL_CHECK_OK(requests_.Add(*gone->region), "the requests of a tombstone are lost");
      }
      return status;
    }
    if (gone != nullptr) tombstones_.Erase(region->key);
    it->second = region;
    return before;
  }
  const RegionPtr before = it->second;
  const unsigned indices = IndicesThatDiffer(*before, *region);
  // Most changes are a rung of an Attachment, which is another entry in the same slots.
  if (indices != kAttachments || !attachments_.Move(*before, *region)) {
    Unindex(before, indices);
    if (absl::Status status = Index(region, indices); !status.ok()) {
      CXLPOOL_CHECK_OK(Index(before, indices), "region \"", before->id,
                       "\" no longer fits where it was");
      return status;
    }
  }
  if ((indices & kNames) == 0) names_.Replace(before, region);
  it->second = region;
  return Item(before);
}

// Buries a Region, or replaces its tombstone. Its requests stay in their index, so that a request
// sent again gets the answer of the first; all else of it leaves the indices.
absl::StatusOr<Item> PoolState::PutTombstone(const Tombstone& tombstone) {
  const Region& region = *tombstone.region;
  if (!region.attachments.empty()) {
    return Broken("region \"", region.id, "\" would be gone while attached");
  }
  Item before = Erased{region.key};
  if (const auto live = regions_.find(region.key); live != regions_.end()) {
    before = live->second;
    Unindex(live->second, kAll);
  } else if (const Tombstone* gone = tombstones_.Find(region.key)) {
    before = *gone;
    requests_.Remove(*gone->region);
  }
  if (absl::Status status = requests_.Add(region); !status.ok()) {
    if (const auto* live = std::get_if<RegionPtr>(&before)) {
      CXLPOOL_CHECK_OK(Index(*live, kAll), "region \"", (*live)->id,
                       "\" no longer fits where it was");
    } else if (const auto* gone = std::get_if<Tombstone>(&before)) {
      CXLPOOL_CHECK_OK(requests_.Add(*gone->region), "the requests of a tombstone are lost");
    }
    return status;
  }
  regions_.erase(region.key);
  tombstones_.Put(tombstone);
  return before;
}

// Removes whatever has the key; the record that it was.
absl::StatusOr<Item> PoolState::Erase(Key key) {
  if (const auto it = regions_.find(key); it != regions_.end()) {
    const RegionPtr before = it->second;
    Unindex(before, kAll);
    regions_.erase(it);
    return Item(before);
  }
  if (const Tombstone* gone = tombstones_.Find(key)) {
    const Tombstone before = *gone;
    requests_.Remove(*before.region);
    tombstones_.Erase(key);
    return Item(before);
  }
  return EraseNamed(key);
}

// Removes a record that is no Region, from its table and from every index that names it. A device
// that still holds bytes is refused; hosts are looked at by CheckHostsOf, once the whole change is
// in.
absl::StatusOr<Item> PoolState::EraseNamed(Key key) {
  const auto named = named_.find(key);
  if (named == named_.end()) return Broken("there is no record ", key, " to erase");
  const auto [kind, id] = named->second;
  Item before;
  switch (kind) {
    case Kind::kHost: {
      const Host host = hosts_.at(id);
      CountGranule(id, false);
      if (!host.retired) by_identity_.erase(host.identity);
      hosts_.erase(id);
      before = host;
      break;
    }
    case Kind::kDevice: {
      before = *devices_.Find(id);
      if (absl::Status status = devices_.Remove(id); !status.ok()) return status;
      break;
    }
    case Kind::kTenant: {
      before = *tenants_.Find(id);
      tenants_.Erase(id);
      break;
    }
    case Kind::kRevocation: {
      before = access_rules_.revocations.at(id);
      access_rules_.revocations.erase(id);
      break;
    }
    case Kind::kRoleBinding: {
      before = access_rules_.bindings.at(id);
      access_rules_.bindings.erase(id);
      break;
    }
    case Kind::kTopologyEntry: {
      before = topology_entries_.at(key);
      topology_names_.erase(id);
      topology_entries_.erase(key);
      stale_topology_ = true;
      break;
    }
  }
  named_.erase(key);
  return before;
}

// Adds or replaces a device. A key stays with its id, and a device that takes another shape must
// have room for the Regions that are on it.
absl::StatusOr<Item> PoolState::PutDevice(const Device& device) {
  const Device* known = devices_.Find(device.id);
  if (known == nullptr) {
    if (absl::Status status = CheckNewKey(device.key, device.id); !status.ok()) return status;
    if (absl::Status status = devices_.Add(device); !status.ok()) return status;
    named_[device.key] = {Kind::kDevice, device.id};
    return Item(Erased{device.key});
  }
  if (known->key != device.key) {
    return Broken("device \"", device.id, "\" is record ", known->key, ", not ", device.key);
  }
  Item before = *known;
  // Only where it takes another shape around them, which is rare, are its Regions looked for.
  std::vector<Extent> held;
  if (!known->IsShapedAs(device)) {
    for (const RegionPtr& region : RegionsOn(device.id)) {
      for (const Extent& extent : region->extents) {
        if (extent.device.str() == device.id) held.push_back(extent);
      }
    }
  }
  if (absl::Status status = devices_.Change(device, held); !status.ok()) return status;
  return before;
}

// Adds or replaces a tenant. A key stays with its id.
absl::StatusOr<Item> PoolState::PutTenant(const Tenant& tenant) {
  const Tenant* known = tenants_.Find(tenant.id);
  Item before = Erased{tenant.key};
  if (known == nullptr) {
    if (absl::Status status = CheckNewKey(tenant.key, tenant.id); !status.ok()) return status;
    named_[tenant.key] = {Kind::kTenant, tenant.id};
  } else if (known->key != tenant.key) {
    return Broken("tenant \"", tenant.id, "\" is record ", known->key, ", not ", tenant.key);
  } else {
    before = *known;
  }
  tenants_.Put(tenant);
  return before;
}

// Adds or replaces what is said of one subject. A key stays with its subject.
template <typename Named>
absl::StatusOr<Item> PoolState::PutNamed(std::map<std::string, Named, std::less<>>& table,
                                         Kind kind, const std::string& name, const Named& wanted) {
  const auto known = table.find(name);
  if (known == table.end()) {
    if (absl::Status status = CheckNewKey(wanted.key, name); !status.ok()) return status;
    table.emplace(name, wanted);
    named_[wanted.key] = {kind, name};
    return Item(Erased{wanted.key});
  }
  if (known->second.key != wanted.key) {
    return Broken("what is said of ", name, " is record ", known->second.key, ", not ", wanted.key);
  }
  Item before = known->second;
  known->second = wanted;
  return before;
}

// An entry keeps its kind and its name for life. Links have none of their own, and any number of
// them may join the same two nodes.
absl::StatusOr<Item> PoolState::PutTopologyEntry(const TopologyEntry& entry) {
  const bool is_link = std::holds_alternative<LinkEntry>(entry.what);
  const std::string name = is_link ? absl::StrCat("link ", entry.key) : NameOf(entry);
  const auto it = topology_entries_.find(entry.key);
  if (it == topology_entries_.end()) {
    if (absl::Status status = CheckNewKey(entry.key, name); !status.ok()) return status;
    if (!topology_names_.insert(name).second) return Broken("the topology has two of ", name);
    topology_entries_[entry.key] = entry;
    named_[entry.key] = {Kind::kTopologyEntry, name};
    stale_topology_ = true;
    return Item(Erased{entry.key});
  }
  if (named_.at(entry.key).second != name) {
    return Broken("record ", entry.key, " is ", named_.at(entry.key).second, ", not ", name);
  }
  Item before = it->second;
  it->second = entry;
  stale_topology_ = true;
  return before;
}

// Adds or replaces a host. A key stays with its id, and an identity belongs to one host that is not
// retired: else two hosts could act as one.
absl::StatusOr<Item> PoolState::PutHost(const Host& host) {
  const auto it = hosts_.find(host.id);
  Item before = Erased{host.key};
  if (it == hosts_.end()) {
    if (absl::Status status = CheckNewKey(host.key, host.id); !status.ok()) return status;
  } else if (it->second.key != host.key) {
    return Broken("host \"", host.id, "\" is record ", it->second.key, ", not ", host.key);
  }
  const auto owner = by_identity_.find(host.identity);
  if (!host.retired && owner != by_identity_.end() && owner->second != host.id) {
    return Broken("identity ", host.identity, " belongs to host \"", owner->second, "\"");
  }
  if (it != hosts_.end()) {
    before = it->second;
    if (!it->second.retired) by_identity_.erase(it->second.identity);
  }
  if (!host.retired) by_identity_[host.identity] = host.id;
  CountGranule(host.id, false);
  hosts_[host.id] = host;
  CountGranule(host.id, true);
  named_[host.key] = {Kind::kHost, host.id};
  return before;
}

absl::Status PoolState::CheckNewKey(Key key, absl::string_view id) const {
  if (key == 0 || id.empty()) return Broken("\"", id, "\" lacks a key or an id");
  if (regions_.contains(key) || tombstones_.Find(key) != nullptr || named_.contains(key)) {
    return Broken("record ", key, " is not \"", id, "\"");
  }
  return absl::OkStatus();
}

// The indices that must be written when one record follows the other. ALLOCATED and its neighbours
// count bytes the same way, so that a rung does not touch the devices.
unsigned PoolState::IndicesThatDiffer(const Region& before, const Region& after) {
  unsigned indices = 0;
  if (before.id != after.id || before.tag != after.tag) indices |= kNames;
  if (before.requests != after.requests) indices |= kRequests;
  const auto use = [](RegionState state) {
    return state == RegionState::kScrubbing || state == RegionState::kQuarantined
               ? state
               : RegionState::kAllocated;
  };
  if (before.extents != after.extents || before.tenant != after.tenant || before.bad != after.bad ||
      use(before.state) != use(after.state)) {
    indices |= kExtents;
  }
  const bool attached = !before.attachments.empty() || !after.attachments.empty();
  if (attached && (before.attachments != after.attachments || (indices & kExtents) != 0 ||
                   before.id != after.id || before.interleave_ways != after.interleave_ways)) {
    indices |= kAttachments;
  }
  return indices;
}

// Adds the Region to the given indices. Where one refuses, it is in none of them.
absl::Status PoolState::Index(const RegionPtr& region, unsigned indices) {
  absl::Status status;
  unsigned done = 0;
  const auto add = [&](unsigned index, const auto& to) {
    if ((indices & index) == 0 || !status.ok()) return;
    status = to();
    if (status.ok()) done |= index;
  };
  add(kNames, [&] { return names_.Add(region); });
  add(kRequests, [&] { return requests_.Add(*region); });
  add(kExtents, [&] {
    absl::Status taken = devices_.Take(*region);
    if (taken.ok()) tenants_.Charge(*region, 1);
    return taken;
  });
  add(kAttachments, [&] { return attachments_.Add(*region); });
  if (!status.ok()) Unindex(region, done);
  return status;
}

void PoolState::Unindex(const RegionPtr& region, unsigned indices) {
  if (indices & kExtents) {
    devices_.Give(*region);
    tenants_.Charge(*region, -1);
  }
  if (indices & kNames) names_.Remove(*region);
  if (indices & kRequests) requests_.Remove(*region);
  if (indices & kAttachments) attachments_.Remove(*region);
}

// Once a change, whatever many entries it has. A device that was removed stays in the topology,
// where it is in nobody's way, until its entry goes.
absl::Status PoolState::RebuildTopology() {
  if (!stale_topology_) return absl::OkStatus();
  TopologyTables tables;
  for (const auto& [key, entry] : topology_entries_) AddTo(tables, entry);
  auto topology = Topology::Create(SpecOf(tables));
  if (!topology.ok()) return Broken(topology.status().message());
  stale_topology_ = false;
  SetTopology(*std::move(topology));
  return absl::OkStatus();
}

// A link to a device that is not among them would make tables that nobody can apply.
TopologyTables PoolState::GetTopologyTables() const {
  TopologyTables tables;
  for (const auto& [key, entry] : topology_entries_) AddTo(tables, entry);
  EraseDevices(tables, RemovedDevices());
  return tables;
}

bool PoolState::IsRemoved(absl::string_view device) const {
  const Device* known = FindDevice(device);
  return known != nullptr && known->service == DeviceService::kRemoved;
}

std::set<std::string> PoolState::RemovedDevices() const {
  std::set<std::string> removed;
  for (const auto& [id, device] : devices()) {
    if (device.service == DeviceService::kRemoved) removed.insert(id);
  }
  return removed;
}

const RegionPtr* PoolState::FindRegion(Key key) const {
  const auto it = regions_.find(key);
  return it == regions_.end() ? nullptr : &it->second;
}

const RegionPtr* PoolState::FindRegionBySerial(uint64_t serial) const {
  const std::optional<Key> key = attachments_.FindBySerial(serial);
  return key.has_value() ? FindRegion(*key) : nullptr;
}

const Host* PoolState::FindHost(absl::string_view id) const {
  const auto it = hosts_.find(id);
  return it == hosts_.end() ? nullptr : &it->second;
}

const Host* PoolState::FindHostByIdentity(absl::string_view uri) const {
  const auto it = by_identity_.find(uri);
  return it == by_identity_.end() ? nullptr : FindHost(it->second);
}

const HostRuntimePtr& PoolState::RuntimeOf(absl::string_view host) const {
  static const auto& kNone = *new HostRuntimePtr(std::make_shared<const HostRuntime>());
  const auto it = runtimes_.find(host);
  return it == runtimes_.end() ? kNone : it->second;
}

void PoolState::SetRuntime(absl::string_view host, HostRuntime runtime) {
  CountGranule(host, false);
  runtimes_[std::string(host)] = std::make_shared<const HostRuntime>(std::move(runtime));
  CountGranule(host, true);
}

void PoolState::CountGranule(absl::string_view host, bool there) {
  const Host* const known = FindHost(host);
  const HostRuntime& runtime = Runtime(host);
  if (known == nullptr || !MayAttach(*known, runtime)) return;
  if (there) {
    ++host_granules_[runtime.region_granule_bytes];
    return;
  }
  const auto counted = host_granules_.find(runtime.region_granule_bytes);
  CXLPOOL_CHECK(counted != host_granules_.end(), "the granule of host \"", host,
                "\" is not counted");
  if (--counted->second == 0) host_granules_.erase(counted);
}

void PoolState::ForgetAgent(absl::string_view host) {
  const HostRuntime& known = Runtime(host);
  if (known.last_heartbeat == absl::InfinitePast()) return;
  HostRuntime left;
  left.fabric_reachable = known.fabric_reachable;
  left.fabric_reason = known.fabric_reason;
  left.fabric_slots = known.fabric_slots;
  left.unreached = known.unreached;
  left.wrong_since = WrongSince(known, left, absl::InfinitePast());
  SetRuntime(host, std::move(left));
}

std::vector<RegionPtr> PoolState::RegionsOn(absl::string_view device) const {
  std::vector<RegionPtr> found;
  for (const auto& [key, region] : regions_) {
    if (region->HasBytesOn(device)) found.push_back(region);
  }
  std::sort(found.begin(), found.end(),
            [](const RegionPtr& a, const RegionPtr& b) { return a->key < b->key; });
  return found;
}

std::optional<PoolState::Remembered> PoolState::FindRequest(const RequestId& id) const {
  const std::optional<Key> key = requests_.Find(id);
  if (!key.has_value()) return std::nullopt;
  const RegionPtr* live = FindRegion(*key);
  Remembered found{live != nullptr ? *live : tombstones_.Find(*key)->region};
  for (const Request& request : found.region->requests) {
    if (request.id == id) found.payload_hash = request.payload_hash;
  }
  return found;
}

Change PoolState::ExpiredTombstones(absl::Time now, size_t limit) const {
  Change change;
  for (const Key key : tombstones_.Expired(now, limit)) change.emplace_back(Erased{key});
  return change;
}

// The indices are compared with those that are made from the records anew.
absl::Status PoolState::CheckInvariants() const {
  if (absl::Status status = CheckDisjoint(regions_); !status.ok()) return status;
  PoolState fresh;
  Change change;
  change.reserve(devices().size() + hosts_.size() + tenants().size() +
                 access_rules_.revocations.size() + access_rules_.bindings.size() +
                 regions_.size() + tombstones_.all().size());
  for (const auto& [id, device] : devices()) change.push_back(device);
  for (const auto& [id, host] : hosts_) change.push_back(host);
  for (const auto& [id, tenant] : tenants()) change.push_back(tenant);
  for (const auto& [subject, revocation] : access_rules_.revocations) change.push_back(revocation);
  for (const auto& [identity, binding] : access_rules_.bindings) change.push_back(binding);
  for (const auto& [key, entry] : topology_entries_) change.push_back(entry);
  for (const auto& [key, region] : regions_) change.push_back(region);
  for (const auto& [key, tombstone] : tombstones_.all()) change.push_back(tombstone);
  if (absl::Status built = fresh.Restore(change); !built.ok()) return built;

  for (const auto& [id, host] : hosts_) fresh.SetRuntime(id, Runtime(id));
  if (fresh.host_granules_ != host_granules_) return Broken("the count of granules differs");
  if (fresh.requests_ != requests_) return Broken("the index of requests differs");
  if (fresh.by_identity_ != by_identity_) return Broken("the index by identity differs");
  if (fresh.named_ != named_) return Broken("the index of hosts and devices differs");
  for (absl::Status status : {names_.Check(regions_), tombstones_.Check(), devices_.Check(),
                              devices_.Compare(fresh.devices_), tenants_.Compare(fresh.tenants_),
                              attachments_.Compare(fresh.attachments_)}) {
    if (!status.ok()) return Broken("pool state: ", status.message());
  }
  return absl::OkStatus();
}

}  // namespace cxlpool::fm
