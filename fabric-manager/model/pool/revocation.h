// What the pool believes no longer: certificates by their serial number, and whole identities.
// Durable.
#ifndef CXLPOOL_FABRIC_MANAGER_MODEL_POOL_REVOCATION_H_
#define CXLPOOL_FABRIC_MANAGER_MODEL_POOL_REVOCATION_H_

#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "fabric-manager/model/pool/region.h"

namespace cxlpool::fm {

inline constexpr size_t kMaxRevocations = 10'000;

struct Revocation {
  Key key = 0;
  // A certificate's serial number, as hexadecimal digits in lower case without leading zeros; or an
  // identity, which is a URI. The one is never the other: a URI has a colon.
  std::string subject;
  std::string reason = {};
  std::string principal = {};  // Who revoked it.
  absl::Time time = {};
  friend bool operator==(const Revocation&, const Revocation&) = default;
};

// By subject.
using Revocations = std::map<std::string, Revocation, std::less<>>;

// Whether a peer that shows a certificate with this identity and serial number is still believed.
// PERMISSION_DENIED/CERTIFICATE_REVOKED says what was revoked, when and why.
absl::Status CheckRevoked(const Revocations& revocations, absl::string_view identity,
                          absl::string_view serial);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_MODEL_POOL_REVOCATION_H_
