// A CXL memory device of the pool: what it is, and whether it is in service (both durable), and
// whether the fabric shows it (not).
#ifndef CXLPOOL_FABRIC_MANAGER_MODEL_POOL_DEVICE_H_
#define CXLPOOL_FABRIC_MANAGER_MODEL_POOL_DEVICE_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "fabric-manager/model/pool/region.h"

namespace cxlpool::fm {

// What the operator says of it. Stored by number.
enum class DeviceService : uint8_t {
  kInService = 0,
  kDraining = 1,  // Nothing new is placed on it.
  kFailed = 2,    // Broken for good: what is on it is given to nobody any more.
  kRemoved = 3,   // Empty, and out of the pool until it is added again.
};

struct Device {
  Key key = 0;
  std::string id;
  std::string serial;
  uint64_t capacity_bytes = 0;
  uint64_t granule_bytes = 0;
  // What stands behind the name (FabricDevice::identity); empty: an earlier release did not ask.
  std::string identity = {};
  uint32_t max_lds =
      0;  // It places its LDs itself, so many at most (FabricDevice); 0: it does not.
  bool reachable = false;
  std::string unreachable_reason = {};  // For people.
  DeviceService service = DeviceService::kInService;
  std::string service_reason = {};  // Of the operator who failed it, also once it is removed.
  // Since when it is not in service, or another way not; durable. InfinitePast: it is, or a release
  // before this one wrote it.
  absl::Time service_since = absl::InfinitePast();
  absl::Time unreachable_since = absl::InfinitePast();  // As far as this manager knows.

  // Whether the same bytes can be taken of both, whoever has them.
  bool IsShapedAs(const Device& other) const {
    return capacity_bytes == other.capacity_bytes && granule_bytes == other.granule_bytes &&
           max_lds == other.max_lds;
  }
  friend bool operator==(const Device&, const Device&) = default;
};

// What the driver can do, as far as placement is concerned (FabricCapabilities).
struct FabricLimits {
  uint64_t extent_granule_bytes = 0;  // Extents are multiples of it; 0: the device's granule.
  uint32_t max_lds_per_device = 0;    // 0: no limit.
  friend bool operator==(const FabricLimits&, const FabricLimits&) = default;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_MODEL_POOL_DEVICE_H_
