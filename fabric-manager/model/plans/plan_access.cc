// PlanBindRole, PlanUnbindRole and RoleOf.

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "fabric-manager/model/plans/plan_parts.h"
#include "fabric-manager/model/plans/planner.h"
#include "proto/support/mutant.h"
#include "proto/support/text.h"

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
  }
  return "?";
}

std::optional<Granted> RoleOf(const RoleBindings& bindings, absl::string_view identity,
                              bool operator_certificate, absl::Time now) {
  if (bindings.empty()) {
    return operator_certificate ? std::optional(Granted{PoolRole::kAdmin}) : std::nullopt;
  }
  const auto bound = bindings.find(identity);
  if (bound == bindings.end()) return std::nullopt;
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
