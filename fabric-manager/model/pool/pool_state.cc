#include "fabric-manager/model/pool/pool_state.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "proto/support/check.h"

namespace cxlpool::fm {
namespace {

template <typename... Args>
absl::Status Broken(const Args&... what) {
  return absl::InternalError(absl::StrCat(what...));
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
    Key operator()(const TopologyEntry& entry) const { return entry.key; }
  };
  return std::visit(Visitor{}, item);
}

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

absl::Status PoolState::Restore(const Change& records) {
  regions_.reserve(records.size());
  by_id_.reserve(records.size());
  by_tag_.reserve(records.size());
  requests_.reserve(records.size());
  // Regions hold bytes of devices.
  const auto restore = [&](bool devices) {
    for (const Item& item : records) {
      if (std::holds_alternative<Device>(item) != devices) continue;
      const auto undo = ApplyOne(item);
      if (!undo.ok()) return undo.status();
      if (!std::holds_alternative<Erased>(*undo))
        return Broken("record ", KeyOf(item), " is twice");
    }
    return absl::OkStatus();
  };
  restoring_ = true;
  absl::Status status = restore(true);
  restoring_ = false;
  UpdateTopology();
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
  if (const auto* revocation = std::get_if<Revocation>(&item)) return PutRevocation(*revocation);
  if (const auto* entry = std::get_if<TopologyEntry>(&item)) return PutTopologyEntry(*entry);
  if (named_.contains(key) || key == 0) return Broken("record ", key, " is not a Region's");
  const auto* tombstone = std::get_if<Tombstone>(&item);
  return tombstone != nullptr ? PutTombstone(*tombstone) : PutRegion(std::get<RegionPtr>(item));
}

absl::StatusOr<Item> PoolState::PutRegion(const RegionPtr& region) {
  if (absl::Status status = CheckShape(*region); !status.ok()) return status;
  const auto [it, fresh] = regions_.try_emplace(region->key);
  if (fresh) {
    const auto gone = tombstones_.find(region->key);
    Item before = Erased{region->key};
    if (gone != tombstones_.end()) {
      before = gone->second;
      BuryRequests(gone->second, false);
    }
    if (absl::Status status = Index(region, kAllParts); !status.ok()) {
      regions_.erase(region->key);
      if (gone != tombstones_.end()) BuryRequests(gone->second, true);
      return status;
    }
    if (gone != tombstones_.end()) tombstones_.erase(gone);
    it->second = region;
    return before;
  }
  const RegionPtr before = it->second;
  const unsigned parts = PartsThatDiffer(*before, *region);
  if (parts != kAttachments || !MoveAttachments(*before, *region)) {
    Unindex(before, parts);
    if (absl::Status status = Index(region, parts); !status.ok()) {
      CXLPOOL_CHECK_OK(Index(before, parts), "region \"", before->id,
                       "\" no longer fits where it was");
      return status;
    }
  }
  if ((parts & kNames) == 0) {
    // Found by the same id and tag as before.
    const auto by_id = by_id_.find(region->id);
    const auto by_tag = by_tag_.find(region->tag);
    CXLPOOL_CHECK(by_id != by_id_.end() && *by_id == before, "region \"", region->id,
                  "\" is not the one of that name in the index");
    CXLPOOL_CHECK(by_tag != by_tag_.end() && *by_tag == before, "region \"", region->id,
                  "\" is not the one of its tag in the index");
    const_cast<RegionPtr&>(*by_id) = region;
    const_cast<RegionPtr&>(*by_tag) = region;
  }
  it->second = region;
  return Item(before);
}

absl::StatusOr<Item> PoolState::PutTombstone(const Tombstone& tombstone) {
  const Region& region = *tombstone.region;
  if (!region.attachments.empty()) {
    return Broken("region \"", region.id, "\" would be gone while attached");
  }
  Item before = Erased{region.key};
  if (const auto live = regions_.find(region.key); live != regions_.end()) {
    before = live->second;
    Unindex(live->second, kAllParts);
  } else if (const auto gone = tombstones_.find(region.key); gone != tombstones_.end()) {
    before = gone->second;
    BuryRequests(gone->second, false);
  }
  if (absl::Status status = IndexRequests(region); !status.ok()) {
    if (const auto* live = std::get_if<RegionPtr>(&before)) {
      CXLPOOL_CHECK_OK(Index(*live, kAllParts), "region \"", (*live)->id,
                       "\" no longer fits where it was");
    } else if (const auto* gone = std::get_if<Tombstone>(&before)) {
      BuryRequests(*gone, true);
    }
    return status;
  }
  regions_.erase(region.key);
  BuryRequests(tombstone, true);
  tombstones_[region.key] = tombstone;
  return before;
}

absl::StatusOr<Item> PoolState::Erase(Key key) {
  if (const auto it = regions_.find(key); it != regions_.end()) {
    const RegionPtr before = it->second;
    Unindex(before, kAllParts);
    regions_.erase(it);
    return Item(before);
  }
  if (const auto it = tombstones_.find(key); it != tombstones_.end()) {
    const Tombstone before = it->second;
    BuryRequests(before, false);
    tombstones_.erase(it);
    return Item(before);
  }
  return EraseNamed(key);
}

absl::StatusOr<Item> PoolState::EraseNamed(Key key) {
  const auto named = named_.find(key);
  if (named == named_.end()) return Broken("there is no record ", key, " to erase");
  const auto [kind, id] = named->second;
  Item before;
  switch (kind) {
    case Kind::kHost: {
      const Host host = hosts_.at(id);
      if (!host.retired) by_identity_.erase(host.identity);
      hosts_.erase(id);
      before = host;
      break;
    }
    case Kind::kDevice: {
      const Device device = devices_.at(id);
      if (absl::Status status = DropDevice(device); !status.ok()) return status;
      before = device;
      break;
    }
    case Kind::kTenant: {
      before = tenants_.at(id);
      promised_bytes_ -= Unused(tenants_.at(id));
      tenants_.erase(id);
      break;
    }
    case Kind::kRevocation: {
      before = revocations_.at(id);
      revocations_.erase(id);
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

absl::StatusOr<Item> PoolState::PutTenant(const Tenant& tenant) {
  const auto it = tenants_.find(tenant.id);
  if (it == tenants_.end()) {
    if (absl::Status status = CheckNewKey(tenant.key, tenant.id); !status.ok()) return status;
    tenants_[tenant.id] = tenant;
    named_[tenant.key] = {Kind::kTenant, tenant.id};
    promised_bytes_ += Unused(tenant);
    return Item(Erased{tenant.key});
  }
  if (it->second.key != tenant.key) {
    return Broken("tenant \"", tenant.id, "\" is record ", it->second.key, ", not ", tenant.key);
  }
  Item before = it->second;
  promised_bytes_ -= Unused(it->second);
  it->second = tenant;
  promised_bytes_ += Unused(tenant);
  return before;
}

absl::StatusOr<Item> PoolState::PutRevocation(const Revocation& revocation) {
  const auto [it, fresh] = revocations_.try_emplace(revocation.subject, revocation);
  if (fresh) {
    if (absl::Status status = CheckNewKey(revocation.key, revocation.subject); !status.ok()) {
      revocations_.erase(it);
      return status;
    }
    named_[revocation.key] = {Kind::kRevocation, revocation.subject};
    return Item(Erased{revocation.key});
  }
  if (it->second.key != revocation.key) {
    return Broken("the revocation of ", revocation.subject, " is record ", it->second.key, ", not ",
                  revocation.key);
  }
  Item before = it->second;
  it->second = revocation;
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
  hosts_[host.id] = host;
  named_[host.key] = {Kind::kHost, host.id};
  return before;
}

absl::Status PoolState::CheckNewKey(Key key, absl::string_view id) const {
  if (key == 0 || id.empty()) return Broken("\"", id, "\" lacks a key or an id");
  if (regions_.contains(key) || tombstones_.contains(key) || named_.contains(key)) {
    return Broken("record ", key, " is not \"", id, "\"");
  }
  return absl::OkStatus();
}

void PoolState::BuryRequests(const Tombstone& tombstone, bool bury) {
  const Key key = tombstone.region->key;
  for (const Request& request : tombstone.region->requests) {
    if (bury) {
      requests_[request.id] = key;
    } else {
      requests_.erase(request.id);
    }
  }
  if (bury) {
    by_gone_time_.insert({tombstone.gone_time, key});
  } else {
    by_gone_time_.erase({tombstone.gone_time, key});
  }
}

void PoolState::SetRuntime(absl::string_view host, HostRuntime runtime) {
  host_use_[std::string(host)].runtime = std::make_shared<const HostRuntime>(std::move(runtime));
}

}  // namespace cxlpool::fm
