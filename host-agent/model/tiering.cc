#include "host-agent/model/tiering.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace cxlpool::agent {
namespace {

constexpr char kDemotion[] = "demotion_enabled";
constexpr char kBalancing[] = "numa_balancing";
// Sorts before the weights: it has to be off before one is set, and comes back after them.
constexpr char kAutoWeights[] = "weighted_interleave/auto";
constexpr char kWeightOf[] = "weighted_interleave/node";

bool IsWeight(const std::string& name) { return absl::StartsWith(name, kWeightOf); }

const std::string* Find(const PolicyValues& values, const std::string& name) {
  const auto it = values.find(name);
  return it == values.end() ? nullptr : &it->second;
}

}  // namespace

// CXL memory that does not belong to the pool is left out: its use is up to the operator.
TieringNodes TieringNodesOf(const HostObservation& host) {
  TieringNodes nodes;
  nodes.own.insert(host.own_nodes.begin(), host.own_nodes.end());
  for (const ObservedHostRegion& region : host.regions) {
    if (region.dax_driver == DaxDriver::kKmem && region.online_blocks > 0 &&
        region.numa_node.has_value() &&
        std::any_of(region.serials.begin(), region.serials.end(), IsPoolSerial)) {
      nodes.pool.insert(*region.numa_node);
    }
  }
  return nodes;
}

bool IsPolicyName(const std::string& name) {
  if (name == kDemotion || name == kBalancing || name == kAutoWeights) return true;
  absl::string_view node = name;
  uint32_t number = 0;
  // Only the plain form of a number, because the name becomes part of a path.
  return absl::ConsumePrefix(&node, kWeightOf) && absl::SimpleAtoi(node, &number) &&
         absl::StrCat(number) == node;
}

// A node with processors gets the local weight even if memory of the pool is on it. kAutoWeights is
// wanted only if it is in `now`: kernels before Linux 7 do not have it, and do not need it.
PolicyValues WantedPolicy(const TieringConfig& config, const TieringNodes& nodes,
                          const PolicyValues& now) {
  PolicyValues wanted;
  if (nodes.pool.empty()) return wanted;
  if (config.demotion.has_value()) wanted[kDemotion] = *config.demotion ? "true" : "false";
  if (config.numa_balancing.has_value()) {
    wanted[kBalancing] = absl::StrCat(static_cast<int>(*config.numa_balancing));
  }
  if (!config.local_weight.has_value() && !config.pool_weight.has_value()) return wanted;
  if (Find(now, kAutoWeights) != nullptr) wanted[kAutoWeights] = "false";
  for (const int node : nodes.own) {
    if (config.local_weight.has_value()) {
      wanted[absl::StrCat(kWeightOf, node)] = absl::StrCat(*config.local_weight);
    }
  }
  for (const int node : nodes.pool) {
    if (config.pool_weight.has_value() && !nodes.own.contains(node)) {
      wanted[absl::StrCat(kWeightOf, node)] = absl::StrCat(*config.pool_weight);
    }
  }
  return wanted;
}

// Goes backwards, so that kAutoWeights comes after the weights. If another value of a setting is
// wanted now, the host's own comes back first, and PlanSet starts from that.
RestorePlan PlanRestore(const SavedPolicy& saved, const PolicyValues& wanted,
                        const PolicyValues& now) {
  RestorePlan plan;
  const std::string* automatic = Find(now, kAutoWeights);
  const bool works_weights_out = automatic != nullptr && *automatic == "true";
  // Somebody has configured the kernel so: they are the kernel's, and a write would end that.
  const bool weights_are_foreign = works_weights_out && saved.contains(kAutoWeights);
  for (auto it = saved.rbegin(); it != saved.rend(); ++it) {
    const auto& [name, setting] = *it;
    const std::string* want = Find(wanted, name);
    if (want != nullptr && *want == setting.ours) continue;
    const std::string* value = Find(now, name);
    if (value == nullptr) {
      if (IsWeight(name) && works_weights_out) plan.settled.push_back(name);
    } else if (*value == setting.before) {
      plan.settled.push_back(name);
    } else if (*value == setting.ours && !(IsWeight(name) && weights_are_foreign)) {
      plan.writes.emplace_back(name, setting.before);
    } else {
      plan.foreign.push_back(name);
    }
  }
  return plan;
}

// A setting that is already saved keeps its `before`. So after a crash the agent does not take its
// own value for the host's.
SetPlan PlanSet(const SavedPolicy& saved, const PolicyValues& wanted, const PolicyValues& now) {
  SetPlan plan{saved, {}, {}};
  for (const auto& [name, want] : wanted) {
    const std::string* value = Find(now, name);
    if (value == nullptr) {
      plan.unsupported.push_back(name);
      continue;
    }
    const SavedSetting& setting =
        plan.saved.try_emplace(name, SavedSetting{*value, want}).first->second;
    // As before, though it is saved: an agent died in between.
    if (*value == setting.before && *value != want) plan.writes.emplace_back(name, want);
  }
  return plan;
}

}  // namespace cxlpool::agent
