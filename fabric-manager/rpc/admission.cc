#include "fabric-manager/rpc/admission.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/mutant.h"
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

}  // namespace

absl::StatusOr<Place> Admission::Enter(Kind kind, const Caller& caller,
                                       grpc::GenericCallbackServerContext* context) {
  const Limits& limits = LimitsOf(kind);
  const auto index = static_cast<size_t>(kind);
  const std::string identity = caller.is_local() ? "" : caller.identity();
  MutexLock lock(mutex_);
  if (in_all_[index] >= limits.in_all) return TooMany(kind, limits.in_all, "");
  if (!identity.empty()) {
    int& own = of_one_[identity][index];
    if (own >= limits.of_one && !CXLPOOL_MUTANT("no-cap-by-identity")) {
      return TooMany(kind, limits.of_one, identity);
    }
    ++own;
  }
  ++in_all_[index];
  if (kind == Kind::kSession || caller.is_local()) context = nullptr;
  if (context != nullptr) under_way_.emplace(context, caller);
  return Place(this, kind, identity, context);
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

void Admission::Leave(Kind kind, const std::string& identity,
                      grpc::GenericCallbackServerContext* context) {
  const auto index = static_cast<size_t>(kind);
  MutexLock lock(mutex_);
  if (context != nullptr) under_way_.erase(context);
  --in_all_[index];
  if (identity.empty()) return;
  const auto own = of_one_.find(identity);
  --own->second[index];
  if (own->second == std::array<int, 3>{}) of_one_.erase(own);
}

Place& Place::operator=(Place&& other) noexcept {
  if (this == &other) return *this;
  GiveBack();
  admission_ = std::exchange(other.admission_, nullptr);
  kind_ = other.kind_;
  identity_ = std::move(other.identity_);
  context_ = other.context_;
  return *this;
}

void Place::GiveBack() {
  if (admission_ == nullptr) return;
  std::exchange(admission_, nullptr)->Leave(kind_, identity_, context_);
}

}  // namespace cxlpool::fm
