#include "fabric-manager/adapters/store_sqlite/backup.h"

#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "fabric-manager/adapters/store_sqlite/sqlite_error.h"
#include "fabric-manager/adapters/store_sqlite/store_file.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

constexpr int kPagesPerStep = 64;  // 256 KiB: a millisecond or so.

}  // namespace

absl::StatusOr<std::unique_ptr<BackupCopy>> BackupCopy::Start(sqlite3* source,
                                                              const std::string& path) {
  std::unique_ptr<BackupCopy> copy(new BackupCopy(path));
  absl::StatusOr<std::string> part = CreatePartFile(path);
  if (!part.ok()) return part.status();
  copy->part_ = *std::move(part);
  if (absl::Status status = copy->Prepare(source); !status.ok()) return status;
  return copy;
}

absl::Status BackupCopy::Prepare(sqlite3* source) {
  constexpr int kFlags =
      SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW | SQLITE_OPEN_EXRESCODE;
  sqlite3_vfs* vfs = nullptr;
  sqlite3_file_control(source, "main", SQLITE_FCNTL_VFS_POINTER, &vfs);
  // Half a copy is thrown away, so it needs no journal; Publish syncs it once.
  if (sqlite3_open_v2(part_.c_str(), &copy_.db, kFlags, vfs == nullptr ? nullptr : vfs->zName) !=
          SQLITE_OK ||
      sqlite3_exec(copy_.db,
                   "PRAGMA locking_mode=EXCLUSIVE;PRAGMA journal_mode=OFF;"
                   "PRAGMA synchronous=OFF",
                   nullptr, nullptr, nullptr) != SQLITE_OK) {
    return Failed();
  }
  backup_ = sqlite3_backup_init(copy_.db, "main", source, "main");
  return backup_ == nullptr ? Failed() : absl::OkStatus();
}

BackupCopy::~BackupCopy() {
  sqlite3_backup_finish(backup_);
  if (!part_.empty()) unlink(part_.c_str());
}

absl::StatusOr<bool> BackupCopy::Step(absl::Duration budget) {
  const absl::Time end = absl::Now() + budget;
  do {
    const int code = sqlite3_backup_step(backup_, kPagesPerStep);
    if (code == SQLITE_OK) continue;
    const int finished = sqlite3_backup_finish(std::exchange(backup_, nullptr));
    if (code != SQLITE_DONE || finished != SQLITE_OK) return Failed();
    return true;
  } while (absl::Now() < end);
  return false;
}

absl::Status BackupCopy::Failed() { return OpenError(copy_.db, part_, "write the backup"); }

absl::StatusOr<uint64_t> BackupCopy::Publish() {
  if (sqlite3_close(std::exchange(copy_.db, nullptr)) != SQLITE_OK) {
    return absl::InternalError("the backup's connection has open statements");
  }
  return PublishPartFile(std::exchange(part_, ""), path_);
}

}  // namespace cxlpool::fm
