#include "fabric-manager/adapters/store_sqlite/backup.h"

#include <unistd.h>

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "fabric-manager/adapters/store_sqlite/sqlite_error.h"
#include "fabric-manager/adapters/store_sqlite/store_file.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

constexpr int kPagesPerStep = 64;  // 256 KiB: a millisecond or so.

}  // namespace

// A copy into a file beside `path` that has another name until it is whole: whatever happens in
// between, `path` is never half a backup.
absl::StatusOr<std::unique_ptr<BackupCopy>> BackupCopy::Start(sqlite3* source,
                                                              const std::string& path) {
  std::unique_ptr<BackupCopy> copy(new BackupCopy(path));
  absl::StatusOr<std::string> part = CreatePartFile(path);
  if (!part.ok()) return part.status();
  copy->part_ = *std::move(part);
  if (absl::Status status = copy->Prepare(source); !status.ok()) return status;
  return copy;
}

// Opens the copy's file through the same VFS as the source, so that tests which let a disk fail
// reach both, and joins the two for sqlite3_backup_step.
absl::Status BackupCopy::Prepare(sqlite3* source) {
  sqlite3_vfs* vfs = nullptr;
  sqlite3_file_control(source, "main", SQLITE_FCNTL_VFS_POINTER, &vfs);
  if (vfs != nullptr) vfs_ = vfs->zName;
  absl::Status status = Connect();
  if (status.ok()) status = UseNoJournal();
  if (!status.ok()) return status;
  backup_ = sqlite3_backup_init(copy_.db, "main", source, "main");
  return backup_ == nullptr ? Failed() : absl::OkStatus();
}

absl::Status BackupCopy::Connect() {
  constexpr int kFlags =
      SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW | SQLITE_OPEN_EXRESCODE;
  if (sqlite3_open_v2(part_.c_str(), &copy_.db, kFlags, vfs_.empty() ? nullptr : vfs_.c_str()) !=
      SQLITE_OK) {
    return Failed();
  }
  return absl::OkStatus();
}

// Half a copy is thrown away, so it needs neither journal nor syncs; Publish syncs it once.
absl::Status BackupCopy::UseNoJournal() {
  return sqlite3_exec(
             copy_.db,
             "PRAGMA synchronous=OFF;PRAGMA locking_mode=EXCLUSIVE;PRAGMA journal_mode=OFF",
             nullptr, nullptr, nullptr) == SQLITE_OK
             ? absl::OkStatus()
             : Failed();
}

// Makes the copy a database that was closed in order. Its pages are those of a store in use, whose
// log and clean mark say that the log holds the last changes; the copy has everything without one.
// A manager that is started on it would otherwise refuse it as a store that lost its log.
absl::Status BackupCopy::MarkClean() {
  if (sqlite3_close(std::exchange(copy_.db, nullptr)) != SQLITE_OK) {
    return absl::InternalError("the backup's connection has open statements");
  }
  if (absl::Status status = Connect(); !status.ok()) return status;
  // It has no log, and must not get one by being written to: bytes 18 and 19 of the header say
  // whether a database has. They are changed before SQLite has looked at them.
  sqlite3_file* file = nullptr;
  int code = sqlite3_file_control(copy_.db, "main", SQLITE_FCNTL_FILE_POINTER, &file);
  if (code == SQLITE_OK) code = file->pMethods->xWrite(file, "\1\1", 2, 18);
  if (code != SQLITE_OK) {
    const bool full = code == SQLITE_FULL;
    return Refuse(
        full ? absl::StatusCode::kResourceExhausted : absl::StatusCode::kUnavailable,
        full ? "STORE_FULL" : "STORE_IO",
        absl::StrCat("cannot write the backup ", part_, ": ", sqlite3_errstr(code)),
        full ? "make space on that file system" : "check the disk, then make the backup again");
  }
  if (absl::Status status = UseNoJournal(); !status.ok()) return status;
  StoreMeta meta;
  if (ReadMetaRow(copy_.db, kSchemaVersion, meta) != MetaRow::kSound) return Failed();
  meta.clean = true;
  return ReplaceMetaRow(copy_.db, meta) == SQLITE_OK ? absl::OkStatus() : Failed();
}

BackupCopy::~BackupCopy() {
  sqlite3_backup_finish(backup_);
  if (!part_.empty()) unlink(part_.c_str());
}

// Copies for about as long as `budget`; true once all is copied. Commits that happen between two
// steps are in the copy too: both use the source's one connection, so SQLite writes each changed
// page to the copy as well.
absl::StatusOr<bool> BackupCopy::Step(absl::Duration budget) {
  const auto end = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(budget);
  do {
    const int code = sqlite3_backup_step(backup_, kPagesPerStep);
    if (code == SQLITE_OK) continue;
    const int finished = sqlite3_backup_finish(std::exchange(backup_, nullptr));
    if (code != SQLITE_DONE || finished != SQLITE_OK) return Failed();
    if (absl::Status status = MarkClean(); !status.ok()) return status;
    return true;
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

absl::Status BackupCopy::Failed() { return OpenError(copy_.db, part_, "write the backup"); }

// Syncs the file and gives it its name; its size. The slow part, and it needs no source: it runs on
// another thread than the store's.
absl::StatusOr<uint64_t> BackupCopy::Publish() {
  if (sqlite3_close(std::exchange(copy_.db, nullptr)) != SQLITE_OK) {
    return absl::InternalError("the backup's connection has open statements");
  }
  return PublishPartFile(std::exchange(part_, ""), path_);
}

}  // namespace cxlpool::fm
