#include "host-agent/adapters/linux/cxl_snapshot.h"

namespace cxlpool::agent {

const CxlMemdev* FindMemdev(const CxlSnapshot& snapshot, uint64_t serial) {
  for (const CxlMemdev& memdev : snapshot.memdevs) {
    if (memdev.serial == serial) return &memdev;
  }
  return nullptr;
}

const DaxDevice* FindDax(const std::vector<DaxDevice>& devices, const std::string& region) {
  for (const DaxDevice& device : devices) {
    if (device.region == region) return &device;
  }
  return nullptr;
}

const CxlHostRegion* FindRegion(const CxlSnapshot& snapshot, uint64_t serial) {
  if (serial == 0) return nullptr;
  for (const CxlHostRegion& region : snapshot.regions) {
    if (!region.targets.empty() && region.targets.front().serial == serial) return &region;
  }
  return nullptr;
}

const CxlHostRegion* FindRegionWith(const CxlSnapshot& snapshot, uint64_t serial) {
  if (serial == 0) return nullptr;
  for (const CxlHostRegion& region : snapshot.regions) {
    for (const CxlRegionTarget& target : region.targets) {
      if (target.serial == serial) return &region;
    }
  }
  return nullptr;
}

}  // namespace cxlpool::agent
