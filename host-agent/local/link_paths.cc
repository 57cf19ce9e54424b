#include "host-agent/local/link_paths.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "host-agent/local/access_list.h"
#include "proto/support/mutant.h"
#include "proto/support/refusal.h"
#include "proto/support/unique_fd.h"

namespace cxlpool::agent {
namespace {

constexpr size_t kMaxListBytes = 64 << 10;  // Of an extended attribute (XATTR_SIZE_MAX).
constexpr size_t kMaxMountsBytes = 1 << 20;
constexpr mode_t kFolderMode = 0755;

absl::Status PathFailed(const std::string& path, absl::string_view doing, int error) {
  if (error == ENOTSUP) {
    return Refuse(absl::StatusCode::kUnimplemented, "PATH_UNSUPPORTED",
                  absl::StrCat("the file system of ", path, " has no POSIX access lists"),
                  "open it without as_file, or use a kernel with CONFIG_TMPFS_POSIX_ACL");
  }
  return Refuse(absl::StatusCode::kInternal, "PATH_FAILED",
                absl::StrCat("cannot ", doing, " ", path, ": ", std::strerror(error)),
                "see that the agent may write /dev/cxlpool and owns the DAX devices");
}

// The names in a folder, without "." and ".."; none if it is no folder. A link to one is none.
std::vector<std::string> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return names;
  DIR* const opened = ::fdopendir(fd);
  if (opened == nullptr) {
    ::close(fd);
    return names;
  }
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(opened, &::closedir);
  while (const dirent* entry = ::readdir(entries.get())) {
    const absl::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  return names;
}

// Where a link points, as it is written there; "" if it is none.
std::string LinkText(const std::string& link) {
  std::array<char, PATH_MAX> text;
  const ssize_t length = ::readlink(link.c_str(), text.data(), text.size());
  return length <= 0 ? std::string() : std::string(text.data(), static_cast<size_t>(length));
}

// Whether `path` is `folder`, or below it.
bool IsBelow(absl::string_view path, absl::string_view folder) {
  if (folder == "/") return true;
  return absl::StartsWith(path, folder) &&
         (path.size() == folder.size() || path[folder.size()] == '/');
}

// Where a folder is, by a list of mounts (proc_pid_mountinfo(5)): "0:6 /sub" is a part of the file
// system of that device. The list does not say: NOT_FOUND. OUT_OF_RANGE: it is too long.
absl::StatusOr<std::string> PlaceOf(const std::string& folder, const std::string& list) {
  const UniqueFd file(::open(list.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text(kMaxMountsBytes, '\0');
  size_t size = 0;
  ssize_t got = 1;
  while (got > 0 && size < text.size()) {
    got = ::read(file.get(), text.data() + size, text.size() - size);
    if (got > 0) size += static_cast<size_t>(got);
  }
  if (got > 0) {
    return absl::OutOfRangeError(absl::StrCat(list, " has ", kMaxMountsBytes, " bytes or more"));
  }
  if (got < 0) return absl::NotFoundError(absl::StrCat(list, " cannot be read"));
  text.resize(size);
  std::string mounted_at;
  std::optional<std::string> place;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    // Its number, its parent's, the device, the root in the file system, the mount point, the rest.
    const std::vector<absl::string_view> words = absl::StrSplit(line, absl::MaxSplits(' ', 5));
    if (words.size() < 6 || !IsBelow(folder, words[4])) continue;
    // The longest mount point has it; of two mounts on one, the later lies on top.
    if (place.has_value() && words[4].size() < mounted_at.size()) continue;
    mounted_at = std::string(words[4]);
    const absl::string_view below =
        absl::string_view(folder).substr(mounted_at == "/" ? 0 : mounted_at.size());
    place = absl::StrCat(words[2], " ", words[3] == "/" ? "" : words[3], below);
  }
  if (!place.has_value()) return absl::NotFoundError(absl::StrCat(list, " lacks ", folder));
  return *std::move(place);
}

// A folder of the agent's that everybody may search, made where it is missing.
absl::Status MakeFolder(const std::string& folder) {
  if (::mkdir(folder.c_str(), kFolderMode) != 0) {
    struct stat there = {};
    if (errno != EEXIST) return PathFailed(folder, "make", errno);
    if (::lstat(folder.c_str(), &there) != 0) return PathFailed(folder, "look at", errno);
    if (!S_ISDIR(there.st_mode)) return PathFailed(folder, "make", ENOTDIR);
  }
  // The agent's umask takes away what others need.
  if (::chmod(folder.c_str(), kFolderMode) != 0) return PathFailed(folder, "open", errno);
  return absl::OkStatus();
}

enum class Rights { kExactly, kNoMore };

// Lets exactly these users at the node besides whom its owner, group and mode let; with kNoMore,
// only those of them whom it lets at it now. `node` may be a link to it. What is looked at and what
// is set are one inode, whatever device has the name meanwhile. A node that is gone has no users:
// OK if none are to be added.
absl::Status SetUsers(const std::string& node, std::vector<PathUser> users, Rights rights) {
  const bool adds = rights == Rights::kExactly && !users.empty();
  // The agent does not open the device itself by this, and needs no right to read it.
  const UniqueFd file(::open(node.c_str(), O_PATH | O_CLOEXEC));
  if (!file.valid()) {
    if ((errno == ENOENT || errno == ENOTDIR) && !adds) return absl::OkStatus();
    return PathFailed(node, "look at", errno);
  }
  struct stat there = {};
  if (::fstat(file.get(), &there) != 0) return PathFailed(node, "look at", errno);
  if (!S_ISCHR(there.st_mode) && !S_ISREG(there.st_mode)) {
    return PathFailed(node, "show", EINVAL);
  }
  // fsetxattr takes no descriptor of O_PATH.
  const std::string inode = absl::StrCat("/proc/self/fd/", file.get());
  AccessList list = AccessListOfMode(there.st_mode);
  std::string bytes(kMaxListBytes, '\0');
  const ssize_t got = ::getxattr(inode.c_str(), kAccessListAttribute, bytes.data(), bytes.size());
  if (got >= 0) {
    // Then the group's bits of the mode are the mask.
    bytes.resize(static_cast<size_t>(got));
    const std::optional<AccessList> found = DecodeAccessList(bytes);
    if (!found.has_value()) return PathFailed(node, "read the access list of", EBADMSG);
    list = *found;
  } else if (errno == ENOTSUP && !adds) {
    return absl::OkStatus();
  } else if (errno != ENODATA) {
    return PathFailed(node, "read the access list of", errno);
  }
  if (rights == Rights::kNoMore && !CXLPOOL_MUTANT("narrow-adds")) users = NamedOf(list, users);
  const AccessList wanted = WithUsers(list, users);
  if (wanted == list) return absl::OkStatus();
  // A list without named users is the mode again: the kernel keeps no attribute for it.
  bytes = EncodeAccessList(wanted);
  if (::setxattr(inode.c_str(), kAccessListAttribute, bytes.data(), bytes.size(), 0) != 0) {
    return PathFailed(node, "set the access list of", errno);
  }
  return absl::OkStatus();
}

}  // namespace

LinkPaths::LinkPaths(std::string root, std::string proc)
    : root_(std::move(root)),
      parent_(std::filesystem::path(root_).parent_path().string()),
      proc_(std::move(proc)) {}

// Goes by the links, which are there before a right is given and until it was taken back.
absl::Status LinkPaths::TakeBackAll() {
  absl::Status first;
  for (const std::string& folder : NamesIn(root_)) {
    const std::string path = absl::StrCat(root_, "/", folder);
    for (const std::string& name : NamesIn(path)) {
      const std::string link = absl::StrCat(path, "/", name);
      if (LinkText(link).empty()) continue;  // Not ours.
      absl::Status status;
      if (!CXLPOOL_MUTANT("left-at-start")) status = SetUsers(link, {}, Rights::kExactly);
      if (status.ok() && ::unlink(link.c_str()) != 0) status = PathFailed(link, "remove", errno);
      first.Update(status);
    }
    ::rmdir(path.c_str());  // Something that is not ours may be in it.
  }
  return first;
}

absl::Status LinkPaths::CheckCaller(int pid) const {
  if (CXLPOOL_MUTANT("other-namespace-served")) return absl::OkStatus();
  const absl::StatusOr<std::string> ours = PlaceOf(parent_, absl::StrCat(proc_, "/self/mountinfo"));
  const absl::StatusOr<std::string> theirs =
      PlaceOf(parent_, absl::StrCat(proc_, "/", pid, "/mountinfo"));
  if (pid > 0 && ours.ok() && theirs.ok() && *ours == *theirs) return absl::OkStatus();
  for (const absl::Status& status : {ours.status(), theirs.status()}) {
    if (!absl::IsOutOfRange(status)) continue;
    return Refuse(absl::StatusCode::kFailedPrecondition, "OTHER_NAMESPACE",
                  absl::StrCat("the agent cannot tell whether the calling process has its ",
                               parent_, ": ", status.message()),
                  "reduce the mounts of this host, or open it without as_file");
  }
  return Refuse(absl::StatusCode::kFailedPrecondition, "OTHER_NAMESPACE",
                absl::StrCat("the calling process does not have the agent's ", parent_,
                             ": it is in a container, or has ended"),
                absl::StrCat("give the container the host's ", parent_,
                             " and PID namespace, or open it without as_file"));
}

absl::StatusOr<std::string> LinkPaths::Show(const std::string& folder, const std::string& node,
                                            const std::vector<PathUser>& users) {
  const std::string path = absl::StrCat(root_, "/", folder);
  const std::filesystem::path target(node);
  const std::string link = absl::StrCat(path, "/", target.filename().string());
  const std::string text = target.lexically_relative(path).string();
  if (absl::Status s = MakeFolder(root_); !s.ok()) return s;
  if (absl::Status s = MakeFolder(path); !s.ok()) return s;
  const std::string there = LinkText(link);
  if (there != text) {
    if (!there.empty() && ::unlink(link.c_str()) != 0) return PathFailed(link, "replace", errno);
    if (::symlink(text.c_str(), link.c_str()) != 0) return PathFailed(link, "make", errno);
  }
  if (absl::Status s = SetUsers(node, users, Rights::kExactly); !s.ok()) {
    // Users that had it before have it still, and find it by the link that was there.
    if (there.empty()) Hide(folder, node).IgnoreError();
    return s;
  }
  return link;
}

absl::Status LinkPaths::Narrow(const std::string& node, const std::vector<PathUser>& users) {
  return SetUsers(node, users, Rights::kNoMore);
}

absl::Status LinkPaths::Hide(const std::string& folder, const std::string& node) {
  if (absl::Status s = SetUsers(node, {}, Rights::kExactly); !s.ok()) return s;
  const std::string path = absl::StrCat(root_, "/", folder);
  const std::string link = absl::StrCat(path, "/", std::filesystem::path(node).filename().string());
  if (::unlink(link.c_str()) != 0 && errno != ENOENT && errno != ENOTDIR) {
    return PathFailed(link, "remove", errno);
  }
  ::rmdir(path.c_str());  // Another device of the same Region may be in it.
  return absl::OkStatus();
}

}  // namespace cxlpool::agent
