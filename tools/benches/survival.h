// Whether a killed manager kept its word: what it acknowledged, against what its restart lists.
//
// Not thread-safe.
#ifndef CXLPOOL_TOOLS_BENCHES_SURVIVAL_H_
#define CXLPOOL_TOOLS_BENCHES_SURVIVAL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "cxlpool/v1/resources.pb.h"

namespace cxlpool::bench {

struct Survival {
  uint64_t acknowledged = 0;
  uint64_t lost = 0;       // Acknowledged, and not there as it was acknowledged.
  uint64_t overlap = 0;    // Extents that begin within another one: bytes given twice.
  uint64_t extra = 0;      // There, and never acknowledged: calls that the kill cut off.
  std::string first_loss;  // For people; empty if nothing was lost.

  Survival& operator+=(const Survival& other);
};

// Takes every Region that was acknowledged, then every one that is listed, and keeps of each no
// more than a few dozen bytes. A Region survived if it is listed field for field as it was
// acknowledged; one that is acknowledged twice is a loss.
class SurvivalCheck {
 public:
  void Acknowledged(const v1::Region& region);
  void Listed(const v1::Region& region);
  Survival Finish();

 private:
  struct Extent {
    uint32_t device;
    uint64_t dpa;
    uint64_t length;
  };

  void Lose(const std::string& what);
  uint64_t CountOverlaps();

  Survival survival_;
  absl::flat_hash_map<std::string, uint64_t> promised_;  // Tag to the hash of all fields.
  absl::flat_hash_map<std::string, uint32_t> devices_;   // Number of each.
  std::vector<Extent> extents_;
};

}  // namespace cxlpool::bench

#endif  // CXLPOOL_TOOLS_BENCHES_SURVIVAL_H_
