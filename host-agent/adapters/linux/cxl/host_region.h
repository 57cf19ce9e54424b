// Makes and destroys the kernel's CXL regions.
//
// For the one thread that runs the rungs: two creators race for the name that the kernel hands
// out, and concurrent teardown below one switch has corrupted kernels.
#ifndef CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_CXL_HOST_REGION_H_
#define CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_CXL_HOST_REGION_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "host-agent/adapters/linux/cxl/cxl_snapshot.h"
#include "host-agent/adapters/linux/machine/machine.h"
#include "host-agent/ports/host_memory.h"
#include "host-agent/support/deadline.h"

namespace cxlpool::agent {

// Returns once the region is committed and its DAX device is there. What an interrupted call left
// (half a region of these memdevs), and what is left in the same windows of the pool's regions that
// have no target any more, is taken away first. What a person may be making is not, except where it
// keeps the room from a device of the hardware's own serial. A committed region of this shape that
// lost its DAX device (the kernel takes that away after a fatal PCIe error) gets it back, or
// NO_DAX_DEVICE. Errors as in HostMemory::CreateHostRegion and region_plan.h;
// ALREADY_EXISTS/OTHER_REGION: a committed region with this first target but another shape.
// HOST_UNFIT: no DAX device may appear (dax_driver.h).
absl::Status MakeHostRegion(Machine& machine, const HostRegionSpec& spec, const Deadline& deadline);

// Serial 0 stands for every region that has lost all its targets and whose targets are not known.
// FAILED_PRECONDITION/DAX_BOUND; /BLOCKS_BUSY: the kernel uses its memory, though no driver has it;
// INTERNAL/REGION_DESTROY.
absl::Status DestroyHostRegionOf(Machine& machine, uint64_t serial);

// The DAX device of the host region that has, or had, `serial` among its targets.
// NOT_FOUND/NO_HOST_REGION, NO_DAX_DEVICE.
absl::StatusOr<DaxDevice> DaxOfHostRegion(Machine& machine, uint64_t serial);

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_CXL_HOST_REGION_H_
