#include "fabric-manager/service/writer.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "proto/support/check.h"
#include "proto/support/log.h"
#include "proto/support/mutant.h"
#include "proto/support/names.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

// How many ids one pool record makes available: a commit of it once in so many.
constexpr uint64_t kIdBlock = 4096;
constexpr size_t kTombstonesPerCommit = 64;
constexpr size_t kLoneCallers = 2;

// A store that refused a batch without changing anything goes on; see ports/store.h.
bool ChangedNothing(const absl::Status& status) {
  return absl::IsResourceExhausted(status) || absl::IsInvalidArgument(status);
}

absl::Status ChangeTooLarge(size_t rows, size_t bytes, const StoreLimits& limits) {
  return Refusal{
      .code = absl::StatusCode::kResourceExhausted,
      .reason = "CHANGE_TOO_LARGE",
      .message = absl::StrCat("the change is more than the store takes at once: with what "
                              "it is a part of, ",
                              rows, " records of ", bytes, " bytes; at most ",
                              limits.max_batch_rows, " of ", limits.max_batch_bytes),
      .remedy = "ask for it in smaller parts",
      .metadata = {}}
      .ToStatus();
}

absl::Status QueueFull(size_t limit) {
  return Refuse(absl::StatusCode::kResourceExhausted, "QUEUE_FULL",
                absl::StrCat("the manager has ", limit, " requests waiting already"),
                "retry later with the same request_id");
}

absl::Status StoreFailed(const absl::Status& why) {
  if (ChangedNothing(why)) return why;
  return Refuse(absl::StatusCode::kUnavailable, "STORE_FAILED",
                absl::StrCat("the change could not be made durable: ", why.message()),
                "retry with the same request_id");
}

}  // namespace

Proposal Proposal::Of(Item item, RegionPtr region) {
  Proposal proposal;
  proposal.change.push_back(std::move(item));
  proposal.region = std::move(region);
  return proposal;
}

Writer::Writer(Options options, Executor* executor, Clock* clock, Store* store, ViewHolder* views,
               WatchHub* watch)
    : options_(std::move(options)),
      encode_(options_.encode ? options_.encode : EncodeItem),
      executor_(executor),
      clock_(clock),
      store_(store),
      views_(views),
      watch_(watch),
      trail_(options_.audit) {
  context_.next_id = [this] { return NextId(); };
  context_.make_tag = options_.make_tag;
  if (!context_.make_tag) context_.make_tag = [] { return Uuid(RandomUuid()); };
  context_.fabric = options_.fabric;
  context_.default_policy = options_.default_policy;
}

void Writer::SetFabric(const FabricCapabilities& fabric) {
  context_.shares_slices = fabric.shares_slices;
  context_.isolates = fabric.isolates;
  context_.enforces_read_only = fabric.enforces_read_only;
  state_.SetLimits({.extent_granule_bytes = fabric.extent_granule_bytes,
                    .max_lds_per_device = fabric.max_lds_per_device});
  views_->SetFabric(fabric);
}

// From here on the store takes nothing any more, and nothing is planned.
void Writer::Fail(const absl::Status& why) {
  if (std::exchange(failed_, true)) return;
  listener_.on_fatal(why);
}

// From the thread that does the manager's work: one that hangs is to give no sign of life.
void Writer::Beat(absl::Duration interval) {
  if (failed_) return;
  store_->Beat();
  executor_->PostAfter(interval, [this, interval] { Beat(interval); });
}

void Writer::Submit(Audit audit, PlanFn plan, DoneWith<Committed> done) {
  if (queued_.fetch_add(1) >= options_.max_queue) {
    queued_.fetch_sub(1);
    std::move(done)(QueueFull(options_.max_queue));
    return;
  }
  auto pending = std::make_unique<Pending>();
  pending->audit = std::move(audit);
  pending->plan = std::move(plan);
  pending->done = std::move(done);
  Enqueue(std::move(pending));
}

void Writer::SubmitBatch(Audit audit, size_t count, PlanItemFn plan, OutcomesDone done) {
  if (queued_.fetch_add(count) + count > options_.max_queue) {
    queued_.fetch_sub(count);
    std::move(done)(Outcomes(count, QueueFull(options_.max_queue)));
    return;
  }
  CXLPOOL_CHECK(count <= options_.max_group, "a batch of ", count,
                " items is no group: it would wait for ever");
  auto pending = std::make_unique<Pending>();
  pending->audit = std::move(audit);
  pending->count = count;
  pending->plan_item = std::move(plan);
  pending->batch = std::make_shared<Batch>();
  pending->batch->outcomes.resize(count, absl::UnknownError("not planned"));
  pending->batch->unanswered = count;
  pending->batch->done = std::move(done);
  Enqueue(std::move(pending));
}

void Writer::Enqueue(std::unique_ptr<Pending> pending) {
  {
    MutexLock lock(inbox_mutex_);
    inbox_items_ += pending->count - pending->next;
    inbox_.push_back(std::move(pending));
    if (pump_posted_ || (store_is_busy_ && inbox_items_ < options_.plan_ahead)) return;
    pump_posted_ = true;
  }
  // Who comes meanwhile joins the next group.
  executor_->RunOrPost([this] { Pump(); });
}

// Where a pool was put back, what is held as a stray has ids that are given out later. They are
// left out: as anybody else's generation or serial they would be refused.
uint64_t Writer::NextId() {
  const auto taken = [this](uint64_t id) {
    return state_.KnowsGeneration(id) || state_.FindRegionBySerial(kSerialBase | id) != nullptr;
  };
  while (taken(next_id_) && !CXLPOOL_MUTANT("ids-of-strays-are-given-out")) ++next_id_;
  if (!CXLPOOL_MUTANT("ids-not-durable") && next_id_ >= meta_.next_id) {
    meta_.next_id = next_id_ + kIdBlock;
    group_.puts[kPoolKey] = EncodePool(meta_);
  }
  return next_id_++;
}

// What the group under way is to have of the submission: nothing yet.
Writer::Planned Writer::Begin(Pending& pending) {
  Planned planned;
  planned.done = std::move(pending.done);
  planned.batch = pending.batch;
  planned.first_item = pending.next;
  return planned;
}

// Plans what the submission still has, one item after the other, into the group under way. Of a
// batch, what the store would not take in this commit stays for the next: `pending.next` says where
// to go on.
void Writer::PlanAll(Pending& pending) {
  pending.audit.time = context_.now;
  Planned planned = Begin(pending);
  planned.answers.reserve(pending.count - pending.next);
  planned.first_dependent = SIZE_MAX;
  for (; pending.next < pending.count; ++pending.next) {
    const size_t answered = planned.answers.size();
    const size_t noted_bytes = trail_.row_bytes();
    if (answered > 0 && CommitIsFull() && !CXLPOOL_MUTANT("batch-in-one-commit")) break;
    const uint64_t revision = context_.revision = revision_ + 1;
    absl::StatusOr<Proposal> proposal = pending.plan
                                            ? std::move(pending.plan)(state_, context_)
                                            : pending.plan_item(pending.next, state_, context_);
    Audit audit = pending.batch != nullptr ? pending.audit : std::move(pending.audit);
    planned.answers.push_back(PlanOne(std::move(audit), std::move(proposal), revision));
    // What only the trail tells rests on the commit, too.
    const bool has_entry =
        trail_.row_bytes() != noted_bytes && !CXLPOOL_MUTANT("done-without-its-entry");
    if (!group_.changes.empty() || group_.commits.has_value() || has_entry) {
      planned.first_dependent = std::min(planned.first_dependent, answered);
    }
  }
  group_.planned.push_back(std::move(planned));
}

// Notes at each Region that changes since when it is in its state.
void Writer::SetTimes(Proposal& proposal) {
  for (Item& item : proposal.change) {
    auto* region = std::get_if<RegionPtr>(&item);
    if (region == nullptr) continue;
    const RegionPtr* before = state_.FindRegion((*region)->key);
    RegionPtr timed = WithTimes(*region, before == nullptr ? nullptr : before->get(), context_.now);
    if (proposal.region == *region) proposal.region = timed;
    *region = std::move(timed);
  }
}

// Judges one proposal and, where it can be made, applies it to the state and puts its records into
// the commit under way. A proposal that is refused has changed nothing.
absl::StatusOr<Committed> Writer::PlanOne(Audit audit, absl::StatusOr<Proposal> proposal,
                                          uint64_t revision) {
  if (!proposal.ok()) return proposal.status();
  SetTimes(*proposal);
  Committed committed{std::move(proposal->region), revision_, std::move(proposal->bridges)};
  for (AuditEntry& refusal : proposal->refusals) {
    refusal.time = audit.time;
    refusal.revision = revision_;
    trail_.Note(std::move(refusal));
  }
  if (proposal->commits) {
    group_.puts[kPoolKey] = EncodePool(meta_);
    group_.commits = audit.action;
  }
  if (proposal->change.empty()) {
    // What was done outside the records is told all the same, at a revision of its own as any
    // change.
    const bool former = CXLPOOL_MUTANT("fence-is-told-at-a-former-revision");
    const size_t noted = trail_.entries();
    NoteDone(std::move(audit), *proposal, /*inverse=*/{}, former ? revision_ : revision);
    if (trail_.entries() > noted && !former) revision_ = committed.revision = revision;
    return committed;
  }
  absl::InlinedVector<std::string, 2> values;
  size_t bytes = group_.put_bytes;
  bool too_large = group_.puts.size() + proposal->change.size() > limits_.max_batch_rows;
  for (const Item& item : proposal->change) {
    values.push_back(std::holds_alternative<Erased>(item) ? std::string() : encode_(item));
    bytes += values.back().size();
    too_large |= values.back().size() > limits_.max_row_bytes;
  }
  if ((too_large || bytes > limits_.max_batch_bytes) && !CXLPOOL_MUTANT("group-without-bound")) {
    return ChangeTooLarge(group_.puts.size() + proposal->change.size(), bytes, limits_);
  }
  auto inverse = state_.Apply(proposal->change);
  if (!inverse.ok()) {
    LogError("writer", "refused a plan of ", audit.action, ": ", inverse.status().message());
    return inverse.status();
  }
  revision_ = committed.revision = revision;
  for (size_t i = 0; i < proposal->change.size(); ++i) {
    const Item& item = proposal->change[i];
    std::string& put = group_.puts[KeyOf(item)];
    group_.put_bytes -= put.size();
    put = std::move(values[i]);
    group_.put_bytes += put.size();
    if (const auto* region = std::get_if<RegionPtr>(&item)) {
      // A Region that keeps its revision did not change: it only remembers one more request.
      if ((*region)->revision == revision) group_.events.push_back({revision, *region, false});
    } else if (const auto* gone = std::get_if<Tombstone>(&item);
               gone != nullptr && !CXLPOOL_MUTANT("watch-loses-an-event")) {
      group_.events.push_back({revision, gone->region, true});
    }
  }
  for (const Item& item : *inverse) {
    const auto* before = std::get_if<RegionPtr>(&item);
    group_.undurable.try_emplace(KeyOf(item), before == nullptr ? nullptr : *before);
  }
  NoteDone(std::move(audit), *proposal, *inverse, revision);
  group_.changes.push_back(std::move(proposal->change));
  group_.inverses.push_back(*std::move(inverse));
  return committed;
}

// Puts what a proposal did into the trail.
void Writer::NoteDone(Audit audit, const Proposal& proposal, const Change& inverse,
                      uint64_t revision) {
  for (AuditEntry& entry : EntriesOf(std::move(audit), proposal.change, inverse, revision)) {
    if (!proposal.request_id.empty()) entry.request_id = proposal.request_id;
    trail_.Note(std::move(entry));
  }
}

// Whether what comes next has to wait for the next commit. The other half of what the store takes
// is left to the one that was let in last, which is as much as any plan may have
// (PlanContext::max_items).
bool Writer::CommitIsFull() const {
  return group_.puts.size() > limits_.max_batch_rows / 2 ||
         group_.put_bytes > limits_.max_batch_bytes / 2 ||
         trail_.row_bytes() > limits_.max_row_bytes / 2;
}

// Whether `more` items are to wait for the next commit. A batch is not begun where it is sure to be
// parted.
bool Writer::GroupIsFull(size_t more) const {
  return group_.items + more > options_.max_group || CommitIsFull();
}

// A store that is full refuses every change for as long as it is.
void Writer::TellWhetherFull(const absl::Status& committed) {
  const bool full = ReasonOf(committed) == "STORE_FULL";
  if (!full && (!committed.ok() || !store_is_full_)) return;
  store_is_full_ = full;
  if (listener_.on_space != nullptr) listener_.on_space(committed);
}

// Plans what waits, and makes it durable unless the store is busy. Runs while pump_posted_ is set,
// which keeps everybody else from posting another. One that was posted may come late: the end of
// the commit went first, and did its work.
void Writer::Pump() {
  {
    MutexLock lock(inbox_mutex_);
    const bool waits = committing_.has_value() && inbox_items_ < options_.plan_ahead;
    if (queue_.empty() && (waits || (inbox_.empty() && group_.planned.empty()))) {
      pump_posted_ = false;
      return;
    }
    for (auto& pending : inbox_) queue_.push_back(std::move(pending));
    inbox_.clear();
    inbox_items_ = 0;
  }
  PlanQueue();
  if (committing_.has_value()) {
    {
      MutexLock lock(inbox_mutex_);
      const bool is_full = !queue_.empty();  // What is left of it is for after the commit.
      pump_posted_ = is_full || inbox_items_ >= options_.plan_ahead;
      if (is_full || !pump_posted_) return;
    }
    executor_->Post([this] { Pump(); });
    return;
  }
  if (group_.changes.empty() && group_.puts.empty() && trail_.row_bytes() == 0) {
    Tell({absl::OkStatus(), std::exchange(group_, {}).planned, {}});
    PublishVolatile();
    executor_->Post([this] { Pump(); });
    return;
  }
  CommitGroup();
  {
    MutexLock lock(inbox_mutex_);
    store_is_busy_ = true;
    pump_posted_ = !queue_.empty() || inbox_items_ >= options_.plan_ahead;
    if (!pump_posted_) return;
  }
  executor_->Post([this] { Pump(); });
}

// Plans what is queued into the group, until that is full. A group that was begun while the store
// was busy also ends once the store is free, or the store would wait; but not before it has half
// as much as the group before it, or groups would become ever smaller.
void Writer::PlanQueue() {
  const bool ahead = committing_.has_value() || !group_.planned.empty();
  const auto is_due = [&] {
    const bool waits = committing_.has_value() && !store_has_answered_;
    return ahead && !waits && group_.items >= last_items_ / 2;
  };
  if (group_.planned.empty()) group_.base_revision = revision_;
  context_.now = clock_->Now();
  while (!queue_.empty()) {
    const size_t more = queue_.front()->count - queue_.front()->next;
    if (group_.items > 0 && (GroupIsFull(more) || is_due())) break;
    std::unique_ptr<Pending> pending = std::move(queue_.front());
    queue_.pop_front();
    if (failed_) {
      Planned closed = Begin(*pending);
      closed.answers = Outcomes(more, StoreFailed(absl::UnavailableError("the store is closed")));
      Answer(std::move(closed), absl::OkStatus());
      continue;
    }
    group_.items += more;
    PlanAll(*pending);
    if (pending->next == pending->count) continue;
    // The rest of a batch. It keeps its place: what was asked for later comes later.
    queue_.push_front(std::move(pending));
    break;
  }
}

// Hands the group to the store. What readers are to see of it is prepared while the store works,
// and before another group changes the state.
void Writer::CommitGroup() {
  // Only ids, or refusals: still a commit of its own revision.
  if (revision_ == group_.base_revision) {
    ++revision_;
    // It says so, or nobody could tell its revision from that of a change without a record.
    if (trail_.row_bytes() == 0 && !CXLPOOL_MUTANT("commits-of-nothing-have-no-row")) {
      trail_.Note({.time = context_.now,
                   .who = "manager",
                   .method = group_.commits.value_or("reserve-ids"),
                   .revision = revision_});
    }
  }
  ForgetExpired();
  CloseAudit();
  StoreBatch batch{.epoch = epoch_,
                   .base_revision = group_.base_revision,
                   .revision = revision_,
                   .puts = {},
                   .erases = {}};
  for (auto& [key, value] : group_.puts) {
    if (value.empty()) {
      batch.erases.push_back(key);
    } else {
      batch.puts.push_back({key, std::move(value)});
    }
  }
  CXLPOOL_CHECK(revision_ > group_.base_revision, "a commit of revision ", revision_,
                " on revision ", group_.base_revision, " would be none");
  group_.revision = revision_;
  group_.time = context_.now;
  last_items_ = group_.items;
  committing_ = std::exchange(group_, {});
  Group& group = *committing_;
  store_has_answered_ = false;
  // A lone caller's answer is worth no other thread's waking; many answers are.
  const bool lone = group.planned.size() <= kLoneCallers;
  meters_.commit_group_size.Observe(static_cast<double>(group.planned.size()));
  if (CXLPOOL_MUTANT("ack-before-commit")) {
    Tell({absl::OkStatus(), std::exchange(group.planned, {}), {}});
  }
  if (CXLPOOL_MUTANT("publish-before-commit")) {
    PrepareView(group);
    PublishGroup(group);
  }
  if (CXLPOOL_MUTANT("act-before-commit")) listener_.on_committed(group.changes);
  const absl::Duration began = clock_->Elapsed();
  store_->Commit(std::move(batch), [this, lone, began](absl::Status status) {
    meters_.commit_duration.Observe(clock_->Elapsed() - began);
    if (!status.ok()) meters_.commit_failures.Add();
    store_has_answered_ = true;
    Task finish = [this, status = std::move(status)] {
      CXLPOOL_CHECK(committing_.has_value(), "the store answered one commit twice");
      TellWhetherFull(status);
      Finished finished = FinishGroup(status);
      {
        MutexLock lock(inbox_mutex_);
        store_is_busy_ = false;
        pump_posted_ = true;
      }
      Pump();  // The next group is made durable while this one is answered.
      Tell(std::move(finished));
      views_->CatchUp();
    };
    lone ? executor_->RunOrPost(std::move(finish)) : executor_->Post(std::move(finish));
  });
  if (!CXLPOOL_MUTANT("planned-beside-is-shown")) PrepareView(group);
}

// Erases tombstones that have been kept long enough: more than this group can have buried, so that
// they never pile up; but no more than there is room for beside the pool's own record and the audit
// row.
void Writer::ForgetExpired() {
  const size_t room = max_batch_rows_ - std::min(max_batch_rows_, group_.puts.size() + 2);
  const Change expired = state_.ExpiredTombstones(
      clock_->Now(), std::min(room, kTombstonesPerCommit + group_.changes.size()));
  if (expired.empty()) return;
  auto inverse = state_.Apply(expired);
  if (!inverse.ok()) return;
  for (const Item& item : expired) group_.puts[KeyOf(item)].clear();
  group_.changes.push_back(expired);
  group_.inverses.push_back(*std::move(inverse));
}

// The group's row, and with it where the trail now ends, into the same commit.
void Writer::CloseAudit() {
  const size_t room = max_batch_rows_ - std::min(max_batch_rows_, group_.puts.size() + 2);
  const AuditTrail::Step step = trail_.Close(context_.next_id, room);
  if (step.row == nullptr) return;
  if (!CXLPOOL_MUTANT("audit-row-outside-transaction")) {
    group_.puts[step.row->key] = EncodeItem(step.row);
  }
  for (const Key key : step.dropped) group_.puts[key].clear();
  group_.audit_entries = step.entries;
  meta_.audit = step.bounds;
  group_.puts[kPoolKey] = EncodePool(meta_);
}

// Takes the group off the writer that the store was busy with: published, or undone. What was
// planned meanwhile rests on it, and shares its failure.
Writer::Finished Writer::FinishGroup(const absl::Status& status) {
  Group group = *std::exchange(committing_, std::nullopt);
  if (status.ok() || CXLPOOL_MUTANT("apply-failed-commit")) {
    meters_.audit_entries.Add(group.audit_entries);
    meta_.audit = trail_.Finish(true);
    // Before the view: a watcher that begins at a revision of a view finds it known.
    watch_->Advance(group.revision);
    if (CXLPOOL_MUTANT("planned-beside-is-shown")) PrepareView(group);
    PublishGroup(group);
    PublishVolatile();
    return {status, std::move(group.planned), std::move(group.changes)};
  }
  if (!CXLPOOL_MUTANT("planned-beside-stays")) {
    Undo(group_);
    for (Planned& planned : group_.planned) {
      planned.first_dependent = 0;
      group.planned.push_back(std::move(planned));
    }
    group_ = {};
  }
  Undo(group);
  // Ids of the failed group stay given out; the next group writes the bound again.
  revision_ = group.base_revision;
  meta_.next_id = next_id_;
  meta_.audit = trail_.Finish(false);
  ForgetPrepared();
  PublishVolatile();
  // A refusal that changed nothing is the caller's to hear, and no reason to end.
  if (!ChangedNothing(status) || CXLPOOL_MUTANT("refused-batch-is-fatal")) Fail(status);
  return {status, std::move(group.planned), {}};
}

void Writer::Undo(const Group& group) {
  CXLPOOL_CHECK(group.changes.size() == group.inverses.size(), "a group of ", group.changes.size(),
                " changes has ", group.inverses.size(), " ways back");
  for (auto inverse = group.inverses.rbegin(); inverse != group.inverses.rend(); ++inverse) {
    const auto undone = state_.Apply(*inverse);
    if (undone.ok()) continue;
    // The state is ahead of the store: begin again from what is durable.
    Fail(undone.status());
  }
}

void Writer::Tell(Finished finished) {
  for (Planned& planned : finished.group) Answer(std::move(planned), finished.status);
  if (!finished.changes.empty()) listener_.on_committed(finished.changes);
}

// Answers what the group had of a submission. A refusal that rests on a change which was not made
// durable becomes the error of the commit. A batch is answered once no item of it is left.
void Writer::Answer(Planned planned, const absl::Status& status) {
  queued_.fetch_sub(planned.answers.size());
  const bool failed = !status.ok() && !CXLPOOL_MUTANT("ack-failed-commit");
  for (size_t i = planned.first_dependent; failed && i < planned.answers.size(); ++i) {
    planned.answers[i] = StoreFailed(status);
  }
  if (planned.batch == nullptr) return std::move(planned.done)(std::move(planned.answers.front()));
  Batch& batch = *planned.batch;
  std::move(planned.answers.begin(), planned.answers.end(),
            batch.outcomes.begin() + static_cast<std::ptrdiff_t>(planned.first_item));
  CXLPOOL_CHECK(batch.unanswered >= planned.answers.size(), "an item was answered twice");
  batch.unanswered -= planned.answers.size();
  if (batch.unanswered == 0) std::move(batch.done)(std::move(batch.outcomes));
}

bool Writer::IsDurable(Key key) const {
  return !group_.undurable.contains(key) &&
         !(committing_.has_value() && committing_->undurable.contains(key));
}

RegionPtr Writer::Durable(Key key) const {
  const auto before = [&](const Group& group) -> const RegionPtr* {
    const auto found = group.undurable.find(key);
    return found == group.undurable.end() ? nullptr : &found->second;
  };
  const RegionPtr* durable = nullptr;
  if (committing_.has_value() && !CXLPOOL_MUTANT("planned-on-counts-as-durable")) {
    durable = before(*committing_);
  }
  if (durable == nullptr) durable = before(group_);
  if (durable == nullptr || CXLPOOL_MUTANT("act-before-commit")) durable = state_.FindRegion(key);
  return durable == nullptr ? nullptr : *durable;
}

}  // namespace cxlpool::fm
