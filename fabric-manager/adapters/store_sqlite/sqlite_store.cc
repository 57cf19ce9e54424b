#include "fabric-manager/adapters/store_sqlite/sqlite_store.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "fabric-manager/adapters/store_sqlite/backup_job.h"
#include "fabric-manager/adapters/store_sqlite/database.h"
#include "fabric-manager/ports/store_guard.h"
#include "proto/support/mutant.h"
#include "proto/support/mutex.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

using SteadyClock = std::chrono::steady_clock;

absl::Status Check(const StoreGuard& guard, const StoreBatch& batch) {
  if (CXLPOOL_MUTANT("store-ignore-base-revision")) return CheckBatchLimits(batch);
  return guard.Check(batch);
}

class SqliteStore : public Store {
 public:
  explicit SqliteStore(const SqliteStoreOptions& options) : options_(options) {}
  ~SqliteStore() override;

  absl::Status Start();
  void Open(DoneWith<StoreImage> done) override;
  void Commit(StoreBatch batch, Done done) override;
  void Backup(std::string path, DoneWith<StoreBackup> done) override;

 private:
  struct Pending {
    StoreBatch batch;
    Done done;
    uint64_t bytes = 0;
  };
  using Group = std::vector<Pending>;

  // The writer's thread.
  void Write();
  absl::StatusOr<StoreImage> OpenDatabase();
  bool WaitForWork(Group& group, DoneWith<StoreImage>& open);
  void TakeGroup(Group& group) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Serve(Group group);
  std::vector<absl::Status> CommitGroup(const std::vector<StoreBatch>& batches);
  std::vector<absl::Status> CommitOneByOne(const std::vector<StoreBatch>& batches);
  absl::Status CommitOne(const StoreBatch& batch);
  void Checkpoint();
  void Settle();
  void StepBackup();

  // The watchdog's thread.
  void Watch();

  absl::Status RefusedAtTheDoor(const StoreBatch& batch, uint64_t bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const SqliteStoreOptions options_;

  Mutex mutex_;
  std::condition_variable work_;   // For the writer.
  std::condition_variable watch_;  // For the watchdog.
  std::deque<Pending> queue_ ABSL_GUARDED_BY(mutex_);
  uint64_t queued_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<DoneWith<StoreImage>> open_ ABSL_GUARDED_BY(mutex_);
  absl::Status broken_ ABSL_GUARDED_BY(mutex_);  // Once the outcome of a commit is unknown.
  std::vector<Done> in_flight_ ABSL_GUARDED_BY(mutex_);
  std::optional<SteadyClock::time_point> in_flight_until_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<BackupJob> backup_ ABSL_GUARDED_BY(mutex_);  // The last one asked for.
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool writer_done_ ABSL_GUARDED_BY(mutex_) = false;
  // The last batch that found the queue full; the ones planned on it are refused as well.
  std::optional<uint64_t> door_refused_revision_ ABSL_GUARDED_BY(mutex_);

  // The writer's own.
  std::unique_ptr<Database> database_;
  StoreGuard guard_;
  int checkpoint_pages_ = 0;  // Now; more while the disk is too full for a checkpoint.

  std::thread writer_;
  std::thread watchdog_;
};

absl::Status SqliteStore::Start() {
  checkpoint_pages_ = options_.checkpoint_pages;
  try {
    writer_ = std::thread([this] { Write(); });
    pthread_setname_np(writer_.native_handle(), "store-writer");
    watchdog_ = std::thread([this] { Watch(); });
    pthread_setname_np(watchdog_.native_handle(), "store-watchdog");
  } catch (const std::system_error& error) {
    return Refusal{absl::StatusCode::kResourceExhausted,
                   "NO_THREAD",
                   absl::StrCat("cannot start the store's threads: ", error.what()),
                   "raise the limit of tasks",
                   {}}
        .ToStatus();
  }
  return absl::OkStatus();
}

SqliteStore::~SqliteStore() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    work_.notify_all();
  }
  if (writer_.joinable()) writer_.join();
  {
    MutexLock lock(mutex_);
    writer_done_ = true;
    watch_.notify_all();
  }
  if (watchdog_.joinable()) watchdog_.join();
}

void SqliteStore::Open(DoneWith<StoreImage> done) {
  MutexLock lock(mutex_);
  open_ = std::move(done);
  work_.notify_all();
}

void SqliteStore::Commit(StoreBatch batch, Done done) {
  const uint64_t bytes = BatchBytes(batch);
  absl::Status refused;
  {
    MutexLock lock(mutex_);
    refused = RefusedAtTheDoor(batch, bytes);
    if (refused.ok()) {
      queued_bytes_ += bytes;
      queue_.push_back({std::move(batch), std::move(done), bytes});
    }
  }
  if (refused.ok()) {
    work_.notify_one();  // Its thread alone waits; it finds the lock free.
    return;
  }
  std::move(done)(std::move(refused));
}

absl::Status SqliteStore::RefusedAtTheDoor(const StoreBatch& batch, uint64_t bytes) {
  if (!broken_.ok()) return broken_;
  const bool follows =
      door_refused_revision_.has_value() && *door_refused_revision_ == batch.base_revision;
  const bool full = queue_.size() >= options_.max_queued_batches ||
                    (!queue_.empty() && queued_bytes_ + bytes > options_.max_queued_bytes);
  if (!follows && !full) {
    door_refused_revision_.reset();
    return absl::OkStatus();
  }
  door_refused_revision_ = batch.revision;
  return Refusal{absl::StatusCode::kResourceExhausted,
                 "STORE_QUEUE_FULL",
                 absl::StrCat(queue_.size(), " changes with ", queued_bytes_,
                              " bytes are waiting for the disk"),
                 "try again later",
                 {}}
      .ToStatus();
}

void SqliteStore::Write() {
  while (true) {
    Group group;
    DoneWith<StoreImage> open;
    if (!WaitForWork(group, open)) break;
    if (open != nullptr) std::move(open)(OpenDatabase());
    if (!group.empty()) Serve(std::move(group));
    StepBackup();
    if (database_ != nullptr && database_->wal_pages() >= 4 * checkpoint_pages_) Checkpoint();
  }
  std::shared_ptr<BackupJob> backup;
  {
    MutexLock lock(mutex_);
    backup.swap(backup_);
  }
  if (backup != nullptr) backup->Cancel();
  backup.reset();
  database_.reset();
}

void SqliteStore::Backup(std::string path, DoneWith<StoreBackup> done) {
  std::shared_ptr<BackupJob> last;  // Goes outside the lock.
  {
    MutexLock lock(mutex_);
    if (backup_ == nullptr || backup_->finished()) {
      last = std::exchange(
          backup_,
          std::make_shared<BackupJob>(std::move(path), options_.backup_deadline, std::move(done)));
      work_.notify_all();
      return;
    }
  }
  std::move(done)(Refusal{
      absl::StatusCode::kResourceExhausted,
      "BACKUP_IN_PROGRESS",
      "another backup is under way",
      "wait until it is done",
      {}}.ToStatus());
}

// A bounded piece of the backup, if there is one.
void SqliteStore::StepBackup() {
  std::shared_ptr<BackupJob> backup;
  absl::Status state;
  {
    MutexLock lock(mutex_);
    backup = backup_;
    state = broken_;
  }
  if (backup != nullptr && backup->copying()) backup->Step(database_.get(), state);
}

// Takes what is to be done next. While nothing is, brings the log back to its beginning once it is
// long, and makes the head file durable. False: stopping, and everything is done.
bool SqliteStore::WaitForWork(Group& group, DoneWith<StoreImage>& open) {
  const auto ready = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return stopping_ || open_.has_value() || !queue_.empty() ||
           (backup_ != nullptr && backup_->copying());
  };
  while (true) {
    {
      MutexLock lock(mutex_);
      const bool log_is_long = database_ != nullptr && database_->wal_pages() >= checkpoint_pages_;
      const bool unsettled = database_ != nullptr && !database_->settled() && broken_.ok();
      if (log_is_long || unsettled) {
        const absl::Duration idle = log_is_long ? options_.checkpoint_idle : options_.settle_idle;
        work_.wait_for(lock.native(), absl::ToChronoNanoseconds(idle), ready);
      } else {
        work_.wait(lock.native(), ready);
      }
      if (open_.has_value()) {
        open = *std::exchange(open_, std::nullopt);
        return true;
      }
      TakeGroup(group);
      if (!group.empty()) return true;
      if (stopping_) return false;
      if (backup_ != nullptr && backup_->copying()) return true;
    }
    if (database_ == nullptr) continue;
    if (database_->wal_pages() >= checkpoint_pages_) {
      Checkpoint();
    } else {
      Settle();
    }
  }
}

void SqliteStore::TakeGroup(Group& group) {
  uint64_t bytes = 0;
  while (!queue_.empty() && group.size() < options_.max_group_batches &&
         (group.empty() || bytes + queue_.front().bytes <= options_.max_group_bytes)) {
    bytes += queue_.front().bytes;
    queued_bytes_ -= queue_.front().bytes;
    group.push_back(std::move(queue_.front()));
    queue_.pop_front();
  }
}

absl::StatusOr<StoreImage> SqliteStore::OpenDatabase() {
  if (database_ != nullptr) {
    return absl::FailedPreconditionError("the store is open already");
  }
  absl::StatusOr<std::unique_ptr<Database>> database =
      Database::Open(options_.path, options_.max_size_bytes, options_.vfs);
  if (!database.ok()) return database.status();
  absl::StatusOr<StoreImage> image = (*database)->TakeOver();
  if (!image.ok()) return image.status();
  guard_.Reset(image->epoch, image->revision);
  database_ = *std::move(database);
  return image;
}

void SqliteStore::Serve(Group group) {
  std::vector<StoreBatch> batches;
  {
    MutexLock lock(mutex_);
    for (Pending& pending : group) {
      batches.push_back(std::move(pending.batch));
      in_flight_.push_back(std::move(pending.done));
    }
    in_flight_until_ = SteadyClock::now() + absl::ToChronoNanoseconds(options_.commit_deadline);
  }
  const bool early = CXLPOOL_MUTANT("store-ack-before-commit");
  std::vector<absl::Status> results =
      early ? std::vector<absl::Status>(batches.size()) : CommitGroup(batches);
  std::vector<Done> answers;
  {
    MutexLock lock(mutex_);
    answers.swap(in_flight_);  // Empty: the watchdog has answered.
    in_flight_until_.reset();
  }
  for (size_t i = 0; i < answers.size(); ++i) std::move(answers[i])(std::move(results[i]));
  if (early) CommitGroup(batches);
}

std::vector<absl::Status> SqliteStore::CommitGroup(const std::vector<StoreBatch>& batches) {
  if (batches.size() == 1 || database_ == nullptr) return CommitOneByOne(batches);
  std::vector<absl::Status> results(batches.size());
  std::vector<const StoreBatch*> admitted;
  StoreGuard guard = guard_;
  for (size_t i = 0; i < batches.size(); ++i) {
    results[i] = Check(guard, batches[i]);
    if (results[i].ok()) {
      guard.Applied(batches[i]);
      admitted.push_back(&batches[i]);
    } else {
      guard.Refused(batches[i], results[i]);
    }
  }
  if (admitted.empty()) {
    guard_ = guard;
    return results;
  }
  {
    MutexLock lock(mutex_);
    if (!broken_.ok()) return std::vector<absl::Status>(batches.size(), broken_);
  }
  const absl::Status status = database_->Commit(admitted);
  if (status.ok()) {
    guard_ = guard;
    return results;
  }
  // What does not fit together may fit in part.
  if (absl::IsResourceExhausted(status)) return CommitOneByOne(batches);
  MutexLock lock(mutex_);
  if (broken_.ok()) broken_ = status;
  return std::vector<absl::Status>(batches.size(), broken_);
}

std::vector<absl::Status> SqliteStore::CommitOneByOne(const std::vector<StoreBatch>& batches) {
  std::vector<absl::Status> results;
  for (const StoreBatch& batch : batches) results.push_back(CommitOne(batch));
  return results;
}

absl::Status SqliteStore::CommitOne(const StoreBatch& batch) {
  if (database_ == nullptr) {
    return Refusal{absl::StatusCode::kFailedPrecondition,
                   "STORE_NOT_OPEN",
                   "the store has not been opened",
                   "open it first",
                   {}}
        .ToStatus();
  }
  {
    MutexLock lock(mutex_);
    if (!broken_.ok()) return broken_;
  }
  absl::Status status = Check(guard_, batch);
  if (status.ok()) {
    status = database_->Commit({&batch});
    if (!status.ok() && !absl::IsResourceExhausted(status)) {
      MutexLock lock(mutex_);
      if (broken_.ok()) broken_ = status;
      return broken_;
    }
  }
  if (status.ok()) {
    guard_.Applied(batch);
  } else {
    guard_.Refused(batch, status);
  }
  return status;
}

void SqliteStore::Checkpoint() {
  const absl::Status status = database_->Checkpoint();
  if (status.ok()) {
    checkpoint_pages_ = options_.checkpoint_pages;
  } else if (absl::IsResourceExhausted(status)) {
    checkpoint_pages_ = 2 * std::max(checkpoint_pages_, database_->wal_pages());
  } else {
    MutexLock lock(mutex_);
    if (broken_.ok()) broken_ = status;
  }
}

void SqliteStore::Settle() {
  const absl::Status status = database_->Settle();
  if (status.ok()) return;
  MutexLock lock(mutex_);
  if (broken_.ok()) broken_ = status;
}

// Answers for the writer when the disk hangs; a system call that hangs cannot be called off. It
// looks now and then, so that a commit has no thread to wake.
void SqliteStore::Watch() {
  const auto interval = absl::ToChronoNanoseconds(options_.commit_deadline / 8);
  MutexLock lock(mutex_);
  while (!writer_done_) {
    if (std::shared_ptr<BackupJob> backup = backup_; backup != nullptr) {
      lock.native().unlock();
      backup->AnswerIfLate();
      backup.reset();
      lock.native().lock();
    }
    if (!in_flight_until_.has_value() || SteadyClock::now() < *in_flight_until_) {
      watch_.wait_for(lock.native(), interval);
      continue;
    }
    broken_ = Refusal{
        absl::StatusCode::kUnknown,
        "STORE_STUCK",
        absl::StrCat("a change of ", options_.path, " has not ended within ",
                     absl::FormatDuration(options_.commit_deadline)),
        "check the disk, then restart the manager: it reads what was really stored",
        {}}.ToStatus();
    const absl::Status status = broken_;
    std::vector<Done> answers;
    answers.swap(in_flight_);
    in_flight_until_.reset();
    for (Pending& pending : queue_) answers.push_back(std::move(pending.done));
    queue_.clear();
    queued_bytes_ = 0;
    lock.native().unlock();
    for (Done& done : answers) std::move(done)(status);
    lock.native().lock();
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Store>> MakeSqliteStore(const SqliteStoreOptions& options) {
  auto store = std::make_unique<SqliteStore>(options);
  if (absl::Status status = store->Start(); !status.ok()) return status;
  return store;
}

}  // namespace cxlpool::fm
