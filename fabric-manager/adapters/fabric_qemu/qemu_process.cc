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
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/support/mutant.h"
#include "proto/support/process_stat.h"
#include "proto/support/sha256.h"

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

// What stands for this machine, as machine-id(5) wants it: its id is told to nobody. Empty: it has
// none.
std::string Machine() {
  const std::string text = ReadText("/etc/machine-id");
  const absl::string_view id = absl::StripAsciiWhitespace(text);
  constexpr size_t kIdDigits = 32, kBytes = 16;
  if (id.size() != kIdDigits) return "";
  return absl::BytesToHexString(Sha256({"cxlpool fabric-qemu ", id}).substr(0, kBytes));
}

std::string NameIn(absl::string_view boot, absl::string_view pid, absl::string_view start) {
  const std::string machine = Machine();
  return absl::StrCat(machine, machine.empty() ? "" : "/", boot, "/", pid, ":", start);
}

// glibc 2.36 declares both without C linkage, so that C++ cannot link them.
int PidfdOpen(pid_t pid) { return static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)); }
int PidfdKill(int pidfd) {
  return static_cast<int>(::syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, nullptr, 0));
}

absl::Status Errno(absl::string_view what) { return absl::ErrnoToStatus(errno, what); }

}  // namespace

std::string FormatIncarnation(const ProcessName& name) {
  return NameIn(BootId(), absl::StrCat(name.pid), absl::StrCat(name.start_ticks));
}

// A pid of 1 or less is refused: no QEMU has one, and such a process must not be taken for one. No
// two boots of any machines have one id, so that this one's says enough. Another one's proves the
// end of a process only where it is known to have been of this machine.
std::optional<FormerProcess> ParseIncarnation(absl::string_view incarnation) {
  std::vector<absl::string_view> parts = absl::StrSplit(incarnation, absl::ByAnyChar("/:"));
  absl::string_view machine;
  if (parts.size() == 4 && !parts[0].empty()) {
    machine = parts[0];
    parts.erase(parts.begin());
  }
  FormerProcess former;
  if (parts.size() != 3 || !absl::SimpleAtoi(parts[1], &former.name.pid) ||
      !absl::SimpleAtoi(parts[2], &former.name.start_ticks) || former.name.pid <= 1) {
    return std::nullopt;
  }
  const std::string boot = BootId();
  former.this_boot = parts[0] == boot;
  const bool here = !machine.empty() && machine == Machine();
  former.ended = !boot.empty() && !former.this_boot &&
                 (here || CXLPOOL_MUTANT("another-machines-qemu-has-ended"));
  return former;
}

std::string CurrentForm(const std::string& incarnation) {
  const auto former = ParseIncarnation(incarnation);
  return former.has_value() && former->this_boot ? FormatIncarnation(former->name) : incarnation;
}

// The file has "BOOT PID START". What is anything else counts as nothing.
std::string ReadFormerIncarnation(const std::string& path) {
  const std::vector<std::string> fields =
      absl::StrSplit(absl::StripAsciiWhitespace(ReadText(path)), ' ');
  if (fields.size() != 3) return "";
  const std::string incarnation = NameIn(fields[0], fields[1], fields[2]);
  return ParseIncarnation(incarnation).has_value() ? incarnation : "";
}

// The pidfd comes first, then the look at /proc, then whether the process of the pidfd still runs.
// In another order the start time could be that of a later process with the same pid.
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

// Kills by the pidfd, so never a process that got the pid afterwards; and neither init nor this
// process, whatever was found behind the socket. OK: it has ended, for certain.
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

}  // namespace cxlpool::fm
