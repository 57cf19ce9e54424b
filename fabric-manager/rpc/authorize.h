// Who may call what: one rule for each RPC. A method without a rule is refused to everybody.
#ifndef CXLPOOL_FABRIC_MANAGER_RPC_AUTHORIZE_H_
#define CXLPOOL_FABRIC_MANAGER_RPC_AUTHORIZE_H_

#include <grpcpp/security/auth_context.h>

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "fabric-manager/model/pool/caller.h"
#include "fabric-manager/service/view.h"
#include "proto/support/peer_identity.h"

namespace cxlpool::fm {

// Whether a certificate of this role may call the method at `path`
// ("/cxlpool.v1.PoolService/AllocateRegion") at all.
bool MayCall(Role role, absl::string_view path);

// Judges a call by what is known before any of its body is read: the peer's certificate, the rule
// of the method, and for hosts whether the certificate is one that is enrolled. This is the only
// place where an identity is judged; a session's hello is then held against Caller::host.
//
// UNAUTHENTICATED/NO_IDENTITY: no certificate, or one that does not name exactly one identity.
// PERMISSION_DENIED/CERTIFICATE_REVOKED: it, or the identity, is not believed any more.
// PERMISSION_DENIED/ROLE_NOT_ALLOWED names role, method and remedy; NOT_ENROLLED: no host that is
// not retired has this identity. UNIMPLEMENTED/UNKNOWN_METHOD: only to somebody who may call
// others.
absl::StatusOr<Caller> Authorize(const grpc::AuthContext& peer, absl::string_view path,
                                 const ViewHolder& views);

// Whether the peer is still believed: OK, or CERTIFICATE_REVOKED as above. Peers without TLS show
// nothing that could be revoked.
absl::Status CheckBelieved(const grpc::AuthContext& peer, const Revocations& revocations);

// What the model is given of a peer: nobody, if it is neither an operator nor a host. `host`: for
// which it is enrolled; empty: none. `local`: it came without TLS.
Caller CallerOf(const PeerIdentity& identity, const std::string& host, bool local);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_RPC_AUTHORIZE_H_
