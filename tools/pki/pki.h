// A small certificate authority for one pool: enough for mutual TLS, kept in one directory.
//
//   DIR/ca.pem, ca.key             made once, 10 years
//   DIR/{host,operator,manager}-NAME.{pem,key}   leaves, 1 year, ECDSA P-256, URI SAN
//                                  cxlpool://ROLE/NAME; a manager's for servers, others' for
//                                  clients
// Backdated 24 hours: guests' clocks lag. Keys are 0600. Files appear by rename; nothing is
// overwritten unless `force`.
#ifndef CXLPOOL_TOOLS_PKI_PKI_H_
#define CXLPOOL_TOOLS_PKI_PKI_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/support/certificate.h"

namespace cxlpool::pki {

inline constexpr int kLeafDays = 365;
inline constexpr int kMaxLeafDays = 3650;

enum class LeafRole { kHost, kOperator, kManager };

struct LeafRequest {
  LeafRole role = LeafRole::kHost;
  std::string name;              // As CheckResourceId.
  std::vector<std::string> dns;  // Managers only: fm.cxlpool and localhost come by themselves.
  std::vector<std::string> ips;  // Managers only: 127.0.0.1 and ::1 come by themselves.
  bool force = false;
  int days = kLeafDays;  // From now; 1 to kMaxLeafDays. Cut to the authority's own end.
};

struct IssuedFiles {
  std::string ca, cert, key;
};

// Where the authority of this machine is: ETC/authority, where `cxlpool-fm init` has made one, else
// ETC/pki. Who may not look into the former is told of the latter.
std::string AuthorityDirectory(const std::string& etc = "/etc/cxlpool");

// Makes the directory (0700) and the CA. ALREADY_EXISTS/CA_EXISTS unless `force`.
absl::StatusOr<IssuedFiles> InitAuthority(const std::string& dir, bool force);

// FAILED_PRECONDITION/NO_CA (there is none, or only its certificate: its key is elsewhere);
// ALREADY_EXISTS/CERT_EXISTS; INVALID_ARGUMENT/BAD_NAME, BAD_DAYS, NOT_A_SERVER (names for a role
// that no client dials).
absl::StatusOr<IssuedFiles> IssueLeaf(const std::string& dir, const LeafRequest& request);

// Replaces the certificate DIR/ROLE-NAME.pem by one with the same identity, names and key, and a
// new serial number and term. The key stays as it is, so that at every moment the two files belong
// together, and only the certificate has to be brought to where it is used.
// NOT_FOUND/NO_FILE: there is none; the refusals of IssueLeaf; FAILED_PRECONDITION/TLS_WRONG_ROLE:
// the file is for another identity.
absl::StatusOr<IssuedFiles> RenewLeaf(const std::string& dir, LeafRole role,
                                      const std::string& name, int days = kLeafDays);

// The facts of the first certificate in `file`. NOT_FOUND/NO_FILE, INVALID_ARGUMENT/TLS_NOT_PEM.
absl::StatusOr<CertificateFacts> ShowCertificate(const std::string& file);

}  // namespace cxlpool::pki

#endif  // CXLPOOL_TOOLS_PKI_PKI_H_
