// Whether a process of this host has ended.
//
// A process is named by its id and by when it started, so that a later one of the same id is never
// taken for it. It has ended once all of its threads have, whether or not its parent has waited for
// it; exec does not end it. Calls from the core's thread; completions come from any.
#ifndef CXLPOOL_HOST_AGENT_PORTS_PROCESS_WATCH_H_
#define CXLPOOL_HOST_AGENT_PORTS_PROCESS_WATCH_H_

#include <compare>
#include <cstdint>

#include "proto/support/executor.h"

namespace cxlpool::agent {

struct ProcessId {
  uint32_t pid = 0;          // In the agent's own PID namespace.
  uint64_t start_ticks = 0;  // After boot, field 22 of /proc/PID/stat.
  friend auto operator<=>(const ProcessId&, const ProcessId&) = default;
};

class ProcessWatch {
 public:
  virtual ~ProcessWatch() = default;

  // OK: the process has ended, or there is none such. RESOURCE_EXHAUSTED: it cannot be watched now,
  // ask again later. CANCELLED: it was forgotten, or this stopped. One watch a process at a time.
  virtual void Watch(const ProcessId& process, Done ended) = 0;

  // Ends the watch. None: no effect.
  virtual void Forget(const ProcessId& process) = 0;

  // Whether it has ended by now, or its start is not known (start_ticks is 0). Quick.
  virtual bool HasEnded(const ProcessId& process) = 0;
};

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_PORTS_PROCESS_WATCH_H_
