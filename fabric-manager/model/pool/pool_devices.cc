// PoolState's devices: their indices, which may be used, and how the topology leads to them.

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "fabric-manager/model/pool/pool_state.h"
#include "proto/support/check.h"

namespace cxlpool::fm {
namespace {

template <typename... Args>
absl::Status Broken(const Args&... what) {
  return absl::InternalError(absl::StrCat(what...));
}

}  // namespace

absl::StatusOr<Item> PoolState::PutDevice(const Device& device) {
  const auto it = devices_.find(device.id);
  if (it == devices_.end()) {
    if (absl::Status status = CheckNewKey(device.key, device.id); !status.ok()) return status;
    if (const auto index = AddIndex(device); !index.ok()) return index.status();
    named_[device.key] = {Kind::kDevice, device.id};
    return Item(Erased{device.key});
  }
  const Device before = it->second;
  if (before.key != device.key) {
    return Broken("device \"", device.id, "\" is record ", before.key, ", not ", device.key);
  }
  if (before.capacity_bytes != device.capacity_bytes ||
      before.granule_bytes != device.granule_bytes || before.max_lds != device.max_lds) {
    if (absl::Status status = Reshape(before, device); !status.ok()) return status;
  }
  Device& now = devices_.at(device.id);
  now = device;
  now.reachable = before.reachable;
  now.unreachable_reason = before.unreachable_reason;
  UpdateUsable(*IndexOf(Interned(device.id)));
  return Item(before);
}

// Another capacity or granule, around the Regions that are there.
absl::Status PoolState::Reshape(const Device& before, const Device& after) {
  const DeviceIndex index = *IndexOf(Interned(before.id));
  std::vector<Extent> held;
  for (const RegionPtr& region : RegionsOn(before.id)) {
    for (const Extent& extent : region->extents) {
      if (extent.device.str() == before.id) held.push_back(extent);
    }
  }
  // The index that was given back last is the next to be given.
  const auto change = [&](const Device& from, size_t taken,
                          const Device& to) -> std::optional<size_t> {
    for (size_t i = 0; i < taken; ++i) {
      CXLPOOL_CHECK_OK(space_.Give(index, held[i].dpa_bytes, held[i].length_bytes),
                       "an extent of device \"", from.id, "\" cannot be given back");
    }
    CXLPOOL_CHECK_OK(space_.RemoveDevice(index), "device \"", from.id, "\" is not empty");
    const auto again = space_.AddDevice(to.capacity_bytes, to.granule_bytes, to.max_lds);
    if (!again.ok()) {
      if (&to != &from) {
        const auto back = space_.AddDevice(from.capacity_bytes, from.granule_bytes, from.max_lds);
        CXLPOOL_CHECK(back.ok() && *back == index, "device \"", from.id, "\" lost its index");
      }
      return std::nullopt;
    }
    CXLPOOL_CHECK(*again == index, "device \"", to.id, "\" got another index");
    size_t fits = 0;
    while (fits < held.size() &&
           space_.Take(index, held[fits].dpa_bytes, held[fits].length_bytes).ok()) {
      ++fits;
    }
    return fits;
  };
  const auto fits = change(before, held.size(), after);
  if (fits == held.size()) return absl::OkStatus();
  const auto restored = change(fits.has_value() ? after : before, fits.value_or(0), before);
  CXLPOOL_CHECK(restored == held.size(), "device \"", before.id, "\" held ", held.size(),
                " extents and takes ", restored.value_or(0), " of them back");
  return Broken("device \"", before.id, "\" would not have room for its Regions any more");
}

absl::StatusOr<DeviceIndex> PoolState::AddIndex(const Device& device) {
  const auto index = space_.AddDevice(device.capacity_bytes, device.granule_bytes, device.max_lds);
  if (!index.ok()) return Broken("device \"", device.id, "\": ", index.status().message());
  if (by_index_.size() <= *index) {
    by_index_.resize(*index + 1);
    names_.resize(*index + 1);
    use_.resize(*index + 1);
    domain_of_.resize(*index + 1);
  }
  by_index_[*index] = &(devices_[device.id] = device);
  use_[*index] = {};
  names_[*index] = device.id;
  index_of_[names_[*index]] = *index;
  if (topology_.connects_all()) {
    AddToDomain(*index);
  } else if (!restoring_) {
    UpdateTopology();
  }
  UpdateUsable(*index);
  return *index;
}

absl::Status PoolState::DropDevice(const Device& device) {
  const Interned id(device.id);
  const DeviceIndex index = index_of_.at(id);
  if (use_[index].lds != 0 || !space_.RemoveDevice(index).ok()) {
    return Broken("device \"", device.id, "\" holds bytes of Regions");
  }
  by_index_[index] = nullptr;
  index_of_.erase(id);
  usable_.Remove(index);
  placeable_.Remove(index);
  devices_.erase(device.id);
  UpdateTopology();
  return absl::OkStatus();
}

void PoolState::UpdateUsable(DeviceIndex index) {
  const Device& device = *by_index_[index];
  const bool usable = device.reachable && device.service == DeviceService::kInService;
  const bool below = use_[index].lds < MaxLds(index);
  usable ? usable_.Add(index) : usable_.Remove(index);
  usable&& below ? placeable_.Add(index) : placeable_.Remove(index);
}

void PoolState::AddToDomain(DeviceIndex index) {
  const auto [it, fresh] =
      domain_numbers_.try_emplace(topology_.DomainOf(by_index_[index]->id), domains_.size());
  if (fresh) domains_.emplace_back();
  domains_[it->second].Add(index);
  domain_of_[index] = it->second;
}

void PoolState::UpdateTopology() {
  reach_.clear();
  domains_.clear();
  domain_numbers_.clear();
  for (size_t i = 0; i < by_index_.size(); ++i) {
    if (by_index_[i] != nullptr) AddToDomain(static_cast<DeviceIndex>(i));
  }
  for (const auto& [ends, path] : topology_.paths()) {
    if (const auto index = IndexOf(Interned(ends.second))) reach_[ends.first].Add(*index);
  }
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

TopologyTables PoolState::GetTopologyTables() const {
  TopologyTables tables;
  for (const auto& [key, entry] : topology_entries_) AddTo(tables, entry);
  std::erase_if(tables.devices, [this](const DeviceEntry& entry) {
    const Device* device = FindDevice(entry.id);
    return device != nullptr && device->service == DeviceService::kRemoved;
  });
  return tables;
}

void PoolState::SetReachable(absl::string_view device, absl::string_view why_not) {
  const auto it = devices_.find(device);
  if (it == devices_.end()) return;
  it->second.reachable = why_not.empty();
  it->second.unreachable_reason = std::string(why_not);
  UpdateUsable(*IndexOf(Interned(device)));
}

void PoolState::SetTopology(Topology topology) {
  topology_ = std::move(topology);
  UpdateTopology();
}

void PoolState::SetLimits(const FabricLimits& limits) {
  limits_ = limits;
  for (const auto& [id, index] : index_of_) UpdateUsable(index);
}

std::optional<DeviceIndex> PoolState::IndexOf(Interned device) const {
  const auto it = index_of_.find(device);
  if (it == index_of_.end()) return std::nullopt;
  return it->second;
}

const DeviceSet& PoolState::ReachOf(absl::string_view host) const {
  static const DeviceSet& all = *new DeviceSet(DeviceSet::All());
  static const DeviceSet& none = *new DeviceSet();
  if (topology_.connects_all()) return all;
  const auto it = reach_.find(host);
  return it == reach_.end() ? none : it->second;
}

}  // namespace cxlpool::fm
