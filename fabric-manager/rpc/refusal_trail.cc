#include "fabric-manager/rpc/refusal_trail.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "fabric-manager/model/pool/caller.h"
#include "proto/support/mutant.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

// Whether somebody was refused for what he is, in a call of the pool's API that is more than a
// look.
bool IsPrivileged(absl::string_view method, const absl::Status& why) {
  if (!absl::IsPermissionDenied(why) && !absl::IsUnauthenticated(why)) return false;
  return absl::StartsWith(method, "/cxlpool.v1.") &&
         !absl::StartsWith(method, "/cxlpool.v1.HostService/") && !OnlyReads(method);
}

// The call may not have been read: who made it is known from the refusal alone, if it says so.
AuditEntry EntryOf(absl::string_view method, absl::string_view peer, const absl::Status& why) {
  AuditEntry entry;
  entry.method = std::string(method.substr(method.rfind('/') + 1));
  entry.peer = std::string(peer);
  entry.outcome = ReasonOf(why);
  const std::optional<Refusal> refusal = RefusalOf(why);
  for (const auto& [key, value] : refusal.has_value() ? refusal->metadata : Refusal().metadata) {
    if (key == "identity") entry.who = value;
  }
  return entry;
}

bool Alike(const AuditEntry& a, const AuditEntry& b) {
  return a.who == b.who && a.method == b.method && a.outcome == b.outcome;
}

}  // namespace

RefusalTrail::RefusalTrail(const Clock* clock, Executor* timer, Record record)
    : clock_(clock), timer_(timer), record_(std::move(record)) {}

void RefusalTrail::NoteUnread(absl::string_view method, absl::string_view peer,
                              const absl::Status& why) {
  if (IsPrivileged(method, why)) Add(EntryOf(method, peer, why));
}

void RefusalTrail::NoteAnswered(const AnsweredCall& call) {
  if (!IsPrivileged(call.method, call.status)) return;
  AuditEntry entry = EntryOf(call.method, call.peer, call.status);
  entry.who = call.caller.identity();
  entry.role = call.caller.RoleText();
  entry.request_id = call.caller.origin().request_id;
  Add(std::move(entry));
}

// Who has no identity can call as often as he likes, from wherever a token is taken: ten entries in
// each row would drop all that is in the trail within days.
void RefusalTrail::Add(AuditEntry entry) {
  if (CXLPOOL_MUTANT("audit-refusal-not-recorded")) return;
  if (!entry.who.empty() || CXLPOOL_MUTANT("strangers-fill-the-trail")) {
    return Put(std::move(entry));
  }
  absl::Duration wait;
  {
    MutexLock lock(mutex_);
    if (stranger_.has_value()) {
      ++stranger_->more;
      return;
    }
    stranger_ = std::move(entry);
    wait = std::max(kDelay, next_stranger_ - clock_->Elapsed());
  }
  timer_->PostAfter(wait, [this] { AddStranger(); });
}

// The first call since the last such row, with the number of those that came after it.
void RefusalTrail::AddStranger() {
  AuditEntry entry;
  {
    MutexLock lock(mutex_);
    entry = *std::exchange(stranger_, std::nullopt);
    next_stranger_ = clock_->Elapsed() + kStrangersPeriod;
  }
  Put(std::move(entry));
}

// One that is like another one that waits is counted there, and beyond kMaxEntries none is kept,
// only how many there were. The first of a row sets the timer for it.
void RefusalTrail::Put(AuditEntry entry) {
  absl::Duration wait;
  {
    MutexLock lock(mutex_);
    const auto alike = std::find_if(entries_.begin(), entries_.end(),
                                    [&](const AuditEntry& other) { return Alike(other, entry); });
    if (alike != entries_.end()) {
      alike->more += 1 + entry.more;
    } else if (entries_.size() < kMaxEntries) {
      entries_.push_back(std::move(entry));
    } else {
      others_ += 1 + entry.more;
    }
    if (std::exchange(waiting_, true)) return;
    wait = std::max(kDelay, next_ - clock_->Elapsed());
  }
  timer_->PostAfter(wait, [this] { Flush(); });
}

// Hands the row over. Those that were only counted are one more entry, itself one of them.
void RefusalTrail::Flush() {
  std::vector<AuditEntry> entries;
  {
    MutexLock lock(mutex_);
    entries = std::exchange(entries_, {});
    const uint64_t others = std::exchange(others_, 0);
    if (others > 0) {
      AuditEntry counted;
      counted.outcome = "OTHERS";
      counted.more = others - 1;
      entries.push_back(std::move(counted));
    }
    waiting_ = false;
    next_ = clock_->Elapsed() + kPeriod;
  }
  record_(std::move(entries));
}

}  // namespace cxlpool::fm
