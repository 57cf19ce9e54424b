#include "host-agent/model/user_policy.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/support/mutant.h"
#include "proto/support/names.h"
#include "proto/support/refusal.h"

namespace cxlpool::agent {
namespace {

bool Holds(const std::vector<uint32_t>& list, uint32_t id) {
  return std::find(list.begin(), list.end(), id) != list.end();
}

bool HoldsAny(const std::vector<uint32_t>& list, const std::vector<uint32_t>& ids) {
  return std::any_of(ids.begin(), ids.end(), [&](uint32_t id) { return Holds(list, id); });
}

absl::Status NotYours(uint32_t uid, const std::string& region, const std::string& remedy) {
  return Refuse(absl::StatusCode::kPermissionDenied, "REGION_NOT_YOURS",
                absl::StrCat(region, " was not made by user id ", uid,
                             " on this host, and is not for this user"),
                remedy, {{"region", region}});
}

// The refusal names the user's own tenant, and does not give away the Region's.
absl::Status CheckTenant(const LocalPolicy& policy, uint32_t uid, const std::vector<uint32_t>& gids,
                         const RegionRights& region) {
  if (absl::Status s = CheckUser(policy, uid, gids); !s.ok()) return s;
  const std::string& tenant = TenantFor(policy, uid, gids);
  if (IsPrivileged(policy, uid) || region.tenant == tenant ||
      CXLPOOL_MUTANT("local-tenant-not-asked")) {
    return absl::OkStatus();
  }
  return Refuse(absl::StatusCode::kPermissionDenied, "WRONG_TENANT",
                absl::StrCat(region.name, " is not of ", tenant, ", for which user id ", uid,
                             " acts on this host"),
                "ask the operator for a Region of that tenant", {{"region", region.name}});
}

// `unit` says what is counted, and may say how much more of it is wanted.
absl::Status OverLimit(uint32_t uid, const std::string& key, uint64_t max, uint64_t used,
                       absl::string_view unit) {
  return Refuse(absl::StatusCode::kResourceExhausted, "USER_LIMIT",
                absl::StrCat("the processes of user id ", uid, " own ", used, " ", unit,
                             " on this host; ", key, " is ", max),
                "end one of them or release what it owns, or ask the operator for more",
                {{"key", key}, {"used", absl::StrCat(used)}, {"max", absl::StrCat(max)}});
}

}  // namespace

const UserRule* FindRule(const std::vector<UserRule>& rules, uint32_t uid,
                         const std::vector<uint32_t>& gids) {
  for (const UserRule& rule : rules) {
    if (Holds(rule.uids, uid)) return &rule;
    if (HoldsAny(rule.gids, gids)) return &rule;
  }
  return nullptr;
}

bool IsPrivileged(const LocalPolicy& policy, uint32_t uid) {
  return uid == 0 || uid == policy.agent_uid;
}

// A user whom a rule names need not be listed in allowed_uids as well.
absl::Status CheckUser(const LocalPolicy& policy, uint32_t uid, const std::vector<uint32_t>& gids) {
  if (IsPrivileged(policy, uid) || policy.allowed_uids.empty() ||
      FindRule(policy.users, uid, gids) != nullptr || Holds(policy.allowed_uids, uid)) {
    return absl::OkStatus();
  }
  return Refuse(
      absl::StatusCode::kPermissionDenied, "USER_NOT_ALLOWED",
      absl::StrCat("user id ", uid, " may not use this host's agent"),
      "ask the operator to list it in applications.allowed_uids or [[applications.user]]");
}

const std::string& TenantFor(const LocalPolicy& policy, uint32_t uid,
                             const std::vector<uint32_t>& gids) {
  const UserRule* rule = FindRule(policy.users, uid, gids);
  return rule == nullptr ? policy.tenant : rule->tenant;
}

// The tenant is checked before the maker: users who now act for another tenant can no longer open
// the Regions that they made before.
absl::Status CheckOpen(const LocalPolicy& policy, uint32_t uid, const std::vector<uint32_t>& gids,
                       const RegionRights& region) {
  if (absl::Status s = CheckTenant(policy, uid, gids, region); !s.ok()) return s;
  if (IsPrivileged(policy, uid) || region.maker_uid == uid) return absl::OkStatus();
  const UserRule* rule = FindRule(policy.users, uid, gids);
  if ((rule == nullptr ? policy.may_open : rule->may_open) == Reach::kTenant) {
    return absl::OkStatus();
  }
  if (region.open_to_everybody || Holds(region.open_uids, uid) ||
      HoldsAny(region.open_gids, gids)) {
    return absl::OkStatus();
  }
  return NotYours(uid, region.name,
                  "ask who made it to allocate it with open_to, or the operator for may_open in "
                  "[[applications.user]]");
}

// Whom a Region is open to may read and write it. To destroy it for everybody is another thing.
absl::Status CheckRelease(const LocalPolicy& policy, uint32_t uid,
                          const std::vector<uint32_t>& gids, const RegionRights& region) {
  if (absl::Status s = CheckTenant(policy, uid, gids, region); !s.ok()) return s;
  if (IsPrivileged(policy, uid) || region.maker_uid == uid) return absl::OkStatus();
  const UserRule* rule = FindRule(policy.users, uid, gids);
  if ((rule == nullptr ? policy.may_release : rule->may_release) == Reach::kTenant) {
    return absl::OkStatus();
  }
  if (CXLPOOL_MUTANT("who-may-open-may-release") &&
      (region.open_to_everybody || Holds(region.open_uids, uid))) {
    return absl::OkStatus();
  }
  return NotYours(uid, region.name,
                  "ask who made it, or the operator for may_release in [[applications.user]]");
}

// cxlpool-dra is root, and opens for a container whatever has its claim's name.
absl::Status CheckNewName(const LocalPolicy& policy, uint32_t uid, const std::string& region_id) {
  if (IsPrivileged(policy, uid) || !absl::StartsWith(region_id, kClaimRegionPrefix) ||
      CXLPOOL_MUTANT("anybody-takes-a-claims-name")) {
    return absl::OkStatus();
  }
  return Refuse(absl::StatusCode::kPermissionDenied, "NAME_NOT_YOURS",
                absl::StrCat("names that begin with ", kClaimRegionPrefix,
                             " are those of Kubernetes' claims, and not for user id ", uid),
                absl::StrCat("give it a name that does not begin with ", kClaimRegionPrefix));
}

// Whether it may be persistent is checked before the limits: a rule that allows that has no limits
// (ReadUser in config.cc).
absl::Status CheckAllocate(const UserRule& rule, uint32_t uid, const UserUsage& used,
                           uint64_t size_bytes, bool persistent) {
  if (!rule.may_allocate) {
    return Refuse(absl::StatusCode::kPermissionDenied, "ALLOCATE_NOT_ALLOWED",
                  absl::StrCat("user id ", uid, " may open Regions on this host, not allocate any"),
                  "ask the operator to allocate it, or for may_allocate in [[applications.user]]");
  }
  if (persistent && !rule.persistent) {
    return Refuse(
        absl::StatusCode::kPermissionDenied, "PERSISTENT_NOT_ALLOWED",
        absl::StrCat("user id ", uid, " may not allocate Regions that outlive the process"),
        "allocate it without persistent, or ask the operator for one");
  }
  if (rule.max_regions.has_value() && used.regions >= *rule.max_regions) {
    return OverLimit(uid, "max_regions", *rule.max_regions, used.regions, "Regions");
  }
  // By subtraction, because the sum could overflow.
  if (rule.max_bytes.has_value() &&
      (used.bytes > *rule.max_bytes || size_bytes > *rule.max_bytes - used.bytes)) {
    return OverLimit(uid, "max_bytes", *rule.max_bytes, used.bytes,
                     absl::StrCat("bytes (and want ", size_bytes, " more)"));
  }
  return absl::OkStatus();
}

}  // namespace cxlpool::agent
