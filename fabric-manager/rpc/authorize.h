// Who may call what: one rule an RPC. A method without a rule is refused to everybody.
#ifndef CXLPOOL_FABRIC_MANAGER_RPC_AUTHORIZE_H_
#define CXLPOOL_FABRIC_MANAGER_RPC_AUTHORIZE_H_

#include <grpcpp/server_context.h>

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "fabric-manager/service/view.h"
#include "proto/support/peer_identity.h"

namespace cxlpool::fm {

// The caller of one RPC.
struct Caller {
  PeerIdentity identity;
  bool insecure_local = false;  // No TLS: the operator, and any host it claims to be.

  bool speaks_for_pool() const { return insecure_local || identity.role == Role::kOperator; }
};

// Whether a certificate of this role may call `method` ("AllocateRegion") at all.
bool MayCall(Role role, absl::string_view method);

// Reads the peer and applies the rule of `method`.
// UNAUTHENTICATED/NO_IDENTITY; PERMISSION_DENIED/ROLE_NOT_ALLOWED names role, method and remedy.
absl::StatusOr<Caller> Authorize(const grpc::ServerContextBase& context, absl::string_view method);

// The host (id) that the caller speaks for: empty for an operator, who speaks for the pool.
// PERMISSION_DENIED/NOT_ENROLLED: no host that is not retired has this identity.
absl::StatusOr<std::string> ActingHost(const Caller& caller, const ViewHolder& views);

// Whether the caller, who speaks for `acting_host` (ActingHost), may name a process as owner of a
// Region whose first host is `first_host`: the host's own agent alone knows its processes, and
// hears when one ends. PERMISSION_DENIED/OWNER_NOT_YOURS.
absl::Status CheckOwner(const Caller& caller, const std::string& acting_host,
                        const std::string& first_host);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_RPC_AUTHORIZE_H_
