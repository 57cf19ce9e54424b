#include "fabric-manager/rpc/admission.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/support/mutant.h"
#include "proto/support/names.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

const Admission::Limits& LimitsOf(Admission::Kind kind) {
  switch (kind) {
    case Admission::Kind::kCall:
      return Admission::kCalls;
    case Admission::Kind::kSession:
      return Admission::kSessions;
    case Admission::Kind::kWatch:
      return Admission::kWatches;
  }
  return Admission::kCalls;
}

// `whose`: empty where the limit is that of all together.
absl::Status TooMany(Admission::Kind kind, int limit, const std::string& whose) {
  struct Words {
    const char* reason;
    const char* what;
    const char* remedy;
  };
  static constexpr Words kWords[] = {
      {"TOO_MANY_CALLS", "calls are under way", "wait for answers, then call again"},
      {"TOO_MANY_AGENTS", "sessions are open", "nothing: the agent dials again"},
      {"TOO_MANY_WATCHERS", "watchers are connected", "retry later, or share one watcher"}};
  const Words& words = kWords[static_cast<size_t>(kind)];
  return Refuse(absl::StatusCode::kResourceExhausted, words.reason,
                absl::StrCat(limit, " ", words.what, whose.empty() ? "" : " of ", whose,
                             ", which is as many as may be"),
                words.remedy, {{"max", absl::StrCat(limit)}});
}

// A scheduler can have very many tenants, and is one.
bool CountsByTenant(const Caller& caller) {
  return caller.for_tenants() && caller.role() == PoolRole::kTenant;
}

// Who it is counted with.
absl::InlinedVector<Interned, 1> SharesOf(const Caller& caller) {
  if (caller.is_local()) return {};
  if (!CountsByTenant(caller) || CXLPOOL_MUTANT("tenants-counted-by-identity")) {
    return {caller.principal()};
  }
  absl::InlinedVector<Interned, 1> tenants;
  for (const std::string& id : caller.tenants()) tenants.emplace_back(ResourceName("tenants", id));
  return tenants;
}

}  // namespace

// A call that is refused for how many there were is not counted: who goes on calling gets in again
// as fast as who waited.
absl::Status Admission::CheckShare(Kind kind, Interned who, bool of_tenants, int cost) {
  const std::string& whose = who.str();
  Share& share = of_one_[who];
  const int used = share.under_way[static_cast<size_t>(kind)];
  if (!of_tenants) {
    const int limit = LimitsOf(kind).of_one;
    if (used < limit || CXLPOOL_MUTANT("no-cap-by-identity")) return absl::OkStatus();
    return TooMany(kind, limit, whose);
  }
  const int limit = kind == Kind::kWatch ? kTenantWatches : kTenantCalls;
  if (used + cost > limit) return TooMany(kind, limit, whose);
  const absl::Duration now = clock_.Elapsed();
  share.calls_left =
      std::min(kTenantCallsASecond,
               share.calls_left + absl::ToDoubleSeconds(now - share.counted) * kTenantCallsASecond);
  share.counted = now;
  if (share.calls_left >= cost || CXLPOOL_MUTANT("tenants-call-without-end")) {
    return absl::OkStatus();
  }
  return Refuse(absl::StatusCode::kResourceExhausted, "TENANT_TOO_BUSY",
                absl::StrCat(whose, " has made ", kTenantCallsASecond,
                             " calls within a second, as many as it may"),
                "call again in a second, and ask for several Regions in one batch",
                {{absl::StartsWith(whose, "tenants/") ? "tenant" : "identity", whose}});
}

absl::StatusOr<Place> Admission::Enter(Kind kind, const Caller& caller,
                                       grpc::GenericCallbackServerContext* context, int cost) {
  const Limits& limits = LimitsOf(kind);
  const auto index = static_cast<size_t>(kind);
  auto shares = SharesOf(caller);
  // A scheduler is one, and has no more than one tenant has.
  const bool of_tenants = caller.for_tenants() && !CXLPOOL_MUTANT("schedulers-call-without-end");
  if (!of_tenants) cost = 1;
  MutexLock lock(mutex_);
  if (in_all_[index] >= limits.in_all) return TooMany(kind, limits.in_all, "");
  for (const Interned whose : shares) {
    if (absl::Status status = CheckShare(kind, whose, of_tenants, cost); !status.ok())
      return status;
  }
  for (const Interned whose : shares) {
    Share& share = of_one_[whose];
    share.under_way[index] += cost;
    if (of_tenants) share.calls_left -= cost;
  }
  ++in_all_[index];
  if (kind == Kind::kSession || caller.is_local()) context = nullptr;
  if (context != nullptr) under_way_.emplace(context, caller);
  return Place(this, kind, std::move(shares), cost, context);
}

// gRPC tells a call that it is cancelled on threads of its own, so none of them comes back here
// while the lock is held; and no context goes before its place, which needs the lock.
void Admission::Judge(
    absl::FunctionRef<bool(const grpc::GenericCallbackServerContext&, const Caller&)> may_stay) {
  MutexLock lock(mutex_);
  for (const auto& [context, caller] : under_way_) {
    if (!may_stay(*context, caller) && !CXLPOOL_MUTANT("revoked-streams-stand"))
      context->TryCancel();
  }
}

absl::Status Admission::AddUnread(const Place& place, size_t bytes) {
  MutexLock lock(mutex_);
  for (const Interned whose : place.shares_) {
    if (of_one_[whose].unread + bytes <= kUnreadBytes || CXLPOOL_MUTANT("answers-pile-up"))
      continue;
    return Refuse(absl::StatusCode::kResourceExhausted, "TOO_MUCH_UNREAD",
                  absl::StrCat(whose.str(), " has ", kUnreadBytes >> 20,
                               " MiB of answers that it has not read, as many as may be"),
                  "read the answers that are under way, then call again");
  }
  for (const Interned whose : place.shares_) of_one_[whose].unread += bytes;
  return absl::OkStatus();
}

void Admission::Leave(const Place& place) {
  const auto index = static_cast<size_t>(place.kind_);
  MutexLock lock(mutex_);
  if (place.context_ != nullptr) under_way_.erase(place.context_);
  --in_all_[index];
  for (const Interned whose : place.shares_) {
    const auto own = of_one_.find(whose);
    own->second.under_way[index] -= place.cost_;
    own->second.unread -= place.unread_;
    // Whose calls are counted a second is remembered.
    if (own->second.under_way == std::array<int, 3>{} &&
        own->second.calls_left == kTenantCallsASecond) {
      of_one_.erase(own);
    }
  }
}

Place& Place::operator=(Place&& other) noexcept {
  if (this == &other) return *this;
  GiveBack();
  admission_ = std::exchange(other.admission_, nullptr);
  kind_ = other.kind_;
  shares_ = std::move(other.shares_);
  cost_ = other.cost_;
  unread_ = std::exchange(other.unread_, 0);
  context_ = other.context_;
  return *this;
}

absl::Status Place::AddUnread(size_t bytes) {
  if (admission_ == nullptr) return absl::OkStatus();
  absl::Status status = admission_->AddUnread(*this, bytes);
  if (status.ok()) unread_ = bytes;
  return status;
}

void Place::GiveBack() {
  if (admission_ == nullptr) return;
  std::exchange(admission_, nullptr)->Leave(*this);
}

}  // namespace cxlpool::fm
