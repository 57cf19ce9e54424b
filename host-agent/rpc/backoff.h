// How long to wait before dialling again.
//
// Random between the minimum and a bound that doubles with each failure: when a manager comes back,
// a rack of agents does not dial in step. Not thread-safe.
#ifndef CXLPOOL_HOST_AGENT_RPC_BACKOFF_H_
#define CXLPOOL_HOST_AGENT_RPC_BACKOFF_H_

#include <algorithm>
#include <cstdint>
#include <random>

#include "absl/time/time.h"

namespace cxlpool::agent {

class Backoff {
 public:
  Backoff(absl::Duration min, absl::Duration max, uint64_t seed)
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

#endif  // CXLPOOL_HOST_AGENT_RPC_BACKOFF_H_
