// kLatency: the nearest devices first.

#include <map>

#include "fabric-manager/model/placement/placement_policy.h"

namespace cxlpool::fm {
namespace {

class Nearing : public PlacementPolicy {
 public:
  std::optional<PlacedExtents> Place(const PlacementTask& task) const override {
    // By latency; the last is what nothing is known of.
    std::map<uint64_t, DeviceSet> tiers;
    task.allowed.ForEach([&](DeviceIndex device) {
      const Path* path = task.PathTo(device);
      const bool known = path != nullptr && path->latency_ns != 0;
      tiers[known ? path->latency_ns : UINT64_MAX].Add(device);
    });
    for (const auto& [latency, tier] : tiers) {
      if (auto placed = Pack(task.On(tier)); placed.has_value()) return placed;
    }
    // No device holds it by itself: several do together, and no farther than must be.
    DeviceSet near;
    for (const auto& [latency, tier] : tiers) {
      near |= tier;
      if (auto placed = Pack(task.On(near)); placed.has_value()) return placed;
    }
    return std::nullopt;
  }
};

}  // namespace

const PlacementPolicy& LatencyPolicy() {
  static const Nearing& policy = *new Nearing();
  return policy;
}

}  // namespace cxlpool::fm
