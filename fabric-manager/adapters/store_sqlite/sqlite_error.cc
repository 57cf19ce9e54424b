#include "fabric-manager/adapters/store_sqlite/sqlite_error.h"

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

// SQLite calls a medium that cannot be read a malformed database. The file knows better: an I/O
// error there, 0 if there was none. It is named so that no one restores a backup because of a loose
// cable.
int ReadErrno(sqlite3* db) {
  if ((sqlite3_errcode(db) & 0xff) != SQLITE_CORRUPT) return 0;
  for (const int which : {SQLITE_FCNTL_FILE_POINTER, SQLITE_FCNTL_JOURNAL_POINTER}) {
    sqlite3_file* file = nullptr;
    int error = 0;
    if (sqlite3_file_control(db, "main", which, &file) == SQLITE_OK && file != nullptr &&
        file->pMethods != nullptr &&
        file->pMethods->xFileControl(file, SQLITE_FCNTL_LAST_ERRNO, &error) == SQLITE_OK &&
        (error == EIO || error == ENXIO)) {
      return error;
    }
  }
  return 0;
}

std::string Describe(sqlite3* db, const std::string& path, absl::string_view doing) {
  std::string text = absl::StrCat("cannot ", doing, " ", path, ": ", sqlite3_errmsg(db), " (code ",
                                  sqlite3_extended_errcode(db));
  const int read_error = ReadErrno(db);
  const int error = read_error != 0 ? read_error : sqlite3_system_errno(db);
  if (error != 0) absl::StrAppend(&text, ", ", std::strerror(error));
  return text + ")";
}

bool IsFull(sqlite3* db) {
  const int code = sqlite3_errcode(db) & 0xff;
  if (code == SQLITE_FULL) return true;
  // A quota looks like any failed write to SQLite. A failed sync never counts: what it left on
  // the disk is not known.
  const int error = sqlite3_system_errno(db);
  return sqlite3_extended_errcode(db) == SQLITE_IOERR_WRITE &&
         (error == ENOSPC || error == EDQUOT || error == EFBIG);
}

absl::Status FullError(sqlite3* db, const std::string& path, absl::string_view doing) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return Refuse(
      absl::StatusCode::kResourceExhausted, "STORE_FULL", Describe(db, path, doing),
      absl::StrCat("make space on that file system: old backups and *.before-fsck may be in ",
                   folder),
      {{"folder", folder}});
}

}  // namespace

absl::Status CorruptError(const std::string& path, absl::string_view what) {
  return Refuse(absl::StatusCode::kDataLoss, "STORE_CORRUPT",
                absl::StrCat("the store ", path, " is damaged: ", what),
                "restore it from a backup");
}

// While the store is being opened nothing was promised yet: what may pass is UNAVAILABLE, and the
// manager tries again at its next start. After that CommitError judges.
absl::Status OpenError(sqlite3* db, const std::string& path, absl::string_view doing) {
  const std::string text = Describe(db, path, doing);
  if (IsFull(db)) return FullError(db, path, doing);
  switch (ReadErrno(db) != 0 ? SQLITE_IOERR : sqlite3_errcode(db) & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return Refuse(absl::StatusCode::kFailedPrecondition, "STORE_BUSY",
                    absl::StrCat("another process holds the store ", path),
                    absl::StrCat("stop the other manager (fuser -v ", path,
                                 " names it), or give this one a store.path of its own"));
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return CorruptError(path, text);
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
    case SQLITE_READONLY:
    case SQLITE_AUTH:
      return Refuse(absl::StatusCode::kFailedPrecondition, "STORE_UNUSABLE", text,
                    "let the manager's user, and nobody else, read and write it");
    case SQLITE_NOMEM:
      return Refuse(absl::StatusCode::kUnavailable, "STORE_IO", text,
                    "give the manager more memory, then start again");
    default:
      return Refuse(absl::StatusCode::kUnavailable, "STORE_IO", text,
                    "check the disk and the kernel log, then start again");
  }
}

absl::Status CommitError(sqlite3* db, const std::string& path, absl::string_view doing) {
  if (IsFull(db)) return FullError(db, path, doing);
  const int code = sqlite3_errcode(db) & 0xff;
  if ((code == SQLITE_CORRUPT && ReadErrno(db) == 0) || code == SQLITE_NOTADB) {
    return CorruptError(path, Describe(db, path, doing));
  }
  return Refuse(absl::StatusCode::kDataLoss, "STORE_IO", Describe(db, path, doing),
                absl::StrCat(code == SQLITE_NOMEM ? "give the manager more memory"
                                                  : "check the disk and the kernel log",
                             ", then restart the manager: it reads what was really stored"));
}

}  // namespace cxlpool::fm
