// The free runs of one device, in order of address: found by address and by length, taken from and
// given back to. Start and length in granules of the device.
//
// Runs lie in blocks of at most kBlock, so that a change moves little however many there are, and
// a length is looked for in a few cache lines. A run of a device that is nearly full is found among
// some tens; a filter on each block passes over blocks that cannot hold the length.
//
// Invariant (Check): runs are not empty, disjoint, not adjacent, within the device; no block is
// empty. A plain value; not thread-safe.
#ifndef CXLPOOL_FABRIC_MANAGER_MODEL_SPACE_FREE_RUNS_H_
#define CXLPOOL_FABRIC_MANAGER_MODEL_SPACE_FREE_RUNS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"

namespace cxlpool::fm {

class FreeRuns {
 public:
  struct Run {
    uint32_t start = 0;
    uint32_t length = 0;
    friend bool operator==(const Run&, const Run&) = default;
  };

  // What a change did to the list: a length of 0 stands for no run.
  struct Change {
    std::array<Run, 2> gone;
    std::array<Run, 2> come;
    std::array<bool, 2> none_left;  // No run is as long any more as the one that is gone.
  };

  explicit FreeRuns(uint32_t granules);  // One run: all of it.
  FreeRuns(const FreeRuns& other);
  FreeRuns& operator=(const FreeRuns& other);
  FreeRuns(FreeRuns&&) noexcept = default;
  FreeRuns& operator=(FreeRuns&&) noexcept = default;

  // Nothing: some of start .. start + length is not free (Take), is free already (Give), or lies
  // beyond the device; `length` is 0. Then nothing has changed.
  std::optional<Change> Take(uint32_t start, uint32_t length);
  std::optional<Change> Give(uint32_t start, uint32_t length);

  // The run at the lowest address of exactly this length.
  std::optional<uint32_t> FirstOfLength(uint32_t length) const;
  // The shortest run of at least this length, the longest of all: of equals the lowest address.
  std::optional<Run> BestFit(uint32_t length) const;
  std::optional<Run> Longest() const;

  uint32_t granules() const { return granules_; }
  uint32_t free() const { return free_; }
  size_t size() const { return size_; }

  // Calls visit(Run) for each, in order of address.
  template <typename Visit>
  void ForEach(Visit visit) const {
    for (const Block& block : blocks_) {
      for (uint32_t i = 0; i < block.size; ++i) {
        visit(Run{block.starts()[i], block.lengths()[i]});
      }
    }
  }

  // INTERNAL says what is broken.
  absl::Status Check() const;

 private:
  static constexpr uint32_t kStride = 16;  // Runs looked at in one go.
  static constexpr uint32_t kBlock = 128;
  static constexpr uint32_t kMerge = 96;  // Neighbours with fewer runs between them become one.

  // Space for `capacity` runs, 16 to kBlock: their starts, then their lengths. Beyond `size` a
  // start is the highest number and a length 0, so that no search finds them.
  struct Block {
    uint32_t first = 0;  // Start of its first run.
    uint32_t size = 0;   // Not 0.
    uint32_t capacity = 0;
    uint32_t stale = 0;   // Lengths that went since the filter was made.
    uint64_t filter = 0;  // FilterBit of each length that it holds, and of some that went.
    std::unique_ptr<uint32_t[]> numbers;

    uint32_t* starts() const { return numbers.get(); }
    uint32_t* lengths() const { return numbers.get() + capacity; }
  };
  struct Place {
    size_t block = 0;
    uint32_t index = 0;
  };

  static uint64_t FilterBit(uint32_t length);
  static Block MakeBlock(uint32_t capacity);
  static Block Resized(const Block& block, uint32_t capacity);  // A copy.
  static void Refilter(Block& block);
  static void Went(Block& block);
  static uint32_t IndexOf(const Block& block, uint32_t length);   // kBlock: it has none.
  static uint32_t CountUpTo(const Block& block, uint32_t start);  // Runs that start there or below.

  Run At(Place place) const {
    const Block& block = blocks_[place.block];
    return {block.starts()[place.index], block.lengths()[place.index]};
  }
  bool IsOnly(uint32_t length) const;  // One run is that long.
  // The last run that starts at or below `start`. Nothing: there is none.
  std::optional<Place> AtOrBelow(uint32_t start) const;
  Place Next(Place place) const;  // block == blocks_.size(): there is none.

  void Set(Place place, Run run);
  void Insert(Place place, Run run);  // Before what is at place.
  void Erase(Place place);
  void Split(size_t block);
  void Merge(size_t block);  // With its neighbour, where both are small.

  uint32_t granules_ = 0;
  uint32_t free_ = 0;
  size_t size_ = 0;
  absl::InlinedVector<Block, 1> blocks_;  // In order of address.
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_MODEL_SPACE_FREE_RUNS_H_
