#include "fabric-manager/model/pool/device_table.h"

#include <utility>

#include "proto/support/check.h"
#include "proto/support/mutant.h"

namespace cxlpool::fm {
namespace {

// Where bytes are counted. Those of a bad Extent are lost to the pool at once.
uint64_t& Counter(DeviceUse& use, RegionState state, bool bad) {
  switch (bad ? RegionState::kQuarantined : state) {
    case RegionState::kScrubbing:
      return use.scrubbing_bytes;
    case RegionState::kQuarantined:
      return use.quarantined_bytes;
    default:
      return use.held_bytes;
  }
}

bool IsUsable(const Device& device) {
  return device.reachable && device.service == DeviceService::kInService;
}

}  // namespace

// Adds a device; the tables by number grow to hold it. Without links no other device's failure
// domain or reach depends on it, so only its own domain is looked up; else the ways are followed
// again.
absl::Status DeviceTable::Add(const Device& device) {
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
  } else if (!held_topology_) {
    FollowTopology();
  }
  UpdateUsable(*index);
  return absl::OkStatus();
}

// What the fabric shows of the device (whether it can be reached, and why not) is no part of the
// record, and stays as it was. A change that is refused has changed nothing.
absl::Status DeviceTable::Change(const Device& device, const std::vector<Extent>& held) {
  Device& now = devices_.at(device.id);
  if (!now.IsShapedAs(device)) {
    if (absl::Status status = Reshape(now, device, held); !status.ok()) return status;
  }
  const bool reachable = now.reachable;
  const absl::Time unreachable_since = now.unreachable_since;
  std::string why_not = std::move(now.unreachable_reason);
  now = device;
  now.reachable = reachable;
  now.unreachable_reason = std::move(why_not);
  now.unreachable_since = unreachable_since;
  UpdateUsable(*IndexOf(Interned(device.id)));
  return absl::OkStatus();
}

// Another capacity, granule or number of LDs, around the Regions that are there: takes them out,
// makes the device anew, and takes them in again. Where one does not fit any more, it is all put
// back.
absl::Status DeviceTable::Reshape(const Device& before, const Device& after,
                                  const std::vector<Extent>& held) {
  const DeviceIndex index = *IndexOf(Interned(before.id));
  // The lowest free index is the next to be given. It is this one, for no device before it has
  // gone: a device that was removed keeps its record, and so its index.
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

// Its index may be another device's next: it leaves every set, and what is kept of the topology by
// index is made anew.
absl::Status DeviceTable::Remove(absl::string_view id) {
  const Interned name(id);
  const DeviceIndex index = index_of_.at(name);
  if (use_[index].lds != 0 || !space_.RemoveDevice(index).ok()) {
    return Broken("device \"", id, "\" holds bytes of Regions");
  }
  by_index_[index] = nullptr;
  index_of_.erase(name);
  usable_.Remove(index);
  placeable_.Remove(index);
  devices_.erase(devices_.find(id));
  FollowTopology();
  return absl::OkStatus();
}

// Takes all bytes of a Region, or none: where one Extent does not fit, those before it are given
// back.
absl::Status DeviceTable::Take(const Region& region) {
  for (size_t i = 0; i < region.extents.size(); ++i) {
    const Extent& extent = region.extents[i];
    const auto index = IndexOf(extent.device);
    absl::Status status = index.has_value()
                              ? space_.Take(*index, extent.dpa_bytes, extent.length_bytes)
                              : Broken("no such device");
    if (status.ok()) continue;
    for (size_t taken = 0; taken < i; ++taken) {
      const Extent& back = region.extents[taken];
      CXLPOOL_CHECK_OK(space_.Give(*IndexOf(back.device), back.dpa_bytes, back.length_bytes),
                       "region \"", region.id, "\": extent ", taken, " cannot be given back");
    }
    return Broken("region \"", region.id, "\", extent ", i, " on device \"", extent.device.str(),
                  "\": ", status.message());
  }
  Count(region, 1);
  return absl::OkStatus();
}

// Cannot be refused: what was taken is there to be given. Anything else ends the process.
void DeviceTable::Give(const Region& region) {
  Count(region, -1);
  for (const Extent& extent : region.extents) {
    CXLPOOL_CHECK_OK(space_.Give(*IndexOf(extent.device), extent.dpa_bytes, extent.length_bytes),
                     "region \"", region.id, "\": an extent of device \"", extent.device.str(),
                     "\" cannot be given back");
  }
}

// Adds the Region's bytes and LDs to the counts (`sign` 1), or takes them away (-1). Whether a
// device is placeable depends on its LDs only where there is a limit of them.
void DeviceTable::Count(const Region& region, int64_t sign) {
  for (size_t i = 0; i < region.extents.size(); ++i) {
    const Extent& extent = region.extents[i];
    const DeviceIndex index = *IndexOf(extent.device);
    DeviceUse& use = use_[index];
    uint64_t& counted = Counter(use, region.state, region.FindBad(i) != nullptr);
    CXLPOOL_CHECK(sign > 0 || (counted >= extent.length_bytes && use.lds > 0), "region \"",
                  region.id, "\" gives back more of device \"", extent.device.str(),
                  "\" than is held there");
    counted += sign * extent.length_bytes;
    use.lds += static_cast<uint32_t>(sign);
    const bool limited = MaxLds(index) != UINT32_MAX;
    if (limited && !CXLPOOL_MUTANT("placeable-is-stale")) UpdateUsable(index);
  }
}

void DeviceTable::UpdateUsable(DeviceIndex index) {
  const Device& device = *by_index_[index];
  const bool usable = IsUsable(device);
  const bool below = use_[index].lds < MaxLds(index);
  usable ? usable_.Add(index) : usable_.Remove(index);
  usable&& below ? placeable_.Add(index) : placeable_.Remove(index);
}

void DeviceTable::AddToDomain(DeviceIndex index) {
  const auto [it, fresh] =
      domain_numbers_.try_emplace(topology_.DomainOf(by_index_[index]->id), domains_.size());
  if (fresh) domains_.emplace_back();
  domains_[it->second].Add(index);
  domain_of_[index] = it->second;
}

std::map<std::string, DeviceSet, std::less<>> DeviceTable::ReachByTopology() const {
  std::map<std::string, DeviceSet, std::less<>> reach;
  for (const auto& [ends, path] : topology_.paths()) {
    if (const auto index = IndexOf(Interned(ends.second))) reach[ends.first].Add(*index);
  }
  return reach;
}

// Makes failure domains and reach anew from the topology. The domains get new numbers.
void DeviceTable::FollowTopology() {
  held_topology_ = false;
  domains_.clear();
  domain_numbers_.clear();
  for (size_t i = 0; i < by_index_.size(); ++i) {
    if (by_index_[i] != nullptr) AddToDomain(static_cast<DeviceIndex>(i));
  }
  reach_ = ReachByTopology();
}

void DeviceTable::SetReachable(absl::string_view device, absl::string_view why_not,
                               absl::Time now) {
  const auto it = devices_.find(device);
  if (it == devices_.end()) return;
  // Another reason is no other outage. One that nothing was said of yet begins here, too.
  absl::Time& since = it->second.unreachable_since;
  if (why_not.empty()) {
    since = absl::InfinitePast();
  } else if (it->second.reachable || since == absl::InfinitePast()) {
    since = now;
  }
  it->second.reachable = why_not.empty();
  it->second.unreachable_reason = std::string(why_not);
  UpdateUsable(*IndexOf(Interned(device)));
}

void DeviceTable::SetTopology(Topology topology) {
  topology_ = std::move(topology);
  FollowTopology();
}

void DeviceTable::SetLimits(const FabricLimits& limits) {
  limits_ = limits;
  for (const auto& [id, index] : index_of_) UpdateUsable(index);
}

std::optional<DeviceIndex> DeviceTable::IndexOf(Interned device) const {
  const auto it = index_of_.find(device);
  if (it == index_of_.end()) return std::nullopt;
  return it->second;
}

const DeviceSet& DeviceTable::ReachOf(absl::string_view host) const {
  static const DeviceSet& all = *new DeviceSet(DeviceSet::All());
  static const DeviceSet& none = *new DeviceSet();
  if (topology_.connects_all()) return all;
  const auto it = reach_.find(host);
  return it == reach_.end() ? none : it->second;
}

const Device* DeviceTable::Find(absl::string_view id) const {
  const auto it = devices_.find(id);
  return it == devices_.end() ? nullptr : &it->second;
}

// Sums over the devices, without those that were removed: free, held, scrubbing and quarantined
// bytes together are the total.
Capacity DeviceTable::GetCapacity() const {
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

// Holds everything that is kept beside the devices' records against them: the counts of bytes, the
// sets of devices that may be used, and how the topology leads to them.
absl::Status DeviceTable::Check() const {
  if (absl::Status status = space_.Check(); !status.ok()) return Broken(status.message());
  for (const auto& [id, index] : index_of_) {
    const DeviceUse& use = use_[index];
    const uint64_t sum =
        space_.free_bytes(index) + use.held_bytes + use.scrubbing_bytes + use.quarantined_bytes;
    if (sum != space_.capacity_bytes(index)) return Broken(id.str(), ": the bytes do not sum up");
    const bool usable = IsUsable(*by_index_[index]);
    if (usable != usable_.Contains(index)) return Broken(id.str(), ": usable differs");
    if ((usable && use.lds < MaxLds(index)) != placeable_.Contains(index)) {
      return Broken(id.str(), ": placeable differs");
    }
    const size_t domain = domain_of_[index];
    const auto number = domain_numbers_.find(topology_.DomainOf(id.str()));
    if (number == domain_numbers_.end() || number->second != domain ||
        !domains_[domain].Contains(index)) {
      return Broken(id.str(), ": its failure domain differs");
    }
  }
  size_t in_domains = 0;
  for (const DeviceSet& domain : domains_) in_domains += domain.size();
  if (in_domains != index_of_.size()) return Broken("a device is in two failure domains");
  // A device that is gone is in no set: its index may be another's next.
  for (const DeviceSet* set : {&usable_, &placeable_}) {
    absl::Status status;
    set->ForEach([&](DeviceIndex index) {
      if (by_index_[index] == nullptr)
        status = Broken("device ", index, " is gone, and to be used");
    });
    if (!status.ok()) return status;
  }
  if (!topology_.connects_all() && reach_ != ReachByTopology()) {
    return Broken("what hosts reach is not what the topology says");
  }
  return absl::OkStatus();
}

// By name: the same device may have another index in the other table.
absl::Status DeviceTable::Compare(const DeviceTable& other) const {
  if (index_of_.size() != other.index_of_.size()) return Broken("there are bytes of no device");
  for (const auto& [id, index] : index_of_) {
    const DeviceIndex expected = other.index_of_.at(id);
    if (use_[index] != other.use_[expected]) return Broken(id.str(), ": use differs");
    if (space_.free_bytes(index) != other.space_.free_bytes(expected)) {
      return Broken(id.str(), ": free differs");
    }
  }
  return absl::OkStatus();
}

}  // namespace cxlpool::fm
