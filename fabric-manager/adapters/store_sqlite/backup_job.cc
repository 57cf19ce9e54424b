#include "fabric-manager/adapters/store_sqlite/backup_job.h"

#include <pthread.h>
#include <unistd.h>

#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

// How long a commit may have to wait behind a step.
constexpr absl::Duration kStepBudget = absl::Milliseconds(10);

}  // namespace

BackupJob::BackupJob(std::string path, absl::Duration limit, DoneWith<StoreBackup> done)
    : path_(std::move(path)),
      limit_(limit),
      until_(std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(limit)),
      done_(std::move(done)) {}

BackupJob::~BackupJob() {
  if (publisher_.joinable()) publisher_.join();
}

// One step, on the store's thread between two commits. `state`: what the store has become, whose
// failure ends the backup too. The job is finished after any error.
void BackupJob::Step(const Database* database, const absl::Status& state) {
  absl::Status status = state;
  if (status.ok() && database == nullptr) {
    status = Refuse(absl::StatusCode::kFailedPrecondition, "STORE_NOT_OPEN",
                    "the store has not been opened", "open it first");
  }
  if (status.ok()) status = StepCopy(*database);
  if (!status.ok()) Finish(std::move(status));
}

// Begins the copy, goes on with it, or, where it is whole, hands it to a thread that syncs it: a
// sync of gigabytes must not hold up commits. The revision is that of the moment at which the copy
// became whole.
absl::Status BackupJob::StepCopy(const Database& database) {
  if (std::chrono::steady_clock::now() > until_) return Late();
  if (copy_ == nullptr) {
    absl::StatusOr<std::unique_ptr<BackupCopy>> copy =
        BackupCopy::Start(database.connection(), path_);
    if (!copy.ok()) return copy.status();
    copy_ = *std::move(copy);
  }
  const absl::StatusOr<bool> whole = copy_->Step(kStepBudget);
  if (!whole.ok() || !*whole) return whole.status();
  phase_ = Phase::kPublishing;
  try {
    publisher_ = std::thread([this, backup = StoreBackup{database.revision(), 0}] {
      pthread_setname_np(pthread_self(), "store-backup");
      Publish(backup);
    });
  } catch (const std::system_error& error) {
    return Refuse(absl::StatusCode::kResourceExhausted, "NO_THREAD",
                  absl::StrCat("cannot start the backup's thread: ", error.what()),
                  "raise the limit of tasks");
  }
  return absl::OkStatus();
}

void BackupJob::Publish(StoreBackup backup) {
  const absl::StatusOr<uint64_t> size = copy_->Publish();
  if (!size.ok()) {
    Finish(size.status());
    return;
  }
  backup.size_bytes = *size;
  Finish(backup);
}

// Answers, and ends the job. The file stays only where somebody was given it as a backup.
void BackupJob::Finish(absl::StatusOr<StoreBackup> answer) {
  copy_.reset();
  const bool made = answer.ok();
  phase_ = Phase::kFinished;
  // The caller was answered BACKUP_TIMEOUT before: then there is no backup.
  if (!Answer(std::move(answer)) && made) unlink(path_.c_str());
}

// The store is closing. A copy that is being made ends here; one that is being published is whole,
// and the destructor waits for it.
void BackupJob::Cancel() {
  if (copying()) Finish(absl::CancelledError("the store is closing; make the backup again"));
}

// Answers a caller whose time is over while the disk hangs in Publish. The job itself goes on until
// that returns, and then removes the file.
void BackupJob::AnswerIfLate() {
  if (!finished() && std::chrono::steady_clock::now() > until_) Answer(Late());
}

// True for the first answer, which is the only one that the caller gets.
bool BackupJob::Answer(absl::StatusOr<StoreBackup> answer) {
  DoneWith<StoreBackup> done;
  {
    MutexLock lock(mutex_);
    done = std::exchange(done_, nullptr);
  }
  if (done == nullptr) return false;
  std::move(done)(std::move(answer));
  return true;
}

absl::Status BackupJob::Late() const {
  return Refuse(
      absl::StatusCode::kDeadlineExceeded, "BACKUP_TIMEOUT",
      absl::StrCat("the backup ", path_, " was not done within ", absl::FormatDuration(limit_)),
      "check both disks, then make it again");
}

}  // namespace cxlpool::fm
