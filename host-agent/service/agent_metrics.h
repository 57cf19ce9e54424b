// The agent's metrics as Prometheus reads them: what it counts as it happens, and how its core
// stands at this moment. Each metric, with its name, help and labels, stands once, in the .cc.
//
// Labels are states, steps, modes and kinds: never a Region, a process or a serial.
#ifndef CXLPOOL_HOST_AGENT_SERVICE_AGENT_METRICS_H_
#define CXLPOOL_HOST_AGENT_SERVICE_AGENT_METRICS_H_

#include <array>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "cxlpool/v1/host_service.pb.h"
#include "host-agent/model/online_plan.h"
#include "proto/metrics/metrics.h"

namespace cxlpool::agent {

class AgentCore;

// Counting changes nothing of what is done. Any thread.
struct AgentMeters {
  // Of a rung: from kPowerOn to kPowerOff.
  struct OfStep {
    metrics::Histogram duration{0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60};
    metrics::Counter failures;
  };
  static constexpr size_t kSteps =
      static_cast<size_t>(Step::Kind::kPowerOff) - static_cast<size_t>(Step::Kind::kPowerOn) + 1;
  std::array<OfStep, kSteps> steps;
  OfStep& Of(Step::Kind kind) {
    return steps[static_cast<size_t>(kind) - static_cast<size_t>(Step::Kind::kPowerOn)];
  }

  // A rung that took so long. `held`: it was not taken, because processes have the memory.
  void Count(const Step& step, absl::Duration took, const absl::Status& status, bool held);

  void Count(const v1::HostEvent& event);

  // What became of tries to bring memory offline.
  metrics::Counter offline_done, offline_held, offline_timed_out, offline_failed;
  metrics::Histogram drain_duration{0.1, 0.5, 1, 5, 10, 30, 60};
  metrics::Counter drain_failures;
  metrics::Counter owner_releases;  // Regions that were released since their owner had ended.
  std::array<metrics::Counter, v1::HostEvent::Kind_ARRAYSIZE> events;  // By kind.
};

// When the agent's own certificate and that of its authority end.
struct CertificateEnds {
  absl::Time own, authority;
};

// Nothing: it has none. On the core's thread.
std::string AgentMetrics(const AgentCore& core, const std::optional<CertificateEnds>& certificates);

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_SERVICE_AGENT_METRICS_H_
