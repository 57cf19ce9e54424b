// Who pays: owner of quota and of Regions. Durable.
#ifndef CXLPOOL_FABRIC_MANAGER_MODEL_POOL_TENANT_H_
#define CXLPOOL_FABRIC_MANAGER_MODEL_POOL_TENANT_H_

#include <cstdint>
#include <string>

#include "fabric-manager/model/pool/region.h"

namespace cxlpool::fm {

inline constexpr char kDefaultTenant[] = "default";  // Always there, without limits until set.
inline constexpr size_t kMaxTenants = 10'000;

struct Tenant {
  Key key = 0;
  std::string id;
  uint64_t quota_bytes = 0;     // Held by all its Regions until they are gone; 0: no limit.
  uint64_t reserved_bytes = 0;  // Kept free for it: what it does not use others may not take.
  uint64_t host_cap_bytes = 0;  // Attached to any one host; 0: no limit.
  friend bool operator==(const Tenant&, const Tenant&) = default;
};

// What its Regions take now.
struct TenantUse {
  uint64_t held_bytes = 0;
  uint64_t regions = 0;
  friend bool operator==(const TenantUse&, const TenantUse&) = default;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_MODEL_POOL_TENANT_H_
