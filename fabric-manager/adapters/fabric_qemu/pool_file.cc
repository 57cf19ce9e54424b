#include "fabric-manager/adapters/fabric_qemu/pool_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

constexpr uint64_t kBlockBytes = 1 << 20;

absl::Status Errno(absl::string_view what, absl::string_view path) {
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot ", what, " pool file ", path));
}

}  // namespace

PoolScrub::PoolScrub(std::string path, UniqueFd file, uint64_t offset, uint64_t length)
    : path_(std::move(path)),
      file_(std::move(file)),
      offset_bytes_(offset),
      length_bytes_(length) {}

absl::StatusOr<PoolScrub> PoolScrub::Begin(const std::string& path, uint64_t offset_bytes,
                                           uint64_t length_bytes) {
  UniqueFd file(::open(path.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC));
  if (!file.valid()) return Errno("open", path);
  struct stat info;
  if (::fstat(file.get(), &info) != 0) return Errno("stat", path);
  const uint64_t size = static_cast<uint64_t>(info.st_size);
  if (!S_ISREG(info.st_mode) || offset_bytes > size || length_bytes > size - offset_bytes) {
    return absl::FailedPreconditionError(absl::StrCat("pool file ", path, " of ", size,
                                                      " bytes does not hold ", length_bytes,
                                                      " bytes at ", offset_bytes));
  }
  return PoolScrub(path, std::move(file), offset_bytes, length_bytes);
}

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
  if (::fdatasync(file_.get()) != 0) return Errno("sync", path_);
  phase_ = Phase::kCheck;
  done_bytes_ = 0;
  return false;
}

absl::Status PoolScrub::Clear(uint64_t from, uint64_t length) {
  if (length == 0) return absl::OkStatus();
  // Also drops the pages, so that the pool takes no more memory than it holds data.
  if (::fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(from),
                  static_cast<off_t>(length)) == 0) {
    return absl::OkStatus();
  }
  if (errno != EOPNOTSUPP && errno != ENOSYS) return Errno("punch a hole in", path_);
  const std::string zeroes(std::min(length, kBlockBytes), '\0');
  for (uint64_t at = from; at < from + length;) {
    const uint64_t rest = std::min<uint64_t>(zeroes.size(), from + length - at);
    const ssize_t n = ::pwrite(file_.get(), zeroes.data(), rest, static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return Errno("write", path_);
    at += static_cast<uint64_t>(n);
  }
  return absl::OkStatus();
}

absl::Status PoolScrub::Check(uint64_t from, uint64_t length) {
  const uint64_t end = from + length;
  std::string block;
  for (uint64_t at = from; at < end;) {
    // A hole reads as zeroes; what follows it has to be read.
    const off_t data = ::lseek(file_.get(), static_cast<off_t>(at), SEEK_DATA);
    if (data < 0 && errno == ENXIO) return absl::OkStatus();
    if (data < 0) return Errno("seek in", path_);
    at = static_cast<uint64_t>(data);
    if (at >= end) return absl::OkStatus();
    block.resize(std::min(kBlockBytes, end - at));
    const ssize_t n = ::pread(file_.get(), block.data(), block.size(), static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return Errno("read", path_);
    block.resize(static_cast<size_t>(n));
    if (const size_t bad = block.find_first_not_of('\0'); bad != std::string::npos) {
      return Refusal{.code = absl::StatusCode::kInternal,
                     .reason = "SCRUB_FAILED",
                     .message = absl::StrCat("byte ", at + bad, " of pool file ", path_,
                                             " is not zero after its scrub"),
                     .remedy = "find out which process still writes the file",
                     .metadata = {}}
          .ToStatus();
    }
    at += static_cast<uint64_t>(n);
  }
  return absl::OkStatus();
}

}  // namespace cxlpool::fm
