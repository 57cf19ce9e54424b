// One copy of the live database, made page by page between commits on the store's own connection.
//
// SQLite's backup writes a page again when a later commit changes it, so the copy holds exactly
// the revision at its last step. It grows as PATH.part-XXXXXX, 0600, and gets its name only when
// it is whole and synced: a file at PATH is a good one.
//
// Start and Step run on the store's thread; Publish, which waits for the disk, on any other.
#ifndef CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_SQLITE_BACKUP_H_
#define CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_SQLITE_BACKUP_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "fabric-manager/adapters/store_sqlite/database.h"

namespace cxlpool::fm {

class BackupCopy {
 public:
  // INVALID_ARGUMENT/BACKUP_BAD_PATH: `path` is not absolute or names no file.
  // ALREADY_EXISTS/BACKUP_EXISTS. FAILED_PRECONDITION/STORE_UNUSABLE, STORE_UNSAFE_PATH.
  static absl::StatusOr<std::unique_ptr<BackupCopy>> Start(sqlite3* source,
                                                           const std::string& path);
  ~BackupCopy();  // Removes what was not published.

  // Copies for about `budget`. True: all pages are copied; Step no more.
  absl::StatusOr<bool> Step(absl::Duration budget);

  // Makes the copy durable under its name and answers its size in bytes.
  absl::StatusOr<uint64_t> Publish();

 private:
  explicit BackupCopy(const std::string& path) : path_(path) {}
  absl::Status Prepare(sqlite3* source);
  absl::Status Connect();
  absl::Status UseNoJournal();
  absl::Status MarkClean();
  absl::Status Failed();

  const std::string path_;
  std::string part_;  // The file while it grows; empty: there is none.
  std::string vfs_;
  Connection copy_;
  sqlite3_backup* backup_ = nullptr;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_SQLITE_BACKUP_H_
