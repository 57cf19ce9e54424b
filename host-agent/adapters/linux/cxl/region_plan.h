// Whether and how a host region can be made, decided from a snapshot before anything is touched.
// Pure.
#ifndef CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_CXL_REGION_PLAN_H_
#define CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_CXL_REGION_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "host-agent/adapters/linux/cxl/cxl_snapshot.h"
#include "host-agent/ports/host_memory.h"

namespace cxlpool::agent {

// Linux makes CXL regions in multiples of this, a target.
inline constexpr uint64_t kRegionGranuleBytes = 256ull << 20;

struct RegionPlan {
  std::string window;  // Root decoder to make it under.
  uint32_t interleave_granularity_bytes = 0;
  uint64_t size_bytes = 0;  // Of the whole host region.
  std::vector<uint64_t> serials;
};

// INVALID_ARGUMENT/BAD_REGION_SPEC; NOT_FOUND/NO_MEMDEV, NO_HOST_BRIDGE;
// FAILED_PRECONDITION/NO_WINDOW, BRIDGE_BLOCKED, DECODERS_FULL, WINDOW_FULL.
absl::StatusOr<RegionPlan> PlanHostRegion(const CxlSnapshot& snapshot, const HostRegionSpec& spec);

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_CXL_REGION_PLAN_H_
