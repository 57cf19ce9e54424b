// How long to wait after failures: for one retry on this host, and for a call to the manager, where
// many hosts wait at once.
#ifndef CXLPOOL_HOST_AGENT_SERVICE_BACKOFF_H_
#define CXLPOOL_HOST_AGENT_SERVICE_BACKOFF_H_

#include <algorithm>
#include <cstdint>
#include <random>

#include "absl/time/time.h"

namespace cxlpool::agent {

// What the core waits between two tries of the same rung, hook or preparation.
inline constexpr absl::Duration kFirstBackoff = absl::Milliseconds(100);
inline constexpr absl::Duration kMaxBackoff = absl::Seconds(5);

// The wait after `failures` (> 0) failures in a row: `first`, doubled with each further failure, at
// most `most`.
inline absl::Duration BackoffAfter(int failures, absl::Duration first, absl::Duration most) {
  absl::Duration delay = first;
  for (int i = 1; i < failures && delay < most; ++i) delay *= 2;
  return std::min(delay, most);
}

// The wait before the next dial: random between a minimum and a bound that doubles with each
// failure, so that a rack of agents does not dial in step when a manager comes back. Not
// thread-safe.
class RandomBackoff {
 public:
  RandomBackoff(absl::Duration min, absl::Duration max, uint64_t seed)
      : min_(min), max_(max), bound_(min), random_(seed) {}

  // The wait after one more failure, in [min, max].
  absl::Duration Next() {
    bound_ = std::min(2 * bound_, max_);
    return min_ + std::uniform_real_distribution<double>(0, 1)(random_) * (bound_ - min_);
  }

  // The last attempt was a success.
  void Reset() { bound_ = min_; }

 private:
  const absl::Duration min_;
  const absl::Duration max_;
  absl::Duration bound_;
  std::mt19937_64 random_;
};

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_SERVICE_BACKOFF_H_
