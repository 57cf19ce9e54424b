// Reports to the service manager when the agent is ready, and its state in one line (sd_notify(3)).
//
// READY=1 is sent once: when the host is prepared and first is as the manager wants it, or cannot
// be brought there at once; or else kReadyDeadline after the start, if the host has been looked at,
// so that neither a manager that is away nor an unfit host holds up the boot. STATUS= is sent
// whenever it changes, before and after.
//
// A step function over Executor, on its thread, as AgentCore is.
#ifndef CXLPOOL_HOST_AGENT_SERVICE_READINESS_H_
#define CXLPOOL_HOST_AGENT_SERVICE_READINESS_H_

#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/strings/string_view.h"
#include "host-agent/service/agent_core.h"

namespace cxlpool::agent {

inline constexpr absl::Duration kReadyDeadline = absl::Seconds(20);

class Readiness {
 public:
  // `notify` takes "READY=1" and "STATUS=..."; `manager` is its address. The core outlives this.
  Readiness(const AgentCore* core, std::string manager, Executor* executor, const Clock* clock,
            absl::AnyInvocable<void(absl::string_view)> notify);

  // When the core is started. From then on it looks by itself, until it is destroyed.
  void Start();

 private:
  void Look();
  std::string Status() const;

  const AgentCore* const core_;
  const std::string manager_;
  Executor* const executor_;
  const Clock* const clock_;
  absl::AnyInvocable<void(absl::string_view)> notify_;
  absl::Duration started_at_;
  bool ready_ = false;
  std::string last_status_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_SERVICE_READINESS_H_
