// What the kernel shows of a host at one moment, as plain values.
//
// The readers (sysfs_snapshot.h) fill it; everything that is decided from it is pure. Addresses
// and sizes in bytes.
#ifndef CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_CXL_CXL_SNAPSHOT_H_
#define CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_CXL_CXL_SNAPSHOT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "proto/support/cxl_host.h"

namespace cxlpool::agent {

// One HDM decoder of a host bridge or switch. In use from the moment a region's target takes it
// until the region lets go of it. Its address and size do not show that: the kernel leaves
// them in a freed decoder.
struct HdmDecoder {
  int id = 0;  // Position in its port's stack: the hardware wants them used in this order.
  uint64_t hpa_bytes = 0;  // While it is in use.
  std::string region;      // regionN; "" if free, or committed by firmware without a region.
  bool in_use = false;
};

// The decoders of one port, by id.
struct DecoderStack {
  std::string port;  // portN.
  std::vector<HdmDecoder> decoders;
};

struct CxlHostBridge {
  std::string acpi_name;             // ACPI0016:00.
  std::string pci_name;              // pci0000:0c.
  std::vector<DecoderStack> stacks;  // Its own port's first, then those of the switches below.
};

// A fixed memory window: an address range that the firmware routes to these host bridges.
struct CxlWindow {
  std::string name;  // decoder0.N.
  uint64_t hpa_bytes = 0;
  uint64_t size_bytes = 0;
  uint64_t largest_free_bytes = 0;
  uint32_t interleave_granularity_bytes = 0;
  bool volatile_capable = false;
  std::vector<std::string> bridges;  // pci_name by position; "" where unknown.
};

struct CxlMemdev {
  std::string name;
  uint64_t serial = 0;
  uint64_t size_bytes = 0;  // Of volatile capacity.
  std::string pci_device;   // 0000:0f:00.0.
  std::string pci_bridge;   // pci_name of its host bridge; "" if unknown.
  bool ready = false;       // Its driver is bound and its endpoint decoders are enumerated.
};

struct CxlRegionTarget {
  std::string decoder;  // decoderN.M; "" where the target is gone.
  uint64_t serial = 0;  // 0 where the target is gone.
};

struct CxlHostRegion {
  std::string name;
  std::string window;
  uint64_t hpa_bytes = 0;
  uint64_t size_bytes = 0;
  bool committed = false;
  bool enabled = false;  // The region driver has it.
  uint32_t interleave_granularity_bytes = 0;
  std::vector<CxlRegionTarget> targets;  // By position.
  // Which making of this name it is: the inode of its folder in sysfs, which the kernel gives once
  // in a boot. 0: unknown.
  uint64_t inode = 0;
};

struct CxlSnapshot {
  std::vector<CxlHostBridge> bridges;  // By acpi_name.
  std::vector<CxlWindow> windows;
  std::vector<CxlMemdev> memdevs;
  std::vector<CxlHostRegion> regions;  // By address.
};

// A DAX device that lies on a CXL region.
struct DaxDevice {
  std::string name;    // daxN.M.
  std::string region;  // regionN.
  uint64_t hpa_bytes = 0;
  uint64_t size_bytes = 0;
  uint64_t align_bytes = 0;
  std::optional<int> target_node;
  uint32_t major = 0;
  uint32_t minor = 0;
};

const CxlMemdev* FindMemdev(const CxlSnapshot& snapshot, uint64_t serial);
const DaxDevice* FindDax(const std::vector<DaxDevice>& devices, const std::string& region);

// The host region whose first target is `serial`; null if there is none.
const CxlHostRegion* FindRegion(const CxlSnapshot& snapshot, uint64_t serial);

// The host region that has `serial` among its targets; null if there is none.
const CxlHostRegion* FindRegionWith(const CxlSnapshot& snapshot, uint64_t serial);

bool HasTarget(const CxlHostRegion& region, uint64_t serial);

// No target left, and the kernel uses none of its addresses, which it keeps: an orphan, left of a
// region whose memdevs were pulled out. A region that is just being made looks the same until it
// has its first target.
bool IsOrphan(const CxlHostRegion& region);

// An orphan whose serials are not known any more: whose it was, or is to be, is not known.
bool IsAnonymousOrphan(const CxlHostRegion& region);

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_CXL_CXL_SNAPSHOT_H_
