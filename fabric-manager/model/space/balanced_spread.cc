#include "fabric-manager/model/space/balanced_spread.h"

#include <cstddef>

namespace cxlpool::fm {
namespace {

struct Choice {
  DeviceIndex device = 0;
  uint64_t room = 0;           // Whole slices that fit.
  double own = 0;              // The host's slices there.
  std::vector<size_t> shared;  // Peers that reach it.
};

uint64_t RoomOn(const FreeSpace& space, DeviceIndex device, uint64_t slice_bytes) {
  uint64_t room = 0;
  for (const FreeSpace::Run& run : space.RunsOf(device)) room += run.length_bytes / slice_bytes;
  return room;
}

}  // namespace

// Greedy: one slice after the other goes to the device that is the cheapest then, and what it takes
// counts for the next, in the host's own share as in the room of the peers. All or nothing is
// decided by the sum of what fits, before the first one is placed.
std::vector<DeviceIndex> BalancedSpread(const FreeSpace& space, const SpreadRequest& request) {
  if (request.slice_bytes == 0) return {};
  const double slice = static_cast<double>(request.slice_bytes);
  std::vector<Choice> choices;
  uint64_t room = 0;
  (request.among & space.devices()).ForEach([&](DeviceIndex device) {
    Choice choice;
    choice.device = device;
    choice.room = RoomOn(space, device, request.slice_bytes);
    if (choice.room == 0) return;
    room += choice.room;
    if (device < request.own_bytes.size()) {
      choice.own = static_cast<double>(request.own_bytes[device]) / slice;
    }
    for (size_t i = 0; i < request.peers.size(); ++i) {
      if (request.peers[i].reach.Contains(device)) choice.shared.push_back(i);
    }
    choices.push_back(choice);
  });
  if (room < request.slices) return {};
  std::vector<double> peer_room;  // Slices that each peer's devices could still take.
  for (const SpreadPeer& peer : request.peers) {
    uint64_t free = 0;
    (peer.reach & space.devices()).ForEach([&](DeviceIndex device) {
      free += space.free_bytes(device);
    });
    peer_room.push_back(static_cast<double>(free) / slice);
  }
  std::vector<DeviceIndex> devices;
  while (devices.size() < request.slices) {
    Choice* best = nullptr;
    double least = 0;
    for (Choice& choice : choices) {
      if (choice.room == 0) continue;
      double cost = choice.own;
      for (const size_t i : choice.shared) {
        cost += static_cast<double>(request.peers[i].most_bytes) / slice / (peer_room[i] + 1);
      }
      // Of equals the lowest device, for choices are in that order.
      if (best != nullptr && cost >= least) continue;
      best = &choice;
      least = cost;
    }
    devices.push_back(best->device);
    --best->room;
    ++best->own;
    for (const size_t i : best->shared) --peer_room[i];
  }
  return devices;
}

}  // namespace cxlpool::fm
