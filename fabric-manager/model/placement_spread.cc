// kSpread: where the load is most even.

#include <algorithm>
#include <tuple>

#include "fabric-manager/model/placement_policy.h"

namespace cxlpool::fm {
namespace {

// In how many steps a Region is dealt out over devices.
constexpr uint64_t kSteps = 256;

// A device, and how much of the Region it would get.
struct Share {
  DeviceIndex device = 0;
  uint64_t unit_bytes = 0;
  uint64_t most_bytes = 0;  // Its longest run.
  uint32_t there = 0;       // Extents that the Region has there already.
  uint64_t bytes = 0;
};

std::vector<Share> SharesOf(const PlacementTask& task) {
  std::vector<Share> shares;
  task.allowed.ForEach([&](DeviceIndex device) {
    const uint64_t longest = task.LongestOn(device);
    if (longest == 0) return;
    Share share{device, task.UnitOf(device), longest};
    if (task.request.grown != nullptr) {
      for (const Extent& extent : task.request.grown->extents) {
        share.there += extent.device.str() == task.state.DeviceAt(device).id;
      }
    }
    shares.push_back(share);
  });
  return shares;
}

// The least loaded device once `step_bytes` more are there; null: none can take them.
Share* LeastLoaded(const PlacementTask& task, std::vector<Share>& shares, uint64_t step_bytes) {
  Share* best = nullptr;
  std::tuple<uint32_t, double> best_key;
  for (Share& share : shares) {
    const auto step = RoundUp(step_bytes, share.unit_bytes);
    if (!step || *step > share.most_bytes - share.bytes) continue;
    const std::tuple key(share.there, task.LoadWith(share.device, share.bytes + *step));
    if (best != nullptr && key >= best_key) continue;
    best = &share;
    best_key = key;
  }
  return best;
}

std::optional<PlacedExtents> Made(const PlacementTask& task, const std::vector<Share>& shares) {
  PlacedExtents placed;
  for (const Share& share : shares) {
    if (share.bytes == 0) continue;
    const auto run = task.space().BestFitOn(share.device, share.bytes, task.unit_bytes);
    if (!run.has_value()) return std::nullopt;
    placed.extents.push_back(MakeExtent(task.state, *run));
  }
  return placed;
}

std::optional<PlacedExtents> OnOne(const PlacementTask& task, std::vector<Share> shares) {
  Share* const share = LeastLoaded(task, shares, task.request.size_bytes);
  if (share == nullptr) return std::nullopt;
  share->bytes = task.request.size_bytes;
  return Made(task, {*share});
}

// Dealt out step by step, each to the device that is least loaded then, on at most `most` devices.
std::optional<PlacedExtents> OnSeveral(const PlacementTask& task, std::vector<Share> shares,
                                       size_t most) {
  uint64_t rest = task.request.size_bytes;
  uint64_t step = std::max<uint64_t>(rest / kSteps, 1);
  size_t used = 0;
  while (rest > 0) {
    Share* share = LeastLoaded(task, shares, std::min(step, rest));
    if (share == nullptr && step == 1) return std::nullopt;
    if (share == nullptr) {
      step /= 2;  // Less may still fit.
      continue;
    }
    const uint64_t bytes = *RoundUp(std::min(step, rest), share->unit_bytes);
    used += share->bytes == 0;
    share->bytes += bytes;
    rest -= std::min(rest, bytes);
    if (used < most) continue;
    std::erase_if(shares, [](const Share& s) { return s.bytes == 0; });
  }
  return Made(task, shares);
}

class Spreading : public PlacementPolicy {
 public:
  std::optional<PlacedExtents> Place(const PlacementTask& task) const override {
    size_t most = std::min(task.max_extents, task.ExtentsLeft());
    if (most == 0) return std::nullopt;
    // No more pieces than the host has ports for.
    if (most > 1) most = std::min(most, std::max<size_t>(task.HostRoom(), 1));
    const std::vector<Share> shares = SharesOf(task);
    auto placed = most == 1 ? OnOne(task, shares) : OnSeveral(task, shares, most);
    // Runs are too short for an even spread: then what fits counts.
    return placed.has_value() ? std::move(placed) : Pack(task);
  }
};

}  // namespace

const PlacementPolicy& SpreadPolicy() {
  static const Spreading& policy = *new Spreading();
  return policy;
}

}  // namespace cxlpool::fm
