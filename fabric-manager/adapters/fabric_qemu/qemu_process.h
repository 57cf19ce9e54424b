// The process behind a QMP socket: who it is for certain, whether it still runs, and its end.
//
// A pid is reused; together with its start time it names one process for ever (within a boot). The
// pidfd becomes readable when every thread of it has exited: then nothing of it can load or store.
// One thread.
#ifndef CXLPOOL_FABRIC_MANAGER_ADAPTERS_FABRIC_QEMU_QEMU_PROCESS_H_
#define CXLPOOL_FABRIC_MANAGER_ADAPTERS_FABRIC_QEMU_QEMU_PROCESS_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/support/unique_fd.h"

namespace cxlpool::fm {

struct ProcessName {
  pid_t pid = 0;
  uint64_t start_ticks = 0;  // Since boot: field 22 of /proc/PID/stat, proc(5).
  friend bool operator==(const ProcessName&, const ProcessName&) = default;
};

// "MACHINE/BOOT/pid:start", where BOOT is the machine's boot id, and MACHINE stands for its
// /etc/machine-id: one process for ever. What a host's fabric_incarnation is made of. Of a machine
// that has no such id, and of earlier builds, "BOOT/pid:start".
std::string FormatIncarnation(const ProcessName& name);

// A process as the records, or a file of an earlier release, remember it.
struct FormerProcess {
  ProcessName name;
  bool this_boot = false;  // Of this machine: it runs, or has ended, as /proc and its pidfd say.
  // It was of this machine, which has restarted since: it cannot run any more. Neither of the two:
  // it was of another machine, or nobody knows of which. It may run there.
  bool ended = false;
};
// Nothing: `incarnation` is none that FormatIncarnation makes, or made.
std::optional<FormerProcess> ParseIncarnation(absl::string_view incarnation);

// The same process as FormatIncarnation would name it, where it is of this boot; else as it is.
std::string CurrentForm(const std::string& incarnation);

// What releases before the records knew incarnations kept in fabric.state, a directory of this
// machine. Empty: nothing is there.
std::string ReadFormerIncarnation(const std::string& path);

class QemuProcess {
 public:
  // NOT_FOUND: it does not run any more.
  static absl::StatusOr<QemuProcess> Open(pid_t pid);

  const ProcessName& name() const { return name_; }
  int pidfd() const { return pidfd_.get(); }

  // True for ever once true.
  bool HasExited() const;

  // Waits for the exit; false where it did not come.
  bool AwaitExit(absl::Duration timeout) const;

  // Whether `thread` is one of its threads.
  bool HasThread(uint64_t thread) const;

  // SIGKILL, then waits for the exit. FAILED_PRECONDITION: it may not be killed, or did not end.
  absl::Status Kill(absl::Duration timeout) const;

 private:
  QemuProcess(ProcessName name, UniqueFd pidfd) : name_(name), pidfd_(std::move(pidfd)) {}

  ProcessName name_;
  UniqueFd pidfd_;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_ADAPTERS_FABRIC_QEMU_QEMU_PROCESS_H_
