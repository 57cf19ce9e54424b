// HostMemory on a real Linux host: by sysfs; libcxl undoes what went wrong.
//
// Needs root (CAP_SYS_ADMIN), a kernel with DAX for CXL memory (Linux 6.3) and hot-plug slots;
// Prepare says what is missing. All rungs run on one thread, Observe and FindHolders on a second,
// so that looking goes on while a rung waits for the kernel.
//
// Limits: a region whose memdevs were all pulled out while this process was not running is known by
// the word of the one before (known_regions_file). Without that it shows serial 0;
// DestroyHostRegion(0) takes such regions away, and so does CreateHostRegion. If the
// process is killed while it binds to kmem, the kernel's auto_online_blocks is "offline" until the
// next one has prepared the host.
#ifndef CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_LINUX_HOST_MEMORY_H_
#define CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_LINUX_HOST_MEMORY_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "host-agent/ports/host_memory.h"

namespace cxlpool::agent {

// Deadlines, from the call to its completion; a call stuck in the kernel is answered at most five
// seconds later.
struct LinuxHostMemoryOptions {
  absl::Duration look_timeout = absl::Seconds(15);  // Observe, FindHolders.
  absl::Duration rung_timeout = absl::Seconds(30);  // Every rung but the next two.
  absl::Duration blocks_timeout =
      absl::Seconds(60);  // OnlineBlocks; OfflineBlocks is given its own.
  // The hint for the next agent of this boot (known_targets.h); "": none is written.
  std::string known_regions_file;
};

// INVALID_ARGUMENT/BAD_OPTIONS: a deadline that is not positive.
absl::StatusOr<std::unique_ptr<HostMemory>> MakeLinuxHostMemory(LinuxHostMemoryOptions options);

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_LINUX_HOST_MEMORY_H_
