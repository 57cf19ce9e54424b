// Reads a CxlSnapshot and the DAX devices from sysfs. Changes nothing.
//
// By sysfs and not by libcxl: the agent looks before and after each rung, and a new context of
// libcxl or libdaxctl looks each port and device up among the kernel's modules and resolves each
// path: ten times the system calls, and more of the time than the kernel takes for the rung.
// What disappears while it is read is left out. What only hot-plugging changes is read once, and
// the decoders of a bridge only where a region may lie on them. Any thread.
#ifndef CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_CXL_SYSFS_SNAPSHOT_H_
#define CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_CXL_SYSFS_SNAPSHOT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "host-agent/adapters/linux/cxl/cxl_shape.h"
#include "host-agent/adapters/linux/cxl/cxl_snapshot.h"
#include "host-agent/adapters/linux/machine/host_files.h"

namespace cxlpool::agent {

// Waits for memdevs whose driver is being bound just then. Empty on a host without CXL.
// largest_free_bytes of a window is its size: CountFree (machine.h) lowers it.
CxlSnapshot ReadCxlSnapshot(const HostFiles& files, CxlShapes& shapes);
CxlSnapshot ReadCxlSnapshot(const HostFiles& files);  // Remembers nothing.

// Only the regions, by address.
std::vector<CxlHostRegion> ReadCxlRegions(const HostFiles& files, CxlShapes& shapes);

// The DAX devices on CXL regions; others (persistent memory, soft-reserved) are left out.
std::vector<DaxDevice> ReadDaxDevices(const HostFiles& files);

// One of them; nothing if there is none of that name.
std::optional<DaxDevice> ReadDaxDevice(const HostFiles& files, const std::string& name);

// Whether the memdev with this serial is there and has its decoders.
bool MemdevReady(const HostFiles& files, uint64_t serial);

// A memdev of the pool that sysfs shows now.
struct PoolMemdev {
  std::string path;  // "sys/bus/cxl/devices/mem3"
  uint64_t serial = 0;
  std::string device;  // The same with all links followed: the way to it through PCI.
};

// Those whose serials are a pool's (IsPoolSerial), in order of their names; `every`: all that have
// a serial, where the pool's devices have their hardware's.
std::vector<PoolMemdev> ReadPoolMemdevs(const HostFiles& files, bool every = false);

// Whether the memdev is that PCI function, or behind it.
bool IsBehind(const PoolMemdev& memdev, absl::string_view pci_function);

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_CXL_SYSFS_SNAPSHOT_H_
