#include "host-agent/adapters/linux/machine/host_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "host-agent/adapters/linux/machine/kernel_text.h"
#include "proto/support/process_stat.h"
#include "proto/support/unique_fd.h"

namespace cxlpool::agent {
namespace {

// Without links; empty: there is no such file.
std::string RealPath(const std::string& path) {
  std::unique_ptr<char, decltype(&free)> real(realpath(path.c_str(), nullptr), &free);
  return real == nullptr ? std::string() : std::string(real.get());
}

}  // namespace

HostFiles::HostFiles(std::string root, Kernel kernel)
    : root_(RealPath(root)), kernel_(std::move(kernel)) {
  if (root_.empty()) root_ = std::move(root);  // Missing: every read fails.
  if (!absl::EndsWith(root_, "/")) root_ += '/';
}

std::string HostFiles::Path(absl::string_view path) const { return absl::StrCat(root_, path); }

// The file up to kMaxBytes, without white space at its end; nothing: it cannot be read to there.
std::optional<std::string> HostFiles::Read(absl::string_view path) const {
  UniqueFd fd(open(Path(path).c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return std::nullopt;
  std::string text;
  char buffer[4096];
  while (text.size() < kMaxBytes) {
    const ssize_t got = read(fd.get(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return std::nullopt;
    if (got == 0) break;
    text.append(buffer, static_cast<size_t>(got));
    // sysfs gives an attribute whole; asking whether there is more would double what a look costs.
    if (static_cast<size_t>(got) < sizeof buffer && absl::StartsWith(path, "sys/")) break;
  }
  return std::string(absl::StripTrailingAsciiWhitespace(text));
}

std::optional<uint64_t> HostFiles::ReadNumber(absl::string_view path) const {
  const std::optional<std::string> text = Read(path);
  return text.has_value() ? ParseKernelNumber(*text) : std::nullopt;
}

// A line is kept until its end has been read. Of one that is longer than that, beginning and end
// stay: in /proc/PID/maps these are the numbers and the file's name.
int HostFiles::EachLine(absl::string_view path,
                        absl::FunctionRef<bool(absl::string_view line)> take) const {
  UniqueFd fd(open(Path(path).c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return errno;
  std::string line;
  const auto add = [&line](absl::string_view text) {
    line.append(text.data(), text.size());
    if (line.size() > kMaxLineBytes) line.erase(kMaxLineBytes / 2, line.size() - kMaxLineBytes);
  };
  char buffer[16 * 1024];
  while (true) {
    const ssize_t got = read(fd.get(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno;
    if (got == 0) break;
    absl::string_view text(buffer, static_cast<size_t>(got));
    for (size_t end = text.find('\n'); end != text.npos; end = text.find('\n')) {
      add(text.substr(0, end));
      if (!take(line)) return 0;
      line.clear();
      text.remove_prefix(end + 1);
    }
    add(text);
  }
  if (!line.empty()) take(line);
  return 0;
}

// `kernel_`, in tests, answers in the kernel's place where it knows the file.
int HostFiles::Write(absl::string_view path, absl::string_view text) const {
  if (kernel_ != nullptr) {
    if (const std::optional<int> done = kernel_(std::string(path), text)) return *done;
  }
  UniqueFd fd(open(Path(path).c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC));
  if (!fd.valid()) return errno;
  // One write: the kernel takes an attribute's text whole or not at all.
  const ssize_t put = write(fd.get(), text.data(), text.size());
  if (put < 0) return errno;
  return put == static_cast<ssize_t>(text.size()) ? 0 : EIO;
}

bool HostFiles::Exists(absl::string_view path) const {
  return access(Path(path).c_str(), F_OK) == 0;
}

// In order of name. On an error `entries` has what was read before it.
int HostFiles::ReadEntries(absl::string_view path, std::vector<Entry>& entries) const {
  std::unique_ptr<DIR, int (*)(DIR*)> dir(opendir(Path(path).c_str()), &closedir);
  if (dir == nullptr) return errno;
  int error = 0;
  while (true) {
    errno = 0;  // readdir() tells an error from the end only by this.
    const dirent* const entry = readdir(dir.get());
    error = errno;
    if (entry == nullptr) break;
    const absl::string_view name(entry->d_name);
    if (name != "." && name != "..") entries.push_back({std::string(name), entry->d_ino});
  }
  std::sort(entries.begin(), entries.end());
  return error;
}

std::vector<HostFiles::Entry> HostFiles::Entries(absl::string_view path) const {
  std::vector<Entry> entries;
  ReadEntries(path, entries);
  return entries;
}

std::vector<std::string> HostFiles::List(absl::string_view path) const {
  std::vector<std::string> names;
  ReadNames(path, names);
  return names;
}

int HostFiles::ReadNames(absl::string_view path, std::vector<std::string>& names) const {
  std::vector<Entry> entries;
  const int error = ReadEntries(path, entries);
  for (Entry& entry : entries) names.push_back(std::move(entry.name));
  return error;
}

// What the link says, as it stands; empty: it is no link.
std::string HostFiles::LinkText(absl::string_view path) const {
  char target[PATH_MAX];
  const ssize_t length = readlink(Path(path).c_str(), target, sizeof target);
  return length <= 0 ? std::string() : std::string(target, static_cast<size_t>(length));
}

std::string HostFiles::LinkName(absl::string_view path) const {
  const std::string text = LinkText(path);
  return text.substr(text.rfind('/') + 1);
}

// "" for what leads out of the root: a test's tree must not show the machine's own files.
std::string HostFiles::Resolve(absl::string_view path) const {
  const std::string real = RealPath(Path(path));
  return absl::StartsWith(real, root_) ? real.substr(root_.size()) : "";
}

// 0: there is no such process.
uint64_t StartTicksIn(const HostFiles& files, int pid) {
  const std::optional<std::string> stat = files.Read(absl::StrCat("proc/", pid, "/stat"));
  return stat.has_value() ? ParseStartTicks(*stat).value_or(0) : 0;
}

// "Device or resource busy (EBUSY)": words for people, the name for who looks it up.
std::string ErrnoText(int error) {
  const char* name = strerrorname_np(error);
  return absl::StrCat(strerrordesc_np(error) == nullptr ? "error" : strerrordesc_np(error), " (",
                      name == nullptr ? std::to_string(error) : name, ")");
}

std::string ReadBootId(const HostFiles& files) {
  return files.Read("proc/sys/kernel/random/boot_id").value_or("");
}

}  // namespace cxlpool::agent
