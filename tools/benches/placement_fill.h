// Row 7: how full a pool is when it first has to refuse somebody, beside best fit in one extent and
// beside what nobody could beat: a pool that refuses only who asks for more than is free at all.
//
// Ours is `pack`: the run that fits best, else the longest runs, at most 16 extents.
#ifndef CXLPOOL_TOOLS_BENCHES_PLACEMENT_FILL_H_
#define CXLPOOL_TOOLS_BENCHES_PLACEMENT_FILL_H_

#include <cstdint>
#include <vector>

#include "tools/benches/placement_trace.h"
#include "tools/benches/report.h"

namespace cxlpool::bench {

struct FillOptions {
  int rounds = 9;               // Pools, each larger than the one before.
  uint32_t first_devices = 16;  // Of the smallest pool.
  uint32_t more_devices = 4;    // That each pool has more.
  uint64_t seed = 7;
};

// Prints how full and how fragmented one pool is over the trace. Rows: the trace by best fit and by
// the bound, the adversary by best fit.
std::vector<Row> MeasureFill(const std::vector<Machine>& machines, const FillOptions& options);

}  // namespace cxlpool::bench

#endif  // CXLPOOL_TOOLS_BENCHES_PLACEMENT_FILL_H_
