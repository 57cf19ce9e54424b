#include "fabric-manager/adapters/fabric_qemu/qemu_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/support/process_stat.h"

namespace cxlpool::fm {
namespace {

std::string ReadText(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

std::string BootId() {
  const std::string text = ReadText("/proc/sys/kernel/random/boot_id");
  return std::string(absl::StripAsciiWhitespace(text));
}

// glibc 2.36 declares both without C linkage, so that C++ cannot link them.
int PidfdOpen(pid_t pid) { return static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)); }
int PidfdKill(int pidfd) {
  return static_cast<int>(::syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, nullptr, 0));
}

absl::Status Errno(absl::string_view what) { return absl::ErrnoToStatus(errno, what); }

absl::Status WriteSynced(const std::string& path, const std::string& text) {
  UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file.valid()) return Errno(absl::StrCat("cannot open ", path));
  if (::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
      ::fsync(file.get()) != 0) {
    return Errno(absl::StrCat("cannot write ", path));
  }
  return absl::OkStatus();
}

}  // namespace

std::string FormatProcessName(const ProcessName& name) {
  return absl::StrCat(name.pid, ":", name.start_ticks);
}

absl::StatusOr<QemuProcess> QemuProcess::Open(pid_t pid) {
  UniqueFd pidfd(PidfdOpen(pid));
  if (!pidfd.valid() && errno == ESRCH) {
    return absl::NotFoundError(absl::StrCat("process ", pid, " does not run"));
  }
  if (!pidfd.valid()) return Errno(absl::StrCat("cannot watch process ", pid));
  auto ticks = ParseStartTicks(ReadText(absl::StrCat("/proc/", pid, "/stat")));
  QemuProcess process(ProcessName{pid, ticks.value_or(0)}, std::move(pidfd));
  // Alive after the look: what was looked at is what the pidfd watches.
  if (process.HasExited()) {
    return absl::NotFoundError(absl::StrCat("process ", pid, " has ended"));
  }
  if (!ticks.ok()) return ticks.status();
  return process;
}

bool QemuProcess::HasExited() const { return AwaitExit(absl::ZeroDuration()); }

bool QemuProcess::AwaitExit(absl::Duration timeout) const {
  pollfd poll{pidfd_.get(), POLLIN, 0};
  return ::poll(&poll, 1, static_cast<int>(absl::ToInt64Milliseconds(timeout))) == 1 &&
         (poll.revents & POLLIN) != 0;
}

bool QemuProcess::HasThread(uint64_t thread) const {
  const std::string path = absl::StrCat("/proc/", name_.pid, "/task/", thread);
  return ::access(path.c_str(), F_OK) == 0;
}

absl::Status QemuProcess::Kill(absl::Duration timeout) const {
  if (HasExited()) return absl::OkStatus();
  if (name_.pid <= 1 || name_.pid == ::getpid()) {
    return absl::FailedPreconditionError(absl::StrCat("process ", name_.pid, " is no QEMU"));
  }
  if (PidfdKill(pidfd_.get()) != 0 && errno != ESRCH) {
    const int error = errno;
    return absl::FailedPreconditionError(absl::StrCat(
        "cannot kill process ", name_.pid, ": ", absl::ErrnoToStatus(error, "kill").message()));
  }
  if (AwaitExit(timeout)) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "process ", name_.pid, " has not ended ", absl::FormatDuration(timeout), " after SIGKILL"));
}

absl::Status ProcessRecord::Save(const ProcessName& name) const {
  if (path_.empty()) return absl::OkStatus();
  const std::string fresh = path_ + ".new";
  const std::string text = absl::StrCat(BootId(), " ", name.pid, " ", name.start_ticks, "\n");
  if (absl::Status status = WriteSynced(fresh, text); !status.ok()) return status;
  if (::rename(fresh.c_str(), path_.c_str()) != 0) {
    return Errno(absl::StrCat("cannot replace ", path_));
  }
  const std::string directory = path_.substr(0, path_.rfind('/') + 1);
  const UniqueFd fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid() || ::fsync(fd.get()) != 0) return Errno(absl::StrCat("cannot sync ", directory));
  return absl::OkStatus();
}

std::optional<ProcessRecord::Former> ProcessRecord::Load() const {
  if (path_.empty()) return std::nullopt;
  const std::string text = ReadText(path_);
  const std::vector<absl::string_view> fields =
      absl::StrSplit(absl::StripAsciiWhitespace(text), ' ');
  Former former;
  if (fields.size() != 3 || !absl::SimpleAtoi(fields[1], &former.name.pid) ||
      !absl::SimpleAtoi(fields[2], &former.name.start_ticks) || former.name.pid <= 1) {
    return std::nullopt;
  }
  former.this_boot = fields[0] == BootId();
  return former;
}

}  // namespace cxlpool::fm
