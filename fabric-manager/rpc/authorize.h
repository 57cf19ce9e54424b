// Who may call what. The rule of each RPC stands beside it in its .proto (rule.proto); a method
// without one is refused to everybody.
#ifndef CXLPOOL_FABRIC_MANAGER_RPC_AUTHORIZE_H_
#define CXLPOOL_FABRIC_MANAGER_RPC_AUTHORIZE_H_

#include <grpcpp/security/auth_context.h>
#include <grpcpp/server_context.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "fabric-manager/model/pool/caller.h"
#include "fabric-manager/service/view.h"
#include "proto/support/mutex.h"

namespace cxlpool::fm {

// Whether the rule of the method at `path` ("/cxlpool.v1.PoolService/AllocateRegion") names this
// role, or hosts.
bool MayCall(PoolRole role, absl::string_view path);
bool MayHostCall(absl::string_view path);

// Identities that are admins whatever the pool's bindings say. Any thread.
class FixedAdmins {
 public:
  using Identities = absl::flat_hash_set<std::string>;

  FixedAdmins() = default;
  explicit FixedAdmins(const std::vector<std::string>& identities) { Set(identities); }

  void Set(const std::vector<std::string>& identities) {
    auto set = std::make_shared<const Identities>(identities.begin(), identities.end());
    MutexLock lock(mutex_);
    identities_ = std::move(set);
  }
  // Another after each Set.
  std::shared_ptr<const Identities> Get() const {
    MutexLock lock(mutex_);
    return identities_;
  }

 private:
  mutable Mutex mutex_;
  std::shared_ptr<const Identities> identities_ ABSL_GUARDED_BY(mutex_) =
      std::make_shared<const Identities>();
};

// What a call's metadata hold for "authorization"; empty: nothing.
absl::string_view AuthorizationOf(const grpc::ServerContextBase& context);

// Judges a call by what is known before any of its body is read: the token in `authorization`
// ("Bearer TOKEN") or, without one, the peer's certificate; the role that is bound to that
// identity, the rule of the method, and for hosts whether the certificate is one that is enrolled.
// This is the only place where an identity is judged; a session's hello is then held against
// Caller::host. `access` and `admins` are what it goes by; `views` say which host has an identity.
//
// UNAUTHENTICATED/NO_IDENTITY: no certificate, or one that does not name exactly one identity;
// BAD_TOKEN: the token is none, or none of this pool's now, which is said of all in the same words.
// PERMISSION_DENIED/CERTIFICATE_REVOKED: it, or the identity, is not believed any more; NO_ROLE: no
// role is bound to it, or not any more; ROLE_NOT_ALLOWED names role, method and remedy;
// NOT_ENROLLED: no host that is not retired has this identity. UNIMPLEMENTED/UNKNOWN_METHOD: only
// to somebody who may call others.
absl::StatusOr<Caller> Authorize(const grpc::AuthContext& peer, absl::string_view authorization,
                                 absl::string_view path, const AccessRules& access,
                                 const FixedAdmins::Identities& admins, const ViewHolder& views);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_RPC_AUTHORIZE_H_
