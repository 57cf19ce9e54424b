// kSpread: where the load is most even; in a sparse pod, where it leaves most to the other hosts.

#include <algorithm>
#include <map>
#include <tuple>

#include "fabric-manager/model/placement/placement_policy.h"
#include "fabric-manager/model/space/balanced_spread.h"

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

// Whether the host reaches some of the pool's devices only: others share them with it.
bool IsSparse(const PlacementTask& task) {
  if (task.request.host.empty() || task.state.topology().connects_all()) return false;
  return !(task.state.usable() - task.state.ReachOf(task.request.host)).empty();
}

// What is attached to the host, by device.
std::vector<uint64_t> BytesOf(const PoolState& state, const std::string& host) {
  std::vector<uint64_t> bytes;
  for (const OccupiedSlot& slot : state.Occupied(host)) {
    const RegionPtr* region = state.FindRegion(slot.region);
    const Attachment* there = region == nullptr ? nullptr : (*region)->FindAttachment(host);
    if (there == nullptr) continue;
    for (const Segment& segment : there->segments) {
      if (segment.serial != slot.serial) continue;
      const auto index = state.IndexOf((*region)->extents[segment.extent_index].device);
      if (!index.has_value()) continue;
      bytes.resize(std::max<size_t>(bytes.size(), *index + 1));
      bytes[*index] += slot.length_bytes;
    }
  }
  return bytes;
}

std::vector<SpreadPeer> PeersOf(const PlacementTask& task) {
  std::vector<SpreadPeer> peers;
  for (const auto& [id, host] : task.state.hosts()) {
    if (id == task.request.host || host.retired) continue;
    SpreadPeer peer{task.state.ReachOf(id)};
    if ((peer.reach & task.allowed).empty()) continue;
    for (const OccupiedSlot& slot : task.state.Occupied(id)) peer.most_bytes += slot.length_bytes;
    peers.push_back(std::move(peer));
  }
  return peers;
}

// As many slices as there may be extents; those of one device become one extent.
std::optional<PlacedExtents> InSparsePod(const PlacementTask& task, std::vector<Share> shares,
                                         size_t most) {
  if (shares.empty()) return std::nullopt;
  const uint64_t unit = shares.front().unit_bytes;
  const auto size = RoundUp(task.request.size_bytes, unit);
  if (!size.has_value()) return std::nullopt;
  const uint64_t slice = *RoundUp(*size / most + (*size % most != 0), unit);
  SpreadRequest request{.among = {},
                        .slice_bytes = slice,
                        .slices = static_cast<uint32_t>((*size - 1) / slice + 1),
                        .own_bytes = BytesOf(task.state, task.request.host),
                        .peers = PeersOf(task)};
  std::map<DeviceIndex, Share*> by_device;
  for (Share& share : shares) {
    if (share.unit_bytes != unit) return std::nullopt;  // Slices are alike.
    request.among.Add(share.device);
    by_device[share.device] = &share;
  }
  uint64_t rest = *size;
  for (const DeviceIndex device : BalancedSpread(task.space(), request)) {
    const uint64_t bytes = std::min(rest, slice);
    by_device[device]->bytes += bytes;
    rest -= bytes;
  }
  return rest == 0 ? Made(task, shares) : std::nullopt;
}

class Spreading : public PlacementPolicy {
 public:
  std::optional<PlacedExtents> Place(const PlacementTask& task) const override {
    size_t most = std::min(task.max_extents, task.ExtentsLeft());
    if (most == 0) return std::nullopt;
    // No more pieces than the host has ports for.
    if (most > 1) most = std::min(most, std::max<size_t>(task.HostRoom(), 1));
    const std::vector<Share> shares = SharesOf(task);
    std::optional<PlacedExtents> placed;
    if (IsSparse(task)) placed = InSparsePod(task, shares, most);
    if (!placed.has_value()) {
      placed = most == 1 ? OnOne(task, shares) : OnSeveral(task, shares, most);
    }
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
