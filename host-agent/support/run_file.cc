#include "host-agent/support/run_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "proto/support/mutant.h"
#include "proto/support/refusal.h"
#include "proto/support/unique_fd.h"

namespace cxlpool::agent {
namespace {

std::string FirstLine(absl::string_view what, absl::string_view boot_id) {
  return absl::StrCat("cxlpool ", what, " 1 ", boot_id);
}

std::optional<std::string> ReadOwn(const std::string& path, size_t max_bytes) {
  UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat file = {};
  if (!fd.valid() || fstat(fd.get(), &file) != 0 || !S_ISREG(file.st_mode) ||
      file.st_uid != geteuid() || (file.st_mode & (S_IWGRP | S_IWOTH)) != 0 ||
      file.st_size > static_cast<off_t>(max_bytes)) {
    return std::nullopt;
  }
  std::string text(static_cast<size_t>(file.st_size), '\0');
  const ssize_t got = read(fd.get(), text.data(), text.size());
  if (got != file.st_size) return std::nullopt;
  return text;
}

}  // namespace

std::optional<std::vector<std::string>> ReadRunFile(const std::string& path, size_t max_bytes,
                                                    absl::string_view what,
                                                    absl::string_view boot_id) {
  const std::optional<std::string> text = ReadOwn(path, max_bytes);
  if (boot_id.empty() || !text.has_value() || !absl::EndsWith(*text, "\n")) return std::nullopt;
  std::vector<std::string> lines = absl::StrSplit(absl::StripSuffix(*text, "\n"), '\n');
  if (lines.front() != FirstLine(what, boot_id)) return std::nullopt;
  lines.erase(lines.begin());
  return lines;
}

absl::Status CheckRunFile(const std::string& path, absl::string_view what,
                          absl::string_view boot_id) {
  constexpr size_t kMaxBytes = size_t{4} << 20;
  const std::optional<std::string> text = ReadOwn(path, kMaxBytes);
  if (!text.has_value() || CXLPOOL_MUTANT("later-run-files-are-none")) return absl::OkStatus();
  const std::string line = text->substr(0, text->find('\n'));
  const bool is_of_this_boot = absl::StartsWith(line, absl::StrCat("cxlpool ", what, " ")) &&
                               absl::EndsWith(line, absl::StrCat(" ", boot_id));
  if (!is_of_this_boot || line == FirstLine(what, boot_id)) return absl::OkStatus();
  return Refuse(absl::StatusCode::kFailedPrecondition, "RUN_FILE_TOO_NEW",
                absl::StrCat(path,
                             " was written in this boot by an agent of a later release; "
                             "without it what this host has of the pool is not known"),
                "install that release of cxlpool-agent again, or reboot this host");
}

int WriteRunFile(const std::string& path, absl::string_view what, absl::string_view boot_id,
                 absl::string_view lines) {
  const std::string text = absl::StrCat(FirstLine(what, boot_id), "\n", lines);
  const std::string fresh = path + ".new";
  if (unlink(fresh.c_str()) != 0 && errno != ENOENT) return errno;
  UniqueFd fd(
      open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR));
  if (!fd.valid()) return errno;
  const ssize_t put = write(fd.get(), text.data(), text.size());
  if (put != static_cast<ssize_t>(text.size())) return put < 0 ? errno : ENOSPC;
  return rename(fresh.c_str(), path.c_str()) == 0 ? 0 : errno;
}

absl::Status HoldRunFile(const std::string& path) {
  const std::string lock = path + ".lock";
  UniqueFd fd(open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR));
  if (!fd.valid()) {
    return Refuse(absl::StatusCode::kUnavailable, "RUN_FILE",
                  absl::StrCat(lock, " cannot be opened: ", std::strerror(errno)),
                  "see that the directory is there and is the agent's own");
  }
  if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0 && !CXLPOOL_MUTANT("agents-overlap")) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "AGENT_RUNS",
                  absl::StrCat("another cxlpool-agent of this host holds ", lock),
                  absl::StrCat("end it (`fuser ", lock, "` names it), or wait until it has ended"));
  }
  fd.Release();  // Threads that nobody waits for may work on when everything else is taken down.
  return absl::OkStatus();
}

}  // namespace cxlpool::agent
