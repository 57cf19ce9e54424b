// A server under measurement: a child process, its CPU time, and its end.
//
// It dies with the thread that started it. Not thread-safe.
#ifndef CXLPOOL_TOOLS_BENCHES_CHILD_H_
#define CXLPOOL_TOOLS_BENCHES_CHILD_H_

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace cxlpool::bench {

class Child {
 public:
  // Runs `command`, standard output and error appended to `log`. The environment is ours.
  // UNAVAILABLE: no process could be made; that the program cannot be run shows in `log`.
  static absl::StatusOr<Child> Start(const std::vector<std::string>& command,
                                     const std::string& log);
  Child(Child&& other) noexcept;
  Child& operator=(Child&& other) noexcept;
  ~Child();  // Kill().

  // User and system time of all its threads, ended ones included.
  absl::StatusOr<absl::Duration> CpuTime() const;

  // Memory that it has in RAM, as the kernel counts it.
  absl::StatusOr<uint64_t> ResidentBytes() const;

  // Waits for it to end by itself; its exit code, or 128 and the signal.
  int Wait();

  // SIGKILL, then waits for it. Does nothing if it is gone.
  void Kill();

 private:
  explicit Child(pid_t pid) : pid_(pid) {}

  pid_t pid_ = -1;
};

// A TCP port on 127.0.0.1 that nobody has now.
absl::StatusOr<int> FreePort();

}  // namespace cxlpool::bench

#endif  // CXLPOOL_TOOLS_BENCHES_CHILD_H_
