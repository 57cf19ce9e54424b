// A small certificate authority for one pool: enough for mutual TLS, kept in one directory.
//
//   DIR/ca.pem, ca.key             made once, 10 years
//   DIR/{host,operator,manager}-NAME.{pem,key}   leaves, 1 year, ECDSA P-256, URI SAN
//                                  cxlpool://ROLE/NAME
// Backdated 24 hours: guests' clocks lag. Keys are 0600. Files appear by rename; nothing is
// overwritten unless `force`.
#ifndef CXLPOOL_TOOLS_PKI_PKI_H_
#define CXLPOOL_TOOLS_PKI_PKI_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace cxlpool::pki {

enum class LeafRole { kHost, kOperator, kManager };

struct LeafRequest {
  LeafRole role = LeafRole::kHost;
  std::string name;              // As CheckResourceId.
  std::vector<std::string> dns;  // Manager: fm.cxlpool and localhost come by themselves.
  std::vector<std::string> ips;  // Manager: 127.0.0.1 and ::1 come by themselves.
  bool force = false;
};

struct IssuedFiles {
  std::string ca, cert, key;
};

// Makes the directory (0700) and the CA. ALREADY_EXISTS/CA_EXISTS unless `force`.
absl::StatusOr<IssuedFiles> InitAuthority(const std::string& dir, bool force);

// FAILED_PRECONDITION/NO_CA (run pki init); ALREADY_EXISTS/CERT_EXISTS; INVALID_ARGUMENT/BAD_NAME.
absl::StatusOr<IssuedFiles> IssueLeaf(const std::string& dir, const LeafRequest& request);

}  // namespace cxlpool::pki

#endif  // CXLPOOL_TOOLS_PKI_PKI_H_
