// The bytes of one device: which are free, and in what way the rest is held.
//
// Invariant: every granule is in exactly one of free, held, scrubbing, quarantined; the four sum
// to the capacity. Not thread-safe; owned by PoolState. Offsets and lengths in bytes.
#ifndef CXLPOOL_FABRIC_MANAGER_MODEL_EXTENT_MAP_H_
#define CXLPOOL_FABRIC_MANAGER_MODEL_EXTENT_MAP_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace cxlpool::fm {

class ExtentMap {
 public:
  enum class Use : uint8_t { kHeld, kScrubbing, kQuarantined };

  // INVALID_ARGUMENT: granule is 0 or capacity is not a positive multiple of it.
  static absl::StatusOr<ExtentMap> Create(uint64_t capacity_bytes, uint64_t granule_bytes);

  // Where a run of `length` bytes would fit best: the smallest free run that is long enough, the
  // lowest of equals. Nothing if none is, or if `length` is no positive multiple of the granule.
  // Changes nothing. `align` is a multiple of the granule or 0.
  std::optional<uint64_t> BestFit(uint64_t length_bytes, uint64_t align_bytes = 0) const;

  // Takes [dpa, dpa + length) from free. FAILED_PRECONDITION if any of it is not free, or if it is
  // not made of whole granules.
  absl::Status Take(uint64_t dpa_bytes, uint64_t length_bytes, Use use);

  // Changes how a taken range is held. FAILED_PRECONDITION if it was not taken as a whole.
  absl::Status SetUse(uint64_t dpa_bytes, uint64_t length_bytes, Use use);

  // Gives a taken range back; it merges with its free neighbours. Errors as in SetUse.
  absl::Status Free(uint64_t dpa_bytes, uint64_t length_bytes);

  uint64_t capacity_bytes() const { return capacity_bytes_; }
  uint64_t granule_bytes() const { return granule_bytes_; }
  uint64_t free_bytes() const { return free_bytes_; }
  uint64_t held_bytes(Use use) const { return used_bytes_[static_cast<int>(use)]; }
  uint64_t largest_free_bytes() const;

  // Free runs as (length, dpa), ascending: a multi-extent placement walks them from the end.
  const std::set<std::pair<uint64_t, uint64_t>>& free_by_length() const { return by_length_; }

  // Checks the invariant from scratch. INTERNAL says what is broken.
  absl::Status Check() const;

 private:
  ExtentMap(uint64_t capacity_bytes, uint64_t granule_bytes);

  bool IsRange(uint64_t dpa_bytes, uint64_t length_bytes) const;
  void AddFree(uint64_t dpa_bytes, uint64_t length_bytes);
  void RemoveFree(std::map<uint64_t, uint64_t>::iterator run);

  struct Taken {
    uint64_t length_bytes;
    Use use;
  };

  uint64_t capacity_bytes_;
  uint64_t granule_bytes_;
  uint64_t free_bytes_;
  uint64_t used_bytes_[3] = {};
  std::map<uint64_t, uint64_t> free_;                  // dpa -> length
  std::set<std::pair<uint64_t, uint64_t>> by_length_;  // (length, dpa) of free_
  std::map<uint64_t, Taken> taken_;                    // dpa -> how
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_MODEL_EXTENT_MAP_H_
