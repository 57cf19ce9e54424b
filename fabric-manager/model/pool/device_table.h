// The pool's devices: which bytes of each are free, how the rest is used, which may be used, and
// how the topology leads to them.
//
// Every device that is known has an index, also one that may not be used: the sets here are of
// indices. The index of a device that was removed may be given again.
//
// Invariant (Check): free + held + scrubbing + quarantined = capacity of each device. Not
// thread-safe; owned by PoolState.
#ifndef CXLPOOL_FABRIC_MANAGER_MODEL_POOL_DEVICE_TABLE_H_
#define CXLPOOL_FABRIC_MANAGER_MODEL_POOL_DEVICE_TABLE_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "fabric-manager/model/pool/device.h"
#include "fabric-manager/model/pool/region.h"
#include "fabric-manager/model/pool/topology.h"
#include "fabric-manager/model/space/free_space.h"

namespace cxlpool::fm {

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

  uint64_t taken_bytes() const { return held_bytes + scrubbing_bytes + quarantined_bytes; }
  friend bool operator==(const DeviceUse&, const DeviceUse&) = default;
};

class DeviceTable {
 public:
  // Each INTERNAL has changed nothing.
  //
  // A new device, all of it free. INTERNAL: it is none that FreeSpace takes.
  absl::Status Add(const Device& device);
  // What a device that is known is from now on; it keeps its `reachable`. `held`: what Regions have
  // of it. INTERNAL: they would not have room any more.
  absl::Status Change(const Device& device, const std::vector<Extent>& held);
  // INTERNAL: Regions hold bytes of it.
  absl::Status Remove(absl::string_view id);
  // Takes the bytes of a Region, and counts them. INTERNAL: some are not free.
  absl::Status Take(const Region& region);
  void Give(const Region& region);  // That was taken.

  // `why_not`: for people; empty: it can be reached.
  void SetReachable(absl::string_view device, absl::string_view why_not, absl::Time now);
  void SetTopology(Topology topology);
  void SetLimits(const FabricLimits& limits);
  // From here to the next SetTopology, or FollowTopology, nobody asks how the topology leads to the
  // devices: where many are added that is looked at once.
  void HoldTopology() { held_topology_ = true; }
  void FollowTopology();

  const Device* Find(absl::string_view id) const;  // Null: there is none.
  const std::map<std::string, Device, std::less<>>& all() const { return devices_; }
  std::optional<DeviceIndex> IndexOf(Interned device) const;
  const Device& At(DeviceIndex index) const { return *by_index_[index]; }
  Interned NameAt(DeviceIndex index) const { return names_[index]; }
  const FreeSpace& space() const { return space_; }
  const DeviceUse& UseOf(DeviceIndex index) const { return use_[index]; }
  Capacity GetCapacity() const;
  // How many LDs it may carry; UINT32_MAX: no limit.
  uint32_t MaxLds(DeviceIndex index) const {
    uint32_t most = UINT32_MAX;
    for (const uint32_t limit : {limits_.max_lds_per_device, by_index_[index]->max_lds}) {
      if (limit != 0) most = std::min(most, limit);
    }
    return most;
  }
  const FabricLimits& limits() const { return limits_; }
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

  // INTERNAL says what does not agree.
  absl::Status Check() const;
  // INTERNAL says in what it is not the same as `other`, which was made from the same records.
  absl::Status Compare(const DeviceTable& other) const;

 private:
  absl::Status Reshape(const Device& before, const Device& after, const std::vector<Extent>& held);
  void Count(const Region& region, int64_t sign);
  void UpdateUsable(DeviceIndex index);
  void AddToDomain(DeviceIndex index);
  // For each host that the topology leads to devices: these.
  std::map<std::string, DeviceSet, std::less<>> ReachByTopology() const;

  std::map<std::string, Device, std::less<>> devices_;
  FreeSpace space_;
  absl::flat_hash_map<Interned, DeviceIndex> index_of_;
  std::vector<const Device*> by_index_;
  std::vector<Interned> names_;
  std::vector<DeviceUse> use_;
  DeviceSet usable_;
  DeviceSet placeable_;
  FabricLimits limits_;
  Topology topology_;
  std::map<std::string, DeviceSet, std::less<>> reach_;
  std::vector<DeviceSet> domains_;
  std::vector<size_t> domain_of_;
  std::map<std::string, size_t, std::less<>> domain_numbers_;
  bool held_topology_ = false;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_MODEL_POOL_DEVICE_TABLE_H_
