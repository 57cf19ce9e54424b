// The libcxl calls that undo a CXL region, whatever state it is in.
//
// A new context looks each port and device of the host up among the kernel's modules: slow, and for
// what did not go the straight way (sysfs_region.h).
#ifndef CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_CXL_LIBCXL_REGION_H_
#define CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_CXL_LIBCXL_REGION_H_

#include <string>

#include "absl/status/status.h"
#include "host-agent/adapters/linux/machine/host_files.h"

namespace cxlpool::agent {

// Disables, uncommits, clears the targets, frees their DPA and deletes the region. Goes as far as
// it can: only the region's being gone counts. INTERNAL/REGION_DESTROY.
absl::Status TakeRegionAway(const HostFiles& files, const std::string& name);

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_CXL_LIBCXL_REGION_H_
