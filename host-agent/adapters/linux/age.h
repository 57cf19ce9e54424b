// Whether what was read is recent enough to be used again.
#ifndef CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_AGE_H_
#define CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_AGE_H_

#include "absl/time/time.h"

namespace cxlpool::agent {

// Less than `max_age` ago. A clock that was set back makes it old, not young for ever.
inline bool IsYoung(absl::Time read_at, absl::Time now, absl::Duration max_age) {
  return now >= read_at && now - read_at < max_age;
}

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_AGE_H_
