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
  by_end_[run.start + run.length] = run.start;
  by_length_.emplace(run.length, run.start);
}

// Whether no other run is as long. None is where there was no run.
bool FreeRuns::RemoveLength(Run run) {
  const auto found = by_length_.find({run.length, run.start});
  if (found == by_length_.end()) return true;
  const auto next = by_length_.erase(found);
  return (next == by_length_.end() || next->first != run.length) &&
         (next == by_length_.begin() || std::prev(next)->first != run.length);
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
  if (change.gone[0].length > 0) by_end_.erase(change.gone[0].start + change.gone[0].length);
  change.none_left[0] = RemoveLength(change.gone[0]);
  Add(change.come[0]);
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
  const auto found = by_end_.upper_bound(start);
  if (length == 0 || found == by_end_.end()) return std::nullopt;
  const Run run{found->second, found->first - found->second};
  if (run.start > start || found->first - start < length) return std::nullopt;
  const Run below{run.start, start - run.start};
  const Run above{start + length, found->first - start - length};
  Change change;
  change.gone[0] = run;
  change.come = {below, above};
  change.none_left[0] = RemoveLength(run);
  if (above.length > 0) {
    found->second = above.start;
    by_length_.emplace(above.length, above.start);
  } else {
    by_end_.erase(found);
  }
  Add(below);
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
  const auto below = by_end_.lower_bound(start);
  const bool touches_below = below != by_end_.end() && below->first == start;
  const auto above = touches_below ? std::next(below) : below;
  const uint32_t end = start + length;
  if (above != by_end_.end() && above->second < end) return std::nullopt;
  const bool touches_above = above != by_end_.end() && above->second == end;
  Change change;
  if (touches_below) change.gone[0] = {below->second, start - below->second};
  if (touches_above) change.gone[1] = {end, above->first - end};
  const Run grown{touches_below ? below->second : start,
                  change.gone[0].length + length + change.gone[1].length};
  change.come[0] = grown;
  // The upper one first: none_left of two that are equally long is as of the end.
  change.none_left[1] = RemoveLength(change.gone[1]);
  change.none_left[0] = RemoveLength(change.gone[0]);
  if (change.gone[0].length == change.gone[1].length) change.none_left[1] = change.none_left[0];
  if (touches_above) above->second = grown.start;
  if (touches_below) by_end_.erase(below);
  if (!touches_above) by_end_.emplace(end, grown.start);
  by_length_.emplace(grown.length, grown.start);
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
    if (taken + free_ == granules_ && by_end_.size() == (run.length == 0 ? 0 : 1) &&
        Longest().value_or(Run{}) == run) {
      return absl::OkStatus();
    }
    return absl::InternalError(absl::StrCat("LDs of ", taken, " granules and ", free_, " free of ",
                                            granules_, ", in ", by_end_.size(), " runs"));
  }
  uint64_t last = 0;
  uint64_t free = 0;
  for (const auto& [end, start] : by_end_) {
    if (start >= end || !by_length_.contains({end - start, start})) {
      return absl::InternalError(absl::StrCat("the run at ", start, " is empty or lost by length"));
    }
    if (free > 0 && start <= last) {
      return absl::InternalError(absl::StrCat("the run at ", start, " touches the one below"));
    }
    last = end;
    free += end - start;
  }
  if (last > granules_ || free != free_ || by_length_.size() != by_end_.size()) {
    return absl::InternalError(absl::StrCat(by_end_.size(), " runs with ", free, " granules up to ",
                                            last, "; counted ", by_length_.size(), " with ", free_,
                                            " of ", granules_));
  }
  return absl::OkStatus();
}

}  // namespace cxlpool::fm
