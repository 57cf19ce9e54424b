// Row 6: how long one placement decision takes in a pool that is nearly full, beside peers that
// answer the same requests.
//
// A decision is to choose the bytes and take them. Giving back, which keeps the pool as full as it
// was, is not measured. Some requests reach every device, some one switch of eight, some eight
// devices; some are interleaved over two or four distinct devices, and then all pieces are one
// decision.
#ifndef CXLPOOL_TOOLS_BENCHES_PLACEMENT_SPEED_H_
#define CXLPOOL_TOOLS_BENCHES_PLACEMENT_SPEED_H_

#include <cstdint>
#include <vector>

#include "tools/benches/report.h"

namespace cxlpool::bench {

struct SpeedOptions {
  uint32_t devices = 4096;
  uint32_t granules_each = 4096;  // Of 256 MiB: 1 TiB. At 98 % that is about 1.5 M extents.
  double fill = 0.98;
  int rounds = 9;
  int decisions = 100'000;  // In each of a round's slices.
  uint64_t seed = 6;
};

// Prints what it does to standard output. Rows: p50 and p99 by the bitmap reference, p50 by the
// tree, p50 by that of a pool with a thousand extents.
std::vector<Row> MeasureSpeed(const SpeedOptions& options);

}  // namespace cxlpool::bench

#endif  // CXLPOOL_TOOLS_BENCHES_PLACEMENT_SPEED_H_
