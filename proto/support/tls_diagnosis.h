// Why a TLS connection to the manager does not come about, in words that name the certificate, the
// date and the remedy. gRPC reports no more than "certificate verify failed".
#ifndef CXLPOOL_PROTO_SUPPORT_TLS_DIAGNOSIS_H_
#define CXLPOOL_PROTO_SUPPORT_TLS_DIAGNOSIS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/support/tls.h"

namespace cxlpool {

// Dials `address` (address.h) once by itself, shows the certificate of `material`, looks at the
// manager's, and hangs up. Blocks for at most about `timeout`; asks DNS, which has limits of its
// own. Any thread.
// UNAUTHENTICATED/MANAGER_NOT_TRUSTED: its certificate has expired, is not valid yet, is not of our
//   authority, is for another name, or is no server's.
// UNAUTHENTICATED/CERTIFICATE_REFUSED: the manager does not take ours.
// OK: nothing is found to be wrong, or it could not be reached.
absl::Status DiagnoseManager(const std::string& address, const std::string& server_name,
                             const TlsMaterial& material, absl::Duration timeout);

}  // namespace cxlpool

#endif  // CXLPOOL_PROTO_SUPPORT_TLS_DIAGNOSIS_H_
