// How PlaceExtents decides: one object a Policy, and what they share.
//
// Private to placement. Pure; any thread, as far as PoolState may be read.
#ifndef CXLPOOL_FABRIC_MANAGER_MODEL_PLACEMENT_PLACEMENT_POLICY_H_
#define CXLPOOL_FABRIC_MANAGER_MODEL_PLACEMENT_PLACEMENT_POLICY_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "fabric-manager/model/placement/placement.h"
#include "fabric-manager/model/space/bytes.h"

namespace cxlpool::fm {

// A request, and the devices that may take an extent of it.
struct PlacementTask {
  const PoolState& state;
  const ExtentRequest& request;
  const DeviceSet& allowed;
  uint64_t unit_bytes = 0;  // Of the request and of the fabric together; 0: only the granule's.
  size_t max_extents = 1;   // Interleaved: of stripe sets.
  bool heed_lds = true;     // Not, to learn whether it is LDs that are in the way.
  const std::vector<uint32_t>* ports =
      nullptr;  // By device: free ports of the host that lead there.

  const FreeSpace& space() const { return state.space(); }
  // The same, of other devices or in other numbers.
  PlacementTask On(const DeviceSet& devices) const;
  PlacementTask With(size_t extents) const;

  // What extents on the device are multiples of; 0: nothing fits 64 bits.
  uint64_t UnitOf(DeviceIndex device) const {
    const uint64_t granule = space().granule_bytes(device);
    if (unit_bytes == granule || unit_bytes == 0) return granule;  // Without a division.
    return CommonUnit(granule, unit_bytes).value_or(0);
  }
  // The longest extent that the device could take, whole units.
  uint64_t LongestOn(DeviceIndex device) const {
    const uint64_t unit = UnitOf(device);
    const uint64_t longest = space().largest_free_bytes(device);
    return unit == 0 ? 0 : longest - longest % unit;
  }
  // How many more extents the fabric, and the host's ports, let it carry.
  uint32_t LdsLeft(DeviceIndex device) const;
  // How much of it is not free, once `more` are taken: 0 to 1.
  double LoadWith(DeviceIndex device, uint64_t more_bytes) const;
  // By which way the request's host would reach it. Null where no host is asked for.
  const Path* PathTo(DeviceIndex device) const;
  // How many extents the Region may still get.
  size_t ExtentsLeft() const;
  // How many host regions the request's host could take now; no limit where nobody knows.
  size_t HostRoom() const;
};

// What is free on the devices of a task.
struct FreeTotals {
  uint64_t free_bytes = 0;     // In whole units.
  uint64_t largest_bytes = 0;  // In one extent.
  DeviceIndex largest_on = 0;
};
FreeTotals TotalsOf(const PlacementTask& task);

class PlacementPolicy {
 public:
  virtual ~PlacementPolicy() = default;

  // INVALID_ARGUMENT: the request makes no sense, whatever is free.
  virtual absl::Status Check(const ExtentRequest& request) const;

  // Nothing: it cannot be had.
  virtual std::optional<PlacedExtents> Place(const PlacementTask& task) const = 0;

  // Why not, where the devices of the task may all be used, and LDs are not in the way.
  virtual absl::Status WhyNot(const PlacementTask& task) const;
};

const PlacementPolicy& PackPolicy();
const PlacementPolicy& SpreadPolicy();
const PlacementPolicy& BandwidthPolicy();
const PlacementPolicy& LatencyPolicy();
const PlacementPolicy& IsolatePolicy();
// A growth keeps the Region's geometry.
const PlacementPolicy& PolicyOf(const ExtentRequest& request);

// As kPack says: one run that fits best, or the longest ones.
std::optional<PlacedExtents> Pack(const PlacementTask& task);

Extent MakeExtent(const PoolState& state, const FreeSpace::Run& run);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_MODEL_PLACEMENT_PLACEMENT_POLICY_H_
