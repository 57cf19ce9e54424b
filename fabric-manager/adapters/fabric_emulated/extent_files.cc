#include "fabric-manager/adapters/fabric_emulated/extent_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "proto/support/mutant.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

constexpr char kCopyPrefix[] = ".copy-";      // The new inode while it is being filled.
constexpr char kFencedPrefix[] = ".fenced-";  // The old one, until it has length 0.
constexpr mode_t kMode = 0600;

absl::Status ExtentError(absl::string_view what, absl::string_view name) {
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot ", what, " extent file ", name));
}

UniqueFd OpenExisting(int directory, const std::string& name) {
  return UniqueFd(::openat(directory, name.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
}

// After OK the bytes are gone for everybody, and durably: truncating takes the pages away also from
// those who have the file mapped, who get SIGBUS from then on. The length is read back, because
// another process could have made the file longer again meanwhile.
absl::Status TruncateAndVerify(int fd, absl::string_view name) {
  if (::ftruncate(fd, 0) != 0) return ExtentError("truncate", name);
  if (::fsync(fd) != 0) return ExtentError("sync", name);
  struct stat info;
  if (::fstat(fd, &info) != 0) return ExtentError("stat", name);
  if (info.st_size == 0) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("extent file ", name, " has ", info.st_size, " bytes after its truncation"));
}

// After OK nothing has this name, and that is durable: a name that comes back after a crash would
// lead to bytes that were reported as scrubbed. A name that was not there is no error.
absl::Status UnlinkAndVerify(int directory, const std::string& name) {
  if (::unlinkat(directory, name.c_str(), 0) != 0 && errno != ENOENT)
    return ExtentError("unlink", name);
  struct stat info;
  if (::fstatat(directory, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0) {
    return absl::InternalError(absl::StrCat("extent file ", name, " came back"));
  }
  return ::fsync(directory) == 0 ? absl::OkStatus() : ExtentError("sync the directory of", name);
}

// Copies the next run of data in [offset, end), and skips the hole before it: holes stay holes, so
// that the copy takes no more of the disk. Answers how many bytes it has gone on by, which may be
// fewer than asked for. ABORTED: somebody made the file shorter meanwhile.
absl::StatusOr<uint64_t> CopySome(int from, int to, uint64_t offset, uint64_t end,
                                  absl::string_view name) {
  const off_t data = ::lseek(from, static_cast<off_t>(offset), SEEK_DATA);
  if (data < 0 && errno == ENXIO) return end - offset;  // Nothing but a hole up to the file's end.
  if (data < 0) return ExtentError("seek in", name);
  if (static_cast<uint64_t>(data) >= end) return end - offset;
  const off_t hole = ::lseek(from, data, SEEK_HOLE);
  if (hole < 0) return ExtentError("seek in", name);
  const uint64_t stop = std::min(end, static_cast<uint64_t>(hole));
  off_t in = data, out = data;
  while (static_cast<uint64_t>(in) < stop) {
    const ssize_t n = ::copy_file_range(from, &in, to, &out, stop - static_cast<uint64_t>(in), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ExtentError("copy", name);
    if (n == 0) return absl::AbortedError(absl::StrCat("extent file ", name, " got shorter"));
  }
  return stop - offset;
}

}  // namespace

std::string ExtentFileName(absl::string_view tag, uint32_t extent_index) {
  return absl::StrCat(tag, ".", extent_index);
}

// Opens the file that the fenced host has, and an empty copy beside it for the hosts that stay.
// Nothing of the copy is visible under the extent's own name before Finish. NOT_FOUND: there is no
// such extent.
absl::Status ExtentSwap::Begin() {
  old_ = OpenExisting(directory_, name_);
  if (!old_.valid()) return ExtentError("open", name_);
  struct stat info;
  if (::fstat(old_.get(), &info) != 0) return ExtentError("stat", name_);
  length_bytes_ = static_cast<uint64_t>(info.st_size);
  // From here on the fenced host cannot open it any more, where users separate it from us.
  if (::geteuid() == 0 && ::fchown(old_.get(), 0, 0) != 0) return ExtentError("take back", name_);
  const std::string copy = absl::StrCat(kCopyPrefix, name_);
  new_ = UniqueFd(::openat(directory_, copy.c_str(),
                           O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, kMode));
  if (!new_.valid()) return ExtentError("make", copy);
  if (::fchmod(new_.get(), kMode) != 0) return ExtentError("set the mode of", copy);
  if (::ftruncate(new_.get(), info.st_size) != 0) return ExtentError("lengthen", copy);
  return absl::OkStatus();
}

// Copies about `max_bytes` more; true once everything is copied and the copy has taken the file's
// place. Short steps, so that the lane can answer other calls between them.
absl::StatusOr<bool> ExtentSwap::Step(uint64_t max_bytes) {
  const uint64_t end = std::min(length_bytes_, offset_bytes_ + max_bytes);
  while (offset_bytes_ < end) {
    auto passed = CopySome(old_.get(), new_.get(), offset_bytes_, end, name_);
    if (!passed.ok()) return passed.status();
    offset_bytes_ += *passed;
  }
  if (offset_bytes_ < length_bytes_) return false;
  if (absl::Status status = Finish(); !status.ok()) return status;
  return true;
}

// Gives the copy the extent's name and empties the old file, in an order that a crash may interrupt
// anywhere: at each moment the extent's name leads to all of the bytes, and whatever file does not
// have that name has one that Recover looks for.
absl::Status ExtentSwap::Finish() {
  const std::string copy = absl::StrCat(kCopyPrefix, name_);
  const std::string fenced = absl::StrCat(kFencedPrefix, name_);
  // The old inode keeps a name until it is empty, so that a crash here is made good by Recover.
  if (::linkat(directory_, name_.c_str(), directory_, fenced.c_str(), 0) != 0) {
    return ExtentError("link", name_);
  }
  if (::renameat(directory_, copy.c_str(), directory_, name_.c_str()) != 0) {
    return ExtentError("replace", name_);
  }
  if (::fsync(directory_) != 0) return ExtentError("sync the directory of", name_);
  if (absl::Status status = TruncateAndVerify(old_.get(), name_); !status.ok()) return status;
  return UnlinkAndVerify(directory_, fenced);
}

// Makes the directory where it is missing, and finishes or undoes every swap that a crash has
// interrupted. After OK each extent is one file, or none.
absl::StatusOr<ExtentFiles> ExtentFiles::Open(std::string directory) {
  // Others than root pass through it only by a name they know; the files themselves are 0600.
  const mode_t mode = ::geteuid() == 0 ? 0711 : 0700;
  if (::mkdir(directory.c_str(), mode) != 0 && errno != EEXIST)
    return ExtentError("make", directory);
  UniqueFd fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd.valid()) return ExtentError("open the directory of", directory);
  if (::fchmod(fd.get(), mode) != 0) return ExtentError("set the mode of", directory);
  ExtentFiles files(std::move(directory), std::move(fd));
  if (absl::Status status = files.RecoverAll(); !status.ok()) return status;
  return files;
}

// Recover for each extent that something is left of. The names are collected first: removing
// entries of a directory that is being read may hide others.
absl::Status ExtentFiles::RecoverAll() {
  const int listing = ::openat(directory_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* entries = listing < 0 ? nullptr : ::fdopendir(listing);
  if (entries == nullptr) return ExtentError("list", path_);
  std::set<std::string> names;
  while (const dirent* entry = ::readdir(entries)) {
    const absl::string_view file(entry->d_name);
    absl::string_view name = file;
    if (absl::ConsumePrefix(&name, kCopyPrefix) || absl::ConsumePrefix(&name, kFencedPrefix)) {
      names.emplace(name);
    }
  }
  ::closedir(entries);
  for (const std::string& name : names) {
    if (absl::Status status = Recover(name); !status.ok()) return status;
  }
  return absl::OkStatus();
}

// Ends a swap of this extent that was interrupted. Where the copy has taken the extent's name
// already, the old file still holds the bytes for the host that was fenced: it is emptied. Where it
// has not (both names lead to one inode), the copy is thrown away and the extent is as it was.
absl::Status ExtentFiles::Recover(const std::string& name) {
  const std::string fenced = absl::StrCat(kFencedPrefix, name);
  UniqueFd old = OpenExisting(directory_.get(), fenced);
  if (old.valid()) {
    struct stat old_info, live_info;
    if (::fstat(old.get(), &old_info) != 0) return ExtentError("stat", fenced);
    const bool live =
        ::fstatat(directory_.get(), name.c_str(), &live_info, AT_SYMLINK_NOFOLLOW) == 0 &&
        live_info.st_ino == old_info.st_ino;
    if (!live) {
      if (absl::Status status = TruncateAndVerify(old.get(), fenced); !status.ok()) return status;
    }
  } else if (errno != ENOENT) {
    return ExtentError("open", fenced);
  } else if (::faccessat(directory_.get(), absl::StrCat(kCopyPrefix, name).c_str(), F_OK,
                         AT_SYMLINK_NOFOLLOW) != 0) {
    return absl::OkStatus();
  }
  if (absl::Status status = UnlinkAndVerify(directory_.get(), fenced); !status.ok()) return status;
  return UnlinkAndVerify(directory_.get(), absl::StrCat(kCopyPrefix, name));
}

std::string ExtentFiles::Path(absl::string_view name) const {
  return absl::StrCat(path_, "/", name);
}

// After OK the extent is a regular file of exactly this length, which only `owner` can open. What
// has bytes keeps them: a file of another length or kind is refused, not corrected, since it may
// hold what a Region of another store wrote. `in_use`: another host has it bound, so that its owner
// must not change.
absl::Status ExtentFiles::Ensure(const std::string& name, uint64_t length_bytes, uid_t owner,
                                 bool in_use) {
  UniqueFd fd(::openat(directory_.get(), name.c_str(),
                       O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, kMode));
  if (!fd.valid()) return ExtentError("open or make", name);
  struct stat info;
  if (::fstat(fd.get(), &info) != 0) return ExtentError("stat", name);
  if (!S_ISREG(info.st_mode)) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "EXTENT_LENGTH",
                  absl::StrCat(Path(name), " is not a regular file"), "move it away and try again");
  }
  // Length 0 is new, or was cut off by a crash before anyone was shown it.
  if (info.st_size != 0 && static_cast<uint64_t>(info.st_size) != length_bytes) {
    return Refuse(
        absl::StatusCode::kFailedPrecondition, "EXTENT_LENGTH",
        absl::StrCat(Path(name), " is ", info.st_size, " bytes long, the extent ", length_bytes),
        "scrub the extent, or restore the store that fits these files");
  }
  if (::geteuid() == 0 && info.st_uid != owner) {
    if (in_use) {
      return Refuse(absl::StatusCode::kFailedPrecondition, "EXTENT_OWNER",
                    absl::StrCat(Path(name), " is bound to a host whose agent is uid ", info.st_uid,
                                 "; this host's is uid ", owner),
                    "run the agents of hosts that share a Region as one user");
    }
    if (::fchown(fd.get(), owner, static_cast<gid_t>(-1)) != 0)
      return ExtentError("give away", name);
  }
  if (::fchmod(fd.get(), kMode) != 0) return ExtentError("set the mode of", name);
  if (info.st_size == 0 && ::ftruncate(fd.get(), static_cast<off_t>(length_bytes)) != 0) {
    return ExtentError("lengthen", name);
  }
  return absl::OkStatus();
}

bool ExtentFiles::Exists(const std::string& name, uint64_t length_bytes) const {
  struct stat info;
  return ::fstatat(directory_.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 &&
         S_ISREG(info.st_mode) && static_cast<uint64_t>(info.st_size) == length_bytes;
}

// After OK no byte of the extent can be read by anybody, and it has no file. What an interrupted
// swap has left of the bytes goes first: no copy outlives the extent. An extent without a file is
// clean already.
absl::Status ExtentFiles::Scrub(const std::string& name) {
  if (!CXLPOOL_MUTANT("scrub-leaves-the-copy")) {
    if (absl::Status status = Recover(name); !status.ok()) return status;
  }
  UniqueFd fd = OpenExisting(directory_.get(), name);
  if (!fd.valid() && errno == ENOENT) return absl::OkStatus();
  if (!fd.valid()) return ExtentError("open", name);
  if (absl::Status status = TruncateAndVerify(fd.get(), name); !status.ok()) return status;
  return UnlinkAndVerify(directory_.get(), name);
}

// The swap of one extent, begun. Null where there is no such extent: no host can reach its bytes.
absl::StatusOr<std::unique_ptr<ExtentSwap>> ExtentFiles::BeginSwap(const std::string& name) {
  if (absl::Status status = Recover(name); !status.ok()) return status;
  std::unique_ptr<ExtentSwap> swap(new ExtentSwap(directory_.get(), name));
  absl::Status status = swap->Begin();
  if (absl::IsNotFound(status)) return nullptr;
  if (!status.ok()) return status;
  return swap;
}

}  // namespace cxlpool::fm
