// A daemon under trial: started, signalled and waited for by its own process id; what it says goes
// to a file.
//
// It dies with the thread that started it. Not thread-safe.
#ifndef CXLPOOL_TEST_CRASH_PROCESS_H_
#define CXLPOOL_TEST_CRASH_PROCESS_H_

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace cxlpool::crash {

class Process {
 public:
  Process() = default;  // None.

  // Runs `command`, standard output and error appended to `log`. `environment`: NAME=VALUE, before
  // our own. `network`: of the namespace in which it runs (setns(2)). UNAVAILABLE: no process could
  // be made; that the program cannot be run shows in `log`.
  static absl::StatusOr<Process> Start(const std::vector<std::string>& command,
                                       const std::string& log,
                                       const std::vector<std::string>& environment = {},
                                       std::optional<int> network = std::nullopt);
  Process(Process&& other) noexcept;
  Process& operator=(Process&& other) noexcept;
  ~Process();  // Kill().

  bool started() const { return pid_ > 0; }  // And not waited for since.
  void Signal(int signal) const;

  // Waits for its end: the exit code, or 128 and the signal. DEADLINE_EXCEEDED: it goes on.
  absl::StatusOr<int> Wait(absl::Duration limit);

  // SIGKILL, then waits for it. Does nothing if it is gone.
  void Kill();

 private:
  pid_t pid_ = -1;
};

// The last lines of a file.
std::string TailOf(const std::string& path, size_t bytes = 1500);

}  // namespace cxlpool::crash

#endif  // CXLPOOL_TEST_CRASH_PROCESS_H_
