// The moment by which a call must have ended. Monotonic: a clock that is set does not move it.
#ifndef CXLPOOL_LIBPOOL_SRC_DEADLINE_H_
#define CXLPOOL_LIBPOOL_SRC_DEADLINE_H_

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace cxlpool::libpool {

using Duration = std::chrono::milliseconds;
using Deadline = std::chrono::steady_clock::time_point;

inline Deadline After(Duration duration) { return std::chrono::steady_clock::now() + duration; }

// What is left, rounded up to a millisecond so that a poll for it never spins; 0 once past. At
// most `cap_ms`.
inline int RemainingMs(Deadline deadline, int cap_ms) {
  const auto left = std::chrono::ceil<Duration>(deadline - std::chrono::steady_clock::now());
  return static_cast<int>(std::clamp<int64_t>(left.count(), 0, cap_ms));
}

}  // namespace cxlpool::libpool

#endif  // CXLPOOL_LIBPOOL_SRC_DEADLINE_H_
