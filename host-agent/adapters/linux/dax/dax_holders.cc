#include "host-agent/adapters/linux/dax/dax_holders.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "host-agent/adapters/linux/machine/kernel_text.h"
#include "proto/support/mutant.h"
#include "proto/support/refusal.h"

namespace cxlpool::agent {
namespace {

// Lines of a process's maps, or its descriptors, between two looks at the clock.
constexpr int kLinesPerClock = 256;

// Whether the file at the end of this link is that device; nothing: it cannot be looked at. Only
// what the kernel knows by itself: a file system that somebody serves is not asked, since it may
// never answer.
std::optional<bool> IsThatDevice(const std::string& link, dev_t number) {
  struct statx found = {};
  if (statx(AT_FDCWD, link.c_str(), AT_STATX_DONT_SYNC, STATX_TYPE, &found) != 0) {
    return std::nullopt;
  }
  return S_ISCHR(found.stx_mode) && makedev(found.stx_rdev_major, found.stx_rdev_minor) == number;
}

// A search for one device in one process after the other. What cannot be read is noted, since the
// device may be held there all the same.
class HolderSearch {
 public:
  HolderSearch(const HostFiles& files, const CharDevice& device, const Deadline& deadline)
      : files_(files), device_(device), deadline_(deadline) {
    mapped_.base_name = device.name;
    struct stat node = {};
    if (stat(files.Path(absl::StrCat("dev/", device.name)).c_str(), &node) != 0) return;
    mapped_.major = major(node.st_dev);
    mapped_.minor = minor(node.st_dev);
    mapped_.inode = node.st_ino;
  }

  // Whether the process is seen to have the device open or mapped. False says nothing where then
  // late(), or unread() tells of something.
  bool Holds(int pid);

  bool late() const { return late_; }

  // What could not be read of the process that Holds() was asked for last; "" if nothing.
  const std::string& unread() const { return unread_; }

 private:
  // `folder` is that of a process in /proc, or of one of its threads.
  bool HasOpen(const std::string& folder);
  bool HasMapped(const std::string& folder, bool& has_memory);
  bool IsOtherFile(const std::string& folder, absl::string_view line) const;

  void Note(const std::string& path, int error);
  bool IsLate(int count);

  const HostFiles& files_;
  const CharDevice& device_;
  const Deadline& deadline_;
  MappedFile mapped_;
  bool late_ = false;
  std::string unread_;
};

// Looks at the process as the kernel shows it by its main thread, and where that shows no memory at
// its other threads, until one of them does.
bool HolderSearch::Holds(int pid) {
  unread_.clear();
  const std::string process = absl::StrCat("proc/", pid);
  bool has_memory = false;
  if (HasOpen(process) || HasMapped(process, has_memory)) return true;
  if (has_memory || late_ || CXLPOOL_MUTANT("main-thread-is-all")) return false;
  // Either a thread of the kernel's, or a process whose main thread has ended (pthread_exit): then
  // the kernel shows neither memory nor descriptors there, and the other threads have both still.
  std::vector<std::string> threads;
  Note(process + "/task", files_.ReadNames(process + "/task", threads));
  for (const std::string& thread : threads) {
    if (thread == std::to_string(pid)) continue;
    if (IsLate(0)) return false;
    const std::string folder = absl::StrCat(process, "/task/", thread);
    if (HasOpen(folder) || HasMapped(folder, has_memory)) return true;
    // All of them have one memory. Otherwise a process of very many threads, each of which shows
    // very many mappings, would take all the time that there is.
    if (has_memory && !CXLPOOL_MUTANT("each-thread-is-searched")) return false;
  }
  return false;
}

// A descriptor that is closed meanwhile is passed over.
bool HolderSearch::HasOpen(const std::string& folder) {
  std::vector<std::string> names;
  Note(folder + "/fd", files_.ReadNames(folder + "/fd", names));
  int count = 0;
  for (const std::string& name : names) {
    if (IsLate(++count)) return false;
    const std::string place = absl::StrCat(folder, "/fd/", name);
    const std::string path = files_.Path(place);
    char target[PATH_MAX];
    const ssize_t length = readlink(path.c_str(), target, sizeof target);
    // Anybody can have a file open whose path the kernel has no room for.
    const bool is_too_long =
        length < 0 && errno == ENAMETOOLONG && !CXLPOOL_MUTANT("a-long-path-is-unread");
    if (length < 0 && !is_too_long) Note(place, errno);
    if (length <= 0 && !is_too_long) continue;
    // Most files are passed over by their names, which is quicker.
    const absl::string_view file(target, is_too_long ? 0 : static_cast<size_t>(length));
    const bool may_be = absl::StartsWith(file, "/dev/") || absl::StrContains(file, device_.name);
    if (!may_be && !is_too_long) continue;
    // The link's own mode says what its descriptor can do. One that can neither read nor write
    // (O_PATH) holds nothing, and anybody gets it, without any right to the device.
    struct stat own = {};
    const bool is_path = lstat(path.c_str(), &own) == 0 && (own.st_mode & (S_IRUSR | S_IWUSR)) == 0;
    if (is_path && !CXLPOOL_MUTANT("a-path-is-a-holder")) continue;
    // A device can always be looked at: what cannot lies in a file system of somebody's own.
    if (IsThatDevice(path, device_.number).value_or(false)) return true;
  }
  return false;
}

// `has_memory` becomes true where the maps show anything at all. Mappings are compared by the
// node's own device and inode number, since the maps show those; descriptors by the character
// device's number.
bool HolderSearch::HasMapped(const std::string& folder, bool& has_memory) {
  bool found = false;
  int count = 0;
  Note(folder + "/maps", files_.EachLine(folder + "/maps", [&](absl::string_view line) {
    has_memory = true;
    if (IsLate(++count)) return false;
    if (count > 4096 && CXLPOOL_MUTANT("maps-are-cut")) return false;
    found = MapsShow(line, mapped_) && !IsOtherFile(folder, line);
    return !found;
  }));
  return found;
}

// Whether what is mapped there is seen to be no such device: anybody may name a file as one. False
// where it cannot be looked at: then its name counts. `line`: of the maps in `folder`, whose last
// word is the process, or the thread, by whose number the kernel has such links, too.
bool HolderSearch::IsOtherFile(const std::string& folder, absl::string_view line) const {
  const std::pair<absl::string_view, absl::string_view> range =
      absl::StrSplit(line.substr(0, line.find(' ')), absl::MaxSplits('-', 1));
  uint64_t begin = 0, end = 0;
  if (!absl::SimpleHexAtoi(range.first, &begin) || !absl::SimpleHexAtoi(range.second, &end)) {
    return false;
  }
  // Unlike the maps, these names have no zeros in front.
  const std::string link = absl::StrCat("proc/", folder.substr(folder.rfind('/') + 1),
                                        "/map_files/", absl::Hex(begin), "-", absl::Hex(end));
  const std::optional<bool> is_device = IsThatDevice(files_.Path(link), device_.number);
  return is_device == false && !CXLPOOL_MUTANT("a-name-is-a-holder");
}

// A process, or a thread, that has ended meanwhile holds nothing.
void HolderSearch::Note(const std::string& path, int error) {
  if (error == 0 || error == ENOENT || error == ESRCH) return;
  if (CXLPOOL_MUTANT("unread-is-not-held") || !unread_.empty()) return;
  unread_ = absl::StrCat("/", path, " cannot be read: ", ErrnoText(error));
}

bool HolderSearch::IsLate(int count) {
  if (count % kLinesPerClock == 0 && deadline_.passed()) late_ = true;
  return late_;
}

}  // namespace

bool NoDaxDeviceIsOpen(const HostFiles& files) {
  return files.ReadNumber("sys/module/device_dax/refcnt") == 0;
}

// "None" is answered only where every process could be looked at: the caller takes the device away
// then. Holders that were found are enough of an answer, whatever else could not be read.
absl::StatusOr<std::vector<ProcessId>> FindDeviceHolders(const HostFiles& files,
                                                         const CharDevice& device, int self,
                                                         const Deadline& deadline) {
  const auto unreadable = [&device](absl::string_view what) {
    return Refuse(
        absl::StatusCode::kUnavailable, "HOLDERS_UNKNOWN",
        absl::StrCat("the agent cannot see whether a process holds ", device.name, ": ", what),
        "run the agent as root, with the capabilities of its unit; it is tried again");
  };
  std::vector<std::string> names;
  if (const int error = files.ReadNames("proc", names); error != 0) {
    return unreadable(absl::StrCat("/proc cannot be read: ", ErrnoText(error)));
  }
  const auto too_late = [&device] {
    return Refuse(
        absl::StatusCode::kDeadlineExceeded, "KERNEL_TIMEOUT",
        absl::StrCat("looking through /proc for holders of ", device.name, " took too long"),
        "it is tried again");
  };
  HolderSearch search(files, device, deadline);
  std::vector<ProcessId> holders;
  std::string unread;
  for (const std::string& name : names) {
    int pid = 0;
    if (!absl::SimpleAtoi(name, &pid) || pid <= 0 || pid == self) continue;
    if (deadline.passed()) return too_late();
    const uint64_t start_ticks = StartTicksIn(files, pid);
    const bool holds = search.Holds(pid);
    if (search.late()) return too_late();
    // It has ended; another that has got the pid meanwhile is looked at the next time.
    if (StartTicksIn(files, pid) != start_ticks) continue;
    if (holds) holders.push_back({static_cast<uint32_t>(pid), start_ticks});
    if (!holds && unread.empty()) unread = search.unread();
  }
  if (holders.empty() && !unread.empty()) return unreadable(unread);
  std::sort(holders.begin(), holders.end());
  if (holders.size() > kMaxHolders) holders.resize(kMaxHolders);
  return holders;
}

}  // namespace cxlpool::agent
