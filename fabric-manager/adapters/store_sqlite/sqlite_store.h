// The embedded Store: one SQLite database in WAL mode, durable at every commit.
//
// One thread owns the only connection: each commit is one transaction and one sync, and the Writer
// puts all that waits for it into one commit. The database is locked for as long as the store
// lives, so a second manager is kept out.
//
// Layout: database.h. File rules: store_file.h.
#ifndef CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_SQLITE_SQLITE_STORE_H_
#define CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_SQLITE_SQLITE_STORE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "fabric-manager/ports/store.h"

namespace cxlpool::fm {

struct SqliteStoreOptions {
  std::string path;  // The database; its directory is made (0700) where it is missing.

  uint64_t max_size_bytes = uint64_t{16} << 30;  // Of the database. More is STORE_FULL.

  // The WAL is copied into the database when it has this many pages of 4 KiB and nothing has
  // arrived for checkpoint_idle; at four times as many, at once. So the copy seldom lies in the
  // way of a commit, and the WAL stays small.
  int checkpoint_pages = 2000;
  absl::Duration checkpoint_idle = absl::Milliseconds(20);

  // The head file (head_file.h) is synced when nothing has arrived for so long.
  absl::Duration settle_idle = absl::Seconds(1);

  // A transaction that takes longer answers UNKNOWN/STORE_STUCK: the disk hangs.
  absl::Duration commit_deadline = absl::Seconds(30);

  // A backup that takes longer is given up: DEADLINE_EXCEEDED/BACKUP_TIMEOUT.
  absl::Duration backup_deadline = absl::Minutes(10);

  std::string vfs;  // SQLite VFS; empty: the default. Tests inject faults by it.
};

// Starts the thread; the file is touched by Open, on that thread. Completions run there, too.
// The destructor serves a commit that was asked for, gives up a backup that is still copying, then
// closes the database.
//
// Besides what store.h lists, Open answers
//   FAILED_PRECONDITION: STORE_UNSAFE_PATH, STORE_UNUSABLE (permissions), STORE_FOREIGN (another
//     program's database); each with a remedy.
//   UNAVAILABLE/STORE_IO: the disk failed; nothing was changed.
//   DATA_LOSS/STORE_INCOMPLETE: something acknowledged may be missing; the files are left as they
//   are.
// and Commit: DATA_LOSS/STORE_IO and UNKNOWN/STORE_STUCK (outcome unknown: every later commit is
// refused alike; restart the manager, which reads what was really stored).
absl::StatusOr<std::unique_ptr<Store>> MakeSqliteStore(const SqliteStoreOptions& options);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_SQLITE_SQLITE_STORE_H_
