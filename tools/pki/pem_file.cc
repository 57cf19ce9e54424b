#include "tools/pki/pem_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/refusal.h"
#include "proto/support/unique_fd.h"

namespace cxlpool::pki {
namespace {

constexpr size_t kMaxFileBytes = 1 << 20;

absl::Status NoAccess(const std::string& doing, const std::string& path, int error) {
  return Refuse(absl::StatusCode::kFailedPrecondition, "NO_ACCESS",
                absl::StrCat("cannot ", doing, " ", path, ": ", std::strerror(error)),
                "check its owner, its mode and the space on that disk");
}

absl::Status WriteAll(int fd, const std::string& text, const std::string& path) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t written = write(fd, text.data() + done, text.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return NoAccess("write", path, errno);
    done += written;
  }
  return fsync(fd) == 0 ? absl::OkStatus() : NoAccess("write", path, errno);
}

// Gives the new file to whom the one that it replaces belongs, if there is one.
absl::Status KeepOwner(int fd, const std::string& path) {
  struct stat old, made;
  if (stat(path.c_str(), &old) != 0) return absl::OkStatus();
  if (fstat(fd, &made) != 0) return NoAccess("look at", path, errno);
  if (old.st_uid == made.st_uid && old.st_gid == made.st_gid) return absl::OkStatus();
  if (fchown(fd, old.st_uid, old.st_gid) == 0) return absl::OkStatus();
  return NoAccess("keep the owner of", path, errno);
}

// Gives the temporary file its name.
absl::Status Publish(const std::string& temporary, const std::string& path, bool replace) {
  if (replace) {
    if (rename(temporary.c_str(), path.c_str()) != 0) return NoAccess("write", path, errno);
    return absl::OkStatus();
  }
  if (link(temporary.c_str(), path.c_str()) == 0) return absl::OkStatus();
  if (errno != EEXIST) return NoAccess("write", path, errno);
  return Refuse(absl::StatusCode::kAlreadyExists, "FILE_EXISTS", absl::StrCat(path, " exists"),
                "--force replaces it");
}

// A new file beside `path` that has the text, on stable storage, and the mode; to replace what is
// there, its owner as well. mkostemp makes it with mode 0600: a key is never readable by others.
absl::StatusOr<std::string> WriteTemporary(const std::string& path, const std::string& text,
                                           mode_t mode, bool replace) {
  std::string temporary = absl::StrCat(path, ".new-XXXXXX");
  const UniqueFd fd(mkostemp(temporary.data(), O_CLOEXEC));
  if (!fd.valid()) return NoAccess("write", path, errno);
  absl::Status status = WriteAll(fd.get(), text, path);
  if (status.ok() && replace) status = KeepOwner(fd.get(), path);
  if (status.ok() && fchmod(fd.get(), mode) != 0) status = NoAccess("write", path, errno);
  if (status.ok()) return temporary;
  unlink(temporary.c_str());
  return status;
}

absl::Status SyncDirectoryOf(const std::string& path) {
  const UniqueFd dir(open(path.substr(0, path.rfind('/') + 1).c_str(), O_RDONLY | O_CLOEXEC));
  if (!dir.valid() || fsync(dir.get()) != 0) return NoAccess("sync the directory of", path, errno);
  return absl::OkStatus();
}

}  // namespace

// An existing directory keeps its mode, and is refused where others could write it.
absl::Status PrepareDirectory(const std::string& dir) {
  if (mkdir(dir.c_str(), 0700) != 0 && errno != EEXIST) return NoAccess("make", dir, errno);
  struct stat found;
  if (stat(dir.c_str(), &found) != 0) return NoAccess("look at", dir, errno);
  if (!S_ISDIR(found.st_mode)) return NoAccess("use", dir, ENOTDIR);
  if ((found.st_mode & 022) != 0) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "UNSAFE_DIRECTORY",
                  absl::StrCat("others can write ", dir, ", and so replace its keys"),
                  absl::StrCat("chmod 0700 ", dir));
  }
  return absl::OkStatus();
}

bool FileExists(const std::string& path) {
  struct stat found;
  return lstat(path.c_str(), &found) == 0;
}

absl::StatusOr<std::string> ReadPemFile(const std::string& path) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid() && errno == ENOENT) {
    return Refuse(absl::StatusCode::kNotFound, "NO_FILE", absl::StrCat(path, " does not exist"),
                  "check the path, or make it: `cxlpool pki issue ROLE NAME`");
  }
  if (!fd.valid()) return NoAccess("read", path, errno);
  std::string text(kMaxFileBytes, '\0');
  size_t size = 0;
  while (size < text.size()) {
    const ssize_t got = read(fd.get(), text.data() + size, text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return NoAccess("read", path, errno);
    if (got == 0) break;
    size += got;
  }
  text.resize(size);
  return text;
}

// The text is on stable storage under a temporary name before it gets its own, so that a crash
// leaves a whole file or none.
absl::Status WritePemFile(const std::string& path, const std::string& text, mode_t mode,
                          bool replace) {
  const absl::StatusOr<std::string> temporary = WriteTemporary(path, text, mode, replace);
  if (!temporary.ok()) return temporary.status();
  const absl::Status status = Publish(*temporary, path, replace);
  unlink(temporary->c_str());  // After a rename there is nothing left to remove.
  return status.ok() ? SyncDirectoryOf(path) : status;
}

// What a full disk or a wrong owner can keep from being done is done before the first gets its
// name. After that only a crash between two renames parts the old from the new.
absl::Status ReplacePemFiles(const std::vector<PemFile>& files) {
  std::vector<std::string> temporaries;
  absl::Status status;
  for (const PemFile& file : files) {
    absl::StatusOr<std::string> temporary =
        WriteTemporary(file.path, file.text, file.mode, /*replace=*/true);
    status = temporary.status();
    if (!status.ok()) break;
    temporaries.push_back(*std::move(temporary));
  }
  for (size_t i = 0; i < files.size() && status.ok(); ++i) {
    status = Publish(temporaries[i], files[i].path, /*replace=*/true);
  }
  for (const std::string& temporary : temporaries) unlink(temporary.c_str());
  for (size_t i = 0; i < files.size() && status.ok(); ++i) status = SyncDirectoryOf(files[i].path);
  return status;
}

}  // namespace cxlpool::pki
