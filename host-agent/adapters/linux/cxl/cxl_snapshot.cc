#include "host-agent/adapters/linux/cxl/cxl_snapshot.h"

#include <algorithm>

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
    if (HasTarget(region, serial)) return &region;
  }
  return nullptr;
}

bool HasTarget(const CxlHostRegion& region, uint64_t serial) {
  return std::any_of(region.targets.begin(), region.targets.end(),
                     [&](const CxlRegionTarget& target) { return target.serial == serial; });
}

bool IsOrphan(const CxlHostRegion& region) {
  return !region.committed &&
         std::all_of(region.targets.begin(), region.targets.end(),
                     [](const CxlRegionTarget& t) { return t.decoder.empty(); });
}

bool IsAnonymousOrphan(const CxlHostRegion& region) {
  return IsOrphan(region) && std::all_of(region.targets.begin(), region.targets.end(),
                                         [](const CxlRegionTarget& t) { return t.serial == 0; });
}

}  // namespace cxlpool::agent
