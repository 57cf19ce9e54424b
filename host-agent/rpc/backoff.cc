#include "host-agent/rpc/backoff.h"

#include <algorithm>

namespace cxlpool::agent {

absl::Duration Backoff::Next() {
  bound_ = std::min(2 * bound_, max_);
  return min_ + std::uniform_real_distribution<double>(0, 1)(random_) * (bound_ - min_);
}

}  // namespace cxlpool::agent
