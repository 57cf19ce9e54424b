// PlanSetTenant and PlanRemoveTenant.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "fabric-manager/model/plans/plan_parts.h"
#include "fabric-manager/model/plans/planner.h"
#include "fabric-manager/model/space/bytes.h"
#include "proto/support/mutant.h"
#include "proto/support/names.h"
#include "proto/support/text.h"

namespace cxlpool::fm {

// Makes the tenant, or gives it these limits in place of its own. It may have more than its quota
// by now: a quota stops what is still to come.
//
// Reservations are promises of bytes, so that all together must fit the pool: who raises one is
// refused. Who lowers one is not, even while the pool is too small for the rest.
absl::StatusOr<Change> PlanSetTenant(const PoolState& state, const Caller& caller,
                                     const Tenant& tenant, PlanContext& context) {
  if (absl::Status status = CheckCaller(state, caller, Right::kAdminister); !status.ok()) {
    return status;
  }
  if (absl::Status status = CheckResourceId(tenant.id); !status.ok()) return status;
  if (tenant.quota_bytes != 0 && tenant.reserved_bytes > tenant.quota_bytes) {
    return Refuse(
        absl::StatusCode::kInvalidArgument, "BAD_TENANT",
        absl::StrCat("tenant \"", tenant.id, "\" would have ", FormatBytes(tenant.reserved_bytes),
                     " reserved, beyond its quota of ", FormatBytes(tenant.quota_bytes)),
        "reserve no more than the quota", {{"field", "reserved_bytes"}});
  }
  const Tenant* known = state.FindTenant(tenant.id);
  if (known == nullptr && state.tenants().size() >= kMaxTenants) {
    return Refuse(absl::StatusCode::kResourceExhausted, "TOO_MANY_TENANTS",
                  absl::StrCat("the pool has ", kMaxTenants, " tenants, as many as it may"),
                  "remove one first", {});
  }
  // Of all tenants as they would be. What is beyond 64 bits is more than any pool has.
  uint64_t reserved = tenant.reserved_bytes;
  for (const auto& [id, other] : state.tenants()) {
    if (id == tenant.id) continue;
    reserved += std::min(other.reserved_bytes, UINT64_MAX - reserved);
  }
  const bool more = known == nullptr || tenant.reserved_bytes > known->reserved_bytes;
  const uint64_t total = state.GetCapacity().total_bytes;
  if (more && tenant.reserved_bytes != 0 && reserved > total) {
    return Refuse(
        absl::StatusCode::kFailedPrecondition, "RESERVED_TOO_MUCH",
        absl::StrCat("all reservations together would be ", FormatBytes(reserved),
                     "; the pool has ", FormatBytes(total)),
        "reserve less, here or for another tenant",
        {{"reserved_bytes", absl::StrCat(reserved)}, {"total_bytes", absl::StrCat(total)}});
  }
  Tenant wanted = tenant;
  wanted.key = known == nullptr ? context.next_id() : known->key;
  wanted.create_time = known == nullptr ? context.now : known->create_time;
  // What changes nothing costs no commit.
  if (known != nullptr && *known == wanted) return Change{};
  return Change{wanted};
}

// A tenant goes once nothing refers to it: neither Regions, nor roles, nor hosts in service. Its
// name may be given to somebody else afterwards, who would have all of these.
absl::StatusOr<Change> PlanRemoveTenant(const PoolState& state, const Caller& caller,
                                        const std::string& tenant, PlanContext& /*context*/) {
  if (absl::Status status = CheckCaller(state, caller, Right::kAdminister); !status.ok()) {
    return status;
  }
  if (tenant == kDefaultTenant) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "TENANT_IS_DEFAULT",
                  "tenant \"default\" is always there",
                  "take its limits away instead: `cxlpool tenant set default --quota none "
                  "--reserved none --host-cap none`",
                  {{"tenant", tenant}});
  }
  const Tenant* known = state.FindTenant(tenant);
  if (known == nullptr) return UnknownTenant(tenant);
  if (const TenantUse use = state.UseOf(Interned(tenant)); use.regions != 0) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "TENANT_HAS_REGIONS",
                  absl::StrCat("tenant \"", tenant, "\" has ", use.regions, " Regions"),
                  "release them first",
                  {{"tenant", tenant}, {"regions", absl::StrCat(use.regions)}});
  }
  for (const auto& [identity, binding] : state.access_rules().bindings) {
    const auto& tenants = binding.tenants;
    if (std::find(tenants.begin(), tenants.end(), tenant) == tenants.end()) continue;
    return Refuse(absl::StatusCode::kFailedPrecondition, "TENANT_HAS_ROLES",
                  absl::StrCat(identity, " has a role for tenant \"", tenant, "\""),
                  absl::StrCat("take it away first: `cxlpool access revoke ", identity, "`"),
                  {{"tenant", tenant}, {"identity", identity}});
  }
  for (const auto& [id, host] : state.hosts()) {
    // A retired host allocates for nobody, and is enrolled for tenants anew if it comes back.
    if (host.retired || !host.Serves(tenant) || CXLPOOL_MUTANT("a-tenants-hosts-stay")) continue;
    return Refuse(
        absl::StatusCode::kFailedPrecondition, "TENANT_HAS_HOSTS",
        absl::StrCat("host \"", id, "\" may allocate for tenant \"", tenant, "\""),
        absl::StrCat("enrol it for others first: `cxlpool host enrol ", id, " --tenant default`"),
        {{"tenant", tenant}, {"host", id}});
  }
  return Change{Erased{known->key}};
}

}  // namespace cxlpool::fm
