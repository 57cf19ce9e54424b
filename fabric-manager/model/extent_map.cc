#include "fabric-manager/model/extent_map.h"

#include <iterator>

#include "absl/strings/str_cat.h"

namespace cxlpool::fm {
namespace {

std::string RangeText(uint64_t dpa_bytes, uint64_t length_bytes) {
  return absl::StrCat("[", dpa_bytes, ", +", length_bytes, ")");
}

}  // namespace

absl::StatusOr<ExtentMap> ExtentMap::Create(uint64_t capacity_bytes, uint64_t granule_bytes) {
  if (granule_bytes == 0 || capacity_bytes == 0 || capacity_bytes % granule_bytes != 0) {
    return absl::InvalidArgumentError(absl::StrCat("a capacity of ", capacity_bytes,
                                                   " bytes is not a positive multiple of the ",
                                                   "granule, ", granule_bytes, " bytes"));
  }
  return ExtentMap(capacity_bytes, granule_bytes);
}

ExtentMap::ExtentMap(uint64_t capacity_bytes, uint64_t granule_bytes)
    : capacity_bytes_(capacity_bytes), granule_bytes_(granule_bytes), free_bytes_(0) {
  AddFree(0, capacity_bytes);
}

void ExtentMap::AddFree(uint64_t dpa_bytes, uint64_t length_bytes) {
  free_.emplace(dpa_bytes, length_bytes);
  by_length_.emplace(length_bytes, dpa_bytes);
  free_bytes_ += length_bytes;
}

void ExtentMap::RemoveFree(std::map<uint64_t, uint64_t>::iterator run) {
  by_length_.erase({run->second, run->first});
  free_bytes_ -= run->second;
  free_.erase(run);
}

bool ExtentMap::IsRange(uint64_t dpa_bytes, uint64_t length_bytes) const {
  return length_bytes != 0 && dpa_bytes % granule_bytes_ == 0 &&
         length_bytes % granule_bytes_ == 0 && length_bytes <= capacity_bytes_ &&
         dpa_bytes <= capacity_bytes_ - length_bytes;
}

std::optional<uint64_t> ExtentMap::BestFit(uint64_t length_bytes, uint64_t align_bytes) const {
  if (!IsRange(0, length_bytes)) return std::nullopt;
  for (auto it = by_length_.lower_bound({length_bytes, 0}); it != by_length_.end(); ++it) {
    const auto [run_bytes, dpa_bytes] = *it;
    const uint64_t over = align_bytes == 0 ? 0 : dpa_bytes % align_bytes;
    const uint64_t skip = over == 0 ? 0 : align_bytes - over;
    if (skip <= run_bytes - length_bytes) return dpa_bytes + skip;
  }
  return std::nullopt;
}

absl::Status ExtentMap::Take(uint64_t dpa_bytes, uint64_t length_bytes, Use use) {
  auto run = IsRange(dpa_bytes, length_bytes) ? free_.upper_bound(dpa_bytes) : free_.begin();
  if (run != free_.begin()) {
    --run;
    const auto [start, length] = *run;
    if (dpa_bytes - start < length && length - (dpa_bytes - start) >= length_bytes) {
      RemoveFree(run);
      if (start < dpa_bytes) AddFree(start, dpa_bytes - start);
      const uint64_t end = dpa_bytes + length_bytes;
      if (end < start + length) AddFree(end, start + length - end);
      taken_.emplace(dpa_bytes, Taken{length_bytes, use});
      used_bytes_[static_cast<int>(use)] += length_bytes;
      return absl::OkStatus();
    }
  }
  return absl::FailedPreconditionError(
      absl::StrCat("bytes ", RangeText(dpa_bytes, length_bytes), " are not free"));
}

absl::Status ExtentMap::SetUse(uint64_t dpa_bytes, uint64_t length_bytes, Use use) {
  const auto taken = taken_.find(dpa_bytes);
  if (taken == taken_.end() || taken->second.length_bytes != length_bytes) {
    return absl::FailedPreconditionError(
        absl::StrCat("bytes ", RangeText(dpa_bytes, length_bytes), " were not taken as a whole"));
  }
  used_bytes_[static_cast<int>(taken->second.use)] -= length_bytes;
  used_bytes_[static_cast<int>(use)] += length_bytes;
  taken->second.use = use;
  return absl::OkStatus();
}

absl::Status ExtentMap::Free(uint64_t dpa_bytes, uint64_t length_bytes) {
  const auto taken = taken_.find(dpa_bytes);
  if (taken == taken_.end() || taken->second.length_bytes != length_bytes) {
    return absl::FailedPreconditionError(
        absl::StrCat("bytes ", RangeText(dpa_bytes, length_bytes), " were not taken as a whole"));
  }
  used_bytes_[static_cast<int>(taken->second.use)] -= length_bytes;
  taken_.erase(taken);
  uint64_t start = dpa_bytes;
  uint64_t end = dpa_bytes + length_bytes;
  auto above = free_.lower_bound(dpa_bytes);
  if (above != free_.begin()) {
    const auto below = std::prev(above);
    if (below->first + below->second == start) {
      start = below->first;
      RemoveFree(below);
    }
  }
  if (above != free_.end() && above->first == end) {
    end += above->second;
    RemoveFree(above);
  }
  AddFree(start, end - start);
  return absl::OkStatus();
}

uint64_t ExtentMap::largest_free_bytes() const {
  return by_length_.empty() ? 0 : by_length_.rbegin()->first;
}

absl::Status ExtentMap::Check() const {
  uint64_t at = 0;
  uint64_t free_sum = 0;
  uint64_t used_sum[3] = {};
  bool was_free = false;
  auto run = free_.begin();
  auto taken = taken_.begin();
  const auto broken = [&at](const auto&... what) {
    return absl::InternalError(absl::StrCat("extent map, at byte ", at, ": ", what...));
  };
  while (at < capacity_bytes_) {
    uint64_t length = 0;
    if (run != free_.end() && run->first == at) {
      if (was_free) return broken("two free runs touch");
      length = run->second;
      free_sum += length;
      if (!by_length_.contains({length, at})) return broken("a free run is not in by_length");
      was_free = true;
      ++run;
    } else if (taken != taken_.end() && taken->first == at) {
      length = taken->second.length_bytes;
      used_sum[static_cast<int>(taken->second.use)] += length;
      was_free = false;
      ++taken;
    } else {
      return broken("neither a free nor a taken range begins here");
    }
    if (!IsRange(at, length)) return broken("a range of ", length, " bytes is no range");
    at += length;
  }
  if (run != free_.end() || taken != taken_.end()) return broken("a range overlaps another");
  if (by_length_.size() != free_.size()) return broken("by_length has runs that are not free");
  if (free_sum != free_bytes_) return broken("free_bytes is ", free_bytes_, ", not ", free_sum);
  for (int use = 0; use < 3; ++use) {
    if (used_sum[use] != used_bytes_[use]) return broken("held_bytes of use ", use, " is wrong");
  }
  return absl::OkStatus();
}

}  // namespace cxlpool::fm
