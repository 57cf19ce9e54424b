// Who is on the other end of a call.
#ifndef CXLPOOL_PROTO_SUPPORT_PEER_IDENTITY_H_
#define CXLPOOL_PROTO_SUPPORT_PEER_IDENTITY_H_

#include <grpcpp/security/auth_context.h>

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/support/certificate.h"

namespace cxlpool {

enum class Role { kOperator, kHost, kManager, kToken, kOther };

struct PeerIdentity {
  std::string uri;  // The certificate's URI SAN, for example "cxlpool://host/host-a".
  Role role = Role::kOther;
  std::string name;  // "host-a"; empty for kOther.
};

// Reads "cxlpool://operator/alice", "cxlpool://host/host-a", "cxlpool://manager/fm",
// "cxlpool://token/nightly" (no certificate's). Any other URI is kOther: an identity that an
// operator may enrol for a host.
PeerIdentity ParseIdentity(absl::string_view uri);

// The identity of a call's peer. A peer without TLS is "cxlpool://operator/local": everybody who
// reaches a Unix socket or an insecure loopback address is taken for the operator, and for any host
// it claims to be. UNAUTHENTICATED/NO_IDENTITY: a certificate without exactly one URI SAN.
absl::StatusOr<PeerIdentity> IdentityOf(const grpc::AuthContext& context);

// What is in the certificate of a call's peer; nothing without TLS.
std::optional<CertificateFacts> CertificateOf(const grpc::AuthContext& context);

}  // namespace cxlpool

#endif  // CXLPOOL_PROTO_SUPPORT_PEER_IDENTITY_H_
