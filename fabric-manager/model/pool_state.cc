#include "fabric-manager/model/pool_state.h"

#include <algorithm>
#include <cstdlib>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"

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
  };
  return std::visit(Visitor{}, item);
}

absl::StatusOr<Change> PoolState::Apply(const Change& change) {
  absl::flat_hash_set<Key> keys;
  Change inverse;
  absl::Status status;
  for (const Item& item : change) {
    if (!keys.insert(KeyOf(item)).second) {
      status = Broken("record ", KeyOf(item), " is twice in one change");
      break;
    }
    absl::StatusOr<Item> undo = ApplyOne(item);
    status = undo.status();
    if (!status.ok()) break;
    inverse.push_back(*std::move(undo));
  }
  if (status.ok()) status = CheckHostsOf(change, inverse);
  std::reverse(inverse.begin(), inverse.end());
  if (status.ok()) return inverse;
  for (const Item& undo : inverse) {
    if (!ApplyOne(undo).ok()) std::abort();  // The state is neither old nor new.
  }
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
  if (named_.contains(key) || key == 0) return Broken("record ", key, " is not a Region's");

  // A Region or its Tombstone takes the place of either.
  Item before = Erased{key};
  if (const auto it = regions_.find(key); it != regions_.end()) {
    before = it->second;
    Unindex(it->second);
    regions_.erase(it);
  } else if (const auto gone = tombstones_.find(key); gone != tombstones_.end()) {
    before = gone->second;
    BuryRequests(gone->second, false);
    tombstones_.erase(gone);
  }
  absl::Status status;
  if (const auto* tombstone = std::get_if<Tombstone>(&item)) {
    status = CheckRequests(*tombstone->region);
    if (!tombstone->region->attachments.empty()) {
      status = Broken("region \"", tombstone->region->id, "\" would be gone while attached");
    }
    if (status.ok()) {
      BuryRequests(*tombstone, true);
      tombstones_[key] = *tombstone;
    }
  } else {
    const RegionPtr& region = std::get<RegionPtr>(item);
    status = Index(region);
    if (status.ok()) regions_[key] = region;
  }
  if (status.ok()) return before;
  if (const auto* region = std::get_if<RegionPtr>(&before)) {
    if (!Index(*region).ok()) std::abort();
    regions_[key] = *region;
  } else if (const auto* tombstone = std::get_if<Tombstone>(&before)) {
    BuryRequests(*tombstone, true);
    tombstones_[key] = *tombstone;
  }
  return status;
}

absl::StatusOr<Item> PoolState::Erase(Key key) {
  if (const auto it = regions_.find(key); it != regions_.end()) {
    const RegionPtr before = it->second;
    Unindex(before);
    regions_.erase(it);
    return Item(before);
  }
  if (const auto it = tombstones_.find(key); it != tombstones_.end()) {
    const Tombstone before = it->second;
    BuryRequests(before, false);
    tombstones_.erase(it);
    return Item(before);
  }
  const auto named = named_.find(key);
  if (named == named_.end()) return Broken("there is no record ", key, " to erase");
  const auto [is_host, id] = named->second;
  if (is_host) {
    const Host before = hosts_.at(id);
    if (!before.retired) by_identity_.erase(before.identity);
    hosts_.erase(id);
    named_.erase(named);
    return Item(before);
  }
  const Device before = devices_.at(id);
  if (extents_.at(id).free_bytes() != before.capacity_bytes) {
    return Broken("device \"", id, "\" holds bytes of Regions");
  }
  extents_.erase(id);
  devices_.erase(id);
  named_.erase(named);
  return Item(before);
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
  named_[host.key] = {true, host.id};
  return before;
}

absl::StatusOr<Item> PoolState::PutDevice(const Device& device) {
  const auto it = devices_.find(device.id);
  auto map = ExtentMap::Create(device.capacity_bytes, device.granule_bytes);
  if (!map.ok()) return Broken("device \"", device.id, "\": ", map.status().message());
  if (it == devices_.end()) {
    if (absl::Status status = CheckNewKey(device.key, device.id); !status.ok()) return status;
    devices_[device.id] = device;
    extents_.insert_or_assign(device.id, *std::move(map));
    named_[device.key] = {false, device.id};
    return Item(Erased{device.key});
  }
  const Device before = it->second;
  if (before.key != device.key) {
    return Broken("device \"", device.id, "\" is record ", before.key, ", not ", device.key);
  }
  if (before.capacity_bytes != device.capacity_bytes ||
      before.granule_bytes != device.granule_bytes) {
    for (const auto& [key, region] : regions_) {
      for (const Extent& extent : region->extents) {
        if (extent.device != device.id) continue;
        if (!map->Take(extent.dpa_bytes, extent.length_bytes, UseOf(region->state)).ok()) {
          return Broken("device \"", device.id, "\" would not have room for region \"", region->id,
                        "\" any more");
        }
      }
    }
    extents_.insert_or_assign(device.id, *std::move(map));
  }
  it->second = device;
  it->second.reachable = before.reachable;
  return Item(before);
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
  host_use_[std::string(host)].runtime = std::move(runtime);
}

void PoolState::SetReachable(absl::string_view device, bool reachable) {
  if (const auto it = devices_.find(device); it != devices_.end()) {
    it->second.reachable = reachable;
  }
}

}  // namespace cxlpool::fm
