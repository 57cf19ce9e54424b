// What placement is set beside: the quickest allocator that knows no topology, and the best fit
// that one writes first. Both are whole: what is given back is merged with its free neighbours.
//
// Lengths and addresses in granules. Plain values; not thread-safe.
#ifndef CXLPOOL_TOOLS_BENCHES_PLACEMENT_PEERS_H_
#define CXLPOOL_TOOLS_BENCHES_PLACEMENT_PEERS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "fabric-manager/model/space/device_set.h"

namespace cxlpool::bench {

struct Piece {
  fm::DeviceIndex device = 0;
  uint32_t start = 0;
  uint32_t length = 0;
};

// Segregated fit by bitmaps: one list of free runs for each short length and each quarter of an
// octave above, and a bitmap of the lists that are not empty. Takes the run that was freed last of
// the shortest list whose every run is long enough. Any device will do: it does not know which is
// which.
class BitmapReference {
 public:
  BitmapReference(uint32_t devices, uint32_t granules_each);

  std::optional<Piece> Take(uint32_t length);
  void Give(const Piece& piece);

 private:
  static constexpr uint32_t kExact = 256;
  static constexpr uint32_t kLists = kExact + 4 * 24;
  static constexpr uint32_t kNone = ~uint32_t{0};

  struct Node {
    uint32_t start, length, previous, next;
  };

  static uint32_t ListOf(uint32_t length);     // That a run of this length is in.
  static uint32_t ListAbove(uint32_t length);  // The first whose every run is long enough.
  void Link(uint32_t node);
  void Unlink(uint32_t node);
  uint32_t NewNode(uint32_t start, uint32_t length);

  uint32_t granules_each_;
  std::array<uint64_t, (kLists + 63) / 64> present_ = {};
  std::array<uint32_t, kLists> heads_;
  std::vector<Node> nodes_;
  std::vector<uint32_t> unused_;
  // Node of the run that starts at, and that ends at, a granule of all; where there is one.
  std::vector<uint32_t> starts_, ends_;
};

// A red-black tree of all runs by length, then device, then address; walked up until the device is
// one that is allowed.
class TreeBestFit {
 public:
  explicit TreeBestFit(size_t devices) : by_start_(devices) {}  // Nothing is free yet.

  std::optional<Piece> Take(const fm::DeviceSet& among, uint32_t length);
  void Give(const Piece& piece);

 private:
  std::set<std::tuple<uint32_t, fm::DeviceIndex, uint32_t>> by_length_;
  std::vector<std::map<uint32_t, uint32_t>> by_start_;  // By device: length.
};

}  // namespace cxlpool::bench

#endif  // CXLPOOL_TOOLS_BENCHES_PLACEMENT_PEERS_H_
