// The operator's drain hook: asked to make a host's users let go of a segment before it is taken
// down.
//
// It helps and decides nothing: whatever its result, the release goes on, and what still holds the
// memory is found by looking. Calls from the core's thread, which they do not block; completions
// come from any. The core has at most one run under way for a segment, and asks for those of
// different segments at once.
#ifndef CXLPOOL_HOST_AGENT_PORTS_DRAIN_HOOK_H_
#define CXLPOOL_HOST_AGENT_PORTS_DRAIN_HOOK_H_

#include <optional>
#include <string>
#include <vector>

#include "host-agent/ports/process_watch.h"
#include "proto/support/executor.h"

namespace cxlpool::agent {

struct DrainRequest {
  std::string region;  // Region id, without "regions/".
  std::string tag;
  std::string mode;  // "devdax" or "system-ram".
  std::optional<int> numa_node;
  std::string dax_device;            // daxN.M; empty: none.
  std::vector<ProcessId> processes;  // Who was known to hold it; more may. Some may have ended.
  std::string reason;                // RELEASE; or why a try after it failed: HOLDERS, BLOCKS_BUSY.
};

class DrainHook {
 public:
  virtual ~DrainHook() = default;

  // Of request.processes the hook gets those that live, and no pid that is another's by now.
  //
  // OK: it ended well, within its time. FAILED_PRECONDITION/HOOK_UNSAFE: it was not run, for others
  // may write it. DRAIN_HOOK: ABORTED, it failed; DEADLINE_EXCEEDED, it was killed;
  // RESOURCE_EXHAUSTED, too many run already; INTERNAL, it could not be run; CANCELLED, the agent
  // stops.
  virtual void Run(DrainRequest request, Done done) = 0;
};

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_PORTS_DRAIN_HOOK_H_
