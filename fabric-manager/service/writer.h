// The one writer: plans each request on PoolState, makes a group of them durable in one commit,
// then publishes them to readers and watchers.
//
// A group is applied while it is planned, so that its members see each other, and undone as a
// whole if the commit fails. Nobody outside hears of a change, or of a refusal that rests on one,
// before the commit. While the store is busy with a group the next one is planned, if enough waits
// to be worth it; it rests on the first, and is undone with it. The store has one commit at a time.
//
// Submit: any thread that holds no lock which an answer takes, for the answer may come before it
// returns. Everything else: the executor.
#ifndef CXLPOOL_FABRIC_MANAGER_SERVICE_WRITER_H_
#define CXLPOOL_FABRIC_MANAGER_SERVICE_WRITER_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "fabric-manager/model/plans/planner.h"
#include "fabric-manager/model/pool/pool_state.h"
#include "fabric-manager/ports/fabric_driver.h"
#include "fabric-manager/ports/store.h"
#include "fabric-manager/service/audit_trail.h"
#include "fabric-manager/service/meters.h"
#include "fabric-manager/service/record_codec.h"
#include "fabric-manager/service/view.h"
#include "fabric-manager/service/watch_hub.h"
#include "proto/support/executor.h"
#include "proto/support/mutex.h"

namespace cxlpool::fm {

// What a plan proposes. An empty change costs no commit.
struct Proposal {
  Change change;
  RegionPtr region;  // For the answer; may be null.
  std::vector<HostPlacement::OnBridge> bridges = {};
  // For the audit trail:
  Uuid request_id = {};                   // Where it is not the whole submission's.
  std::vector<AuditEntry> refusals = {};  // Calls that were refused; they get time and revision.
  // A commit is made even where nothing changes: it shows that the store is still this manager's.
  bool commits = false;

  // Changes one record.
  static Proposal Of(Item item, RegionPtr region);
};

// The answer once durable.
struct Committed {
  RegionPtr region;
  uint64_t revision = 0;  // Of the change, or of the state it was answered from.
  std::vector<HostPlacement::OnBridge> bridges = {};  // Of a plan (validate_only).
};

using PlanFn = absl::AnyInvocable<absl::StatusOr<Proposal>(const PoolState&, PlanContext&) &&>;

// Many that belong together: item 0, 1, ... of a batch.
using PlanItemFn =
    absl::AnyInvocable<absl::StatusOr<Proposal>(size_t item, const PoolState&, PlanContext&)>;
using Outcomes = std::vector<absl::StatusOr<Committed>>;
using OutcomesDone = absl::AnyInvocable<void(Outcomes) &&>;

class Writer {
 public:
  struct Options {
    size_t max_queue = 16384;  // Items not yet answered; a batch has several.
    size_t max_group = 1024;   // Items in one commit.
    // While the store is busy, planning goes on once so many items wait: for fewer it is not worth
    // waking a thread, and they would be a small commit of their own.
    size_t plan_ahead = 64;
    FabricRules fabric = {};  // Of the driver: FabricSettings::rules.
    Policy default_policy = Policy::kPack;
    AuditLimits audit = {};
    std::function<Uuid()> make_tag = nullptr;  // Of new Regions; null: random ones.
    // What becomes the row's value; null: EncodeItem.
    std::function<std::string(const Item&)> encode = nullptr;
  };
  struct Listener {
    // Records that changed in a commit, as they are now. On the executor.
    std::function<void(const std::vector<Change>&)> on_committed;
    // STORE_FULL: the store refused a commit. OK: it took the first one since. On the executor.
    std::function<void(const absl::Status&)> on_space = nullptr;
    // Another manager has the store, so far. On a thread of the store's.
    std::function<void(const StoreOwner&)> on_owner = nullptr;
    // The store cannot go on (fenced, lost, or an unknown outcome): the process must end and
    // reopen. Once.
    std::function<void(absl::Status)> on_fatal;
  };

  Writer(Options options, Executor* executor, Clock* clock, Store* store, ViewHolder* views,
         WatchHub* watch);

  // Opens the store and loads the state; then Submit may be called. While another manager has the
  // store, what it commits is taken into the state and shown to readers: little is left to do when
  // the turn comes. DATA_LOSS if the records do not make a sound pool.
  void Open(Listener listener, Done done);

  // Plans on the executor, commits, answers. `audit` says who and what (its time is filled in).
  // RESOURCE_EXHAUSTED/QUEUE_FULL: nothing was done. RESOURCE_EXHAUSTED/CHANGE_TOO_LARGE: it is
  // more than the store takes in one commit. RESOURCE_EXHAUSTED/STORE_FULL and
  // UNAVAILABLE/STORE_FAILED: nothing was changed that anybody will see.
  void Submit(Audit audit, PlanFn plan, DoneWith<Committed> done);

  // Plans `count` items one after the other, and answers all of them together once the last is
  // durable: each has an outcome of its own, as if submitted by itself. They are one commit where
  // the store takes that much, else several. `count` is at most Options.max_group.
  void SubmitBatch(Audit audit, size_t count, PlanItemFn plan, OutcomesDone done);

  // The state, with what is not durable yet: of a commit under way, and planned on it. On the
  // executor.
  const PoolState& state() const { return state_; }
  uint64_t revision() const { return revision_; }
  uint64_t epoch() const { return epoch_; }  // That it commits under, once Open has answered OK.
  // Whether other managers may want the store, once Open has answered OK.
  bool has_rivals() const { return has_rivals_; }

  // A Region as the last commit that succeeded left it; null: it is not there. On the executor.
  RegionPtr Durable(Key key) const;
  // Whether the record in state() is the durable one: nothing changes it that is under way or
  // planned. On the executor.
  bool IsDurable(Key key) const;

  // What the pool is made of, as the last commit that succeeded left it. On the executor.
  const TopologyTables& DurableTables() const { return laid_down_->tables; }

  // Devices of it that the fabric has never shown, and why, as SetReachable last said.
  const std::map<std::string, std::string>& UnseenDevices() const { return unseen_devices_; }

  // Any thread, for its Read.
  const AuditTrail& trail() const { return trail_; }

  // What is counted, here and by those who know the Writer. Any thread.
  Meters& meters() const { return meters_; }
  // Items not yet answered, and how many there may be. Any thread.
  size_t queued() const { return queued_.load(std::memory_order_relaxed); }
  size_t max_queue() const { return options_.max_queue; }

  // Whose fabric it plans for, and readers see. Before the first Submit; there may be commits of
  // others before that.
  void SetFabric(const FabricCapabilities& fabric);

  // Volatile knowledge; readers see it at once, or with the group that is under way or planned.
  void SetRuntime(const std::string& host, HostRuntime runtime);
  void SetRuntimes(std::vector<std::pair<std::string, HostRuntime>> of_hosts);  // In one view.
  // Of devices, why each cannot be reached; empty: it can. In one view. Devices without a record
  // are those that the fabric has never shown.
  void SetReachable(const std::map<std::string, std::string>& why_not);

 private:
  // A batch's outcomes, as the groups that its items are in come through.
  struct Batch {
    Outcomes outcomes;
    size_t unanswered = 0;
    OutcomesDone done;
  };
  struct Pending {
    Audit audit;
    PlanFn plan;  // Of one.
    DoneWith<Committed> done;
    PlanItemFn plan_item;  // Of a batch.
    std::shared_ptr<Batch> batch;
    size_t count = 1;
    size_t next = 0;  // The first item that is not planned yet.
  };
  // What one group has of a submission.
  struct Planned {
    Outcomes answers;
    // From this answer on: it, or one before it in the group, changed something, or is told of in
    // the trail.
    size_t first_dependent = 0;
    DoneWith<Committed> done;      // Of one.
    std::shared_ptr<Batch> batch;  // Or of a batch: `answers` are its items from `first_item` on.
    size_t first_item = 0;
  };

  // What is planned together and made durable in one commit.
  struct Group {
    std::vector<Planned> planned;
    size_t items = 0;  // How many were planned; the rest of a parted batch counts, too.
    std::vector<Change> changes;
    std::vector<Change> inverses;
    absl::flat_hash_map<Key, RegionPtr> undurable;  // What it changes, as it was before.
    absl::btree_map<Key, std::string> puts;  // Rows go to the store in order. Empty value: erase.
    size_t put_bytes = 0;                    // Of the values in `puts`.
    // What the last proposal that wants a commit, though it changes nothing, wants it for.
    std::optional<std::string> commits;
    std::vector<WatchEvent> events;
    uint64_t base_revision = 0;
    // Once it is closed:
    uint64_t revision = 0;
    absl::Time time;
    size_t audit_entries = 0;
    std::vector<std::pair<RegionPtr, RegionPtr>> steps;  // Regions that it changed: before, after.
  };

  // A group that is through; its changes are empty if it was undone.
  struct Finished {
    absl::Status status;
    std::vector<Planned> group;
    std::vector<Change> changes;
  };

  void Enqueue(std::unique_ptr<Pending> pending);
  bool GroupIsFull(size_t more) const;
  bool CommitIsFull() const;
  void TellWhetherFull(const absl::Status& committed);
  void Pump();
  void PlanQueue();
  void CommitGroup();
  void ForgetExpired();
  void CloseAudit();
  Planned Begin(Pending& pending);
  void PlanAll(Pending& pending);
  void SetTimes(Proposal& proposal);
  absl::StatusOr<Committed> PlanOne(Audit audit, absl::StatusOr<Proposal> proposal,
                                    uint64_t revision);
  void NoteDone(Audit audit, const Proposal& proposal, const Change& inverse, uint64_t revision);
  Finished FinishGroup(const absl::Status& status);
  void Undo(const Group& group);
  void Tell(Finished finished);
  void Answer(Planned planned, const absl::Status& status);
  absl::Status Load(StoreImage image);
  absl::Status Follow(StoreBatch batch);
  void TakeUp(const StoreImage& image);
  void Await(std::function<absl::Status()> task);
  void Fail(const absl::Status& why);
  void Beat(absl::Duration interval);
  uint64_t NextId();

  // What readers are shown: after each commit, after the load, and of what is not durable.
  void PrepareView(Group& group);
  void PublishGroup(Group& group);
  void PublishVolatile();
  void PublishLoaded(const Change& records);
  void Prepare();
  void Publish();
  void ForgetPrepared();
  void ReadInfos();
  void ReadNumbers();
  void NoteScarce();
  std::shared_ptr<const HostView> LookAtHost(const Host& host) const;

  const Options options_;
  const std::function<std::string(const Item&)> encode_;
  Executor* const executor_;
  Clock* const clock_;
  Store* const store_;
  ViewHolder* const views_;
  WatchHub* const watch_;
  Listener listener_;
  mutable Meters meters_;          // No part of what the Writer is.
  std::atomic<size_t> queued_{0};  // Items not yet answered.

  // Submissions not yet planned. While the store is busy nobody is woken for less than
  // Options.plan_ahead.
  Mutex inbox_mutex_;
  std::vector<std::unique_ptr<Pending>> inbox_ ABSL_GUARDED_BY(inbox_mutex_);
  size_t inbox_items_ ABSL_GUARDED_BY(inbox_mutex_) = 0;
  bool store_is_busy_ ABSL_GUARDED_BY(inbox_mutex_) = false;
  // Or nothing more is planned before the commit under way has ended.
  bool pump_posted_ ABSL_GUARDED_BY(inbox_mutex_) = false;

  // On the executor.
  PoolState state_;
  PlanContext context_;
  PoolMeta meta_;         // As on disk, or in the group's commit.
  uint64_t next_id_ = 0;  // Given out below meta_.next_id only.
  uint64_t epoch_ = 0;
  bool has_rivals_ = false;
  uint64_t revision_ = 0;
  StoreLimits limits_;         // Of the changes of one commit.
  size_t max_batch_rows_ = 0;  // Of a commit, with what the Writer adds by itself.
  bool failed_ = false;
  bool loaded_ = false;
  bool store_is_full_ = false;
  std::deque<std::unique_ptr<Pending>> queue_;

  // What readers are shown next: prepared from the state that they are to see, and handed over once
  // that is durable. Empty between; its room is used again.
  Publication publication_;
  std::set<std::string> stale_hosts_;  // Runtime changed since the last view.
  std::shared_ptr<const Topology> topology_ = std::make_shared<const Topology>();
  std::shared_ptr<const LaidDown> laid_down_ = std::make_shared<const LaidDown>();  // Durable.
  std::map<std::string, std::string> unseen_devices_;
  bool stale_laid_down_ = true;  // An entry of the topology changed since the last view.
  std::shared_ptr<const ScarceSince> scarce_since_ = std::make_shared<const ScarceSince>();
  bool stale_access_rules_ = true;  // A revocation or a binding changed since.
  bool stale_infos_ = true;         // What a device or a tenant is changed since.
  bool stale_numbers_ = true;       // A count of bytes changed since.
  std::shared_ptr<const std::vector<DeviceView>> device_infos_;
  std::vector<DeviceIndex> device_order_;
  std::shared_ptr<const std::vector<TenantView>> tenant_infos_;
  std::vector<Interned> tenant_order_;

  AuditTrail trail_;

  Group group_;                      // That is being planned.
  std::optional<Group> committing_;  // That the store is busy with: `group_` rests on it.
  size_t last_items_ = 0;            // Of the group before.
  // Set before the end of the commit is posted, so that planning beside it stops in time.
  std::atomic<bool> store_has_answered_{false};
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_SERVICE_WRITER_H_
