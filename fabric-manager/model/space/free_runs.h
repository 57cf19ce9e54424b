// The free runs of one device, in order of address: found by address and by length, taken from and
// given back to. Start and length in granules of the device. Each costs as much as the logarithm of
// how many runs there are.
//
// A device that is carved into LDs, each where the device itself puts it, has sizes and no
// addresses: LD n of a device of g granules is what starts at n * g. All that is free is one run,
// at the first LD that is not there yet; any length of it may be taken, of any such LD. Where as
// many LDs are there as can be, no run is.
//
// Invariant (Check): runs are not empty, disjoint, not adjacent, within the device. A plain value;
// not thread-safe.
#ifndef CXLPOOL_FABRIC_MANAGER_MODEL_SPACE_FREE_RUNS_H_
#define CXLPOOL_FABRIC_MANAGER_MODEL_SPACE_FREE_RUNS_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
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

  // One run: all of it. `max_lds`: into how many LDs it can be carved; 0: it has addresses.
  // granules * max_lds must fit 32 bits.
  explicit FreeRuns(uint32_t granules, uint32_t max_lds = 0);

  // Nothing: some of start .. start + length is not free (Take), is free already (Give), or lies
  // beyond the device; of LDs: that is none, or there already (Take), or not there in just this
  // length (Give); `length` is 0. Then nothing has changed.
  std::optional<Change> Take(uint32_t start, uint32_t length);
  std::optional<Change> Give(uint32_t start, uint32_t length);

  // The run at the lowest address of exactly this length.
  std::optional<uint32_t> FirstOfLength(uint32_t length) const;
  // The shortest run of at least this length, the longest of all: of equals the lowest address.
  std::optional<Run> BestFit(uint32_t length) const;
  std::optional<Run> Longest() const;

  // Calls visit(Run) for each part of start .. start + length that is free, in order of address. Of
  // a LD that is not there: as much as is free.
  template <typename Visit>
  void ForEachIn(uint32_t start, uint32_t length, Visit visit) const {
    if (!lds_.empty()) {
      const bool taken = !IsLd(start) || lds_[start / granules_] != 0;
      if (const uint32_t free = std::min(length, free_); !taken && free > 0)
        visit(Run{start, free});
      return;
    }
    ForEach([&](Run run) {
      const uint64_t from = std::max(run.start, start);
      const uint64_t to = std::min(uint64_t{run.start} + run.length, uint64_t{start} + length);
      if (from < to) visit(Run{static_cast<uint32_t>(from), static_cast<uint32_t>(to - from)});
    });
  }

  uint32_t granules() const { return granules_; }
  uint32_t free() const { return free_; }
  size_t size() const { return by_end_.size(); }

  // Calls visit(Run) for each, in order of address.
  template <typename Visit>
  void ForEach(Visit visit) const {
    for (const auto& [end, start] : by_end_) visit(Run{start, end - start});
  }

  // INTERNAL says what is broken.
  absl::Status Check() const;

 private:
  void Add(Run run);
  bool RemoveLength(Run run);
  // Of LDs: whether one can start there; `length` granules of one come or, `back`, go.
  bool IsLd(uint32_t start) const {
    return start % granules_ == 0 && start / granules_ < lds_.size();
  }
  Change ChangeLd(uint32_t start, uint32_t length, bool back);
  Run RunOfLds() const;

  uint32_t granules_ = 0;
  uint32_t free_ = 0;
  // Start by end, the first granule behind the run: what is taken from a run's beginning leaves its
  // place in the tree as it is.
  absl::btree_map<uint32_t, uint32_t> by_end_;
  absl::btree_set<std::pair<uint32_t, uint32_t>> by_length_;  // Length, start.
  std::vector<uint32_t> lds_;                                 // Lengths of LDs; 0: not there.
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_MODEL_SPACE_FREE_RUNS_H_
