// DrainHook by a program of the operator's: run by itself, in a process group of its own, for no
// longer than it may.
//
// It gets what it must know in the environment, and nothing else but PATH:
//
//   CXLPOOL_REGION  name        CXLPOOL_MODE  devdax | system-ram     CXLPOOL_PIDS    "17 4711"
//   CXLPOOL_TAG     UUID        CXLPOOL_NODE  NUMA node, or empty     CXLPOOL_REASON  RELEASE |
//   CXLPOOL_DAX     daxN.M, or empty                                    HOLDERS | BLOCKS_BUSY
//   CXLPOOL_PID_STARTS  "901 77312": when each of CXLPOOL_PIDS started, field 22 of /proc/PID/stat
//
// CXLPOOL_PIDS are the first kMaxDrainPids of the processes that the core names and that live at
// that moment. One that has ended is left out, also where another process has its pid now. The hook
// compares the start again before it does something to a process: it may end, and its pid be given
// away, at any time.
//
// Its working directory is /, its input empty; the first 4 KiB of its output go to the log. When it
// ends, or its time is up, what is left of its process group is killed.
//
// At most kMaxDrainRuns run at a time. One more, and one for which no thread is to be had, ends
// with RESOURCE_EXHAUSTED at once.
//
// It runs with the agent's rights, so no one else may be able to change it (CheckDrainProgram).
#ifndef CXLPOOL_HOST_AGENT_LOCAL_DRAIN_PROGRAM_H_
#define CXLPOOL_HOST_AGENT_LOCAL_DRAIN_PROGRAM_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "host-agent/ports/drain_hook.h"
#include "proto/support/mutex.h"
#include "proto/support/unique_fd.h"

namespace cxlpool::agent {

// A thread and a process each; TasksMax of the agent's unit has room for a few tasks more of each.
inline constexpr size_t kMaxDrainRuns = 32;
inline constexpr size_t kMaxDrainPids = 64;

// As CheckProgram (proto/support/operator_program.h).
absl::StatusOr<std::string> CheckDrainProgram(const std::string& path);

// Thread-safe. Needs Linux 5.3.
class DrainProgram : public DrainHook {
 public:
  DrainProgram(std::string path, absl::Duration timeout);
  ~DrainProgram() override { Stop(); }

  // For runs from now on.
  void Set(std::string path, absl::Duration timeout);

  // Kills what runs; each run ends with CANCELLED. Later ones as well.
  void Stop();

  void Run(DrainRequest request, Done done) override;

 private:
  void Follow(uint64_t id, const std::string& path, absl::Duration timeout,
              const DrainRequest& request, Done done);
  void JoinEnded() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const UniqueFd stop_;  // eventfd: readable once Stop was called.

  Mutex mutex_;
  std::string path_ ABSL_GUARDED_BY(mutex_);
  absl::Duration timeout_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t last_id_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<uint64_t, std::thread> runs_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> ended_ ABSL_GUARDED_BY(mutex_);  // Of runs that are over: to join.
};

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_LOCAL_DRAIN_PROGRAM_H_
