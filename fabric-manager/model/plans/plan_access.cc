// PlanBindRole, PlanUnbindRole and RoleOf.

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "fabric-manager/model/plans/plan_parts.h"
#include "fabric-manager/model/plans/planner.h"
#include "proto/support/mutant.h"
#include "proto/support/text.h"
#include "proto/support/token.h"

namespace cxlpool::fm {
namespace {

// A pool with bindings has an admin who stays one: otherwise its rights could be changed from the
// manager's own machine only. `but`: of whom the binding is about to go, or to become `instead`.
absl::Status CheckAdminStays(const RoleBindings& bindings, const std::string& but,
                             const RoleBinding* instead) {
  const auto is_admin = [](const RoleBinding& binding) {
    return binding.role == PoolRole::kAdmin && binding.end == absl::InfiniteFuture();
  };
  if (instead != nullptr && is_admin(*instead)) return absl::OkStatus();
  if (instead == nullptr && bindings.size() == 1) return absl::OkStatus();  // None is left.
  for (const auto& [identity, binding] : bindings) {
    if (identity != but && is_admin(binding)) return absl::OkStatus();
  }
  if (CXLPOOL_MUTANT("last-admin-goes")) return absl::OkStatus();
  return Refuse(absl::StatusCode::kFailedPrecondition, "LAST_ADMIN",
                "nobody would be left who is an admin for good",
                "bind an admin first: `cxlpool access grant cxlpool://operator/NAME --role admin "
                "--reason WHY`",
                {{"identity", but}});
}

// A token keeps its text for as long as it is there: who has it would otherwise lose its rights to
// somebody who only took the same name.
absl::Status SettleToken(const RoleBinding* known, RoleBinding& wanted) {
  if (!absl::StartsWith(wanted.identity, kTokenIdentity)) return absl::OkStatus();
  const std::string name = wanted.identity.substr(kTokenIdentity.size());
  if (known != nullptr && wanted.token_hash.empty()) wanted.token_hash = known->token_hash;
  if (wanted.token_hash.empty()) {
    return Refuse(absl::StatusCode::kNotFound, "UNKNOWN_TOKEN",
                  absl::StrCat("there is no token ", Quoted(name)),
                  "see `cxlpool token list`, or make it: `cxlpool token create NAME --role ROLE "
                  "--ttl TERM --reason WHY`",
                  {{"identity", wanted.identity}});
  }
  if (known == nullptr || known->token_hash == wanted.token_hash) return absl::OkStatus();
  return Refuse(
      absl::StatusCode::kAlreadyExists, "TOKEN_EXISTS",
      absl::StrCat("there is a token ", Quoted(name), " already"),
      absl::StrCat("take another name, or end it first: `cxlpool token revoke ", name, "`"),
      {{"identity", wanted.identity}});
}

}  // namespace

absl::string_view ToString(PoolRole role) {
  switch (role) {
    case PoolRole::kViewer:
      return "VIEWER";
    case PoolRole::kOperator:
      return "OPERATOR";
    case PoolRole::kAdmin:
      return "ADMIN";
    case PoolRole::kTenant:
      return "TENANT";
    case PoolRole::kScheduler:
      return "SCHEDULER";
    case PoolRole::kMetrics:
      return "METRICS";
  }
  return "?";
}

std::optional<Granted> RoleOf(const RoleBindings& bindings, absl::string_view identity, Proof proof,
                              absl::Time now) {
  if (bindings.empty()) {
    return proof == Proof::kOperatorCertificate ? std::optional(Granted{PoolRole::kAdmin})
                                                : std::nullopt;
  }
  const auto bound = bindings.find(identity);
  if (bound == bindings.end()) return std::nullopt;
  if (bound->second.token_hash.empty() == (proof == Proof::kToken)) return std::nullopt;
  const bool ended = bound->second.end <= now && !CXLPOOL_MUTANT("bindings-never-end");
  if (ended) return std::nullopt;
  return Granted{bound->second.role, bound->second.tenants};
}

// One that changes nothing is no change, whatever reason it gives: who bound it first, and why, is
// kept.
absl::StatusOr<Change> PlanBindRole(const PoolState& state, const Caller& caller,
                                    const RoleBinding& binding, PlanContext& context) {
  if (absl::Status status = CheckCaller(state, caller, Right::kAdminister); !status.ok()) {
    return status;
  }
  if (const Host* host = state.FindHostByIdentity(binding.identity); host != nullptr) {
    return Refuse(
        absl::StatusCode::kAlreadyExists, "IDENTITY_TAKEN",
        absl::StrCat(Quoted(binding.identity), " is the identity of host \"", host->id, "\""),
        "give a person or a program an identity of its own", {{"host", host->id}});
  }
  // Of tenants that are there only: otherwise whoever makes one of that name later would be seen by
  // somebody whom nobody remembers.
  if (absl::Status status = CheckTenantsAreThere(state, binding.tenants); !status.ok()) {
    return status;
  }
  const RoleBindings& bindings = state.access_rules().bindings;
  const auto known = bindings.find(binding.identity);
  RoleBinding wanted = binding;
  absl::Status token = SettleToken(known == bindings.end() ? nullptr : &known->second, wanted);
  if (!token.ok()) return token;
  if (known != bindings.end()) {
    if (known->second.role == wanted.role && known->second.tenants == wanted.tenants &&
        known->second.end == wanted.end) {
      return Change{};
    }
    wanted.key = known->second.key;
  } else if (bindings.size() >= kMaxRoleBindings) {
    return Refuse(absl::StatusCode::kResourceExhausted, "TOO_MANY_BINDINGS",
                  absl::StrCat("the pool has ", kMaxRoleBindings, " bindings, as many as it may"),
                  "revoke those that have ended (`cxlpool access list`)", {});
  } else {
    wanted.key = context.next_id();
  }
  absl::Status stays = CheckAdminStays(bindings, wanted.identity, &wanted);
  if (!stays.ok()) return stays;
  wanted.time = context.now;
  return Change{wanted};
}

absl::StatusOr<Change> PlanUnbindRole(const PoolState& state, const Caller& caller,
                                      const std::string& identity, PlanContext& /*context*/) {
  if (absl::Status status = CheckCaller(state, caller, Right::kAdminister); !status.ok()) {
    return status;
  }
  const RoleBindings& bindings = state.access_rules().bindings;
  const auto known = bindings.find(identity);
  if (known == bindings.end()) {
    return Refuse(absl::StatusCode::kNotFound, "NOT_BOUND",
                  absl::StrCat(Quoted(identity), " has no role"), "see `cxlpool access list`",
                  {{"identity", identity.substr(0, 255)}});
  }
  if (absl::Status status = CheckAdminStays(bindings, identity, nullptr); !status.ok()) {
    return status;
  }
  return Change{Erased{known->second.key}};
}

}  // namespace cxlpool::fm
