// The memory blocks of a DAX device in system-ram mode: read them, bring them online or offline.
//
// Partial is a state: a call may end with some blocks one way and some the other, so each reads
// every block back and says how many. libdaxctl counts blocks but neither sets a deadline nor
// knows which block is in which zone; hence sysfs (Linux, admin-guide/mm/memory-hotplug.rst).
#ifndef CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_MEMORY_MEMORY_BLOCKS_H_
#define CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_MEMORY_MEMORY_BLOCKS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "host-agent/adapters/linux/cxl/cxl_snapshot.h"
#include "host-agent/adapters/linux/machine/host_files.h"
#include "host-agent/adapters/linux/memory/offline_child.h"
#include "host-agent/model/observation.h"
#include "host-agent/support/deadline.h"

namespace cxlpool::agent {

struct MemoryBlock {
  uint64_t index = 0;    // memoryN.
  bool offline = false;  // Anything else ("online", "going-offline") counts as online.
  bool movable = false;  // Online in ZONE_MOVABLE.
  std::string zone;      // Online in it: "Movable", "Normal", ...; empty: in none or several.
};

// Bytes in a memory block; 0 on a kernel without memory hot-plug.
uint64_t MemoryBlockBytes(const HostFiles& files);

// The blocks that the kernel has within [hpa_bytes, hpa_bytes + size_bytes), whole ones only.
std::vector<MemoryBlock> ReadMemoryBlocks(const HostFiles& files, uint64_t hpa_bytes,
                                          uint64_t size_bytes);

// Blocks of `blocks` that are online.
uint32_t CountOnline(const std::vector<MemoryBlock>& blocks);

// For memory that no driver has any more, before anything else is made of its addresses.
// FAILED_PRECONDITION/BLOCKS_BUSY: the kernel has a block there that is online. It keeps that until
// the next boot. `what`: the DAX device or host region, for the message. Address 0: not known, OK.
absl::Status CheckNoBlocksStay(const HostFiles& files, absl::string_view what, uint64_t hpa_bytes,
                               uint64_t size_bytes);

// FAILED_PRECONDITION/NOT_SYSTEM_RAM: there are no blocks; /NOT_MOVABLE: a block was online in
// another zone before, and kMovable is asked for. INTERNAL/BLOCK_ONLINE: the kernel refuses.
absl::Status OnlineMemoryBlocks(const HostFiles& files, const DaxDevice& dax, MemoryZone zone);

// FAILED_PRECONDITION/BLOCKS_BUSY: some stay online. Message and metadata say which ("blocks": the
// first 32, with commas), in which zones ("zone") and why ("cause"): the kernel refuses (busy),
// took too long and was stopped (timeout), or the other nodes have no room for what is in them
// (no_room; nothing was tried); and who uses their NUMA node most ("pids", by numa_maps, for which
// it takes up to 2 s beyond the deadline).
absl::Status OfflineMemoryBlocks(const HostFiles& files, const DaxDevice& dax, OfflineChild& child,
                                 const Deadline& deadline);

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_MEMORY_MEMORY_BLOCKS_H_
