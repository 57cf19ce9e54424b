// The one writer: plans each request on PoolState, makes a group of them durable in one commit,
// then publishes them to readers and watchers.
//
// A group is applied while it is planned, so that its members see each other, and undone as a
// whole if the commit fails. Nobody outside hears of a change, or of a refusal that rests on one,
// before the commit.
//
// Submit: any thread. Everything else: the executor.
#ifndef CXLPOOL_FABRIC_MANAGER_SERVICE_WRITER_H_
#define CXLPOOL_FABRIC_MANAGER_SERVICE_WRITER_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "fabric-manager/model/planner.h"
#include "fabric-manager/model/pool_state.h"
#include "fabric-manager/ports/store.h"
#include "fabric-manager/service/record_codec.h"
#include "fabric-manager/service/view.h"
#include "fabric-manager/service/watch_hub.h"
#include "proto/support/executor.h"

namespace cxlpool::fm {

// What a plan proposes. An empty change costs no commit.
struct Proposal {
  Change change;
  RegionPtr region;  // For the answer; may be null.

  // Changes one record.
  static Proposal Of(Item item, RegionPtr region);
};

// The answer once durable.
struct Committed {
  RegionPtr region;
  uint64_t revision = 0;  // Of the change, or of the state it was answered from.
};

using PlanFn = absl::AnyInvocable<absl::StatusOr<Proposal>(const PoolState&, PlanContext&) &&>;

class Writer {
 public:
  struct Options {
    size_t max_queue = 16384;  // Submissions not yet answered.
    size_t max_group = 1024;   // Submissions in one commit.
    bool hardware_coherent = false;
  };
  struct Listener {
    // Records that changed in a commit, as they are now. On the executor.
    std::function<void(const std::vector<Change>&)> on_committed;
    // The store cannot go on (fenced, or an unknown outcome): the process must end and reopen.
    std::function<void(absl::Status)> on_fatal;
  };

  Writer(Options options, Executor* executor, Clock* clock, Store* store, ViewHolder* views,
         WatchHub* watch);

  // Opens the store and loads the state; then Submit may be called. DATA_LOSS if the records do
  // not make a sound pool.
  void Open(Listener listener, Done done);

  // Plans on the executor, commits, answers. `audit` says who and what (its time is filled in).
  // RESOURCE_EXHAUSTED/QUEUE_FULL: nothing was done. RESOURCE_EXHAUSTED/STORE_FULL and
  // UNAVAILABLE/STORE_FAILED: nothing was changed that anybody will see.
  void Submit(Audit audit, PlanFn plan, DoneWith<Committed> done);

  // The state, uncommitted changes of the current group included. On the executor.
  const PoolState& state() const { return state_; }
  uint64_t revision() const { return revision_; }

  // Volatile knowledge; readers see it at once.
  void SetRuntime(const std::string& host, HostRuntime runtime);
  void SetReachable(const std::string& device, bool reachable);

 private:
  struct Pending {
    Audit audit;
    PlanFn plan;
    DoneWith<Committed> done;
  };
  struct Planned {
    DoneWith<Committed> done;
    absl::StatusOr<Committed> answer;
    bool depends_on_commit = false;  // It, or one before it in the group, changed something.
  };

  void Enqueue(Pending pending);
  void Pump();
  void PlanOne(Pending pending);
  void FinishGroup(const absl::Status& status);
  void Publish();
  void PublishView(const std::vector<const Change*>& changes);
  std::shared_ptr<const HostView> LookAtHost(const Host& host) const;
  absl::Status Load(const StoreImage& image);
  uint64_t NextId();

  const Options options_;
  Executor* const executor_;
  Clock* const clock_;
  Store* const store_;
  ViewHolder* const views_;
  WatchHub* const watch_;
  Listener listener_;
  std::atomic<size_t> queued_{0};

  // On the executor.
  PoolState state_;
  PoolMeta meta_;         // As on disk, or in the group's commit.
  uint64_t next_id_ = 0;  // Given out below meta_.next_id only.
  uint64_t epoch_ = 0;
  uint64_t revision_ = 0;
  bool failed_ = false;
  bool committing_ = false;
  bool pump_posted_ = false;
  std::deque<Pending> queue_;

  std::set<std::string> stale_hosts_;  // Runtime changed since the last view.

  // The group under way.
  std::vector<Planned> group_;
  std::vector<Change> changes_;
  std::vector<Change> inverses_;
  std::map<Key, std::string> puts_;  // Empty value: erase.
  std::vector<WatchEvent> events_;
  uint64_t base_revision_ = 0;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_SERVICE_WRITER_H_
