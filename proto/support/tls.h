// Credentials: mutual TLS everywhere, except a Unix socket or a loopback address that the
// configuration explicitly marks insecure.
#ifndef CXLPOOL_PROTO_SUPPORT_TLS_H_
#define CXLPOOL_PROTO_SUPPORT_TLS_H_

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace cxlpool {

struct TlsFiles {
  std::string ca;    // PEM, the pool's own CA: nobody else's certificates are believed.
  std::string cert;  // PEM, the leaf first.
  std::string key;   // PEM; refused if others than its owner can read it.
};

// Reads and checks the files. INVALID_ARGUMENT/NOT_FOUND/FAILED_PRECONDITION name the file, what
// is wrong (missing, not PEM, key does not match, expired, not yet valid, key readable by others)
// and the command that mends it.
absl::Status CheckTlsFiles(const TlsFiles& files);

// Requires and verifies a client certificate.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> ServerTls(const TlsFiles& files);

// For a channel; pass the name the peer must show by ChannelArguments::SetSslTargetNameOverride
// ("fm.cxlpool") where it differs from the address.
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> ClientTls(const TlsFiles& files);

// OK if `address` may be used without TLS: unix:PATH, or a loopback IP or localhost with port.
// FAILED_PRECONDITION/INSECURE_ADDRESS otherwise.
absl::Status CheckInsecureAddress(const std::string& address);

}  // namespace cxlpool

#endif  // CXLPOOL_PROTO_SUPPORT_TLS_H_
