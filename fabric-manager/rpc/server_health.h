// What is wrong with the manager itself and with those who call it, which no record says: a store
// that takes no changes, and peers that are refused. For health checks and for Explain.
#ifndef CXLPOOL_FABRIC_MANAGER_RPC_SERVER_HEALTH_H_
#define CXLPOOL_FABRIC_MANAGER_RPC_SERVER_HEALTH_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "fabric-manager/rpc/refused_peers.h"
#include "fabric-manager/rpc/standard_rpc.h"
#include "fabric-manager/service/explain.h"
#include "proto/support/executor.h"
#include "proto/support/mutex.h"

namespace cxlpool::fm {

// Any thread.
class ServerHealth {
 public:
  // So long after the store refused a change health checks say NOT_SERVING. Not for longer: whoever
  // waits for them would never make the change that shows that there is space again.
  static constexpr absl::Duration kFullFor = absl::Minutes(1);

  // `timer` is stopped before this goes. All outlive this.
  ServerHealth(const Clock* clock, Executor* timer, HealthRpc* health, RefusedPeers* refused)
      : clock_(clock), timer_(timer), health_(health), refused_(refused) {}

  // Whether the manager serves at all. Begins with no.
  void SetServing(bool serving);

  // STORE_FULL: the store refused a change. OK: it took the first one since.
  void NoteStore(const absl::Status& status);

  // A store that is full, until it took a change; and peers that were refused in the last minutes.
  std::vector<Finding> Findings() const;

 private:
  // Under the lock, so that the last word is the latest.
  void Show() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { health_->SetServing(serving_ && !refuses_); }

  void LogStore(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  static constexpr absl::Duration kLogsFullEvery = absl::Minutes(1);

  const Clock* const clock_;
  Executor* const timer_;
  HealthRpc* const health_;
  RefusedPeers* const refused_;

  mutable Mutex mutex_;
  bool serving_ ABSL_GUARDED_BY(mutex_) = false;
  bool refuses_ ABSL_GUARDED_BY(mutex_) = false;  // A change was refused within kFullFor.
  uint64_t refusals_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status store_ ABSL_GUARDED_BY(mutex_);  // As it last said.
  absl::Time since_ ABSL_GUARDED_BY(mutex_);
  bool full_logged_ ABSL_GUARDED_BY(mutex_) = false;  // And not yet that it is over.
  absl::Duration full_logged_at_ ABSL_GUARDED_BY(mutex_) = -absl::InfiniteDuration();
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_RPC_SERVER_HEALTH_H_
