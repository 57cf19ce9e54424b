// Where the database lies, and that no one else can touch it.
//
// A user who can write the file or its directory owns the pool; so both belong to the manager's
// user, others can write neither, and no symbolic link leads to the file.
#ifndef CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_SQLITE_STORE_FILE_H_
#define CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_SQLITE_STORE_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cxlpool::fm {

// Who opens a database. What is refused is the same; what to do where it belongs to another user
// is not: the manager needs one of its own, and an operator's command runs as the database's owner.
enum class StoreOpener { kManager, kCommand };

// Checks directory and file of `path` and answers the path without links in its directory part.
// The last directory is made (0700) where it is missing. A missing file is OK.
// FAILED_PRECONDITION/STORE_UNSAFE_PATH: a link, not a regular file, another owner, writable by
//   others, more than one name. STORE_UNUSABLE: cannot be read or made.
// DATA_LOSS/STORE_CORRUPT: the file is empty, or is missing beside a log or a head file of it.
absl::StatusOr<std::string> CheckStorePath(const std::string& path,
                                           StoreOpener opener = StoreOpener::kManager);

// The command that checks the database at `path`, in backticks, for a message of this process to
// root: as this process's user, since fsck refuses a database of another one. `flags` begins with a
// blank, or is empty.
std::string FsckCommand(const std::string& path, absl::string_view flags = "");

// Whether there is a database at `path`.
bool StoreFileExists(const std::string& path);

// The whole file at `path`; no bytes where there is none. UNAVAILABLE/STORE_IO: it cannot be read,
// which says nothing about what is in it.
absl::StatusOr<std::string> ReadStoreFile(const std::string& path);

// Makes the file at `path` with these bytes, 0600, durable, all or nothing. A file that is there
// already (another manager was faster) is left alone: OK.
absl::Status CreateStoreFile(const std::string& path, absl::string_view bytes);

// Makes the names of `path` and of the files beside it durable. FAILED_PRECONDITION/STORE_UNUSABLE.
absl::Status SyncStoreDirectory(const std::string& path);

// A new, empty file PATH.part-XXXXXX, 0600, for a copy that is to become `path`: its name.
// INVALID_ARGUMENT/BACKUP_BAD_PATH: `path` is not absolute or names no file.
// ALREADY_EXISTS/BACKUP_EXISTS: something is there. FAILED_PRECONDITION/STORE_UNSAFE_PATH: others
//   could put another file in its place; STORE_UNUSABLE. RESOURCE_EXHAUSTED/STORE_FULL.
absl::StatusOr<std::string> CreatePartFile(const std::string& path);

// Makes the file `part` durable and gives it the name `path`; answers its size. On failure, and
// where `path` has appeared meanwhile (BACKUP_EXISTS), `part` is removed and `path` left alone.
absl::StatusOr<uint64_t> PublishPartFile(const std::string& part, const std::string& path);

// Makes a file at `path` with these bytes, as PublishPartFile does: it is there whole or not at
// all, and nothing is replaced.
absl::Status PublishBytes(absl::string_view bytes, const std::string& path);

// ALREADY_EXISTS/BACKUP_EXISTS: `path` is there.
absl::Status BackupExistsError(const std::string& path);

// Whether a database that has just been closed is whole without its log: closing it copied all of
// the log into it. UNAVAILABLE/STORE_IO: the log still has changes that the database lacks.
absl::Status CheckLogIsEmpty(const std::string& path);

// Removes the log beside `path` if there is nothing in it. The database must be locked: a manager
// that just starts has an empty log as well.
void RemoveEmptyLog(const std::string& path);

// Makes the file `fresh` durable and gives it the name `path` in place of the database there, whose
// log and head file are removed first.
absl::Status ReplaceStoreFile(const std::string& fresh, const std::string& path);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_ADAPTERS_STORE_SQLITE_STORE_FILE_H_
