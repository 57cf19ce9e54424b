#include "fabric-manager/service/writer.h"

#include <algorithm>
#include <future>
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

// What the store takes in one commit, less what the Writer adds by itself: tombstones that expired,
// and the pool's own record.
StoreLimits LeftForChanges(StoreLimits limits) {
  limits.max_batch_rows -= std::min<size_t>(limits.max_batch_rows / 4, 4096);
  limits.max_batch_bytes -= std::min<size_t>(limits.max_batch_bytes / 4, 1 << 20);
  return limits;
}

// What the view is to have of the Regions, in the order in which it wants them.
void ListRegions(const Change& records, Publication& publication) {
  publication.regions.reserve(records.size());
  publication.tags.reserve(records.size());
  for (const Item& item : records) {
    const auto* region = std::get_if<RegionPtr>(&item);
    if (region == nullptr) continue;
    publication.regions.push_back({*region});
    publication.tags.emplace_back((*region)->tag, *region);
  }
  std::sort(publication.regions.begin(), publication.regions.end(),
            [](const auto& a, const auto& b) { return a.ComesBefore(b); });
}

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

void Writer::Open(Listener listener, Done done) {
  listener_ = std::move(listener);
  Done lost = [this](absl::Status why) {
    if (CXLPOOL_MUTANT("lost-store-goes-on")) return;
    executor_->Post([this, why = std::move(why)] { Fail(why); });
  };
  store_->Follow(
      {.on_owner = listener_.on_owner,
       .on_image = [this](StoreImage image) { Await([&] { return Load(std::move(image)); }); },
       .on_batch = [this](StoreBatch batch) { Await([&] { return Follow(std::move(batch)); }); }});
  store_->Open(
      std::move(lost), [this, done = std::move(done)](absl::StatusOr<StoreImage> image) mutable {
        executor_->Post([this, image = std::move(image), done = std::move(done)]() mutable {
          if (!image.ok()) return std::move(done)(image.status());
          has_rivals_ = image->beat_interval > absl::ZeroDuration();
          if (has_rivals_) Beat(image->beat_interval);
          const StoreImage bounds = {.epoch = image->epoch,
                                     .revision = image->revision,
                                     .limits = image->limits,
                                     .rows = {},
                                     .beat_interval = {}};
          absl::Status status = loaded_ ? absl::OkStatus() : Load(*std::move(image));
          if (status.ok()) TakeUp(bounds);
          std::move(done)(std::move(status));
        });
      });
}

// Runs `task` on the executor, and waits for it on the store's thread: so the store hands over no
// more than is taken. An executor that has been stopped drops it.
void Writer::Await(std::function<absl::Status()> task) {
  std::promise<absl::Status> done;
  std::future<absl::Status> future = done.get_future();
  executor_->Post([&task, done = std::move(done)]() mutable { done.set_value(task()); });
  future.wait();
  absl::Status status;
  try {
    status = future.get();
  } catch (const std::future_error&) {
    return;
  }
  if (!status.ok()) Fail(status);
}

// From here on nothing is durable any more, and nothing is planned.
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

// The store is ours, at the revision of the state.
void Writer::TakeUp(const StoreImage& image) {
  CXLPOOL_CHECK(image.revision == revision_, "the store is at revision ", image.revision,
                ", the state at ", revision_);
  limits_ = LeftForChanges(image.limits);
  max_batch_rows_ = image.limits.max_batch_rows;
  // A group is full once it has half of what there is (CommitIsFull): the other half, but for the
  // pool's own record, is there for whatever plan comes next.
  context_.max_items = std::max<size_t>(limits_.max_batch_rows / 2, 2) - 1;
  epoch_ = image.epoch;
  next_id_ = meta_.next_id;
  context_.hold_reason = meta_.hold_reason;
}

// Makes the state of what the store has. Records that do not make a sound pool are DATA_LOSS: going
// on with some of them might give bytes to two owners.
absl::Status Writer::Load(StoreImage image) {
  if (std::exchange(loaded_, true)) {
    return absl::UnavailableError(
        "another manager committed faster than this one followed: starting anew, to read all");
  }
  revision_ = image.revision;
  watch_->Reset(revision_);
  const absl::StatusOr<Change> decoded = DecodeAll(std::move(image.rows), meta_);
  if (!decoded.ok()) return decoded.status();
  const Change& records = *decoded;
  Publication publication;
  // Beside the indices where that is worth a thread, else in get().
  const auto launch = records.size() < kRecordsPerThread
                          ? std::launch::deferred
                          : std::launch::async | std::launch::deferred;
  std::future<void> listed = std::async(launch, [&] { ListRegions(records, publication); });
  const absl::Status status = state_.Restore(records);
  listed.get();
  if (!status.ok()) {
    return absl::DataLossError(
        absl::StrCat("the store's records do not make a sound pool: ", status.message(),
                     "; check and repair them, or restore a backup (docs/operations.md, Damage; "
                     "where they are in etcd, docs/replicated.md, Damage)"));
  }
  meters_.audit_chain_ok = trail_.Load(meta_.audit, records);
  PublishLoaded(records, publication);
  return absl::OkStatus();
}

// Takes in what another manager committed: many changes at once, of which only the last of each
// record is left. So bytes, names and hosts go over in three steps: what Regions had is given up,
// then what they are made of changes, then they have what they have now. A host whose identity goes
// over to another one is retired in between, so that no order of theirs gives it to two: two hosts
// may even have swapped. Watchers of that manager find here what came after the last that they saw.
absl::Status Writer::Follow(StoreBatch batch) {
  Change gone, made_of, regions;
  std::vector<AuditRowPtr> rows;
  for (const Row& row : batch.puts) {
    auto record = DecodeRecord(row.key, row.value);
    if (!record.ok()) return record.status();
    if (auto* meta = std::get_if<PoolMeta>(&*record)) {
      meta_ = std::move(*meta);
      continue;
    }
    Item& item = std::get<Item>(*record);
    if (const auto* audit = std::get_if<AuditRowPtr>(&item)) {
      rows.push_back(*audit);
      continue;
    }
    if (state_.IsRegion(row.key)) gone.push_back(Erased{row.key});
    const auto* host = std::get_if<Host>(&item);
    if (host != nullptr && !CXLPOOL_MUTANT("identity-goes-over-at-once")) {
      const Host* known = state_.FindHost(host->id);
      const bool lets_go = known != nullptr && !known->retired &&
                           (host->retired || host->identity != known->identity);
      if (lets_go) {
        gone.push_back(*known);
        std::get<Host>(gone.back()).retired = true;
      }
    }
    const auto* region = std::get_if<RegionPtr>(&item);
    const auto* tombstone = std::get_if<Tombstone>(&item);
    const bool is = region != nullptr || tombstone != nullptr;
    if (is) {
      const RegionPtr& now = region != nullptr ? *region : tombstone->region;
      if (now->revision > revision_) events_.push_back({now->revision, now, region == nullptr});
    }
    (is ? regions : made_of).push_back(std::move(item));
  }
  bool ends_known = true;  // Whether each Region that is gone has left a tombstone.
  for (const uint64_t key : batch.erases) {
    ends_known &= state_.FindRegion(key) == nullptr || CXLPOOL_MUTANT("followed-end-is-silent");
    if (state_.IsRegion(key)) {
      gone.push_back(Erased{key});
    } else if (state_.IsNamed(key)) {
      made_of.push_back(Erased{key});
    }
  }
  // What is replaced by another of its name goes first; of what comes, devices.
  const auto rank = [](const Item& item) {
    return std::holds_alternative<Erased>(item) ? 0 : std::holds_alternative<Device>(item) ? 1 : 2;
  };
  std::stable_sort(made_of.begin(), made_of.end(),
                   [&](const Item& a, const Item& b) { return rank(a) < rank(b); });
  std::sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a->key < b->key; });
  for (Change* change : {&gone, &made_of, &regions}) {
    auto inverse = state_.Apply(*change);
    if (!inverse.ok()) {
      return absl::InternalError(absl::StrCat("revision ", batch.revision,
                                              " cannot be followed: ", inverse.status().message()));
    }
    changes_.push_back(std::move(*change));
    inverses_.push_back(*std::move(inverse));
  }
  // It has to have every row, whatever is wrong with one of before: it may go on from the last.
  const bool sound = (!meters_.audit_chain_ok && CXLPOOL_MUTANT("flawed-trail-is-not-followed")) ||
                     trail_.Follow(meta_.audit, rows, batch.erases);
  meters_.audit_chain_ok = meters_.audit_chain_ok && sound;
  revision_ = batch.revision;
  PublishView();
  std::sort(events_.begin(), events_.end(),
            [](const auto& a, const auto& b) { return a.revision < b.revision; });
  if (ends_known) {
    watch_->Publish(std::move(events_));
    watch_->Advance(revision_);
  } else {  // Watchers cannot be told how it ended: they have to begin anew.
    watch_->Reset(revision_);
  }
  changes_.clear();
  inverses_.clear();
  events_.clear();
  return absl::OkStatus();
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
    inbox_.push_back(std::move(pending));
    if (pump_posted_) return;
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
    puts_[kPoolKey] = EncodePool(meta_);
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
    if (!changes_.empty() || group_commits_.has_value() || has_entry) {
      planned.first_dependent = std::min(planned.first_dependent, answered);
    }
  }
  group_.push_back(std::move(planned));
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
    puts_[kPoolKey] = EncodePool(meta_);
    group_commits_ = audit.action;
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
  size_t bytes = put_bytes_;
  bool too_large = puts_.size() + proposal->change.size() > limits_.max_batch_rows;
  for (const Item& item : proposal->change) {
    values.push_back(std::holds_alternative<Erased>(item) ? std::string() : encode_(item));
    bytes += values.back().size();
    too_large |= values.back().size() > limits_.max_row_bytes;
  }
  if ((too_large || bytes > limits_.max_batch_bytes) && !CXLPOOL_MUTANT("group-without-bound")) {
    return ChangeTooLarge(puts_.size() + proposal->change.size(), bytes, limits_);
  }
  auto inverse = state_.Apply(proposal->change);
  if (!inverse.ok()) {
    LogError("writer", "refused a plan of ", audit.action, ": ", inverse.status().message());
    return inverse.status();
  }
  revision_ = committed.revision = revision;
  for (size_t i = 0; i < proposal->change.size(); ++i) {
    const Item& item = proposal->change[i];
    std::string& put = puts_[KeyOf(item)];
    put_bytes_ -= put.size();
    put = std::move(values[i]);
    put_bytes_ += put.size();
    if (const auto* region = std::get_if<RegionPtr>(&item)) {
      // A Region that keeps its revision did not change: it only remembers one more request.
      if ((*region)->revision == revision) events_.push_back({revision, *region, false});
    } else if (const auto* gone = std::get_if<Tombstone>(&item);
               gone != nullptr && !CXLPOOL_MUTANT("watch-loses-an-event")) {
      events_.push_back({revision, gone->region, true});
    }
  }
  for (const Item& item : *inverse) {
    const auto* before = std::get_if<RegionPtr>(&item);
    undurable_.try_emplace(KeyOf(item), before == nullptr ? nullptr : *before);
  }
  NoteDone(std::move(audit), *proposal, *inverse, revision);
  changes_.push_back(std::move(proposal->change));
  inverses_.push_back(*std::move(inverse));
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
  return puts_.size() > limits_.max_batch_rows / 2 || put_bytes_ > limits_.max_batch_bytes / 2 ||
         trail_.row_bytes() > limits_.max_row_bytes / 2;
}

// Whether `more` items are to wait for the next commit. A batch is not begun where it is sure to be
// parted.
bool Writer::GroupIsFull(size_t planned, size_t more) const {
  return planned + more > options_.max_group || CommitIsFull();
}

// A store that is full refuses every change for as long as it is.
void Writer::TellWhetherFull(const absl::Status& committed) {
  const bool full = ReasonOf(committed) == "STORE_FULL";
  if (!full && (!committed.ok() || !store_is_full_)) return;
  store_is_full_ = full;
  if (listener_.on_space != nullptr) listener_.on_space(committed);
}

// Runs while pump_posted_ is set, which keeps everybody else from posting another.
void Writer::Pump() {
  if (committing_) return;
  {
    MutexLock lock(inbox_mutex_);
    for (auto& pending : inbox_) queue_.push_back(std::move(pending));
    inbox_.clear();
    if (queue_.empty()) {
      pump_posted_ = false;
      return;
    }
  }
  base_revision_ = revision_;
  context_.now = clock_->Now();
  for (size_t planned = 0; !queue_.empty();) {
    const size_t more = queue_.front()->count - queue_.front()->next;
    if (planned > 0 && GroupIsFull(planned, more)) break;
    std::unique_ptr<Pending> pending = std::move(queue_.front());
    queue_.pop_front();
    planned += more;
    if (failed_) {
      Planned closed = Begin(*pending);
      closed.answers = Outcomes(more, StoreFailed(absl::UnavailableError("the store is closed")));
      Answer(std::move(closed), absl::OkStatus());
      continue;
    }
    PlanAll(*pending);
    if (pending->next == pending->count) continue;
    // The rest of a batch. It keeps its place: what was asked for later comes later.
    queue_.push_front(std::move(pending));
    break;
  }
  if (changes_.empty() && puts_.empty() && trail_.row_bytes() == 0) {
    Tell(FinishGroup(absl::OkStatus()));
    executor_->Post([this] { Pump(); });
    return;
  }
  // Only ids, or refusals: still a commit of its own revision.
  if (revision_ == base_revision_) {
    ++revision_;
    // It says so, or nobody could tell its revision from that of a change without a record.
    if (trail_.row_bytes() == 0 && !CXLPOOL_MUTANT("commits-of-nothing-have-no-row")) {
      trail_.Note({.time = context_.now,
                   .who = "manager",
                   .method = group_commits_.value_or("reserve-ids"),
                   .revision = revision_});
    }
  }
  ForgetExpired();
  CloseAudit();
  StoreBatch batch{.epoch = epoch_,
                   .base_revision = base_revision_,
                   .revision = revision_,
                   .puts = {},
                   .erases = {}};
  for (auto& [key, value] : puts_) {
    if (value.empty()) {
      batch.erases.push_back(key);
    } else {
      batch.puts.push_back({key, std::move(value)});
    }
  }
  CXLPOOL_CHECK(revision_ > base_revision_, "a commit of revision ", revision_, " on revision ",
                base_revision_, " would be none");
  committing_ = true;
  // A lone caller's answer is worth no other thread's waking; many answers are.
  const bool lone = group_.size() <= kLoneCallers;
  if (CXLPOOL_MUTANT("ack-before-commit")) Tell({absl::OkStatus(), std::exchange(group_, {}), {}});
  if (CXLPOOL_MUTANT("publish-before-commit")) PublishGroup();
  if (CXLPOOL_MUTANT("act-before-commit")) listener_.on_committed(changes_);
  meters_.commit_group_size.Observe(static_cast<double>(group_.size()));
  const absl::Duration began = clock_->Elapsed();
  store_->Commit(std::move(batch), [this, lone, began](absl::Status status) {
    meters_.commit_duration.Observe(clock_->Elapsed() - began);
    if (!status.ok()) meters_.commit_failures.Add();
    Task finish = [this, status = std::move(status)] {
      CXLPOOL_CHECK(committing_, "the store answered one commit twice");
      committing_ = false;
      TellWhetherFull(status);
      Finished finished = FinishGroup(status);
      Pump();  // The next group is made durable while this one is answered.
      Tell(std::move(finished));
      views_->CatchUp();
    };
    lone ? executor_->RunOrPost(std::move(finish)) : executor_->Post(std::move(finish));
  });
}

// Erases tombstones that have been kept long enough: more than this group can have buried, so that
// they never pile up; but no more than there is room for beside the pool's own record and the audit
// row.
void Writer::ForgetExpired() {
  const size_t room = max_batch_rows_ - std::min(max_batch_rows_, puts_.size() + 2);
  const Change expired = state_.ExpiredTombstones(
      clock_->Now(), std::min(room, kTombstonesPerCommit + changes_.size()));
  if (expired.empty()) return;
  auto inverse = state_.Apply(expired);
  if (!inverse.ok()) return;
  for (const Item& item : expired) puts_[KeyOf(item)].clear();
  changes_.push_back(expired);
  inverses_.push_back(*std::move(inverse));
}

// The group's row, and with it where the trail now ends, into the same commit.
void Writer::CloseAudit() {
  const size_t room = max_batch_rows_ - std::min(max_batch_rows_, puts_.size() + 2);
  const AuditTrail::Step step = trail_.Close(context_.next_id, room);
  if (step.row == nullptr) return;
  if (!CXLPOOL_MUTANT("audit-row-outside-transaction")) {
    puts_[step.row->key] = EncodeItem(step.row);
  }
  for (const Key key : step.dropped) puts_[key].clear();
  meta_.audit = step.bounds;
  puts_[kPoolKey] = EncodePool(meta_);
}

// Takes the group off the writer: applied and published, or undone.
Writer::Finished Writer::FinishGroup(const absl::Status& status) {
  CXLPOOL_CHECK(changes_.size() == inverses_.size(), "a group of ", changes_.size(),
                " changes has ", inverses_.size(), " ways back");
  if (!CXLPOOL_MUTANT("apply-failed-commit") && !status.ok()) {
    for (auto inverse = inverses_.rbegin(); inverse != inverses_.rend(); ++inverse) {
      const auto undone = state_.Apply(*inverse);
      if (undone.ok()) continue;
      // The state is ahead of the store: begin again from what is durable.
      Fail(undone.status());
    }
    // Ids of the failed group stay given out; the next group writes the bound again.
    revision_ = base_revision_;
    meta_.next_id = next_id_;
    meta_.audit = trail_.Finish(false);
    changes_.clear();
    PublishView();
    // A refusal that changed nothing is the caller's to hear, and no reason to end.
    if (!ChangedNothing(status) || CXLPOOL_MUTANT("refused-batch-is-fatal")) {
      Fail(status);
    }
  } else {
    CountGroup();
    meters_.audit_entries.Add(trail_.entries());
    meta_.audit = trail_.Finish(true);
    // Before the view: a watcher that begins at a revision of a view finds it known.
    watch_->Advance(revision_);
    if (!changes_.empty()) {
      PublishGroup();
    } else if (!stale_hosts_.empty() || stale_infos_ || stale_laid_down_) {
      PublishView();
    }
  }
  Finished finished{status, std::move(group_), std::move(changes_)};
  group_.clear();
  changes_.clear();
  inverses_.clear();
  undurable_.clear();
  puts_.clear();
  group_commits_.reset();
  put_bytes_ = 0;
  events_.clear();
  return finished;
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

RegionPtr Writer::Durable(Key key) const {
  const auto before = undurable_.find(key);
  const bool planned = CXLPOOL_MUTANT("act-before-commit") || before == undurable_.end();
  if (!planned) return before->second;
  const RegionPtr* now = state_.FindRegion(key);
  return now == nullptr ? nullptr : *now;
}

}  // namespace cxlpool::fm
