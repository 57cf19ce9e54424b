#include "fabric-manager/adapters/store_sqlite/sqlite_store.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

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
  if (CXLPOOL_MUTANT("store-ignore-base-revision")) return CheckBatchLimits(batch, guard.limits());
  return guard.Check(batch);
}

class SqliteStore : public Store {
 public:
  explicit SqliteStore(const SqliteStoreOptions& options) : options_(options) {}
  ~SqliteStore() override;

  absl::Status Start();
  void Open(Done lost, DoneWith<StoreImage> done) override;
  void Commit(StoreBatch batch, Done done) override;
  void Backup(std::string path, DoneWith<StoreBackup> done) override;

 private:
  struct Pending {
    StoreBatch batch;
    Done done;
  };

  // The writer's thread.
  void Write();
  absl::StatusOr<StoreImage> OpenDatabase();
  bool WaitForWork(std::optional<Pending>& commit, DoneWith<StoreImage>& open);
  void Serve(Pending commit);
  absl::Status CommitNow(const StoreBatch& batch);
  void Checkpoint();
  void Settle();
  void StepBackup();

  // The watchdog's thread.
  void Watch();

  // No commit is taken any more. Reported by `lost_`, where it is not the answer to a commit.
  void Break(const absl::Status& why);

  const SqliteStoreOptions options_;

  Mutex mutex_;
  std::condition_variable work_;                           // For the writer.
  std::condition_variable watch_;                          // For the watchdog.
  std::optional<Pending> commit_ ABSL_GUARDED_BY(mutex_);  // Not begun.
  std::optional<DoneWith<StoreImage>> open_ ABSL_GUARDED_BY(mutex_);
  Done lost_ ABSL_GUARDED_BY(mutex_);
  absl::Status broken_ ABSL_GUARDED_BY(mutex_);  // Once the outcome of a commit is unknown.
  Done in_flight_ ABSL_GUARDED_BY(mutex_);       // Of the commit under way; null: there is none.
  SteadyClock::time_point in_flight_until_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<BackupJob> backup_ ABSL_GUARDED_BY(mutex_);  // The last one asked for.
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool writer_done_ ABSL_GUARDED_BY(mutex_) = false;

  // The writer's own.
  std::unique_ptr<Database> database_;
  StoreGuard guard_;
  int checkpoint_pages_ = 0;  // Now; more while the disk is too full for a checkpoint.

  std::thread writer_;
  std::thread watchdog_;
};

// What has been started before a failure is ended by the destructor.
absl::Status SqliteStore::Start() {
  checkpoint_pages_ = options_.checkpoint_pages;
  try {
    writer_ = std::thread([this] { Write(); });
    pthread_setname_np(writer_.native_handle(), "store-writer");
    watchdog_ = std::thread([this] { Watch(); });
    pthread_setname_np(watchdog_.native_handle(), "store-watchdog");
  } catch (const std::system_error& error) {
    return Refuse(absl::StatusCode::kResourceExhausted, "NO_THREAD",
                  absl::StrCat("cannot start the store's threads: ", error.what()),
                  "raise the limit of tasks");
  }
  return absl::OkStatus();
}

// The watchdog outlives the writer: a commit that hangs while the store is closing is answered
// still.
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

void SqliteStore::Open(Done lost, DoneWith<StoreImage> done) {
  MutexLock lock(mutex_);
  lost_ = std::move(lost);
  open_ = std::move(done);
  work_.notify_all();
}

// Hands the commit to the writer, or refuses it on the caller's thread. Completions are called
// without the lock: they may call back.
void SqliteStore::Commit(StoreBatch batch, Done done) {
  absl::Status refused;
  {
    MutexLock lock(mutex_);
    if (!broken_.ok()) {
      refused = broken_;
    } else if (commit_.has_value() || in_flight_ != nullptr) {
      refused = CommitOutstanding();
    } else {
      commit_ = Pending{std::move(batch), std::move(done)};
    }
  }
  if (refused.ok()) {
    work_.notify_one();  // Only its thread waits; it finds the lock free.
    return;
  }
  std::move(done)(std::move(refused));
}

// The first reason stays. `lost_` is called at most once, and without the lock.
void SqliteStore::Break(const absl::Status& why) {
  Done lost;
  {
    MutexLock lock(mutex_);
    if (!broken_.ok()) return;
    broken_ = why;
    lost = std::exchange(lost_, nullptr);
  }
  if (lost != nullptr) std::move(lost)(why);
}

// A commit comes before the next piece of a backup, and waits for no more than one. At the end the
// backup goes before the database that it is copied from.
void SqliteStore::Write() {
  while (true) {
    std::optional<Pending> commit;
    DoneWith<StoreImage> open;
    if (!WaitForWork(commit, open)) break;
    if (open != nullptr) std::move(open)(OpenDatabase());
    if (commit.has_value()) Serve(*std::move(commit));
    StepBackup();
    // Where commits leave no idle moment: the log must not grow for ever.
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

// A job that has finished stays here until the next one takes its place.
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
  std::move(done)(Refuse(absl::StatusCode::kResourceExhausted, "BACKUP_IN_PROGRESS",
                         "another backup is under way", "wait until it is done"));
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
// long, and makes the head file durable. False: stopping, with no commit left to serve.
bool SqliteStore::WaitForWork(std::optional<Pending>& commit, DoneWith<StoreImage>& open) {
  const auto ready = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return stopping_ || open_.has_value() || commit_.has_value() ||
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
      if (commit_.has_value()) {
        commit = std::exchange(commit_, std::nullopt);
        in_flight_ = std::move(commit->done);
        in_flight_until_ = SteadyClock::now() + absl::ToChronoNanoseconds(options_.commit_deadline);
        return true;
      }
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

// `database_` is set once all has succeeded. Before that, a failure gives the lock on the file
// back, and the store stays closed.
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

// Answers the commit under way, unless the watchdog has: a disk that hung may go on after all.
void SqliteStore::Serve(Pending commit) {
  const bool early = CXLPOOL_MUTANT("store-ack-before-commit");
  absl::Status status = early ? absl::OkStatus() : CommitNow(commit.batch);
  Done done;
  {
    MutexLock lock(mutex_);
    done = std::exchange(in_flight_, nullptr);
  }
  if (done != nullptr) std::move(done)(std::move(status));
  if (early) CommitNow(commit.batch).IgnoreError();
}

// What the guard refuses, and a full disk, change nothing, and the store goes on. After any other
// failure of the database every later commit gets the same answer: what is on the disk is not
// known, or another process has changed it.
absl::Status SqliteStore::CommitNow(const StoreBatch& batch) {
  if (database_ == nullptr) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "STORE_NOT_OPEN",
                  "the store has not been opened", "open it first");
  }
  {
    MutexLock lock(mutex_);
    if (!broken_.ok()) return broken_;
  }
  absl::Status status = Check(guard_, batch);
  if (!status.ok()) return status;
  status = database_->Commit(batch);
  if (status.ok()) {
    guard_.Applied(batch);
  } else if (!absl::IsResourceExhausted(status)) {
    MutexLock lock(mutex_);
    if (broken_.ok()) broken_ = status;
    return broken_;
  }
  return status;
}

// A disk without room for it is no end: commits go on into the log, and the next attempt comes at
// twice its length, so that they do not wait for attempts in vain. Any other failure is the end of
// the store.
// Not after a commit that may be on the disk in part: what is there then is left as it is.
void SqliteStore::Checkpoint() {
  {
    MutexLock lock(mutex_);
    if (!broken_.ok()) return;
  }
  const absl::Status status = database_->Checkpoint();
  if (status.ok()) {
    checkpoint_pages_ = options_.checkpoint_pages;
  } else if (absl::IsResourceExhausted(status)) {
    checkpoint_pages_ = 2 * std::max(checkpoint_pages_, database_->wal_pages());
  } else {
    Break(status);
  }
}

void SqliteStore::Settle() {
  if (const absl::Status status = database_->Settle(); !status.ok()) Break(status);
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
    if (in_flight_ == nullptr || SteadyClock::now() < in_flight_until_) {
      watch_.wait_for(lock.native(), interval);
      continue;
    }
    broken_ = Refuse(absl::StatusCode::kUnknown, "STORE_STUCK",
                     absl::StrCat("a change of ", options_.path, " has not ended within ",
                                  absl::FormatDuration(options_.commit_deadline)),
                     "check the disk, then restart the manager: it reads what was really stored");
    const absl::Status status = broken_;
    Done done = std::exchange(in_flight_, nullptr);
    lock.native().unlock();
    std::move(done)(status);
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
