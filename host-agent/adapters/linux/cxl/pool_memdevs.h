// The memdevs of the pool that sysfs shows now: sysfs alone, no libcxl, so that it is quick.
//
// Pure reading; any thread.
#ifndef CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_CXL_POOL_MEMDEVS_H_
#define CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_CXL_POOL_MEMDEVS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "host-agent/adapters/linux/machine/host_files.h"

namespace cxlpool::agent {

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

#endif  // CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_CXL_POOL_MEMDEVS_H_
