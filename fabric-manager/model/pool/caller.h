// Who calls, and what that allows: the one place where the rights of callers are written down.
//
// A caller is judged on the state that the change is made on, or on the view that is read: a host
// that was retired meanwhile may nothing any more. A Caller that nobody set is nobody's, and may
// nothing; there is no way to make a plan without naming a Right. Pure.
#ifndef CXLPOOL_FABRIC_MANAGER_MODEL_POOL_CALLER_H_
#define CXLPOOL_FABRIC_MANAGER_MODEL_POOL_CALLER_H_

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "fabric-manager/model/pool/access_rules.h"
#include "fabric-manager/model/pool/host.h"
#include "fabric-manager/model/pool/region.h"
#include "proto/support/interned.h"
#include "proto/support/uuid.h"

namespace cxlpool::fm {

class PoolState;

// What a plan is made under. Each plan names the one that it needs.
enum class Right {
  kUseMemory,   // Have memory, a host for itself, and give it back. The plan judges whose it is.
  kMoveMemory,  // Attach, detach, resize and rename Regions. Likewise.
  kRunPool,     // Decide for others: devices, hosts.
  kAdminister,  // What rests on a person's word or is about rights: force, fences, failed devices,
                // tenants, revocations, bindings.
};

// Which call it was, for the audit trail. No part of what is judged.
struct CallOrigin {
  std::string peer = {};  // Where it came from: "ipv4:10.0.0.7:5000".
  Uuid request_id = {};
  friend bool operator==(const CallOrigin&, const CallOrigin&) = default;
};

class Caller {
 public:
  Caller() = default;  // Nobody.

  // Somebody with a role in the pool. `identity`: the URI of the certificate, for example
  // "cxlpool://operator/alice".
  // `tenants`: of a role for tenants.
  static Caller User(Interned identity, PoolRole role, std::vector<std::string> tenants = {}) {
    Caller user(Kind::kUser, identity, {}, role);
    user.tenants_ = std::move(tenants);
    return user;
  }
  // The same, who has the role by the pool's bindings (RoleOf), and no longer than they say so.
  static Caller Bound(Interned identity, Proof proof, Granted granted) {
    Caller user = User(identity, granted.role, std::move(granted.tenants));
    user.proof_ = proof;
    return user;
  }
  static Caller Admin(Interned identity) { return User(identity, PoolRole::kAdmin); }
  // The agent of `host`, for itself or for an application there.
  static Caller OfHost(std::string host, Interned identity) {
    return Caller(Kind::kHost, identity, std::move(host), PoolRole::kViewer);
  }
  // By a listener without TLS, on the manager's own machine: an admin, and the agent of any host
  // that it says it is.
  static Caller Local(Interned identity) {
    return Caller(Kind::kLocal, identity, {}, PoolRole::kAdmin);
  }

  bool is_nobody() const { return kind_ == Kind::kNobody; }
  bool is_host() const { return kind_ == Kind::kHost; }
  bool is_local() const { return kind_ == Kind::kLocal; }
  // Whether it has a role in the whole pool: then it sees all of it.
  bool for_pool() const {
    return (kind_ == Kind::kUser && IsForPool(role_)) || kind_ == Kind::kLocal;
  }
  // Whether it has one for tenants: then it sees what is theirs, and nothing else.
  bool for_tenants() const { return kind_ == Kind::kUser && IsForTenants(role_); }
  PoolRole role() const { return role_; }  // Only if for_pool() or for_tenants().
  const std::vector<std::string>& tenants() const { return tenants_; }  // Only if for_tenants().
  bool HasTenant(absl::string_view tenant) const {
    return std::binary_search(tenants_.begin(), tenants_.end(), tenant);
  }
  bool Has(Right right) const;
  const std::optional<Proof>& proof() const { return proof_; }  // Nothing: it is not bound.
  const std::string& identity() const { return identity_.str(); }
  Interned principal() const { return identity_; }   // The same, as requests remember it.
  const std::string& host() const { return host_; }  // Empty unless is_host().
  std::string RoleText() const;                      // "ADMIN", "HOST"; empty: nobody.

  const CallOrigin& origin() const { return origin_; }
  void SetOrigin(CallOrigin origin) { origin_ = std::move(origin); }
  void SetRequestId(const Uuid& id) { origin_.request_id = id; }  // Of its origin.

  // Whether it knows the users and processes of `first_host`.
  bool knows_users_of(absl::string_view first_host) const {
    return kind_ == Kind::kLocal || (is_host() && host_ == first_host);
  }

  friend bool operator==(const Caller&, const Caller&) = default;

 private:
  enum class Kind { kNobody, kUser, kHost, kLocal };
  Caller(Kind kind, Interned identity, std::string host, PoolRole role)
      : kind_(kind), role_(role), identity_(identity), host_(std::move(host)) {}

  Kind kind_ = Kind::kNobody;
  PoolRole role_ = PoolRole::kViewer;
  Interned identity_;  // Of those only who were let in: they are as many as the pool knows.
  std::string host_;
  std::vector<std::string> tenants_;
  std::optional<Proof> proof_;
  CallOrigin origin_;
};

// Whether `caller` has `right` now. INTERNAL/NO_CALLER: nobody. PERMISSION_DENIED: NOT_ENROLLED (no
// host in service has this identity), ROLE_NOT_ALLOWED (its role does not have this right).
absl::Status CheckCaller(const PoolState& state, const Caller& caller, Right right);

// Whether the manager keeps the Region's bytes from everybody, and no call allocated it: it stands
// under the default tenant, and is no tenant's.
bool IsKept(const Region& region);

// Whether `caller` may know of the Region at all: who has a role in the pool knows of every one, a
// tenant of those of its tenants, a scheduler of those of them that it allocated, a host of those
// that it allocated, whatever it serves now, and of those that are attached to it and of a tenant
// that it serves. `own` is the record of the caller's host, null where there is none.
bool MaySee(const Caller& caller, const Host* own, const Region& region);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_MODEL_POOL_CALLER_H_
