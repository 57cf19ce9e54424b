#include "host-agent/adapters/linux/dax/dax_holders.h"

#include <limits.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "host-agent/adapters/linux/machine/kernel_text.h"
#include "proto/support/refusal.h"

namespace cxlpool::agent {
namespace {

bool HasOpen(const HostFiles& files, int pid, const CharDevice& device) {
  const std::string folder = absl::StrCat("proc/", pid, "/fd");
  for (const std::string& name : files.List(folder)) {
    const std::string path = files.Path(absl::StrCat(folder, "/", name));
    char target[PATH_MAX];
    const ssize_t length = readlink(path.c_str(), target, sizeof target);
    if (length <= 0) continue;
    // stat() of any other file could hang (a dead network mount); a device's does not.
    const absl::string_view file(target, static_cast<size_t>(length));
    if (!absl::StartsWith(file, "/dev/") && !absl::StrContains(file, device.name)) continue;
    struct stat found = {};
    if (stat(path.c_str(), &found) == 0 && S_ISCHR(found.st_mode) &&
        found.st_rdev == device.number) {
      return true;
    }
  }
  return false;
}

}  // namespace

bool NoDaxDeviceIsOpen(const HostFiles& files) {
  return files.ReadNumber("sys/module/device_dax/refcnt") == 0;
}

// Mappings are compared by the node's own device and inode number, since /proc/PID/maps shows
// those; descriptors by the character device's number.
absl::StatusOr<std::vector<ProcessId>> FindDeviceHolders(const HostFiles& files,
                                                         const CharDevice& device, int self,
                                                         const Deadline& deadline) {
  MappedFile mapped{.base_name = device.name};
  struct stat node = {};
  if (stat(files.Path(absl::StrCat("dev/", device.name)).c_str(), &node) == 0) {
    mapped.major = major(node.st_dev);
    mapped.minor = minor(node.st_dev);
    mapped.inode = node.st_ino;
  }
  std::vector<ProcessId> holders;
  for (const std::string& name : files.List("proc")) {
    int pid = 0;
    if (!absl::SimpleAtoi(name, &pid) || pid <= 0 || pid == self) continue;
    if (deadline.passed()) {
      return Refuse(
          absl::StatusCode::kDeadlineExceeded, "KERNEL_TIMEOUT",
          absl::StrCat("looking through /proc for holders of ", device.name, " took too long"),
          "it is tried again");
    }
    const uint64_t start_ticks = StartTicksIn(files, pid);
    bool holds = HasOpen(files, pid, device);
    if (!holds) {
      const std::optional<std::string> maps = files.Read(absl::StrCat("proc/", pid, "/maps"));
      holds = maps.has_value() && MapsShow(*maps, mapped);
    }
    // Another that has got the pid meanwhile is looked at the next time.
    if (holds && StartTicksIn(files, pid) == start_ticks) {
      holders.push_back({static_cast<uint32_t>(pid), start_ticks});
    }
  }
  std::sort(holders.begin(), holders.end());
  if (holders.size() > kMaxHolders) holders.resize(kMaxHolders);
  return holders;
}

}  // namespace cxlpool::agent
