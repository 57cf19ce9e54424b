#include "test/sim/shrink.h"

#include <algorithm>

namespace cxlpool::sim {

Script Shrink(const Script& script, const std::function<bool(const Script&)>& fails, int max_runs) {
  Script best = script;
  int runs = 0;
  for (size_t chunk = std::max<size_t>(1, best.steps.size() / 2); runs < max_runs;) {
    bool shorter = false;
    for (size_t at = 0; at < best.steps.size() && runs < max_runs;) {
      Script candidate = best;
      const auto begin = candidate.steps.begin() + static_cast<std::ptrdiff_t>(at);
      const size_t count = std::min(chunk, best.steps.size() - at);
      candidate.steps.erase(begin, begin + static_cast<std::ptrdiff_t>(count));
      ++runs;
      if (fails(candidate)) {
        best = std::move(candidate);
        shorter = true;
      } else {
        at += chunk;
      }
    }
    if (chunk == 1 && !shorter) break;
    if (!shorter || chunk > best.steps.size()) chunk = std::max<size_t>(1, chunk / 2);
  }
  return best;
}

}  // namespace cxlpool::sim
