// X.509 certificates (RFC 5280) with ECDSA P-256 keys, as PEM text. No files here.
//
// Pure functions, except for the random numbers and the time they are given; any thread.
#ifndef CXLPOOL_TOOLS_PKI_CERTIFICATE_H_
#define CXLPOOL_TOOLS_PKI_CERTIFICATE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace cxlpool::pki {

struct PemPair {
  std::string cert;
  std::string key;  // PKCS #8, not encrypted: the file's mode protects it.
};

struct CertificateRequest {
  std::string common_name;             // For people; it is never checked.
  std::string uri;                     // URI SAN: the identity. Empty: none.
  std::vector<std::string> more_uris;  // More of them, which are not taken for an identity.
  std::vector<std::string> dns;
  std::vector<std::string> ips;
  bool server = false;  // Extended key usage serverAuth and nothing else; otherwise clientAuth.
  absl::Time not_before;
  absl::Time not_after;  // Cut to the authority's own end.
};

// Self-signed, only for signing leaves (path length 0).
absl::StatusOr<PemPair> MakeAuthority(const std::string& common_name, absl::Time not_before,
                                      absl::Time not_after);

// INVALID_ARGUMENT: BAD_DNS_NAME, BAD_IP. FAILED_PRECONDITION/BAD_CA: `authority` is not PEM, or
// its key is another's.
absl::StatusOr<PemPair> MakeLeaf(const PemPair& authority, const CertificateRequest& request);

// As MakeLeaf, for the key of the first certificate in `old`; answers the certificate.
// INVALID_ARGUMENT: `old` is not PEM.
absl::StatusOr<std::string> MakeLeafForKeyOf(const std::string& old, const PemPair& authority,
                                             const CertificateRequest& request);

// When the first certificate in `pem` ends. INVALID_ARGUMENT: not PEM.
absl::StatusOr<absl::Time> EndOf(const std::string& pem);

}  // namespace cxlpool::pki

#endif  // CXLPOOL_TOOLS_PKI_CERTIFICATE_H_
