#include "fabric-manager/model/space/free_runs.h"

#include <algorithm>
#include <iterator>
#include <numeric>

#include "absl/strings/str_cat.h"

namespace cxlpool::fm {

FreeRuns::FreeRuns(uint32_t granules, uint32_t max_lds)
    : granules_(granules), free_(granules), lds_(max_lds) {
  if (granules > 0) Add({0, granules});
}

void FreeRuns::Add(Run run) {
  if (run.length == 0) return;
  by_start_[run.start] = run.length;
  by_length_.emplace(run.length, run.start);
}

void FreeRuns::Remove(Run run) {
  if (run.length == 0) return;
  by_start_.erase(run.start);
  by_length_.erase({run.length, run.start});
}

void FreeRuns::NoteWhatIsLeft(Change& change) const {
  for (size_t i = 0; i < change.gone.size(); ++i) {
    change.none_left[i] = !FirstOfLength(change.gone[i].length).has_value();
  }
}

FreeRuns::Run FreeRuns::RunOfLds() const {
  const auto first = std::find(lds_.begin(), lds_.end(), 0);
  if (first == lds_.end() || free_ == 0) return {};
  return {static_cast<uint32_t>(first - lds_.begin()) * granules_, free_};
}

// The one run leaves; the one of what is free then comes.
FreeRuns::Change FreeRuns::ChangeLd(uint32_t start, uint32_t length, bool back) {
  Change change;
  change.gone[0] = RunOfLds();
  lds_[start / granules_] = back ? 0 : length;
  free_ = back ? free_ + length : free_ - length;
  change.come[0] = RunOfLds();
  Remove(change.gone[0]);
  Add(change.come[0]);
  NoteWhatIsLeft(change);
  return change;
}

// The run that holds the bytes leaves; what is over below and above them comes.
std::optional<FreeRuns::Change> FreeRuns::Take(uint32_t start, uint32_t length) {
  if (!lds_.empty()) {
    if (length == 0 || length > free_ || !IsLd(start) || lds_[start / granules_] != 0) {
      return std::nullopt;
    }
    return ChangeLd(start, length, false);
  }
  const auto above = by_start_.upper_bound(start);
  if (length == 0 || above == by_start_.begin()) return std::nullopt;
  const auto found = std::prev(above);
  const Run run{found->first, found->second};
  const uint32_t offset = start - run.start;
  if (offset >= run.length || run.length - offset < length) return std::nullopt;
  Change change;
  change.gone[0] = run;
  change.come = {Run{run.start, offset}, Run{start + length, run.length - offset - length}};
  Remove(run);
  for (const Run& rest : change.come) Add(rest);
  NoteWhatIsLeft(change);
  free_ -= length;
  return change;
}

// The runs that touch the bytes leave; one over them and the bytes comes.
std::optional<FreeRuns::Change> FreeRuns::Give(uint32_t start, uint32_t length) {
  if (!lds_.empty()) {
    if (length == 0 || !IsLd(start) || lds_[start / granules_] != length) return std::nullopt;
    return ChangeLd(start, length, true);
  }
  if (length == 0 || start >= granules_ || granules_ - start < length) return std::nullopt;
  const auto above = by_start_.upper_bound(start);
  Change change;
  Run grown{start, length};
  if (above != by_start_.begin()) {
    const auto [from, size] = *std::prev(above);
    if (start - from < size) return std::nullopt;
    if (from + size == start) {
      change.gone[0] = {from, size};
      grown = {from, size + length};
    }
  }
  if (above != by_start_.end()) {
    if (above->first - start < length) return std::nullopt;
    if (start + length == above->first) {
      change.gone[1] = {above->first, above->second};
      grown.length += above->second;
    }
  }
  change.come[0] = grown;
  for (const Run& run : change.gone) Remove(run);
  Add(grown);
  NoteWhatIsLeft(change);
  free_ += length;
  return change;
}

std::optional<uint32_t> FreeRuns::FirstOfLength(uint32_t length) const {
  const std::optional<Run> found = length == 0 ? std::nullopt : BestFit(length);
  return found.has_value() && found->length == length ? std::optional(found->start) : std::nullopt;
}

std::optional<FreeRuns::Run> FreeRuns::BestFit(uint32_t length) const {
  const auto found = by_length_.lower_bound({length, 0});
  if (found == by_length_.end()) return std::nullopt;
  return Run{found->second, found->first};
}

std::optional<FreeRuns::Run> FreeRuns::Longest() const {
  return by_length_.empty() ? std::nullopt : BestFit(by_length_.rbegin()->first);
}

// Whether both orders hold the same runs, none empty, none touching the next, and together what is
// counted as free. Where the device chooses the place, there is one run at most: what its LDs
// leave.
absl::Status FreeRuns::Check() const {
  if (!lds_.empty()) {
    const uint64_t taken = std::accumulate(lds_.begin(), lds_.end(), uint64_t{0});
    const Run run = RunOfLds();
    if (taken + free_ == granules_ && by_start_.size() == (run.length == 0 ? 0 : 1) &&
        Longest().value_or(Run{}) == run) {
      return absl::OkStatus();
    }
    return absl::InternalError(absl::StrCat("LDs of ", taken, " granules and ", free_, " free of ",
                                            granules_, ", in ", by_start_.size(), " runs"));
  }
  uint64_t end = 0;
  uint64_t free = 0;
  for (const auto& [start, length] : by_start_) {
    if (length == 0 || !by_length_.contains({length, start})) {
      return absl::InternalError(absl::StrCat("the run at ", start, " is empty or lost by length"));
    }
    if (free > 0 && start <= end) {
      return absl::InternalError(absl::StrCat("the run at ", start, " touches the one below"));
    }
    end = uint64_t{start} + length;
    free += length;
  }
  if (end > granules_ || free != free_ || by_length_.size() != by_start_.size()) {
    return absl::InternalError(absl::StrCat(by_start_.size(), " runs with ", free,
                                            " granules up to ", end, "; counted ",
                                            by_length_.size(), " with ", free_, " of ", granules_));
  }
  return absl::OkStatus();
}

}  // namespace cxlpool::fm
