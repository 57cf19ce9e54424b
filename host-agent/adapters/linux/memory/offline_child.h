// Brings memory blocks offline in a child process, so that it can be stopped.
//
// The kernel sets no limit to offlining: it may migrate pages for minutes, and only a signal ends
// it. A thread cannot be killed, a process can; so the writes are done by a child. It is forked
// and not executed: a library has no helper program to find, and all the child does is open, write
// and close (async-signal-safe, on paths made before the fork). It holds none of the parent's
// descriptors and dies with the thread that made it.
//
// Not thread-safe: for the thread that runs the rungs.
#ifndef CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_MEMORY_OFFLINE_CHILD_H_
#define CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_MEMORY_OFFLINE_CHILD_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "host-agent/support/deadline.h"
#include "proto/support/unique_fd.h"

namespace cxlpool::agent {

class OfflineChild {
 public:
  struct Outcome {
    bool killed = false;  // At the deadline.
    int error = 0;        // The first errno that was left after two passes over the files.
  };

  // Writes "offline" to each of `state_files` in turn; those that fail once more at the end.
  // UNAVAILABLE/OFFLINE_STUCK: the child of an earlier call does not even die. INTERNAL/FORK.
  absl::StatusOr<Outcome> Run(const std::vector<std::string>& state_files,
                              const Deadline& deadline);

 private:
  // True once the child has ended and is reaped.
  bool Reap(absl::Duration patience, int* wait_status);

  pid_t pid_ = -1;
  UniqueFd pidfd_;
};

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_MEMORY_OFFLINE_CHILD_H_
