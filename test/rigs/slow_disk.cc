#include "test/rigs/slow_disk.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace cxlpool {
namespace {

namespace fs = std::filesystem;

constexpr char kGroups[] = "/sys/fs/cgroup/blkio";
constexpr absl::string_view kPrefix = "cxlpool-slow-";  // And the number of the program.

absl::Status Write(const std::string& file, const std::string& text) {
  std::ofstream to(file);
  to << text << std::flush;
  if (to) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("cannot make a disk slow: writing \"", text, "\" to ", file, ": ",
                   strerror(errno), " (needs root, cgroup v1's blkio mounted at ", kGroups,
                   " and a kernel with BLK_DEV_THROTTLING)"));
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

// Groups of programs that were killed: those in them have ended, too.
void RemoveOrphans() {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(kGroups, error)) {
    const std::string name = entry.path().filename().string();
    if (!absl::StartsWith(name, kPrefix)) continue;
    if (!fs::exists("/proc/" + name.substr(kPrefix.size()), error)) rmdir(entry.path().c_str());
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<SlowDisk>> SlowDisk::Make(pid_t pid, const std::string& directory,
                                                         int writes_a_second) {
  RemoveOrphans();
  auto slow =
      std::unique_ptr<SlowDisk>(new SlowDisk(pid, absl::StrCat(kGroups, "/", kPrefix, getpid())));
  slow->disk_ = DiskOf(directory);
  if (slow->disk_.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "cannot make a disk slow: ", directory, " is on none (set TMPDIR to a directory on one)"));
  }
  mkdir(slow->group_.c_str(), 0700);  // That it failed is seen at the first write.
  absl::Status status = Write(slow->group_ + "/blkio.throttle.write_iops_device",
                              absl::StrCat(slow->disk_, " ", writes_a_second));
  if (status.ok()) status = Write(slow->group_ + "/cgroup.procs", absl::StrCat(pid));
  if (!status.ok()) return status;
  return slow;
}

// It may have ended meanwhile, and is in no group then.
SlowDisk::~SlowDisk() {
  Write(absl::StrCat(kGroups, "/cgroup.procs"), absl::StrCat(pid_)).IgnoreError();
  rmdir(group_.c_str());
}

uint64_t SlowDisk::writes() const {
  std::ifstream file(group_ + "/blkio.throttle.io_serviced");
  std::string disk, kind;
  uint64_t times = 0;
  while (file >> disk >> kind >> times) {
    if (disk == disk_ && kind == "Write") return times;
  }
  return 0;
}

}  // namespace cxlpool
