// A pool that goes through many lives of its manager under the same clients: each life begins with
// an audit of what the kill before it left, and ends by a kill.
//
// One thread.
#ifndef CXLPOOL_TEST_CRASH_LOADED_POOL_H_
#define CXLPOOL_TEST_CRASH_LOADED_POOL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "test/crash/audit.h"
#include "test/crash/client.h"
#include "test/crash/hits.h"
#include "test/crash/pool.h"
#include "test/crash/trail.h"

namespace cxlpool::crash {

class LoadedPool {
 public:
  // How a life goes on once it is under load. It returns when the manager is dead, or, of several,
  // when one of them leads again.
  using Kill = std::function<absl::Status(Process& manager)>;

  // Makes the pool, its hosts and tenants. `hits` outlives this.
  static absl::StatusOr<std::unique_ptr<LoadedPool>> Make(Hits* hits, int managers = 1);

  // A life that ends before it serves, after a time of [0, longest).
  absl::Status KillInStart(std::mt19937_64& random, absl::Duration longest);

  struct Life {
    std::string crash_at;  // Of the manager.
    bool hosted = false;   // Agents are there, and Regions are attached.
    Kill kill;
  };
  // Start, audit, load, kill.
  absl::Status Live(std::mt19937_64& random, const Life& life);

  // As Live, and an agent is killed under the load (`crash_at`, or at a moment) and comes back:
  // what was online is online again within 10 s, with its bytes.
  absl::Status LiveThroughAgentDeath(std::mt19937_64& random, const std::string& agent_crash_at);

  // Starts managers that do not run and brings agents, without load, until what is wanted on hosts
  // is there: no bind is under way then.
  absl::Status AwaitQuiet();

  // Releases everything; every byte is free again, no slot is bound, no file is left; then SIGTERM,
  // and fsck finds nothing.
  absl::Status Finish();

  Pool& pool() { return *pool_; }
  const Lanes& lanes() const { return lanes_; }
  uint64_t lives() const { return lives_; }
  uint64_t answered() const;
  uint64_t retried() const;
  uint64_t changes() const { return trail_.changes(); }  // In the audit trail.

 private:
  explicit LoadedPool(Hits* hits) : hits_(hits) {}
  absl::Status SetUp();
  // Starts the manager, and audits. CANCELLED: it died meanwhile, as `crash_at` wanted.
  absl::Status Begin(const std::string& crash_at);
  absl::Status RetryWithNextLeader(const std::function<absl::Status()>& part);
  absl::Status BringAgents(bool restart);
  absl::Status AwaitHosts(absl::Duration limit, bool* online);
  absl::Status AwaitAttached(absl::Duration limit);
  absl::Status Load(std::mt19937_64& random, bool hosted, const Kill& kill);
  absl::Status Settle();
  void CountHits();

  Hits* const hits_;
  std::unique_ptr<Pool> pool_;
  std::unique_ptr<Client> client_;  // Of this life.
  Lanes lanes_;
  TrailSeen trail_;
  uint64_t lives_ = 0;
};

// One pool after the other, each through many lives: what a trial program goes through its seeds
// with.
class LoadedPools {
 public:
  // `hits` outlives this. Each pool has `lives` of `managers`.
  LoadedPools(Hits* hits, uint64_t lives, int managers = 1)
      : hits_(hits), lives_(lives), managers_(managers) {}

  // A part of the life of the pool there is, or of a new one; a pool that has had its lives is
  // ended. One whose promise was broken is dropped.
  absl::Status Run(const std::function<absl::Status(LoadedPool& pool)>& part);

  // Ends the pool there is (LoadedPool::Finish): everything is released, and has to come back.
  absl::Status End();

  // Of all pools so far.
  uint64_t answered() const { return answered_ + (pool_ == nullptr ? 0 : pool_->answered()); }
  uint64_t retried() const { return retried_ + (pool_ == nullptr ? 0 : pool_->retried()); }
  uint64_t changes() const { return changes_ + (pool_ == nullptr ? 0 : pool_->changes()); }

 private:
  Hits* const hits_;
  const uint64_t lives_;
  const int managers_;
  std::unique_ptr<LoadedPool> pool_;
  uint64_t answered_ = 0;  // Of those that were ended.
  uint64_t retried_ = 0;
  uint64_t changes_ = 0;
};

// Whether every host has a session with the manager.
absl::StatusOr<bool> HostsOnline(Client& client);

// Kills at a moment of [0, longest) from now.
LoadedPool::Kill AtAMoment(std::mt19937_64& random, absl::Duration longest);

}  // namespace cxlpool::crash

#endif  // CXLPOOL_TEST_CRASH_LOADED_POOL_H_
