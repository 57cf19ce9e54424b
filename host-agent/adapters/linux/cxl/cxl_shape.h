// What of a host's CXL only hot-plugging changes: bridges with their ports, windows, memdevs.
//
// A host is looked at before and after every rung, and most of what there is to read is this. It is
// read once, for as long as the same devices are on the bus. The kernel gives a folder's inode once
// in a boot, so a device that was made again is distinguished from the one before; after kMaxAge it
// is read again, for whatever was overlooked.
#ifndef CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_CXL_CXL_SHAPE_H_
#define CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_CXL_CXL_SHAPE_H_

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "host-agent/adapters/linux/cxl/cxl_snapshot.h"
#include "host-agent/adapters/linux/machine/host_files.h"
#include "proto/support/mutex.h"

namespace cxlpool::agent {

struct CxlShape {
  struct Port {
    std::string name;           // portN.
    std::vector<int> decoders;  // Ids, ascending.
    // Decoders that the firmware committed: no region lay under the bridge when they were counted.
    std::optional<int> committed_by_firmware;
  };
  struct Bridge {
    std::string acpi_name;
    std::string pci_name;
    std::vector<Port> ports;  // Its own first, then those of the switches below.
  };
  struct Memdev {
    CxlMemdev memdev;      // All but `ready`.
    std::string endpoint;  // endpointN with its decoders; "" until they are there.
  };
  std::vector<Bridge> bridges;              // By acpi_name.
  std::vector<CxlWindow> windows;           // By address.
  std::vector<Memdev> memdevs;              // By name.
  std::map<std::string, uint64_t> serials;  // Of memdevs, by number of the endpoint.
  bool complete = true;                     // Nothing was still to come while it was read.
};

// The window that a region lies in; "" if the region is gone.
std::string WindowOfRegion(const HostFiles& files, const std::string& region);

// `devices`: what is on the bus. `windows_in_use`: those with a region.
CxlShape ReadCxlShape(const HostFiles& files, const std::vector<HostFiles::Entry>& devices,
                      const std::set<std::string>& windows_in_use);

// Remembers the last one. Thread-safe.
class CxlShapes {
 public:
  static constexpr absl::Duration kMaxAge = absl::Minutes(1);

  explicit CxlShapes(const HostFiles& files) : files_(files) {}

  // `devices`: what is on the bus now, without regions.
  std::shared_ptr<const CxlShape> Read(std::vector<HostFiles::Entry> devices,
                                       const std::set<std::string>& windows_in_use,
                                       absl::Time now = absl::Now());

 private:
  const HostFiles& files_;
  Mutex mutex_;
  std::vector<HostFiles::Entry> devices_ ABSL_GUARDED_BY(mutex_);
  absl::Time read_at_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  std::shared_ptr<const CxlShape> shape_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_CXL_CXL_SHAPE_H_
