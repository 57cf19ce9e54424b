// What the kernel's memory policy is to be while memory of the pool is online as system-ram:
// [tiering] of the configuration, and how the former policy comes back.
//
// Settings go by name, their values are the kernel's text:
//   demotion_enabled           "true" or "false"
//   numa_balancing             "0" off, "1" on, "2" tiering, as the sysctl kernel.numa_balancing
//   weighted_interleave/auto   Linux 7: "true" while the kernel works the weights out by itself
//   weighted_interleave/nodeN  "1" to "255"
//
// Pure; any thread.
#ifndef CXLPOOL_HOST_AGENT_MODEL_TIERING_H_
#define CXLPOOL_HOST_AGENT_MODEL_TIERING_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "host-agent/model/observation.h"

namespace cxlpool::agent {

// The reason for what the configuration sets and this kernel does not have.
inline constexpr char kTieringUnsupported[] = "TIERING_UNSUPPORTED";

// What is not set stays as the host has it.
struct TieringConfig {
  enum class NumaBalancing { kOff, kOn, kTiering };  // In the kernel's numbers.
  std::optional<bool> demotion = {};
  std::optional<NumaBalancing> numa_balancing = {};
  std::optional<uint32_t> local_weight = {};  // 1 to 255.
  std::optional<uint32_t> pool_weight = {};
  bool empty() const {
    return !demotion.has_value() && !numa_balancing.has_value() && !local_weight.has_value() &&
           !pool_weight.has_value();
  }
};

struct TieringNodes {
  std::set<int> own;   // With processors.
  std::set<int> pool;  // With memory of the pool, some of it online.
  friend bool operator==(const TieringNodes&, const TieringNodes&) = default;
};

TieringNodes TieringNodesOf(const HostObservation& host);

using PolicyValues = std::map<std::string, std::string>;  // By name.

// A setting that is not the host's own for a while.
struct SavedSetting {
  std::string before;
  std::string ours;
  friend bool operator==(const SavedSetting&, const SavedSetting&) = default;
};
using SavedPolicy = std::map<std::string, SavedSetting>;

bool IsPolicyName(const std::string& name);

// What every setting that the configuration names is to be; nothing without memory of the pool. It
// may name settings that are not in `now`: this kernel does not have them.
PolicyValues WantedPolicy(const TieringConfig& config, const TieringNodes& nodes,
                          const PolicyValues& now);

using PolicyWrites = std::vector<std::pair<std::string, std::string>>;  // Name, value; in order.

// Takes back what is not wanted so any more. A value that is neither as it was before nor ours is
// somebody else's and stays. A setting that is not there stays saved: Linux 7 shows weights of
// online nodes only, and keeps them for when the node comes back, unless it works them out again.
struct RestorePlan {
  PolicyWrites writes;
  std::vector<std::string> foreign;  // No longer saved, and left alone.
  std::vector<std::string> settled;  // No longer saved: is as it was.
};
RestorePlan PlanRestore(const SavedPolicy& saved, const PolicyValues& wanted,
                        const PolicyValues& now);

// Sets what is wanted and is not yet ours. `saved` is to be kept before the first write.
struct SetPlan {
  SavedPolicy saved;
  PolicyWrites writes;
  std::vector<std::string> unsupported;
};
SetPlan PlanSet(const SavedPolicy& saved, const PolicyValues& wanted, const PolicyValues& now);

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_MODEL_TIERING_H_
