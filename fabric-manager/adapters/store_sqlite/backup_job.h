// A backup that somebody asked for: its copy, its deadline, and its one answer.
//
// Step runs on the store's thread and drops the copy on failure; the last one starts a thread that
// waits for the disk, so that commits do not. Answers come from there, or from the watchdog when
// the deadline has passed; whichever is first counts, and a copy that comes too late is removed.
#ifndef CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_SQLITE_BACKUP_JOB_H_
#define CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_SQLITE_BACKUP_JOB_H_

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "fabric-manager/adapters/store_sqlite/backup.h"
#include "fabric-manager/ports/store.h"
#include "proto/support/mutex.h"

namespace cxlpool::fm {

class BackupJob {
 public:
  BackupJob(std::string path, absl::Duration limit, DoneWith<StoreBackup> done);
  ~BackupJob();  // Waits for the thread, if there is one.

  // The store's thread. `database` is open; `state` says whether it may be read.
  void Step(const Database* database, const absl::Status& state);
  void Cancel();  // The store is closing.

  // Any thread.
  bool copying() const { return phase_ == Phase::kCopying; }  // Step wants to be called.
  bool finished() const { return phase_ == Phase::kFinished; }
  void AnswerIfLate();

 private:
  enum class Phase { kCopying, kPublishing, kFinished };

  absl::Status StepCopy(const Database& database);
  void Publish(StoreBackup backup);
  void Finish(absl::StatusOr<StoreBackup> answer);
  bool Answer(absl::StatusOr<StoreBackup> answer);  // False: it has been answered.
  absl::Status Late() const;

  const std::string path_;
  const absl::Duration limit_;
  const std::chrono::steady_clock::time_point until_;
  std::atomic<Phase> phase_{Phase::kCopying};
  std::unique_ptr<BackupCopy> copy_;  // The store's thread's, then the publisher's.
  std::thread publisher_;

  Mutex mutex_;
  DoneWith<StoreBackup> done_ ABSL_GUARDED_BY(mutex_);  // Null: answered.
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_SQLITE_BACKUP_JOB_H_
