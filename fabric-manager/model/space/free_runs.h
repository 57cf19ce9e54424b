// The free runs of one device, in order of address: found by address and by length, taken from and
// given back to. Start and length in granules of the device. Each costs as much as the logarithm of
// how many runs there are.
//
// Invariant (Check): runs are not empty, disjoint, not adjacent, within the device. A plain value;
// not thread-safe.
#ifndef CXLPOOL_FABRIC_MANAGER_MODEL_SPACE_FREE_RUNS_H_
#define CXLPOOL_FABRIC_MANAGER_MODEL_SPACE_FREE_RUNS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

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

  explicit FreeRuns(uint32_t granules);  // One run: all of it.

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
  size_t size() const { return by_start_.size(); }

  // Calls visit(Run) for each, in order of address.
  template <typename Visit>
  void ForEach(Visit visit) const {
    for (const auto& [start, length] : by_start_) visit(Run{start, length});
  }

  // INTERNAL says what is broken.
  absl::Status Check() const;

 private:
  void Add(Run run);
  void Remove(Run run);
  void NoteWhatIsLeft(Change& change) const;

  uint32_t granules_ = 0;
  uint32_t free_ = 0;
  absl::btree_map<uint32_t, uint32_t> by_start_;              // Length by start.
  absl::btree_set<std::pair<uint32_t, uint32_t>> by_length_;  // Length, start.
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_MODEL_SPACE_FREE_RUNS_H_
