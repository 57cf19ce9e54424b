#include "fabric-manager/model/pool/caller.h"

#include "absl/strings/str_cat.h"
#include "fabric-manager/model/pool/pool_state.h"
#include "proto/support/mutant.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

// Whether the caller speaks for this host now.
bool SpeaksFor(const Caller& caller, const Host* own) {
  if (own == nullptr || own->id != caller.host() || own->identity != caller.identity()) {
    return false;
  }
  return !own->retired || CXLPOOL_MUTANT("retired-host-acts");
}

// Nothing: no call made it. The first request that a Region remembers is the one that allocated it.
const RequestId* AllocationOf(const Region& region) {
  static const Interned kAllocate("AllocateRegion");
  if (region.requests.empty()) return nullptr;
  const RequestId& first = region.requests.front().id;
  const bool is_allocation =
      first.method == kAllocate || CXLPOOL_MUTANT("who-calls-for-kept-bytes-has-made-them");
  return is_allocation ? &first : nullptr;
}

// Whether it was this identity that made the Region.
bool Allocated(absl::string_view identity, const Region& region) {
  const RequestId* made = AllocationOf(region);
  return made != nullptr && made->principal.str() == identity;
}

}  // namespace

// What the role gives by itself. Whose memory it may use is judged for each Region (MaySee).
bool Caller::Has(Right right) const {
  if (is_host()) return right == Right::kUseMemory;
  if (kind_ == Kind::kNobody) return false;
  switch (right) {
    case Right::kUseMemory:
    case Right::kMoveMemory:
      return (role_ != PoolRole::kViewer && role_ != PoolRole::kMetrics) ||
             CXLPOOL_MUTANT("viewers-change-things");
    case Right::kRunPool:
      return role_ == PoolRole::kOperator || role_ == PoolRole::kAdmin ||
             CXLPOOL_MUTANT("tenants-run-the-pool");
    case Right::kAdminister:
      return role_ == PoolRole::kAdmin || CXLPOOL_MUTANT("operators-are-admins");
  }
  return false;
}

std::string Caller::RoleText() const {
  if (is_nobody()) return "";
  return is_host() ? "HOST" : std::string(ToString(role_));
}

// Judges by the state that the change is made on: hosts by their record as it is now, users by
// their role as it is now.
absl::Status CheckCaller(const PoolState& state, const Caller& caller, Right right) {
  if (caller.is_nobody()) {
    return Refuse(absl::StatusCode::kInternal, "NO_CALLER", "the call does not say who makes it",
                  "report this: it is a bug of the manager");
  }
  if (caller.is_host() && !SpeaksFor(caller, state.FindHost(caller.host()))) {
    return Refuse(absl::StatusCode::kPermissionDenied, "NOT_ENROLLED",
                  absl::StrCat("no host is enrolled as ", caller.identity()),
                  "run `cxlpool host enrol HOST`", {{"identity", caller.identity()}});
  }
  // A call that waited, or goes on after its first change, may have lost its role meanwhile. That a
  // role ends with time ends what has not begun.
  if (caller.proof().has_value() && !CXLPOOL_MUTANT("roles-stand-while-a-call-waits")) {
    const auto now = RoleOf(state.access_rules().bindings, caller.identity(), *caller.proof(),
                            absl::InfinitePast());
    if (!now.has_value() || now->role != caller.role() || now->tenants != caller.tenants()) {
      return Refuse(absl::StatusCode::kAborted, "RIGHTS_CHANGED",
                    absl::StrCat("the role of ", caller.identity(), " has just changed"),
                    "call again", {{"identity", caller.identity()}});
    }
  }
  if (caller.Has(right)) return absl::OkStatus();
  if (caller.is_host()) {
    return Refuse(absl::StatusCode::kPermissionDenied, "ROLE_NOT_ALLOWED",
                  absl::StrCat(caller.identity(), " is a host and may not decide for others"),
                  "let an operator do it", {{"identity", caller.identity()}});
  }
  return Refuse(absl::StatusCode::kPermissionDenied, "ROLE_NOT_ALLOWED",
                absl::StrCat(caller.identity(), " has the role ", ToString(caller.role()),
                             ", which may not do this"),
                right == Right::kAdminister ? "let an admin do it" : "let an operator do it",
                {{"identity", caller.identity()}});
}

// What an operator asks for such a Region, its release too, makes it nobody's either.
bool IsKept(const Region& region) {
  return AllocationOf(region) == nullptr && !CXLPOOL_MUTANT("kept-bytes-are-the-default-tenants");
}

// A user sees by role and tenant. A host sees what it allocated itself, and of its tenants' Regions
// those that are attached to it.
bool MaySee(const Caller& caller, const Host* own, const Region& region) {
  if (caller.for_pool()) return true;
  if (caller.for_tenants()) {
    if (IsKept(region)) return false;
    if (!caller.HasTenant(region.tenant.str()) && !CXLPOOL_MUTANT("tenant-sees-any-region")) {
      return false;
    }
    return caller.role() == PoolRole::kTenant || Allocated(caller.identity(), region) ||
           CXLPOOL_MUTANT("scheduler-has-anybodys");
  }
  if (caller.is_nobody() || !SpeaksFor(caller, own)) return false;
  if (Allocated(own->identity, region)) return true;
  if (CXLPOOL_MUTANT("host-sees-any-region")) return true;
  return region.FindAttachment(absl::string_view(own->id)) != nullptr && own->Serves(region.tenant);
}

}  // namespace cxlpool::fm
