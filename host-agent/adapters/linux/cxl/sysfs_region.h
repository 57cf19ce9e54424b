// Programs one CXL region by the files of the kernel's ABI
// (Documentation/ABI/testing/sysfs-bus-cxl), and takes it away in the same straight way.
//
// A dozen writes in an order that the kernel insists on. Where one of them fails libcxl clears up
// (libcxl_region.h): it looks at everything again, and undoes whatever it finds.
#ifndef CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_CXL_SYSFS_REGION_H_
#define CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_CXL_SYSFS_REGION_H_

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "host-agent/adapters/linux/cxl/cxl_snapshot.h"
#include "host-agent/adapters/linux/cxl/libcxl_region.h"
#include "host-agent/adapters/linux/cxl/region_plan.h"
#include "host-agent/adapters/linux/machine/host_files.h"

namespace cxlpool::agent {

// What takes a region away that does not go the straight way.
using CleanUp = absl::FunctionRef<absl::Status(const HostFiles&, const std::string& name)>;

// Creates, programs, commits and enables a region. INTERNAL/REGION_COMMIT names the file; what was
// half made has been taken away (or the message says that it was not).
absl::Status ProgramRegion(const HostFiles& files, const RegionPlan& plan,
                           CleanUp clean_up = TakeRegionAway);

// Gives an existing, committed region to the region driver. INTERNAL/REGION_COMMIT.
absl::Status EnableRegion(const HostFiles& files, const std::string& name);

// Disables, uncommits, clears the targets, frees their DPA and deletes the region. Only its being
// gone counts. INTERNAL/REGION_DESTROY.
absl::Status DeleteRegion(const HostFiles& files, const CxlHostRegion& region,
                          CleanUp clean_up = TakeRegionAway);

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_CXL_SYSFS_REGION_H_
