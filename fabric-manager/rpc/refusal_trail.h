// Puts calls that were refused for want of a right into the audit trail: who wanted to do what,
// from where. Calls that only read are left out.
//
// Anybody with a certificate can make the manager refuse, and old rows of the trail are dropped for
// new ones. So there is one row at most each kPeriod, with kMaxEntries at most; the same refusal of
// the same caller is one entry, and what is beyond that is counted in a last one. Of callers
// without any identity, whom nobody has let in, there is one entry each kStrangersPeriod.
#ifndef CXLPOOL_FABRIC_MANAGER_RPC_REFUSAL_TRAIL_H_
#define CXLPOOL_FABRIC_MANAGER_RPC_REFUSAL_TRAIL_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "fabric-manager/model/audit/audit_chain.h"
#include "fabric-manager/rpc/call_log.h"
#include "proto/support/executor.h"
#include "proto/support/mutex.h"

namespace cxlpool::fm {

// Any thread.
class RefusalTrail {
 public:
  static constexpr size_t kMaxEntries = 10;
  static constexpr absl::Duration kDelay = absl::Seconds(1);  // So many come together.
  static constexpr absl::Duration kPeriod = absl::Seconds(10);
  static constexpr absl::Duration kStrangersPeriod = absl::Hours(1);

  using Record = std::function<void(std::vector<AuditEntry>)>;  // PoolService::RecordRefusals

  // `timer` runs nothing of this any more once it is gone.
  RefusalTrail(const Clock* clock, Executor* timer, Record record);

  // A call that was refused before its request was read. Its caller is known by the refusal.
  void NoteUnread(absl::string_view method, absl::string_view peer, const absl::Status& why);
  // A call that was answered.
  void NoteAnswered(const AnsweredCall& call);

 private:
  void Add(AuditEntry entry);
  void AddStranger();
  void Put(AuditEntry entry);
  void Flush();

  const Clock* const clock_;
  Executor* const timer_;
  const Record record_;
  Mutex mutex_;
  std::vector<AuditEntry> entries_ ABSL_GUARDED_BY(mutex_);
  uint64_t others_ ABSL_GUARDED_BY(mutex_) = 0;
  bool waiting_ ABSL_GUARDED_BY(mutex_) = false;                        // A Flush is on its way.
  absl::Duration next_ ABSL_GUARDED_BY(mutex_) = absl::ZeroDuration();  // Not before that.
  // The first of those without an identity, and how many came after it; it is put in at its time.
  std::optional<AuditEntry> stranger_ ABSL_GUARDED_BY(mutex_);
  absl::Duration next_stranger_ ABSL_GUARDED_BY(mutex_) = absl::ZeroDuration();
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_RPC_REFUSAL_TRAIL_H_
