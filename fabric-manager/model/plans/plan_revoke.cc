// PlanRevoke, PlanRestore and CheckRevoked.

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "fabric-manager/model/plans/plan_parts.h"
#include "fabric-manager/model/plans/planner.h"
#include "proto/support/mutant.h"

namespace cxlpool::fm {

absl::StatusOr<Change> PlanRevoke(const PoolState& state, const Caller& caller,
                                  const Revocation& revocation, PlanContext& context) {
  if (absl::Status status = CheckCaller(state, caller, Right::kAdminister); !status.ok()) {
    return status;
  }
  const auto known = state.access_rules().revocations.find(revocation.subject);
  // The first word about it stays: when it was revoked, by whom and why.
  if (known != state.access_rules().revocations.end()) return Change{};
  if (state.access_rules().revocations.size() >= kMaxRevocations) {
    return Refuse(
        absl::StatusCode::kResourceExhausted, "TOO_MANY_REVOCATIONS",
        absl::StrCat("the pool has ", kMaxRevocations, " revocations, as many as it may"),
        "restore those of certificates that have expired (`cxlpool certificate list`), or "
        "make a new authority",
        {});
  }
  Revocation wanted = revocation;
  wanted.key = context.next_id();
  wanted.time = context.now;
  return Change{wanted};
}

absl::StatusOr<Change> PlanRestore(const PoolState& state, const Caller& caller,
                                   const std::string& subject, PlanContext& /*context*/) {
  if (absl::Status status = CheckCaller(state, caller, Right::kAdminister); !status.ok()) {
    return status;
  }
  const auto known = state.access_rules().revocations.find(subject);
  if (known == state.access_rules().revocations.end()) {
    return Refuse(absl::StatusCode::kNotFound, "NOT_REVOKED",
                  absl::StrCat(Quoted(subject), " is not revoked"),
                  "see `cxlpool certificate list`", {{"subject", subject.substr(0, 255)}});
  }
  return Change{Erased{known->second.key}};
}

absl::Status CheckRevoked(const Revocations& revocations, absl::string_view identity,
                          absl::string_view serial) {
  auto found = revocations.find(identity);
  if (found == revocations.end() && !CXLPOOL_MUTANT("revoked-by-identity-only")) {
    found = revocations.find(serial);
  }
  if (found == revocations.end()) return absl::OkStatus();
  const Revocation& revoked = found->second;
  return Refuse(
      absl::StatusCode::kPermissionDenied, "CERTIFICATE_REVOKED",
      absl::StrCat(absl::StrContains(revoked.subject, ':')
                       ? absl::StrCat("the identity ", identity)
                       : absl::StrCat("the certificate ", serial, " of ", identity),
                   " was revoked on ",
                   absl::FormatTime("%Y-%m-%d %H:%M UTC", revoked.time, absl::UTCTimeZone()), ": ",
                   revoked.reason),
      "use a certificate that is not revoked (`cxlpool pki issue ROLE NAME`), or have an admin "
      "take it back (`cxlpool certificate restore CERTIFICATE`)",
      {{"identity", std::string(identity)}, {"serial", std::string(serial)}});
}

}  // namespace cxlpool::fm
