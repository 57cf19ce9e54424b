// What is wrong with the manager itself and with those who call it, which no record says: a store
// that takes no changes, an audit trail that was altered, certificates that end, backups that
// nobody takes, and peers that are refused. For health checks and for Explain.
#ifndef CXLPOOL_FABRIC_MANAGER_RPC_SERVER_HEALTH_H_
#define CXLPOOL_FABRIC_MANAGER_RPC_SERVER_HEALTH_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "fabric-manager/rpc/refused_peers.h"
#include "fabric-manager/rpc/standard_rpc.h"
#include "fabric-manager/service/explain.h"
#include "fabric-manager/service/meters.h"
#include "proto/support/executor.h"
#include "proto/support/mutex.h"
#include "proto/support/tls.h"

namespace cxlpool::fm {

// What the manager knows of itself. `meters`, null: nothing is counted. `certificates`: EndsOf its
// own, and those for etcd; any thread; null: it has none. `database`: the file that the records are
// in; empty: they are in none. `try_store`: has the store take a change of nothing, whose outcome
// NoteStore hears; any thread. Null: nobody tries.
struct OwnFacts {
  const Meters* meters = nullptr;
  std::function<std::vector<CertificateEnd>()> certificates = nullptr;
  std::string database = {};
  std::function<void()> try_store = nullptr;
};

// Any thread.
class ServerHealth {
 public:
  // So often a store that refused a change is tried again, until it takes one. Health checks say
  // NOT_SERVING meanwhile: whoever waits for them will not make the change that shows that there is
  // space again.
  static constexpr absl::Duration kTryEvery = absl::Seconds(10);

  // A try is smaller than any change. Where a store takes tries and then refuses a change again
  // within kSettles, each round of tries is half as frequent as the one before, or health checks
  // would say now one thing and now the other.
  static constexpr absl::Duration kSettles = absl::Minutes(1);
  static constexpr absl::Duration kTrySeldom = absl::Minutes(5);

  // So long after the last whole backup, or after its start, the manager asks for one.
  static constexpr absl::Duration kBackupIsOld = absl::Hours(24);

  // `timer` is stopped before this goes. All outlive this.
  ServerHealth(const Clock* clock, Executor* timer, HealthRpc* health, RefusedPeers* refused,
               OwnFacts own = {})
      : clock_(clock),
        timer_(timer),
        health_(health),
        refused_(refused),
        own_(std::move(own)),
        started_(clock->Now()) {}

  // Whether the manager serves at all. Begins with no.
  void SetServing(bool serving);

  // STORE_FULL: the store refused a change. OK: it took the first one since.
  void NoteStore(const absl::Status& status);

  // A store that is full, until it took a change; what is wrong with the manager itself; and peers
  // that were refused in the last minutes.
  std::vector<Finding> Findings() const;

 private:
  // Under the lock, so that the last word is the latest.
  void Show() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    health_->SetServing(serving_ && store_.ok());
  }
  void TryStoreLater(uint64_t round, absl::Duration every);

  void LogStore(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AddOwn(std::vector<Finding>& findings) const;

  static constexpr absl::Duration kLogsFullEvery = absl::Minutes(1);

  const Clock* const clock_;
  Executor* const timer_;
  HealthRpc* const health_;
  RefusedPeers* const refused_;
  const OwnFacts own_;
  const absl::Time started_;

  mutable Mutex mutex_;
  bool serving_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status store_ ABSL_GUARDED_BY(mutex_);  // As it last said.
  absl::Time since_ ABSL_GUARDED_BY(mutex_);
  uint64_t round_ ABSL_GUARDED_BY(mutex_) = 0;  // So many times it has become full.
  absl::Duration try_every_ ABSL_GUARDED_BY(mutex_) = kTryEvery;
  absl::Duration recovered_ ABSL_GUARDED_BY(mutex_) = -absl::InfiniteDuration();
  bool full_logged_ ABSL_GUARDED_BY(mutex_) = false;  // And not yet that it is over.
  absl::Duration full_logged_at_ ABSL_GUARDED_BY(mutex_) = -absl::InfiniteDuration();
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_RPC_SERVER_HEALTH_H_
