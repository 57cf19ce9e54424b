// Stripe sets: equal extents on distinct devices, and how many of them hold a Region.
//
// Private to placement_bandwidth.cc. Pure.
#ifndef CXLPOOL_FABRIC_MANAGER_MODEL_PLACEMENT_PLACEMENT_STRIPES_H_
#define CXLPOOL_FABRIC_MANAGER_MODEL_PLACEMENT_PLACEMENT_STRIPES_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "fabric-manager/model/placement/placement_policy.h"

namespace cxlpool::fm {

// What is asked for.
struct StripeShape {
  uint32_t ways = 2;
  uint64_t unit_bytes = 0;   // Of each extent, whatever device it is on.
  uint64_t share_bytes = 0;  // Of each way, over all sets: whole units.
  size_t max_sets = 1;
};

// Stripe sets one after another, in `ways` extents each. One set if that can be; else as few as can
// be found: equal ones, or the longest that can be cut, one after another. In one set, devices that
// are reached by a wider way go first, then those that are loaded less. Nothing: not so.
std::optional<std::vector<Extent>> CutStripes(const PlacementTask& task, const StripeShape& shape);

// The longest share that each of `ways` devices could hold in one extent.
uint64_t LongestShare(const PlacementTask& task, uint32_t ways, uint64_t unit_bytes);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_MODEL_PLACEMENT_PLACEMENT_STRIPES_H_
