#include "proto/support/peer_identity.h"

#include <grpc/grpc_security_constants.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "proto/support/mutant.h"
#include "proto/support/names.h"
#include "proto/support/refusal.h"
#include "proto/support/token.h"

namespace cxlpool {
namespace {

// "insecure" or nothing at all: no TLS on this connection. Everything else must show a certificate.
bool IsWithoutTls(const grpc::AuthContext& context) {
  static const auto& kType = *new std::string(GRPC_TRANSPORT_SECURITY_TYPE_PROPERTY_NAME);
  if (context.IsPeerAuthenticated()) return false;
  for (const grpc::string_ref& type : context.FindPropertyValues(kType)) {
    if (type != "insecure" && !CXLPOOL_MUTANT("no-certificate-is-local")) return false;
  }
  return true;
}

}  // namespace

PeerIdentity ParseIdentity(absl::string_view uri) {
  PeerIdentity identity;
  identity.uri = std::string(uri);
  const struct {
    absl::string_view prefix;
    Role role;
  } roles[] = {{"cxlpool://operator/", Role::kOperator},
               {"cxlpool://host/", Role::kHost},
               {"cxlpool://manager/", Role::kManager},
               {kTokenIdentity, Role::kToken}};
  for (const auto& [prefix, role] : roles) {
    absl::string_view name = uri;
    if (!absl::ConsumePrefix(&name, prefix) || !CheckResourceId(name).ok()) continue;
    identity.role = role;
    identity.name = std::string(name);
  }
  return identity;
}

absl::StatusOr<PeerIdentity> IdentityOf(const grpc::AuthContext& context) {
  if (IsWithoutTls(context)) return ParseIdentity("cxlpool://operator/local");
  const auto uris = context.FindPropertyValues(GRPC_PEER_URI_PROPERTY_NAME);
  const bool one = CXLPOOL_MUTANT("first-of-two-uris") ? !uris.empty() : uris.size() == 1;
  if (!context.IsPeerAuthenticated()) {
    return Refuse(absl::StatusCode::kUnauthenticated, "NO_IDENTITY",
                  "the call has neither a certificate nor a token",
                  "use a certificate (`cxlpool pki issue operator NAME`), or show a token");
  }
  if (!one) {
    return Refuse(absl::StatusCode::kUnauthenticated, "NO_IDENTITY",
                  absl::StrCat("the certificate has ", uris.size(),
                               " URIs as subject alternative names; want exactly one"),
                  "issue it with `cxlpool pki issue ROLE NAME`");
  }
  return ParseIdentity({uris[0].data(), uris[0].size()});
}

std::optional<CertificateFacts> CertificateOf(const grpc::AuthContext& context) {
  const auto pems = context.FindPropertyValues(GRPC_X509_PEM_CERT_PROPERTY_NAME);
  if (pems.empty()) return std::nullopt;
  absl::StatusOr<std::vector<CertificateFacts>> all =
      ReadCertificates({pems[0].data(), pems[0].size()});
  if (!all.ok()) return std::nullopt;
  return all->front();
}

}  // namespace cxlpool
