#include "test/crash/bytes.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/support/unique_fd.h"

namespace cxlpool::crash {
namespace {

absl::Status Unreadable(const std::string& path) {
  const std::string text = absl::StrCat(path, ": ", strerror(errno));
  return errno == ENOENT ? absl::NotFoundError(text) : absl::UnknownError(text);
}

// The first and the last bytes, where a mark stands.
absl::Status ForEachMark(int fd, const std::string& path,
                         const std::function<absl::Status(off_t offset)>& visit) {
  struct stat found = {};
  if (fstat(fd, &found) != 0) return Unreadable(path);
  if (found.st_size < static_cast<off_t>(2 * sizeof(uint64_t))) {
    return absl::DataLossError(absl::StrCat(path, " has ", found.st_size, " bytes"));
  }
  for (const off_t offset : {off_t{0}, found.st_size - static_cast<off_t>(sizeof(uint64_t))}) {
    if (absl::Status status = visit(offset); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace

std::string ExtentFile(const std::string& tag, int extent) {
  return absl::StrCat(tag, ".", extent);
}

absl::Status ExpectZero(const std::string& path) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return Unreadable(path);
  std::vector<char> buffer(64 << 10);
  // Holes read as zero: only what was written is looked at.
  for (off_t at = 0; (at = lseek(fd.get(), at, SEEK_DATA)) >= 0;) {
    const ssize_t got = pread(fd.get(), buffer.data(), buffer.size(), at);
    if (got < 0) return Unreadable(path);
    if (std::any_of(buffer.begin(), buffer.begin() + got, [](char c) { return c != 0; })) {
      return absl::DataLossError(absl::StrCat(path, " has old bytes near ", at));
    }
    if (got == 0) break;
    at += got;
  }
  return absl::OkStatus();
}

absl::Status WriteMark(const std::string& path, uint64_t mark) {
  const UniqueFd fd(open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!fd.valid()) return Unreadable(path);
  return ForEachMark(fd.get(), path, [&](off_t offset) {
    return pwrite(fd.get(), &mark, sizeof(mark), offset) == sizeof(mark) ? absl::OkStatus()
                                                                         : Unreadable(path);
  });
}

absl::Status ExpectMark(const std::string& path, uint64_t mark) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return Unreadable(path);
  return ForEachMark(fd.get(), path, [&](off_t offset) {
    uint64_t found = 0;
    if (pread(fd.get(), &found, sizeof(found), offset) != sizeof(found)) return Unreadable(path);
    return found == mark
               ? absl::OkStatus()
               : absl::DataLossError(absl::StrCat(path, ": at ", offset, " there is ", found,
                                                  ", not what was written, ", mark));
  });
}

}  // namespace cxlpool::crash
