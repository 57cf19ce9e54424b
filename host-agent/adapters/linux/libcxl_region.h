// The libcxl calls that program one CXL region, and those that undo them.
#ifndef CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_LIBCXL_REGION_H_
#define CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_LIBCXL_REGION_H_

#include <string>

#include "absl/status/status.h"
#include "host-agent/adapters/linux/host_files.h"
#include "host-agent/adapters/linux/region_plan.h"

namespace cxlpool::agent {

// Creates, programs, commits and enables a region. INTERNAL/REGION_COMMIT names the step and what
// libcxl said; what was half made has been taken away (or the message says that it was not).
absl::Status ProgramRegion(const HostFiles& files, const RegionPlan& plan);

// Gives an existing, committed region to the region driver. INTERNAL/REGION_COMMIT.
absl::Status EnableRegion(const std::string& name);

// Disables, uncommits, clears the targets, frees their DPA and deletes the region. Goes as far as
// it can: only the region's being gone counts. INTERNAL/REGION_DESTROY.
absl::Status TakeRegionAway(const HostFiles& files, const std::string& name);

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_LIBCXL_REGION_H_
