// How long to wait after so many failures in a row: `first`, and each time twice as long, up to
// `most`.
#ifndef CXLPOOL_HOST_AGENT_SERVICE_BACKOFF_H_
#define CXLPOOL_HOST_AGENT_SERVICE_BACKOFF_H_

#include <algorithm>

#include "absl/time/time.h"

namespace cxlpool::agent {

// `failures` > 0.
inline absl::Duration Backoff(int failures, absl::Duration first, absl::Duration most) {
  absl::Duration delay = first;
  for (int i = 1; i < failures && delay < most; ++i) delay *= 2;
  return std::min(delay, most);
}

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_SERVICE_BACKOFF_H_
