// Asking a host's agent to do a DeviceTask (proto/cxlpool/v1/host_service.proto), for a fabric
// whose hosts are the fabric (adapters/fabric_shared).
//
// Any thread; Ask blocks its caller, never the core.
#ifndef CXLPOOL_FABRIC_MANAGER_PORTS_AGENT_TASKS_H_
#define CXLPOOL_FABRIC_MANAGER_PORTS_AGENT_TASKS_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cxlpool/v1/host_service.pb.h"

namespace cxlpool::fm {

class AgentTasks {
 public:
  virtual ~AgentTasks() = default;

  // The boot id under which the host's agent has its session now; empty: it has none.
  virtual std::string LifeOf(const std::string& host) = 0;

  // Which session of the host's agent it has now, counted from 1 in this life of the manager; 0: it
  // has none.
  virtual uint64_t SessionOf(const std::string& host) = 0;

  // Hands the task to the host's agent and waits for its answer. `life`: the boot id that is meant;
  // `session`: that one and no other, where it is not 0.
  // The agent's refusals. UNAVAILABLE/HOST_UNREACHABLE: no such session, or it ended before the
  // answer; DEADLINE_EXCEEDED/NO_ANSWER; CANCELLED after Stop. After these three, and
  // after the agent's KERNEL_TIMEOUT, it may have been done, or may still be.
  virtual absl::StatusOr<v1::DeviceLook> Ask(const std::string& host, const std::string& life,
                                             uint64_t session, v1::DeviceTask task,
                                             absl::Duration timeout) = 0;

  // Calls `on_session` whenever a session of a host began or ended, from the core's thread: it does
  // not block. Once, before any session.
  virtual void SetOnSession(std::function<void(const std::string& host)> on_session) = 0;

  // Ends every Ask, those to come as well.
  virtual void Stop() = 0;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_PORTS_AGENT_TASKS_H_
