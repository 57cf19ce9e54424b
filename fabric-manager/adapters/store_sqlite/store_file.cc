#include "fabric-manager/adapters/store_sqlite/store_file.h"

#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/support/give_name.h"
#include "proto/support/mutant.h"
#include "proto/support/refusal.h"
#include "proto/support/unique_fd.h"

namespace cxlpool::fm {
namespace {

absl::Status Unsafe(const std::string& message, const std::string& remedy) {
  return Refuse(absl::StatusCode::kFailedPrecondition, "STORE_UNSAFE_PATH", message, remedy);
}

absl::Status Unusable(const std::string& message, int error, const std::string& remedy) {
  const bool full = error == ENOSPC || error == EDQUOT;
  return Refuse(full ? absl::StatusCode::kResourceExhausted : absl::StatusCode::kFailedPrecondition,
                full ? "STORE_FULL" : "STORE_UNUSABLE",
                absl::StrCat(message, ": ", std::strerror(error)),
                full ? "make space on that file system" : remedy);
}

absl::Status Corrupt(const std::string& message) {
  return Refuse(
      absl::StatusCode::kDataLoss, "STORE_CORRUPT", message,
      "restore the database from a backup; for a new, empty pool move what is there away");
}

std::string DirectoryOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string BaseOf(const std::string& path) { return path.substr(path.rfind('/') + 1); }

absl::Status SyncDirectory(const std::string& directory) {
  const UniqueFd fd(open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid() || fsync(fd.get()) != 0) {
    return Unusable(absl::StrCat("cannot sync directory ", directory), errno, "check the disk");
  }
  return absl::OkStatus();
}

// The user's name; the number of one that has none.
std::string UserName(uid_t uid) {
  struct passwd entry;
  struct passwd* found = nullptr;
  std::vector<char> buffer(size_t{16} << 10);
  const int error = getpwuid_r(uid, &entry, buffer.data(), buffer.size(), &found);
  return error == 0 && found != nullptr ? found->pw_name : absl::StrCat(uid);
}

// `what`: a file or directory of user `owner`, who is not the one that this process runs as. An
// operator who checks the manager's database is not told to change its owner: the manager would
// refuse it afterwards.
absl::Status BelongsToAnother(const std::string& what, uid_t owner, StoreOpener opener) {
  if (opener == StoreOpener::kManager) {
    return Unsafe(
        absl::StrCat(what, " belongs to user ", owner, ", the manager runs as ", geteuid()),
        "chown it, or run the manager as its owner");
  }
  const std::string user = UserName(owner);
  return Unsafe(absl::StrCat(what, " belongs to user ", user, ", and this command runs as ",
                             UserName(geteuid())),
                absl::StrCat("run the same command as that user, which root does with `runuser -u ",
                             user, " --` before it, and leave the owner as it is"));
}

// Makes the directory where it is missing, and refuses one in which somebody else could put a file
// of their own: it must be a directory, the manager's, and writable by no one else.
absl::Status CheckDirectory(const std::string& directory, StoreOpener opener) {
  struct stat found;
  if (lstat(directory.c_str(), &found) != 0 && errno == ENOENT) {
    if (mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) {
      return Unusable(absl::StrCat("cannot make directory ", directory), errno,
                      "make it by hand, owned by the manager's user, mode 0700");
    }
    if (absl::Status status = SyncDirectory(DirectoryOf(directory)); !status.ok()) return status;
  }
  if (lstat(directory.c_str(), &found) != 0) {
    return Unusable(absl::StrCat("cannot look at ", directory), errno, "check store.path");
  }
  if (S_ISLNK(found.st_mode)) {
    return Unsafe(absl::StrCat(directory, " is a symbolic link"),
                  "name the directory it leads to in store.path");
  }
  if (!S_ISDIR(found.st_mode)) {
    return Unsafe(absl::StrCat(directory, " is not a directory"), "check store.path");
  }
  if (found.st_uid != geteuid()) {
    return BelongsToAnother(absl::StrCat("directory ", directory), found.st_uid, opener);
  }
  if ((found.st_mode & 022) != 0) {
    return Unsafe(absl::StrCat("directory ", directory, " can be written by others"),
                  absl::StrCat("chmod 0700 ", directory));
  }
  return absl::OkStatus();
}

// Nothing there: OK. A symbolic link is refused, wherever it leads.
absl::Status CheckFile(const std::string& file, StoreOpener opener) {
  struct stat found;
  if (lstat(file.c_str(), &found) != 0) {
    if (errno == ENOENT) return absl::OkStatus();
    return Unusable(absl::StrCat("cannot look at ", file), errno, "check store.path");
  }
  if (!S_ISREG(found.st_mode)) {
    return Unsafe(absl::StrCat(file, S_ISLNK(found.st_mode) ? " is a symbolic link"
                                                            : " is not a regular file"),
                  "name a plain file in store.path");
  }
  if (found.st_uid != geteuid()) return BelongsToAnother(file, found.st_uid, opener);
  if ((found.st_mode & 077) != 0) {
    return Unsafe(absl::StrCat(file, " is open to others"), absl::StrCat("chmod 0600 ", file));
  }
  if (found.st_nlink != 1) {
    return Unsafe(absl::StrCat(file, " has ", found.st_nlink, " names"),
                  "remove the other hard links");
  }
  return absl::OkStatus();
}

// 0 where there is no such file.
off_t SizeOf(const std::string& file) {
  struct stat found;
  return stat(file.c_str(), &found) == 0 ? found.st_size : 0;
}

// OK: all of it is on stable storage.
absl::Status WriteAll(int fd, absl::string_view bytes, const std::string& name) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Unusable(absl::StrCat("cannot write ", name), errno, "check the disk");
    bytes.remove_prefix(written);
  }
  if (fsync(fd) != 0) return Unusable(absl::StrCat("cannot sync ", name), errno, "check the disk");
  return absl::OkStatus();
}

}  // namespace

absl::Status BackupExistsError(const std::string& path) {
  return Refuse(absl::StatusCode::kAlreadyExists, "BACKUP_EXISTS",
                absl::StrCat(path, " is there already"), "name another file, or move it away");
}

bool StoreFileExists(const std::string& path) {
  struct stat found;
  return lstat(path.c_str(), &found) == 0;
}

std::string FsckCommand(const std::string& path, absl::string_view flags) {
  if (geteuid() == 0) return absl::StrCat("`cxlpool fsck ", path, flags, "`");
  return absl::StrCat("`runuser -u ", UserName(geteuid()), " -- cxlpool fsck ", path, flags, "`");
}

// Answers the path with its directory resolved. A database that is missing or empty while files of
// its own are there is damage: a new, empty one in its place would forget what is attached.
absl::StatusOr<std::string> CheckStorePath(const std::string& path, StoreOpener opener) {
  if (path.empty() || BaseOf(path).empty()) {
    return Unsafe(absl::StrCat("store.path \"", path, "\" names no file"), "name one");
  }
  const std::string directory = DirectoryOf(path);
  if (absl::Status status = CheckDirectory(directory, opener); !status.ok()) return status;
  char* const resolved = realpath(directory.c_str(), nullptr);
  if (resolved == nullptr) {
    return Unusable(absl::StrCat("cannot resolve ", directory), errno, "check store.path");
  }
  const std::string real = absl::StrCat(resolved, "/", BaseOf(path));
  free(resolved);
  for (const char* suffix : {"", "-wal", "-head", "-journal", "-shm"}) {
    if (absl::Status status = CheckFile(real + suffix, opener); !status.ok()) return status;
  }
  if (StoreFileExists(real) && SizeOf(real) == 0) return Corrupt(absl::StrCat(real, " is empty"));
  if (!StoreFileExists(real)) {
    if (SizeOf(real + "-wal") > 0) {
      return Corrupt(
          absl::StrCat(real, " is missing, but its write-ahead log ", real, "-wal is there"));
    }
    if (StoreFileExists(real + "-head")) {
      return Corrupt(
          absl::StrCat(real, " is missing, but ", real, "-head is there, which belongs ", "to it"));
    }
  }
  return real;
}

// A file that is shorter than it was when its size was read gives what there is.
absl::StatusOr<std::string> ReadStoreFile(const std::string& path) {
  const auto failed = [&](int error) {
    return Refuse(absl::StatusCode::kUnavailable, "STORE_IO",
                  absl::StrCat("cannot read ", path, ": ", std::strerror(error)),
                  "check the disk and the kernel log, then start again");
  };
  std::string bytes;
  if (!StoreFileExists(path)) return bytes;
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd.valid()) return failed(errno);
  struct stat found;
  if (fstat(fd.get(), &found) != 0) return failed(errno);
  bytes.resize(static_cast<size_t>(found.st_size));
  size_t read_bytes = 0;
  while (read_bytes < bytes.size()) {
    const ssize_t got = read(fd.get(), bytes.data() + read_bytes, bytes.size() - read_bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return failed(errno);
    if (got == 0) break;
    read_bytes += static_cast<size_t>(got);
  }
  bytes.resize(read_bytes);
  return bytes;
}

// The file gets its name only once it is synced. A power cut before that leaves nothing but one
// under another name, PATH.new-XXXXXX.
absl::Status CreateStoreFile(const std::string& path, absl::string_view bytes) {
  std::string temporary = absl::StrCat(path, ".new-XXXXXX");
  const UniqueFd fd(mkostemp(temporary.data(), O_CLOEXEC));
  if (!fd.valid()) {
    return Unusable(absl::StrCat("cannot make ", path), errno,
                    "let the manager's user write that directory");
  }
  absl::Status status = WriteAll(fd.get(), bytes, temporary);
  const bool named = status.ok() && GiveName(temporary, path);
  if (status.ok() && !named && errno != EEXIST) {
    status = Unusable(absl::StrCat("cannot make ", path), errno, "check that file system");
  }
  if (!named) unlink(temporary.c_str());
  if (status.ok()) status = SyncDirectory(DirectoryOf(path));
  return status;
}

absl::Status SyncStoreDirectory(const std::string& path) {
  return SyncDirectory(DirectoryOf(path));
}

absl::StatusOr<std::string> CreatePartFile(const std::string& path) {
  if (path.empty() || path[0] != '/' || BaseOf(path).empty()) {
    return Refuse(absl::StatusCode::kInvalidArgument, "BACKUP_BAD_PATH",
                  absl::StrCat("\"", path, "\" is no absolute path of a file"),
                  "give one that starts with / and ends with the file's name");
  }
  if (StoreFileExists(path)) return BackupExistsError(path);
  struct stat found;
  const std::string directory = DirectoryOf(path);
  // In a sticky directory, such as /tmp, others cannot replace the file.
  if (stat(directory.c_str(), &found) == 0 && (found.st_mode & 022) != 0 &&
      (found.st_mode & S_ISVTX) == 0) {
    return Unsafe(absl::StrCat("directory ", directory, " can be written by others"),
                  "put the backup where only its user can");
  }
  std::string part = absl::StrCat(path, ".part-XXXXXX");
  const UniqueFd fd(mkostemp(part.data(), O_CLOEXEC));
  if (!fd.valid()) {
    return Unusable(absl::StrCat("cannot make ", path), errno,
                    "let the manager's user write that directory");
  }
  return part;
}

// The bytes are synced before the name is given. Where the name cannot be made durable it is taken
// back: what was reported as failed must not be there.
absl::StatusOr<uint64_t> PublishPartFile(const std::string& part, const std::string& path) {
  absl::Status status;
  struct stat found = {};
  const UniqueFd fd(open(part.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd.valid() || fstat(fd.get(), &found) != 0 || fsync(fd.get()) != 0) {
    status = Unusable(absl::StrCat("cannot sync ", part), errno, "check the disk");
  } else if (!GiveName(part, path)) {
    status = errno == EEXIST
                 ? BackupExistsError(path)
                 : Unusable(absl::StrCat("cannot make ", path), errno, "check the disk");
  }
  if (!status.ok()) {
    unlink(part.c_str());
    return status;
  }
  if (status = SyncDirectory(DirectoryOf(path)); !status.ok()) {
    unlink(path.c_str());
    return status;
  }
  return static_cast<uint64_t>(found.st_size);
}

absl::Status CheckLogIsEmpty(const std::string& path) {
  if (SizeOf(path + "-wal") == 0 || CXLPOOL_MUTANT("copy-without-its-log")) {
    return absl::OkStatus();
  }
  return Refuse(absl::StatusCode::kUnavailable, "STORE_IO",
                absl::StrCat("cannot copy the log of ", path, " into it"),
                "see that the disk has room and works, then try again");
}

void RemoveEmptyLog(const std::string& path) {
  const std::string log = path + "-wal";
  if (StoreFileExists(log) && SizeOf(log) == 0) unlink(log.c_str());
}

absl::Status PublishBytes(absl::string_view bytes, const std::string& path) {
  absl::StatusOr<std::string> part = CreatePartFile(path);
  if (!part.ok()) return part.status();
  absl::Status status;
  {
    const UniqueFd fd(open(part->c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW));
    status = fd.valid() ? WriteAll(fd.get(), bytes, *part)
                        : Unusable(absl::StrCat("cannot write ", *part), errno, "check the disk");
  }
  if (!status.ok()) {
    unlink(part->c_str());
    return status;
  }
  return PublishPartFile(*part, path).status();
}

// Until the last rename `path` is the old database. Its log and its head file may be gone by then,
// so the caller has copies of both.
absl::Status ReplaceStoreFile(const std::string& fresh, const std::string& path) {
  const UniqueFd fd(open(fresh.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd.valid() || fsync(fd.get()) != 0) {
    return Unusable(absl::StrCat("cannot sync ", fresh), errno, "check the disk");
  }
  // The files beside it go first, for good: after a power cut, the old log beside the new file
  // would be read into it, and the old head file would speak of another store. Emptying them is not
  // enough, since that was never synced.
  for (const char* suffix : {"-wal", "-head"}) {
    const std::string name = path + suffix;
    if (unlink(name.c_str()) != 0 && errno != ENOENT) {
      return Unusable(absl::StrCat("cannot remove ", name), errno, "check the disk");
    }
  }
  if (absl::Status status = SyncDirectory(DirectoryOf(path)); !status.ok()) return status;
  if (rename(fresh.c_str(), path.c_str()) != 0) {
    return Unusable(absl::StrCat("cannot replace ", path), errno, "check the disk");
  }
  return SyncDirectory(DirectoryOf(path));
}

}  // namespace cxlpool::fm
