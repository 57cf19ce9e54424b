// The system calls of store_file.cc (and backup.cc, salvage.cc), passed to the DiskWatcher: the
// linker's --wrap puts these in their place, in tests alone (CMakeLists.txt).
//
// Names of temporary files are counted instead of drawn, so that a run is the same every time.
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "absl/strings/str_format.h"
#include "test/store/disk_calls.h"

namespace {

using cxlpool::fm::CurrentDiskWatcher;
using cxlpool::fm::DiskCall;
using cxlpool::fm::DiskOp;
using cxlpool::fm::DiskVerdict;

struct OpenFile {
  int file = -1;
  std::string path;
  bool directory = false;
};

std::mutex mutex;
std::map<int, OpenFile>& OpenFiles() {
  static auto* files = new std::map<int, OpenFile>;
  return *files;
}

// An entry stays until its number is given again; nothing asks for it in between.
void Remember(int fd, const std::string& path, bool made) {
  struct stat found;
  const bool directory = fstat(fd, &found) == 0 && S_ISDIR(found.st_mode);
  const int file = directory ? -1 : CurrentDiskWatcher().Opened(path, made);
  const std::lock_guard lock(mutex);
  OpenFiles()[fd] = {file, path, directory};
}

OpenFile Recall(int fd) {
  const std::lock_guard lock(mutex);
  const auto found = OpenFiles().find(fd);
  return found == OpenFiles().end() ? OpenFile{} : found->second;
}

// -1: it is to fail, and errno says how.
int Ask(const DiskCall& call) {
  const DiskVerdict verdict = CurrentDiskWatcher().Before(call);
  if (verdict.error == 0) return 0;
  errno = verdict.error;
  return -1;
}

template <typename Carry>
int GiveName(DiskOp op, const char* from, const char* to, Carry carry) {
  DiskCall call;
  call.op = op;
  call.path = from;
  call.to = to;
  if (Ask(call) != 0) return -1;
  const int result = carry();
  if (result == 0) CurrentDiskWatcher().After(call);
  return result;
}

}  // namespace

// NOLINTBEGIN(bugprone-reserved-identifier): the linker's names.
extern "C" {

int __real_open(const char* path, int flags, ...);
int __real_link(const char* from, const char* to);
int __real_rename(const char* from, const char* to);
int __real_renameat2(int from_fd, const char* from, int to_fd, const char* to, unsigned flags);
int __real_unlink(const char* path);
ssize_t __real_write(int fd, const void* from, size_t size);

int __wrap_open(const char* path, int flags, ...) {
  mode_t mode = 0;
  if ((flags & O_CREAT) != 0) {
    va_list arguments;
    va_start(arguments, flags);
    mode = va_arg(arguments, mode_t);
    va_end(arguments);
  }
  DiskCall call;
  call.path = path;
  if (Ask(call) != 0) return -1;
  const bool made = access(path, F_OK) != 0;
  const int fd = __real_open(path, flags, mode);
  if (fd >= 0) Remember(fd, path, made);
  return fd;
}

int __wrap_mkostemp(char* pattern, int flags) {
  DiskCall call;
  call.path = pattern;
  if (Ask(call) != 0) return -1;
  char* const end = pattern + std::strlen(pattern) - 6;
  for (int number = 1; number < 1000000; ++number) {
    std::memcpy(end, absl::StrFormat("%06d", number).data(), 6);
    const int fd = __real_open(pattern, flags | O_CREAT | O_EXCL | O_RDWR, 0600);
    if (fd >= 0) Remember(fd, pattern, true);
    if (fd >= 0 || errno != EEXIST) return fd;
  }
  errno = EEXIST;
  return -1;
}

ssize_t __wrap_write(int fd, const void* from, size_t size) {
  const OpenFile open = Recall(fd);
  if (open.file < 0 && open.path.empty()) return __real_write(fd, from, size);
  struct stat found = {};
  fstat(fd, &found);
  DiskCall call;
  call.op = DiskOp::kWrite;
  call.file = open.file;
  call.path = open.path;
  call.offset = call.end = static_cast<uint64_t>(found.st_size);
  call.bytes = {static_cast<const char*>(from), size};
  const DiskVerdict verdict = CurrentDiskWatcher().Before(call);
  if (verdict.error != 0) {
    call.bytes = call.bytes.substr(0, verdict.written);
    errno = verdict.error;
    if (call.bytes.empty()) return -1;
  }
  const ssize_t written = __real_write(fd, call.bytes.data(), call.bytes.size());
  if (written >= 0) CurrentDiskWatcher().After(call);
  return written;
}

int __wrap_fsync(int fd) {
  const OpenFile open = Recall(fd);
  DiskCall call;
  call.op = open.directory ? DiskOp::kSyncDirectory : DiskOp::kSync;
  call.file = open.file;
  call.path = open.path;
  if (Ask(call) != 0) return -1;
  CurrentDiskWatcher().After(call);
  return 0;
}

int __wrap_link(const char* from, const char* to) {
  return GiveName(DiskOp::kLink, from, to, [&] { return __real_link(from, to); });
}

int __wrap_rename(const char* from, const char* to) {
  return GiveName(DiskOp::kRename, from, to, [&] { return __real_rename(from, to); });
}

int __wrap_renameat2(int from_fd, const char* from, int to_fd, const char* to, unsigned flags) {
  return GiveName(DiskOp::kRename, from, to,
                  [&] { return __real_renameat2(from_fd, from, to_fd, to, flags); });
}

int __wrap_unlink(const char* path) {
  DiskCall call;
  call.op = DiskOp::kUnlink;
  call.path = path;
  if (Ask(call) != 0) return -1;
  const int result = __real_unlink(path);
  if (result == 0) CurrentDiskWatcher().After(call);
  return result;
}
}
// NOLINTEND(bugprone-reserved-identifier)
