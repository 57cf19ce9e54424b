// The host's CXL as it is, with what the kernel no longer tells of it.
#ifndef CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_LOOK_AT_CXL_H_
#define CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_LOOK_AT_CXL_H_

#include "absl/status/statusor.h"
#include "host-agent/adapters/linux/cxl_snapshot.h"
#include "host-agent/adapters/linux/known_targets.h"

namespace cxlpool::agent {

// ReadCxlSnapshot, completed by `known`, husks counted in the windows. INTERNAL/LIBCXL. Any thread.
absl::StatusOr<CxlSnapshot> LookAtCxl(KnownTargets& known);

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_LOOK_AT_CXL_H_
