#include "fabric-manager/adapters/store_memory/memory_store.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/mutant.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {

// Begins the next epoch: from now on commits of the store that had the disk before are refused.
// Answers everything that is on the disk.
StoreImage MemoryDisk::TakeOver() {
  MutexLock lock(mutex_);
  guard_.Reset(guard_.epoch() + 1, guard_.revision());
  return Image();
}

StoreImage MemoryDisk::Read() const {
  MutexLock lock(mutex_);
  return Image();
}

StoreImage MemoryDisk::Image() const {
  StoreImage image;
  image.epoch = guard_.epoch();
  image.revision = guard_.revision();
  image.limits = guard_.limits();
  image.rows.reserve(rows_.size());
  for (const auto& [key, value] : rows_) image.rows.push_back({key, value});
  return image;
}

// All of the batch or nothing. Refused: it is of an earlier epoch or does not follow the last one
// (StoreGuard), or it would make the disk larger than it may be.
absl::Status MemoryDisk::Apply(const StoreBatch& batch) {
  MutexLock lock(mutex_);
  absl::Status status =
      CXLPOOL_MUTANT("memory-store-unfenced") ? absl::OkStatus() : guard_.Check(batch);
  if (status.ok() && bytes_ + BatchBytes(batch) > max_bytes_) {
    status = Refuse(absl::StatusCode::kResourceExhausted, "STORE_FULL",
                    absl::StrCat("the memory store holds ", bytes_, " of ", max_bytes_, " bytes"),
                    "release Regions");
  }
  if (!status.ok()) return status;
  for (const Row& row : batch.puts) {
    std::string& value = rows_[row.key];
    bytes_ += row.value.size();
    bytes_ -= value.size();
    value = row.value;
  }
  for (const uint64_t key : batch.erases) {
    if (CXLPOOL_MUTANT("memory-store-skips-erases")) break;
    const auto found = rows_.find(key);
    if (found == rows_.end()) continue;
    bytes_ -= found->second.size();
    rows_.erase(found);
  }
  guard_.Applied(batch);
  return absl::OkStatus();
}

uint64_t MemoryDisk::revision() const {
  MutexLock lock(mutex_);
  return guard_.revision();
}

// Outlives the store where the Executor still holds tasks of it, which then find `alive` false.
struct MemoryStore::Core {
  struct Pending {
    StoreBatch batch;
    Done done;
  };

  std::shared_ptr<MemoryDisk> disk;
  Mutex mutex;
  bool alive ABSL_GUARDED_BY(mutex) = true;
  bool open ABSL_GUARDED_BY(mutex) = false;
  absl::Status broken ABSL_GUARDED_BY(mutex);  // Set by the first unknown outcome.
  std::optional<Pending> pending ABSL_GUARDED_BY(mutex);
  Done lost ABSL_GUARDED_BY(mutex);
  std::deque<Fault> faults ABSL_GUARDED_BY(mutex);

  // Applies the commit that was asked for and says how it went.
  void ServeOne() {
    std::optional<Pending> next;
    absl::Status status;
    {
      MutexLock lock(mutex);
      if (!alive || !pending.has_value()) return;
      next = std::exchange(pending, std::nullopt);
      status = Serve(next->batch);
    }
    std::move(next->done)(std::move(status));
  }

  // How one commit goes: as the disk says, unless a fault was put in its way. A fault with
  // `applied` is a lost answer: the change is made, and the caller gets a failure. After an
  // outcome that cannot be known (UNKNOWN, DATA_LOSS) every later commit fails too, as a real
  // store's would.
  absl::Status Serve(const StoreBatch& batch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    if (!open) {
      return Refuse(absl::StatusCode::kFailedPrecondition, "STORE_NOT_OPEN",
                    "the store has not been opened", "open it first");
    }
    if (!broken.ok()) return broken;
    if (faults.empty()) return disk->Apply(batch);
    const Fault fault = std::move(faults.front());
    faults.pop_front();
    if (fault.applied) {
      if (absl::Status status = disk->Apply(batch); !status.ok()) return status;
    }
    if (absl::IsDataLoss(fault.status) || absl::IsUnknown(fault.status)) broken = fault.status;
    return fault.status;
  }
};

MemoryStore::MemoryStore(std::shared_ptr<MemoryDisk> disk, Executor* executor,
                         absl::Duration latency)
    : executor_(executor), latency_(latency), core_(std::make_shared<Core>()) {
  core_->disk = std::move(disk);
}

// A commit that is outstanding is never answered. Its callback is destroyed after the lock is
// released, because what it owns may call back into the store.
MemoryStore::~MemoryStore() {
  std::optional<Core::Pending> dropped;
  MutexLock lock(core_->mutex);
  core_->alive = false;
  dropped.swap(core_->pending);
}

// Takes the disk over from the store that had it. Without an Executor the answer comes inside the
// call.
void MemoryStore::Open(Done lost, DoneWith<StoreImage> done) {
  StoreImage image = core_->disk->TakeOver();
  {
    MutexLock lock(core_->mutex);
    core_->open = true;
    core_->lost = std::move(lost);
  }
  if (executor_ == nullptr) {
    std::move(done)(std::move(image));
    return;
  }
  executor_->Post([core = core_, done = std::move(done), image = std::move(image)]() mutable {
    {
      MutexLock lock(core->mutex);
      if (!core->alive) return;
    }
    std::move(done)(std::move(image));
  });
}

// One commit may be outstanding, as the contract says; a second is refused at once. `done` may ask
// for the next commit: what is outstanding is taken away before it is called.
void MemoryStore::Commit(StoreBatch batch, Done done) {
  bool outstanding = false;
  {
    MutexLock lock(core_->mutex);
    outstanding = core_->pending.has_value();
    if (!outstanding) core_->pending = Core::Pending{std::move(batch), std::move(done)};
  }
  if (outstanding) return std::move(done)(CommitOutstanding());
  if (executor_ == nullptr) {
    core_->ServeOne();
    return;
  }
  executor_->PostAfter(latency_, [core = core_] { core->ServeOne(); });
}

// There is no file to copy: refused.
void MemoryStore::Backup(std::string, DoneWith<StoreBackup> done) {
  absl::Status refused = Refuse(absl::StatusCode::kUnimplemented, "NO_BACKUP",
                                "the store is in memory: there is no database to copy",
                                "set store.path, so that the pool is kept on a disk");
  if (executor_ == nullptr) {
    std::move(done)(std::move(refused));
    return;
  }
  executor_->Post([done = std::move(done), refused = std::move(refused)]() mutable {
    std::move(done)(std::move(refused));
  });
}

// As if another manager had taken the store: every later commit fails with `why`, and the owner is
// informed once, whether it is committing or not.
void MemoryStore::Lose(absl::Status why) {
  Done lost;
  {
    MutexLock lock(core_->mutex);
    core_->broken = why;
    lost = std::exchange(core_->lost, nullptr);
  }
  if (lost != nullptr) std::move(lost)(std::move(why));
}

void MemoryStore::FailNextCommit(Fault fault) {
  MutexLock lock(core_->mutex);
  core_->faults.push_back(std::move(fault));
}

}  // namespace cxlpool::fm
