// The kernel's DAX regions: address ranges of which DAX devices can be made, and what has been made
// of them. Finds and reads them, and changes nothing; dax_carve.h makes and removes.
//
// There are two kinds, with the same files in them. A CXL host region has its own:
//   sys/bus/cxl/devices/region0/dax_region0/{dax_region/,dax0.0/,dax0.1/}
// and so has a range that firmware marked Soft Reserved, by the driver dax_hmem:
//   sys/bus/platform/devices/hmem.2/{dax_region/,dax2.0/}
// A DAX region of persistent memory is static and belongs to a namespace; it is not among them.
//
// What disappears while it is read is left out. Stateless; any thread.
//
// Files that are not read: dax0.1/mapping0/*, of a DAX device with one range. A process that reads
// them waits for the kernel's lock of all DAX regions; one that takes that range away holds the
// lock and waits until no one reads them. Both then wait for ever, and with them all that look for
// a DAX region (Linux 6.12, 7.2). The device's own size and address contain the same.
#ifndef CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_DAX_DAX_REGION_H_
#define CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_DAX_DAX_REGION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "host-agent/adapters/linux/cxl/cxl_snapshot.h"
#include "host-agent/adapters/linux/machine/host_files.h"

namespace cxlpool::agent {

// Bytes [begin, end) of host physical address space.
struct HpaRange {
  uint64_t begin = 0;
  uint64_t end = 0;
  uint64_t size() const { return end - begin; }
  bool Overlaps(const HpaRange& other) const { return begin < other.end && other.begin < end; }
  friend bool operator==(const HpaRange&, const HpaRange&) = default;
};

struct RegionDax {
  std::string name;  // daxN.M.
  // Nothing: it is empty. The kernel never deletes daxN.0, so that one is often left over like
  // this. Several only where somebody made them by hand (daxctl).
  std::vector<HpaRange> ranges;
  std::string driver;  // "device_dax", "kmem"; "" if it has none.
};

struct DaxRegion {
  std::string name;        // region0, hmem.2.
  std::string folder;      // Of its DAX devices.
  uint64_t hpa_bytes = 0;  // Where it begins; 0: not known (see ReadDaxRegion).
  uint64_t size_bytes = 0;
  uint64_t align_bytes = 0;
  uint64_t available_bytes = 0;
  std::optional<int> target_node;
  std::vector<RegionDax> devices;

  HpaRange range() const { return {hpa_bytes, hpa_bytes + size_bytes}; }

  // The DAX device of exactly this range, and no other; null: there is none.
  const RegionDax* Find(const HpaRange& range) const;
  // One that has some byte of it.
  const RegionDax* FindOverlap(const HpaRange& range) const;
  // The one over everything, which the kernel makes with the region.
  const RegionDax* Whole() const;
};

// The names of all DAX regions of this host.
std::vector<std::string> DaxRegionNames(const HostFiles& files);

// Nothing: there is no DAX region of that name. Where a range of dax_hmem begins stands in no file
// of its own. It is known while one of its DAX devices is empty, for the kernel shows the region's
// address as the address of that, or while no byte is free.
std::optional<DaxRegion> ReadDaxRegion(const HostFiles& files, const std::string& name);

// Without its devices, if those of a CXL host region: of what has hundreds, only a look reads all.
std::optional<DaxRegion> ReadBareDaxRegion(const HostFiles& files, const std::string& name);

// One of a region's devices; nothing if there is none of that name, or it is going.
std::optional<RegionDax> ReadRegionDax(const HostFiles& files, const DaxRegion& region,
                                       const std::string& name);

// The one of exactly this range. `hint` is what it was called; its name may be another's by now.
std::optional<RegionDax> FindRegionDax(const HostFiles& files, const DaxRegion& region,
                                       const HpaRange& range, const std::string& hint);

// Whether `name` is daxN.0.
bool IsFirstDax(absl::string_view name);

// A device of one range as the other rooms take it. Nothing if it is going.
std::optional<DaxDevice> ReadDaxNode(const HostFiles& files, const DaxRegion& region,
                                     const RegionDax& dax);

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_DAX_DAX_REGION_H_
