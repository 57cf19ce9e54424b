#include "host-agent/support/file_holders.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "proto/support/mutant.h"
#include "proto/support/process_stat.h"

namespace cxlpool::agent {
namespace {

struct CloseDirectory {
  void operator()(DIR* dir) const { ::closedir(dir); }
};
using Directory = std::unique_ptr<DIR, CloseDirectory>;

// Skips a descriptor that is closed meanwhile. False for a process that this user may not look
// into.
bool HasOpen(const std::string& proc, const struct stat& file) {
  Directory dir(::opendir((proc + "/fd").c_str()));
  if (dir == nullptr) return false;
  while (const dirent* entry = ::readdir(dir.get())) {
    if (entry->d_name[0] == '.') continue;
    struct stat opened;
    if (::fstatat(::dirfd(dir.get()), entry->d_name, &opened, 0) != 0) continue;
    if (opened.st_dev == file.st_dev && opened.st_ino == file.st_ino) return true;
  }
  return false;
}

struct Range {
  uint64_t offset_bytes = 0;
  uint64_t length_bytes = UINT64_MAX;
};

// A line of /proc/PID/maps: "start-end perms offset major:minor inode   path". `has_memory` becomes
// true where there is any.
bool HasMapped(const std::string& proc, const struct stat& file, const std::string& path,
               const Range& range, bool& has_memory) {
  std::ifstream maps(proc + "/maps");
  std::string line;
  while (std::getline(maps, line)) {
    has_memory = true;
    unsigned device_major = 0;
    unsigned device_minor = 0;
    unsigned long inode = 0, start = 0, end = 0, offset = 0;
    int path_at = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx %*s %lx %x:%x %lu %n", &start, &end, &offset,
                    &device_major, &device_minor, &inode, &path_at) < 6) {
      continue;
    }
    if (inode != file.st_ino) continue;
    const bool overlaps =
        offset + (end - start) > range.offset_bytes &&
        (offset < range.offset_bytes || offset - range.offset_bytes < range.length_bytes);
    if (!overlaps) continue;
    // Stacked filesystems show another device here than stat does: then the path decides.
    if (::makedev(device_major, device_minor) == file.st_dev) return true;
    if (path_at > 0 && line.compare(path_at, path.size(), path) == 0) return true;
  }
  return false;
}

// Looks at the process as the kernel shows it by its main thread. Where that has ended
// (pthread_exit) neither memory nor descriptors are shown there, and the other threads have both
// still: then each of these is looked at.
bool Holds(uint32_t pid, const struct stat& file, const std::string& path, const Range& range,
           bool open_too) {
  bool has_memory = false;
  const auto in = [&](const std::string& proc) {
    return (open_too && HasOpen(proc, file)) || HasMapped(proc, file, path, range, has_memory);
  };
  const std::string process = absl::StrCat("/proc/", pid);
  if (in(process)) return true;
  if (has_memory || CXLPOOL_MUTANT("main-thread-holds-all")) return false;
  Directory threads(::opendir((process + "/task").c_str()));
  if (threads == nullptr) return false;
  while (const dirent* entry = ::readdir(threads.get())) {
    uint32_t thread = 0;
    if (!absl::SimpleAtoi(entry->d_name, &thread) || thread == pid) continue;
    if (in(absl::StrCat(process, "/task/", thread))) return true;
  }
  return false;
}

// The whole file is held by who has it open, too; a part of it only by who has it mapped.
absl::StatusOr<std::vector<ProcessId>> Find(const std::string& path, const Range& range,
                                            bool open_too, size_t limit) {
  std::vector<ProcessId> holders;
  struct stat file;
  if (::stat(path.c_str(), &file) != 0) return holders;
  Directory proc(::opendir("/proc"));
  if (proc == nullptr) return absl::UnavailableError("/proc cannot be read: mount it");
  const auto self = static_cast<uint32_t>(::getpid());
  while (const dirent* entry = ::readdir(proc.get())) {
    uint32_t pid = 0;
    if (!absl::SimpleAtoi(entry->d_name, &pid) || pid == self) continue;
    const uint64_t start_ticks = StartTicksOf(pid);
    const bool holds = Holds(pid, file, path, range, open_too);
    // The start is read again afterwards: if the process ended meanwhile, the pid may be another's.
    if (holds && StartTicksOf(pid) == start_ticks) holders.push_back({pid, start_ticks});
    if (holders.size() >= limit) break;
  }
  return holders;
}

}  // namespace

absl::StatusOr<std::vector<ProcessId>> FindFileHolders(const std::string& path, size_t limit) {
  return Find(path, {}, true, limit);
}

absl::StatusOr<std::vector<ProcessId>> FindFileMappers(const std::string& path,
                                                       uint64_t offset_bytes, uint64_t length_bytes,
                                                       size_t limit) {
  return Find(path, {offset_bytes, length_bytes}, false, limit);
}

}  // namespace cxlpool::agent
