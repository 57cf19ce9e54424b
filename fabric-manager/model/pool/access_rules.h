// What identities may do in the pool, and which of them are believed at all. Durable.
//
// A certificate says who somebody is. What that identity may do is a record of the pool, so that it
// can be given and taken back without a new certificate.
#ifndef CXLPOOL_FABRIC_MANAGER_MODEL_POOL_ACCESS_RULES_H_
#define CXLPOOL_FABRIC_MANAGER_MODEL_POOL_ACCESS_RULES_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "fabric-manager/model/pool/region.h"
#include "fabric-manager/model/pool/revocation.h"

namespace cxlpool::fm {

// What rule.proto says. Of the first three each may do what those before it may, in the whole pool;
// the next two are for tenants; the last sees figures alone.
enum class PoolRole : uint8_t {
  kViewer = 1,
  kOperator = 2,
  kAdmin = 3,
  kTenant = 4,
  kScheduler = 5,
  kMetrics = 6
};
absl::string_view ToString(PoolRole role);  // "VIEWER"
constexpr bool IsForPool(PoolRole role) { return role <= PoolRole::kAdmin; }
constexpr bool IsForTenants(PoolRole role) {
  return role == PoolRole::kTenant || role == PoolRole::kScheduler;
}

inline constexpr size_t kMaxRoleBindings = 10'000;
inline constexpr size_t kMaxTenantsOfRole = 256;
inline constexpr absl::Duration kMaxTokenTerm = absl::Hours(24 * 366);

// That an identity has a role.
struct RoleBinding {
  Key key = 0;
  std::string identity;         // URI.
  std::string token_hash = {};  // Of a token (proto/support/token.h); empty: of none.
  PoolRole role = PoolRole::kViewer;
  std::vector<std::string> tenants = {};    // Sorted; of a role for tenants only.
  absl::Time end = absl::InfiniteFuture();  // InfiniteFuture: for good.
  std::string reason = {};
  std::string principal = {};  // Who bound it.
  absl::Time time = {};
  friend bool operator==(const RoleBinding&, const RoleBinding&) = default;
};

// By identity.
using RoleBindings = std::map<std::string, RoleBinding, std::less<>>;

struct AccessRules {
  Revocations revocations;
  RoleBindings bindings;
};

// What a binding gives. `tenants`: for whom, of a role for tenants; of every other role it is
// empty.
struct Granted {
  PoolRole role = PoolRole::kViewer;
  std::vector<std::string> tenants = {};
  friend bool operator==(const Granted&, const Granted&) = default;
};

// What somebody has shown to be who he says: a certificate of cxlpool://operator/NAME, one of
// another identity, or the token that the identity is of.
enum class Proof { kOperatorCertificate, kCertificate, kToken };

// What `identity` has at `now`; nothing: no role. While nobody is bound all certificates of
// operators are admins', as they were before there were bindings. A certificate never stands for a
// token, whoever issued it.
std::optional<Granted> RoleOf(const RoleBindings& bindings, absl::string_view identity, Proof proof,
                              absl::Time now);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_MODEL_POOL_ACCESS_RULES_H_
