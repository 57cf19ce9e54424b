// A Store that two managers share: what store_etcd promises at the port, on a model of etcd.
//
// SimEtcd is the members of etcd as one thing: transactions that compare and write take effect one
// after the other, each as a whole. SimReplicatedStore is one manager's side of it. It follows
// whoever has the store, claims it once that one is silent, and sends a transaction until it knows
// whether that was carried out.
//
// Legal faults, each by chance where StoreFaults::troubled, and on top of what sim_store.h lists
// (a failed commit is a manager that is cut off from etcd for good, from before that commit or from
// after it):
//   a transaction or its answer is lost, which is the same to whoever sent it. An etcd that answers
//   "no space" and has carried it out is that, too: whoever sent it believes no error;
//   a transaction arrives twice, the second time so late that anything may have happened between,
//   its sender's end and the next manager's claim too;
//   a look is lost, late, or shows what was so a while ago (a stale read).
// Not legal: a transaction that is carried out in part, or though its comparison fails.
//
// A manager that hears of no transaction of its own for kOwnTermUs ends (SelfFence). That time
// stands still with its machine, so a manager that was paused may go on for a while after another
// has taken over: it must have no effect then.
#ifndef CXLPOOL_TEST_SIM_SIM_REPLICATED_STORE_H_
#define CXLPOOL_TEST_SIM_SIM_REPLICATED_STORE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fabric-manager/adapters/store_memory/memory_store.h"
#include "fabric-manager/ports/store.h"
#include "test/sim/scheduler.h"
#include "test/sim/sim_store.h"

namespace cxlpool::sim {

// store.takeover, made shorter, and what follows from it as in store_etcd.
inline constexpr int64_t kTakeoverUs = 600'000;
inline constexpr int64_t kOwnTermUs = kTakeoverUs * 5 / 6;
inline constexpr int64_t kBeatUs = kTakeoverUs / 5;
inline constexpr int64_t kLookUs = kTakeoverUs / 12;

// Outlives the managers.
class SimEtcd {
 public:
  // What a standby looks at. `epoch` and `revision` are the head: no two of them are ever equal.
  struct Signs {
    uint64_t epoch = 0;  // 0: nobody has had it.
    uint64_t revision = 0;
    uint64_t beat = 0;  // Another with each transaction.
    LifeId owner = kWorld;
    friend bool operator==(const Signs&, const Signs&) = default;
  };

  SimEtcd(const Scheduler* scheduler, std::shared_ptr<fm::MemoryDisk> disk)
      : scheduler_(scheduler), disk_(std::move(disk)) {}

  // Transactions; they take effect now. False: the comparison failed, and nothing was done.
  bool Commit(const fm::StoreBatch& batch);
  bool Beat(uint64_t epoch);
  // `seen` becomes `claimant`'s in the next epoch.
  bool Claim(const Signs& seen, LifeId claimant);

  const Signs& now() const { return now_; }
  // As they were about `ago_us` ago.
  Signs Then(int64_t ago_us) const;
  // What was committed after `after`, up to and with `revision`. False: the log is folded too far.
  bool ReadLog(uint64_t after, uint64_t revision, std::vector<fm::StoreBatch>& batches) const;
  fm::StoreImage Read() const;

  // Times that another than the first owner took it.
  uint64_t takeovers() const { return takeovers_; }

 private:
  void Changed();

  const Scheduler* const scheduler_;
  const std::shared_ptr<fm::MemoryDisk> disk_;
  Signs now_;
  std::deque<std::pair<int64_t, Signs>> then_;  // And since when.
  std::deque<fm::StoreBatch> log_;              // The newest last.
  uint64_t takeovers_ = 0;
};

// What managers met at the store, for coverage.
struct StoreMet {
  uint64_t lost = 0;       // Transactions, or answers, that did not arrive.
  uint64_t found_out = 0;  // Commits that were found to be made, after an answer that was lost.
  uint64_t doubled = 0;    // Transactions that came once more, and had no effect.
  uint64_t fenced = 0;     // Commits and beats of managers that had been followed by another.
  uint64_t outrun = 0;     // Claims that failed: the owner, or another standby, was quicker.
  uint64_t read_anew = 0;  // Times that a standby was too far behind to follow.
};

class SimReplicatedStore : public fm::Store {
 public:
  struct World {
    Scheduler* scheduler;
    SimEtcd* etcd;
    const RecordShelf* shelf;
    StoreFaults* faults;
    StoreMet* met;
  };

  // All outlive this. `executor`: of the manager. `end`: the kernel ends the manager.
  SimReplicatedStore(const World& world, SimExecutor* executor, Random random,
                     std::function<void()> end)
      : world_(world),
        life_(executor->life()),
        executor_(executor),
        random_(random),
        end_(std::move(end)) {}

  void Follow(fm::StoreFollower follower) override { follower_ = std::move(follower); }
  void Open(Done lost, DoneWith<fm::StoreImage> done) override;
  void Commit(fm::StoreBatch batch, Done done) override;
  void Beat() override;
  void Backup(std::string path, DoneWith<fm::StoreBackup> done) override;  // NO_BACKUP

  // Nothing reaches etcd any more.
  void CutOff() { cut_off_ = true; }

  // Nobody else can have the store, by the simulation's clock, which does not stop with a machine.
  // What the manager answers without a commit is true only then.
  bool IsOurs() const { return open_ && world_.scheduler->now_us() < owned_until_us_; }

 private:
  struct Txn {
    std::function<bool()> carry_out;  // In etcd.
    std::function<bool()> is_done;    // As the head shows.
    Done done;                        // ABORTED: not carried out.
    int64_t sent_us = 0;              // The first time,
    int64_t paused_us = 0;            // and PausedFor then.
    bool lost_before = false;
  };

  void Look();
  void OnSigns(const SimEtcd::Signs& signs);
  // False: what was committed cannot be told.
  bool FollowTo(const SimEtcd::Signs& signs);
  void Claim(const SimEtcd::Signs& seen);
  void Opened(const SimEtcd::Signs& claimed);
  void Send(std::shared_ptr<Txn> txn);
  void Answered(Txn& txn, bool done);
  void WatchTerm();
  int64_t Latency();
  std::string Encoded(std::string value) const { return world_.shelf->Encode(std::move(value)); }

  const World world_;
  const LifeId life_;
  SimExecutor* const executor_;
  Random random_;
  const std::function<void()> end_;
  fm::StoreFollower follower_;
  Done lost_;
  DoneWith<fm::StoreImage> opened_;

  bool looked_ = false;
  SimEtcd::Signs seen_;
  int64_t seen_since_us_ = 0;
  bool loaded_ = false;
  uint64_t followed_epoch_ = 0;  // To there, once loaded.
  uint64_t followed_revision_ = 0;

  bool open_ = false;
  bool outstanding_ = false;
  bool cut_off_ = false;  // From etcd, for good.
  uint64_t epoch_ = 0;
  int64_t owned_until_us_ = 0;
  int64_t paused_before_us_ = 0;  // PausedFor when that time began.
};

}  // namespace cxlpool::sim

#endif  // CXLPOOL_TEST_SIM_SIM_REPLICATED_STORE_H_
