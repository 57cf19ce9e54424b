// What a host's kernel shows of its CXL memory: memdevs, host regions, host bridges.
//
// Plain values, read back by a HostMemory adapter and never remembered: everything that the
// online plan decides, it decides on one HostObservation. Sizes and addresses are in bytes.
#ifndef CXLPOOL_HOST_AGENT_MODEL_OBSERVATION_H_
#define CXLPOOL_HOST_AGENT_MODEL_OBSERVATION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "proto/support/cxl_host.h"

namespace cxlpool::agent {

inline constexpr uint64_t kNoSerial = ~uint64_t{0};  // What is there has none that can be read.

enum class DaxDriver { kNone, kDeviceDax, kKmem };
// Where system-ram memory is brought online.
enum class MemoryZone { kMovable, kKernel };

// A memdev that the fabric plugged into a slot.
struct ObservedMemdev {
  uint64_t serial = 0;  // Identity. Zero never.
  uint32_t slot = 0;
  std::string name;  // memN; not stable.
  uint64_t size_bytes = 0;
  std::string host_bridge;  // ACPI name, as in ObservedBridge.
};

// A CXL region of the kernel and the DAX device on it.
struct ObservedHostRegion {
  std::string name;               // regionN; not stable.
  std::vector<uint64_t> serials;  // Of its targets in position order. Where the target is gone: its
                                  // serial if the adapter still knows it, else 0.
                                  // kNoSerial: there, and without one.
  bool committed = false;
  uint64_t hpa_bytes = 0;
  uint64_t size_bytes = 0;
  uint32_t interleave_granularity_bytes = 0;
  std::string dax_device;  // daxN.M; empty until the kernel made it.
  DaxDriver dax_driver = DaxDriver::kNone;
  std::optional<int> numa_node;  // target_node of the DAX device; nothing: it has none (-1).
  uint64_t dax_align_bytes = 0;
  uint32_t online_blocks = 0;  // kmem only: memory blocks online,
  uint32_t total_blocks = 0;   // of so many;
  bool all_movable = false;    // every online block is in ZONE_MOVABLE.
};

// An orphan: all its LDs were pulled out, its serials are not known any more, and nothing uses it.
// Or a person is about to make a host region.
inline bool IsAnonymousOrphan(const ObservedHostRegion& region) {
  for (const uint64_t serial : region.serials) {
    if (serial != 0) return false;
  }
  return !region.committed && region.dax_device.empty();
}

// A CXL host bridge and its decoder stack.
struct ObservedBridge {
  std::string name;  // ACPI name, for example "ACPI0016:00". Stable within a boot.
  std::vector<uint32_t> slots = {};
  uint32_t max_regions = 0;
  bool depth_unknown =
      false;  // `max_regions` is what every bridge has; the kernel has yet to look.
  uint32_t live_regions = 0;
  bool blocked = false;          // A freed decoder lies under a live one.
  uint64_t blocking_serial = 0;  // A target of the topmost live host region.
  uint64_t window_bytes = 0;
  uint64_t free_window_bytes = 0;
  bool any_order = false;  // No decoder stack: host regions come and go in any order.
  friend bool operator==(const ObservedBridge&, const ObservedBridge&) = default;
};

struct HostObservation {
  std::vector<ObservedBridge> bridges;
  std::vector<ObservedMemdev> memdevs;
  std::vector<ObservedHostRegion> regions;
  uint64_t memory_block_bytes = 0;
  uint64_t region_granule_bytes = uint64_t{256} << 20;  // Host regions are multiples of this.
  uint64_t page_struct_spare_bytes = 0;                 // 0: not known.
  std::vector<int> own_nodes;                           // NUMA nodes of the host's own memory.
};

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_MODEL_OBSERVATION_H_
