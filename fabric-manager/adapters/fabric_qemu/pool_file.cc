#include "fabric-manager/adapters/fabric_qemu/pool_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "proto/support/mutant.h"
#include "proto/support/names.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

constexpr uint64_t kBlockBytes = 1 << 20;

absl::Status Errno(absl::string_view what, absl::string_view path) {
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot ", what, " pool file ", path));
}

absl::Status BadPoolFile(const std::string& path, absl::string_view what, std::string remedy) {
  return Refuse(absl::StatusCode::kFailedPrecondition, "BAD_POOL_FILE",
                absl::StrCat("pool file ", path, " ", what), std::move(remedy));
}

// The UUID in `path`, which is made with a new one where there is no such file. It distinguishes
// this pool file from every other that may lie under the same name later. A crash leaves a whole
// file or none, because it gets its name after it is synced.
absl::StatusOr<std::string> ReadOrMakeIdentity(const std::string& path) {
  UniqueFd file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!file.valid() && errno == ENOENT) {
    const std::string fresh = path + ".new";
    const std::string text = FormatUuid(RandomUuid()) + "\n";
    (void)::unlink(fresh.c_str());
    UniqueFd made(::open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (!made.valid()) return Errno("make the identity of", path);
    if (::write(made.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
        ::fsync(made.get()) != 0 || ::rename(fresh.c_str(), path.c_str()) != 0) {
      return Errno("write the identity of", path);
    }
    file = UniqueFd(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  }
  if (!file.valid()) return Errno("open the identity of", path);
  char text[64];
  const ssize_t size = ::read(file.get(), text, sizeof(text));
  if (size < 0) return Errno("read the identity of", path);
  auto uuid =
      ParseUuid(absl::StripAsciiWhitespace(absl::string_view(text, static_cast<size_t>(size))));
  if (!uuid.ok()) return uuid.status();
  return FormatUuid(*uuid);
}

// Where the first byte lies in [from, end) that is not zero; `end`: nowhere. Holes are not read.
absl::StatusOr<uint64_t> FindByte(int file, uint64_t from, uint64_t end, absl::string_view path) {
  std::string block;
  for (uint64_t at = from; at < end;) {
    const off_t data = ::lseek(file, static_cast<off_t>(at), SEEK_DATA);
    if (data < 0 && errno == ENXIO) return end;
    if (data < 0) return Errno("seek in", path);
    at = static_cast<uint64_t>(data);
    if (at >= end) return end;
    block.resize(std::min(kBlockBytes, end - at));
    const ssize_t n = ::pread(file, block.data(), block.size(), static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return Errno("read", path);
    block.resize(static_cast<size_t>(n));
    if (const size_t bad = block.find_first_not_of('\0'); bad != std::string::npos) return at + bad;
    at += static_cast<uint64_t>(n);
  }
  return end;
}

}  // namespace

// Opens the device's file, locks it and reads its identity. After OK no other manager uses the file
// as long as this object or a copy made by Grown lives.
absl::StatusOr<PoolFile> PoolFile::Open(const std::string& path, uint64_t capacity_bytes) {
  char* canonical = ::realpath(path.c_str(), nullptr);
  PoolFile pool(canonical != nullptr ? canonical : "", capacity_bytes);
  ::free(canonical);
  pool.file_ = UniqueFd(::open(pool.path_.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC));
  struct stat info;
  if (!pool.file_.valid() || ::fstat(pool.file_.get(), &info) != 0 || !S_ISREG(info.st_mode) ||
      static_cast<uint64_t>(info.st_size) < capacity_bytes) {
    return BadPoolFile(path, absl::StrCat("is absent or shorter than ", capacity_bytes, " bytes"),
                       absl::StrCat("make it: truncate -s ", capacity_bytes, " ", path));
  }
  // Not of QEMU, which takes no such lock: of another manager, that would scrub what is ours.
  if (!CXLPOOL_MUTANT("pool-files-unlocked") && ::flock(pool.file_.get(), LOCK_EX | LOCK_NB) != 0) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "FABRIC_BUSY",
                  absl::StrCat("another manager has the pool file ", pool.path_),
                  "stop it, or give this one pool files of its own");
  }
  auto identity = ReadOrMakeIdentity(absl::StrCat(pool.path_, ".id"));
  if (!identity.ok()) {
    return BadPoolFile(path, absl::StrCat("has no identity: ", identity.status().message()),
                       absl::StrCat("let the manager write ", pool.path_, ".id, or restore it"));
  }
  pool.identity_ = *std::move(identity);
  return pool;
}

// The same file with more capacity, which the file must have already. The descriptor is of the same
// open file, and the lock goes with that one: there is no moment without it.
absl::StatusOr<PoolFile> PoolFile::Grown(uint64_t capacity_bytes) const {
  PoolFile grown(path_, capacity_bytes);
  grown.file_ = UniqueFd(::fcntl(file_.get(), F_DUPFD_CLOEXEC, 0));
  grown.identity_ = identity_;
  struct stat info;
  if (!grown.file_.valid() || ::fstat(grown.file_.get(), &info) != 0 ||
      static_cast<uint64_t>(info.st_size) < capacity_bytes) {
    return BadPoolFile(path_, absl::StrCat("is shorter than ", capacity_bytes, " bytes"),
                       absl::StrCat("make it longer: truncate -s ", capacity_bytes, " ", path_));
  }
  return grown;
}

// Whether the path still leads to the file that is open. QEMU opens by path: if somebody has put
// another file there, a host would get bytes that this manager neither scrubs nor locks.
absl::Status PoolFile::CheckInPlace() const {
  struct stat own, there;
  if (::fstat(file_.get(), &own) == 0 && ::lstat(path_.c_str(), &there) == 0 &&
      own.st_dev == there.st_dev && own.st_ino == there.st_ino) {
    return absl::OkStatus();
  }
  return BadPoolFile(path_, "was replaced while the manager runs",
                     "put the old one back, or restart the manager");
}

absl::StatusOr<bool> PoolFile::HasBytes(uint64_t from_bytes) const {
  auto first = FindByte(file_.get(), from_bytes, capacity_bytes_, path_);
  if (!first.ok()) return first.status();
  return *first < capacity_bytes_;
}

PoolScrub::PoolScrub(const PoolFile& file, uint64_t offset_bytes, uint64_t length_bytes)
    : file_(&file), offset_bytes_(offset_bytes), length_bytes_(length_bytes) {}

// One step of at most `max_bytes`; true once the whole slice is zero and was read back as zero. It
// goes over the slice twice: first it clears all of it, then, after a sync, it reads all of it, so
// that the second pass sees what another process wrote during the first.
absl::StatusOr<bool> PoolScrub::Step(uint64_t max_bytes) {
  const uint64_t length = std::min(max_bytes, length_bytes_ - done_bytes_);
  const uint64_t from = offset_bytes_ + done_bytes_;
  const bool clearing = phase_ == Phase::kClear;
  if (absl::Status status = clearing ? Clear(from, length) : Check(from, length); !status.ok()) {
    return status;
  }
  done_bytes_ += length;
  if (done_bytes_ < length_bytes_) return false;
  if (!clearing) return true;
  if (::fdatasync(file_->fd()) != 0) return Errno("sync", file_->path());
  phase_ = Phase::kCheck;
  done_bytes_ = 0;
  return false;
}

// Makes the bytes read as zero: by a hole where the file system can punch one, else by writing
// zeroes.
absl::Status PoolScrub::Clear(uint64_t from, uint64_t length) {
  if (length == 0) return absl::OkStatus();
  // Also drops the pages, so that the pool takes no more memory than it holds data.
  if (::fallocate(file_->fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(from),
                  static_cast<off_t>(length)) == 0) {
    return absl::OkStatus();
  }
  if (errno != EOPNOTSUPP && errno != ENOSYS) return Errno("punch a hole in", file_->path());
  const std::string zeroes(std::min(length, kBlockBytes), '\0');
  for (uint64_t at = from; at < from + length;) {
    const uint64_t rest = std::min<uint64_t>(zeroes.size(), from + length - at);
    const ssize_t n = ::pwrite(file_->fd(), zeroes.data(), rest, static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return Errno("write", file_->path());
    at += static_cast<uint64_t>(n);
  }
  return absl::OkStatus();
}

// SCRUB_FAILED names the first byte that is not zero.
absl::Status PoolScrub::Check(uint64_t from, uint64_t length) {
  const auto first = FindByte(file_->fd(), from, from + length, file_->path());
  if (!first.ok()) return first.status();
  if (*first == from + length) return absl::OkStatus();
  return Refuse(absl::StatusCode::kInternal, "SCRUB_FAILED",
                absl::StrCat("byte ", *first, " of pool file ", file_->path(),
                             " is not zero after its scrub"),
                "find out which process still writes the file");
}

}  // namespace cxlpool::fm
