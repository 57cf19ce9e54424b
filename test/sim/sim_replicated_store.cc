#include "test/sim/sim_replicated_store.h"

#include <algorithm>
#include <utility>

#include "fabric-manager/ports/store_guard.h"
#include "proto/support/mutant.h"
#include "proto/support/refusal.h"

namespace cxlpool::sim {
namespace {

constexpr size_t kLog = 40;              // Changes; who is further behind reads all again.
constexpr size_t kThen = 64;             // Signs of before, for stale reads.
constexpr int64_t kTryAgainUs = 60'000;  // After a try that is not answered.
constexpr int64_t kStaleUs = 200'000;
constexpr int64_t kVeryLateUs = 2'000'000;

absl::Status Fenced(const SimEtcd::Signs& now) {
  return Refuse(absl::StatusCode::kAborted, "STORE_FENCED",
                absl::StrCat("the store is at epoch ", now.epoch, ", revision ", now.revision),
                "stop: another manager has taken the store over");
}

}  // namespace

// --- etcd.

void SimEtcd::Changed() {
  then_.emplace_back(scheduler_->now_us(), now_);
  if (then_.size() > kThen) then_.pop_front();
}

bool SimEtcd::Commit(const fm::StoreBatch& batch) {
  if (!disk_->Apply(batch).ok()) return false;
  now_.revision = batch.revision;
  ++now_.beat;
  log_.push_back(batch);
  if (log_.size() > kLog) log_.pop_front();
  Changed();
  return true;
}

bool SimEtcd::Beat(uint64_t epoch) {
  if (epoch != now_.epoch) return false;
  ++now_.beat;
  Changed();
  return true;
}

bool SimEtcd::Claim(const Signs& seen, LifeId claimant) {
  const bool quiet = seen.beat == now_.beat || CXLPOOL_MUTANT("claim-ignores-beat");
  if (seen.epoch != now_.epoch || seen.revision != now_.revision || !quiet) return false;
  takeovers_ += now_.owner != kWorld;
  now_.epoch = disk_->TakeOver().epoch;
  now_.owner = claimant;
  ++now_.beat;
  Changed();
  return true;
}

SimEtcd::Signs SimEtcd::Then(int64_t ago_us) const {
  const int64_t at_us = scheduler_->now_us() - ago_us;
  Signs found;
  for (const auto& [since_us, signs] : then_) {
    if (since_us > at_us) break;
    found = signs;
  }
  // Before all that is remembered: the oldest of it.
  return found.epoch == 0 && !then_.empty() && now_.epoch != 0 ? then_.front().second : found;
}

bool SimEtcd::ReadLog(uint64_t after, uint64_t revision,
                      std::vector<fm::StoreBatch>& batches) const {
  for (const fm::StoreBatch& batch : log_) {
    if (batch.revision <= after || batch.revision > revision) continue;
    if (batch.base_revision != after) return false;
    after = batch.revision;
    batches.push_back(batch);
  }
  return after == revision;
}

fm::StoreImage SimEtcd::Read() const { return disk_->Read(); }

// --- Waiting for one's turn.

int64_t SimReplicatedStore::Latency() {
  const bool slow = world_.scheduler->now_us() < world_.faults->slow_until_us;
  return slow ? random_.Between(10'000, 100'000) : random_.Between(30, 400);
}

void SimReplicatedStore::Open(Done lost, DoneWith<fm::StoreImage> done) {
  lost_ = std::move(lost);
  opened_ = std::move(done);
  Look();
}

// One try: there will be another look. What etcd shows and when the manager hears it are two
// moments, and a pause may lie between.
void SimReplicatedStore::Look() {
  const bool troubled = world_.faults->troubled;
  const bool lost = troubled && random_.OneIn(30);
  const int64_t ago_us = troubled && random_.OneIn(10) ? random_.Between(0, kStaleUs) : 0;
  const int64_t answer_us = Latency();
  if (lost) {
    world_.scheduler->At(life_, kLookUs, [this] { Look(); });
    return;
  }
  world_.scheduler->At(
      kWorld, Latency(),
      [this, etcd = world_.etcd, life = life_, scheduler = world_.scheduler, ago_us, answer_us] {
        const SimEtcd::Signs signs = ago_us > 0 ? etcd->Then(ago_us) : etcd->now();
        scheduler->At(life, answer_us, [this, signs] { OnSigns(signs); });
      });
}

void SimReplicatedStore::OnSigns(const SimEtcd::Signs& signs) {
  const int64_t now_us = world_.scheduler->now_us();
  if (!looked_ || signs != seen_) seen_since_us_ = now_us;
  looked_ = true;
  seen_ = signs;
  if (signs.epoch != 0 && follower_.on_owner != nullptr) {
    follower_.on_owner({.address = "sim", .epoch = signs.epoch, .revision = signs.revision});
  }
  const bool silent = now_us - seen_since_us_ >= kTakeoverUs;
  if (FollowTo(signs) && (signs.epoch == 0 || silent)) return Claim(signs);
  if (world_.scheduler->Alive(life_)) {
    world_.scheduler->At(life_, kLookUs, [this] { Look(); });
  }
}

// True: the manager knows all that was committed up to these signs, and nothing more.
bool SimReplicatedStore::FollowTo(const SimEtcd::Signs& signs) {
  if (signs.epoch == 0) return true;
  if (loaded_ && (signs.revision < followed_revision_ || signs.epoch < followed_epoch_)) {
    return false;  // A stale read.
  }
  std::vector<fm::StoreBatch> batches;
  if (loaded_ && world_.etcd->ReadLog(followed_revision_, signs.revision, batches)) {
    followed_epoch_ = signs.epoch;
    for (fm::StoreBatch& batch : batches) {
      followed_revision_ = batch.revision;
      for (fm::Row& row : batch.puts) row.value = Encoded(std::move(row.value));
      executor_->AsThreadThatWaits([&] { follower_.on_batch(std::move(batch)); });
      if (!world_.scheduler->Alive(life_)) return false;
    }
    return true;
  }
  world_.met->read_anew += loaded_;
  fm::StoreImage image = world_.etcd->Read();
  for (fm::Row& row : image.rows) row.value = Encoded(std::move(row.value));
  loaded_ = true;
  followed_epoch_ = image.epoch;
  followed_revision_ = image.revision;
  executor_->AsThreadThatWaits([&] { follower_.on_image(std::move(image)); });
  return world_.scheduler->Alive(life_) && signs.epoch == followed_epoch_ &&
         signs.revision == followed_revision_;
}

// What was seen becomes ours, if it is still so.
void SimReplicatedStore::Claim(const SimEtcd::Signs& seen) {
  auto txn = std::make_shared<Txn>();
  SimEtcd* const etcd = world_.etcd;
  txn->carry_out = [etcd, seen, life = life_] { return etcd->Claim(seen, life); };
  const SimEtcd::Signs wanted = {
      .epoch = seen.epoch + 1, .revision = seen.revision, .owner = life_};
  txn->is_done = [etcd, wanted] {
    return etcd->now().epoch == wanted.epoch && etcd->now().owner == wanted.owner;
  };
  txn->done = [this, wanted](const absl::Status& status) {
    if (status.ok()) return Opened(wanted);
    ++world_.met->outrun;
    world_.scheduler->At(life_, kLookUs, [this] { Look(); });
  };
  Send(std::move(txn));
}

void SimReplicatedStore::Opened(const SimEtcd::Signs& claimed) {
  open_ = true;
  epoch_ = claimed.epoch;
  WatchTerm();
  fm::StoreImage image;
  image.epoch = epoch_;
  image.revision = claimed.revision;
  image.beat_interval = absl::Microseconds(kBeatUs);
  std::move(opened_)(std::move(image));
}

// --- Having it.

void SimReplicatedStore::Commit(fm::StoreBatch batch, Done done) {
  if (!world_.scheduler->Alive(life_)) return;
  if (outstanding_) return std::move(done)(fm::CommitOutstanding());
  outstanding_ = true;
  // The store's own budget: etcd itself is never full.
  if (world_.scheduler->now_us() < world_.faults->full_until_us) {
    world_.scheduler->At(life_, Latency(), [this, done = std::move(done)]() mutable {
      outstanding_ = false;
      std::move(done)(Refuse(absl::StatusCode::kResourceExhausted, "STORE_FULL",
                             "the store is full", "nothing: it is a simulation"));
    });
    return;
  }
  auto txn = std::make_shared<Txn>();
  SimEtcd* const etcd = world_.etcd;
  const uint64_t revision = batch.revision;
  txn->is_done = [etcd, epoch = batch.epoch, revision] {
    return etcd->now().epoch == epoch && etcd->now().revision == revision;
  };
  txn->carry_out = [etcd, batch = std::move(batch)] { return etcd->Commit(batch); };
  txn->done = [this, done = std::move(done)](absl::Status status) mutable {
    outstanding_ = false;
    std::move(done)(std::move(status));
  };
  Send(std::move(txn));
}

// A commit is as good.
void SimReplicatedStore::Beat() {
  if (outstanding_ || !world_.scheduler->Alive(life_)) return;
  auto txn = std::make_shared<Txn>();
  SimEtcd* const etcd = world_.etcd;
  txn->carry_out = [etcd, epoch = epoch_] { return etcd->Beat(epoch); };
  txn->is_done = [] { return false; };
  txn->done = [this](absl::Status status) {
    if (!status.ok() && lost_ != nullptr) std::exchange(lost_, nullptr)(std::move(status));
  };
  Send(std::move(txn));
}

// Again and again until it is answered, or the manager has ended. What is on its way takes effect
// whatever has become of the manager.
void SimReplicatedStore::Send(std::shared_ptr<Txn> txn) {
  Scheduler* const scheduler = world_.scheduler;
  if (!txn->lost_before) {
    txn->sent_us = scheduler->now_us();
    txn->paused_us = scheduler->PausedFor(life_);
  }
  const bool troubled = world_.faults->troubled;
  bool asks = !cut_off_ && !(troubled && random_.OneIn(50));
  bool hears = asks && !(troubled && random_.OneIn(50));
  if (world_.faults->next != StoreFaults::Next::kNone && open_ && !cut_off_) {
    const auto fault = std::exchange(world_.faults->next, StoreFaults::Next::kNone);
    asks = fault == StoreFaults::Next::kFailsDone;
    hears = false;
    cut_off_ = true;
  }
  const int64_t there_us = Latency(), back_us = Latency();
  if (asks) {
    scheduler->At(kWorld, there_us, [this, scheduler, life = life_, txn, hears, back_us] {
      const bool done = txn->carry_out();
      if (hears) scheduler->At(life, back_us, [this, txn, done] { Answered(*txn, done); });
    });
  }
  if (asks && troubled && random_.OneIn(50)) {
    const bool very_late = random_.OneIn(4);
    const int64_t late_us = random_.Between(1, very_late ? kVeryLateUs : 3'000);
    scheduler->At(kWorld, there_us + late_us, [txn, met = world_.met] {
      if (!txn->carry_out()) ++met->doubled;
    });
  }
  if (hears) return;
  ++world_.met->lost;
  scheduler->At(life_, kTryAgainUs, [this, txn] {
    txn->lost_before = true;
    Send(txn);
  });
}

// Refused: an earlier try of it may have been carried out, which the head shows.
void SimReplicatedStore::Answered(Txn& txn, bool done) {
  const bool found_out = !done && txn.lost_before && txn.is_done();
  world_.met->found_out += found_out;
  if (done || found_out) {
    if (txn.sent_us + kOwnTermUs > owned_until_us_) {
      owned_until_us_ = txn.sent_us + kOwnTermUs;
      paused_before_us_ = txn.paused_us;
    }
    return std::move(txn.done)(absl::OkStatus());
  }
  world_.met->fenced += open_;
  std::move(txn.done)(Fenced(world_.etcd->now()));
}

// The timer stands still with the machine.
void SimReplicatedStore::WatchTerm() {
  const int64_t stood_us = world_.scheduler->PausedFor(life_) - paused_before_us_;
  const int64_t left_us = owned_until_us_ + stood_us - world_.scheduler->now_us();
  if (CXLPOOL_MUTANT("fence-not-armed")) return;
  if (left_us <= 0) return end_();
  world_.scheduler->At(life_, left_us, [this] { WatchTerm(); });
}

void SimReplicatedStore::Backup(std::string, DoneWith<fm::StoreBackup> done) {
  world_.scheduler->At(life_, 1, [done = std::move(done)]() mutable {
    std::move(done)(Refuse(absl::StatusCode::kUnimplemented, "NO_BACKUP", "nothing to copy",
                           "nothing: it is a simulation"));
  });
}

}  // namespace cxlpool::sim
