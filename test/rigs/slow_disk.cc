#include "test/rigs/slow_disk.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace cxlpool {
namespace {

namespace fs = std::filesystem;

constexpr char kOld[] = "/sys/fs/cgroup/blkio";         // Version 1.
constexpr char kNew[] = "/sys/fs/cgroup";               // Version 2.
constexpr absl::string_view kPrefix = "cxlpool-slow-";  // And the number of the program.

bool IsOld() { return access(kOld, F_OK) == 0; }
std::string Groups() { return IsOld() ? kOld : kNew; }

// The kernel takes or refuses what is written to a group's file at once.
absl::Status Write(const std::string& file, const std::string& text) {
  std::ofstream to(file);
  to << text << std::flush;
  if (to) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("cannot make a disk slow: writing \"", text, "\" to ", file, ": ",
                   strerror(errno), " (needs root, control groups below ", kNew,
                   ", and a kernel with CONFIG_BLK_DEV_THROTTLING)"));
}

// The whole disk, as MAJOR:MINOR: a partition cannot be throttled. Empty: it is on none.
std::string DiskOf(const std::string& directory) {
  struct stat found;
  if (stat(directory.c_str(), &found) != 0) return "";
  const fs::path device =
      absl::StrCat("/sys/dev/block/", major(found.st_dev), ":", minor(found.st_dev));
  std::error_code error;
  const bool part = fs::exists(device / "partition", error);
  std::ifstream file(part ? fs::canonical(device, error).parent_path() / "dev" : device / "dev");
  std::string number;
  file >> number;
  return number;
}

// The group that `pid` is in, of those that can throttle.
std::string GroupOf(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/cgroup"));
  for (std::string line; std::getline(file, line);) {  // "4:blkio:/a", or "0::/a".
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    const std::vector<std::string> of = absl::StrSplit(parts[1], ',');
    const bool old = std::find(of.begin(), of.end(), "blkio") != of.end();
    if (IsOld() ? old : parts[0] == "0") return Groups() + parts[2];
  }
  return Groups();
}

// Groups of programs that were killed: those in them have ended, too.
void RemoveOrphans() {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(Groups(), error)) {
    const std::string name = entry.path().filename().string();
    if (!absl::StartsWith(name, kPrefix)) continue;
    if (!fs::exists("/proc/" + name.substr(kPrefix.size()), error)) rmdir(entry.path().c_str());
  }
}

}  // namespace

// The limit is set before the process is put into the group, so that no write of it goes by without
// one. What was made is taken back where a step fails: `slow` goes then.
absl::StatusOr<std::unique_ptr<SlowDisk>> SlowDisk::Make(pid_t pid, const std::string& directory,
                                                         int writes_a_second) {
  RemoveOrphans();
  const std::string disk = DiskOf(directory);
  if (disk.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "cannot make a disk slow: ", directory, " is on none (set TMPDIR to a directory on one)"));
  }
  const std::string group = absl::StrCat(Groups(), "/", kPrefix, getpid());
  auto slow = std::unique_ptr<SlowDisk>(new SlowDisk(pid, group, GroupOf(pid), disk));
  absl::Status status;
  if (!IsOld()) status = Write(Groups() + "/cgroup.subtree_control", "+io");
  mkdir(group.c_str(), 0700);  // That it failed is seen at the next write.
  if (status.ok()) {
    status = IsOld() ? Write(group + "/blkio.throttle.write_iops_device",
                             absl::StrCat(disk, " ", writes_a_second))
                     : Write(group + "/io.max", absl::StrCat(disk, " wiops=", writes_a_second));
  }
  if (status.ok()) status = Write(group + "/cgroup.procs", absl::StrCat(pid));
  if (!status.ok()) return status;
  return slow;
}

// Puts the process back where it was: a group with somebody in it cannot be removed. It may have
// ended meanwhile, and is in no group then.
SlowDisk::~SlowDisk() {
  Write(before_ + "/cgroup.procs", absl::StrCat(pid_)).IgnoreError();
  rmdir(group_.c_str());
}

// "254:0 Write 17", or "254:0 rbytes=0 wbytes=69632 rios=0 wios=17 dbytes=0 dios=0".
uint64_t SlowDisk::writes() const {
  std::ifstream file(group_ + (IsOld() ? "/blkio.throttle.io_serviced" : "/io.stat"));
  std::string line;
  while (std::getline(file, line)) {
    const std::vector<std::string> words = absl::StrSplit(line, absl::ByAnyChar(" ="));
    for (size_t i = 1; i + 1 < words.size() && words[0] == disk_; ++i) {
      uint64_t times = 0;
      if ((words[i] == "Write" || words[i] == "wios") && absl::SimpleAtoi(words[i + 1], &times)) {
        return times;
      }
    }
  }
  return 0;
}

}  // namespace cxlpool
