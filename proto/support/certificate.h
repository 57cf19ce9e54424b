// What X.509 certificates say (RFC 5280): who they are for, for how long, and for which purpose.
//
// Pure functions; any thread.
#ifndef CXLPOOL_PROTO_SUPPORT_CERTIFICATE_H_
#define CXLPOOL_PROTO_SUPPORT_CERTIFICATE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace cxlpool {

// From this long before its end a certificate is warned of, once a day.
inline constexpr absl::Duration kCertificateWarning = absl::Hours(24 * 30);

struct CertificateFacts {
  std::string common_name;  // For people; nothing is decided by it.
  std::string serial;       // Hexadecimal digits in lower case, as CanonicalSerial gives them.
  std::vector<std::string> uris;  // Subject alternative names.
  std::vector<std::string> dns;
  std::vector<std::string> ips;
  bool server_auth =
      true;  // Extended key usage; a certificate that names none may be used as both.
  bool client_auth = true;
  bool authority = false;  // May issue others.
  absl::Time not_before;
  absl::Time not_after;

  bool ExpiredAt(absl::Time now) const { return now >= not_after; }
  // It is still valid, and ends within kCertificateWarning.
  bool EndsSoonAt(absl::Time now) const {
    return !ExpiredAt(now) && now >= not_after - kCertificateWarning;
  }
};

// All certificates in `pem`, in order, at most 100. INVALID_ARGUMENT/TLS_NOT_PEM: there is none.
absl::StatusOr<std::vector<CertificateFacts>> ReadCertificates(const std::string& pem);

// Whether one of the DNS names of `facts` stands for `name`; a leading "*." for one label.
bool HasDnsName(const CertificateFacts& facts, absl::string_view name);

// A serial number as it is compared: "0x7A:01", "7A01" and "007a01" are all "7a01".
// INVALID_ARGUMENT/BAD_SERIAL_NUMBER: not 1 to 20 bytes (RFC 5280, 4.1.2.2) in hexadecimal digits.
absl::StatusOr<std::string> CanonicalSerial(absl::string_view text);

// "2027-11-22 09:30 UTC".
std::string DateText(absl::Time time);

// "ends on 2026-12-01 09:30 UTC, in 9 days", "EXPIRED on 2026-11-01 09:30 UTC".
std::string EndText(const CertificateFacts& facts, absl::Time now);

}  // namespace cxlpool

#endif  // CXLPOOL_PROTO_SUPPORT_CERTIFICATE_H_
