// Whether a killed manager kept its word: what it acknowledged, against what its restart lists.
//
// Pure function, any thread.
#ifndef CXLPOOL_TOOLS_BENCHES_SURVIVAL_H_
#define CXLPOOL_TOOLS_BENCHES_SURVIVAL_H_

#include <cstdint>
#include <string>
#include <vector>

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

// A Region survived if it is listed field for field as it was acknowledged.
Survival Compare(const std::vector<v1::Region>& acknowledged,
                 const std::vector<v1::Region>& listed);

}  // namespace cxlpool::bench

#endif  // CXLPOOL_TOOLS_BENCHES_SURVIVAL_H_
