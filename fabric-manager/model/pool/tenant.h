// Who pays: owner of quota and of Regions (durable), and the account of what the Regions of each
// take.
#ifndef CXLPOOL_FABRIC_MANAGER_MODEL_POOL_TENANT_H_
#define CXLPOOL_FABRIC_MANAGER_MODEL_POOL_TENANT_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "fabric-manager/model/pool/region.h"

namespace cxlpool::fm {

inline constexpr char kDefaultTenant[] = "default";  // Always there, without limits until set.
inline constexpr size_t kMaxTenants = 10'000;

struct Tenant {
  Key key = 0;
  std::string id;
  uint64_t quota_bytes = 0;       // Held by all its Regions until they are gone; 0: no limit.
  uint64_t reserved_bytes = 0;    // Kept free for it: what it does not use others may not take.
  uint64_t host_cap_bytes = 0;    // Attached to any one host; 0: no limit.
  bool fabric_isolation = false;  // Its Regions are attached only where the fabric enforces it.
  // Before, another one may have had the name. InfinitePast: not known.
  absl::Time create_time = absl::InfinitePast();
  friend bool operator==(const Tenant&, const Tenant&) = default;
};

// What its Regions take now.
struct TenantUse {
  uint64_t held_bytes = 0;
  uint64_t regions = 0;
  friend bool operator==(const TenantUse&, const TenantUse&) = default;
};

// The tenants that have a record, and what the Regions of all tenants take. Not thread-safe; owned
// by PoolState.
class TenantTable {
 public:
  void Put(const Tenant& tenant);    // A new one, or what it is from now on.
  void Erase(absl::string_view id);  // That has a record.
  // Counts the Region among what its tenant has: once more (1), or no longer (-1).
  void Charge(const Region& region, int64_t sign);

  // Null: it has no record. Then the default tenant has no limits, and another is unknown.
  const Tenant* Find(absl::string_view id) const;
  const std::map<std::string, Tenant, std::less<>>& all() const { return tenants_; }
  TenantUse UseOf(Interned tenant) const;
  // What is promised to tenants other than `tenant` and not used by them.
  uint64_t ReservedForOthers(Interned tenant) const;

  // INTERNAL says in what it is not the same as `other`, which was made from the same records.
  absl::Status Compare(const TenantTable& other) const;

 private:
  uint64_t Unused(const Tenant& tenant) const;  // Of its reservation.

  std::map<std::string, Tenant, std::less<>> tenants_;
  absl::flat_hash_map<Interned, TenantUse> use_;
  uint64_t promised_bytes_ = 0;  // Reserved and not used, over all tenants.
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_MODEL_POOL_TENANT_H_
