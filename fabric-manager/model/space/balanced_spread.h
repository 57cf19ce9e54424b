// Policy `spread` where each host reaches a few devices of its own and shares each with some other
// hosts: which device should take each slice of a host's request, so that no host finds its devices
// full while others have room.
//
// A slice never moves once it is placed, and who will ask next is not known. Two things are weighed
// for each slice, in slices:
// - what the host has there already: spread evenly, its releases leave room evenly;
// - what the others that reach the device may still want: the most that each has ever had, by the
//   room that is left to it. A device whose other hosts are short of room is dear.
//
// Pure functions, any thread. docs/performance.md (placement, row 8) has what it reaches.
#ifndef CXLPOOL_FABRIC_MANAGER_MODEL_SPACE_BALANCED_SPREAD_H_
#define CXLPOOL_FABRIC_MANAGER_MODEL_SPACE_BALANCED_SPREAD_H_

#include <cstdint>
#include <vector>

#include "fabric-manager/model/space/device_set.h"
#include "fabric-manager/model/space/free_space.h"

namespace cxlpool::fm {

// Another host of the pool.
struct SpreadPeer {
  DeviceSet reach;
  uint64_t most_bytes = 0;  // That it ever had at once.
};

struct SpreadRequest {
  DeviceSet among;           // Devices that the host reaches and may be placed on.
  uint64_t slice_bytes = 0;  // Each slice lies in one piece; a multiple of the devices' granules.
  uint32_t slices = 0;
  std::vector<uint64_t> own_bytes;  // By device: what the host has there. Beyond its end: nothing.
  std::vector<SpreadPeer> peers;
};

// One device for each slice, in the order in which they were chosen; of equals the lowest device.
// Empty: they do not all fit.
std::vector<DeviceIndex> BalancedSpread(const FreeSpace& space, const SpreadRequest& request);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_MODEL_SPACE_BALANCED_SPREAD_H_
