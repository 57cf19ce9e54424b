// The kernel's part of the online plan: what it would show after each rung, so that all rungs
// from one state to another can be played and shown as a list.
//
// Pure functions, any thread.
#ifndef CXLPOOL_TEST_RIGS_PLAYED_STEPS_H_
#define CXLPOOL_TEST_RIGS_PLAYED_STEPS_H_

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "host-agent/model/observation.h"
#include "host-agent/model/online_plan.h"

namespace cxlpool::agent {
namespace played {

inline ObservedHostRegion* MutableRegionOf(const DesiredSegment& desired, HostObservation& host) {
  const ObservedHostRegion* region = HostRegionOf(desired, host);
  return region == nullptr ? nullptr : &host.regions[region - host.regions.data()];
}

inline const std::string* BridgeNameOf(const ObservedHostRegion& region,
                                       const HostObservation& host) {
  for (const uint64_t serial : region.serials) {
    if (const ObservedMemdev* memdev = FindMemdev(host, serial)) return &memdev->host_bridge;
  }
  return nullptr;
}

inline ObservedBridge* BridgeOf(const std::string& name, HostObservation& host) {
  const ObservedBridge* bridge = FindBridge(host, name);
  return bridge == nullptr ? nullptr : &host.bridges[bridge - host.bridges.data()];
}

// The one with the highest address on the bridge; null if there is none.
inline const ObservedHostRegion* Topmost(const std::string& bridge, const HostObservation& host) {
  const ObservedHostRegion* topmost = nullptr;
  for (const ObservedHostRegion& region : host.regions) {
    const std::string* name = BridgeNameOf(region, host);
    if (name == nullptr || *name != bridge || !region.committed) continue;
    if (topmost == nullptr || region.hpa_bytes >= topmost->hpa_bytes) topmost = &region;
  }
  return topmost;
}

// The lowest number that no DAX device has.
inline std::string NewDaxDevice(const HostObservation& host) {
  for (size_t i = 0;; ++i) {
    std::string name = absl::StrCat("dax", i, ".0");
    if (std::none_of(host.regions.begin(), host.regions.end(),
                     [&](const ObservedHostRegion& r) { return r.dax_device == name; })) {
      return name;
    }
  }
}

// A node that has no memory of the host's own.
inline int PoolNode(const HostObservation& host) {
  const auto& own = host.own_nodes;
  return own.empty() ? 1 : *std::max_element(own.begin(), own.end()) + 1;
}

inline void ApplyPowerOn(const DesiredTarget& target, const DesiredSegment& desired,
                         HostObservation& host) {
  if (FindMemdev(host, target.serial) != nullptr) return;
  std::string bridge = desired.host_bridge;
  for (const ObservedBridge& seen : host.bridges) {
    if (std::find(seen.slots.begin(), seen.slots.end(), target.slot) != seen.slots.end()) {
      bridge = seen.name;
    }
  }
  host.memdevs.push_back({.serial = target.serial,
                          .slot = target.slot,
                          .name = absl::StrCat("mem", host.memdevs.size()),
                          .size_bytes = desired.length_bytes / desired.targets.size(),
                          .host_bridge = std::move(bridge)});
}

inline void ApplyCreate(const DesiredSegment& desired, HostObservation& host) {
  if (ObservedHostRegion* there = MutableRegionOf(desired, host)) {
    there->dax_device = NewDaxDevice(host);
    return;
  }
  ObservedHostRegion region;
  region.name = absl::StrCat("region", host.regions.size());
  for (const DesiredTarget& target : desired.targets) region.serials.push_back(target.serial);
  region.committed = true;
  if (const ObservedHostRegion* below = Topmost(desired.host_bridge, host)) {
    region.hpa_bytes = below->hpa_bytes + below->size_bytes;
  }
  region.size_bytes = desired.length_bytes;
  region.interleave_granularity_bytes = desired.interleave_granularity_bytes;
  region.dax_device = NewDaxDevice(host);
  region.numa_node = PoolNode(host);
  if (ObservedBridge* bridge = BridgeOf(desired.host_bridge, host)) {
    ++bridge->live_regions;
    bridge->free_window_bytes -= std::min(bridge->free_window_bytes, region.size_bytes);
    bridge->blocking_serial = region.serials.front();
  }
  host.regions.push_back(std::move(region));
}

// As kmem does: only whole memory blocks.
inline uint32_t WholeBlocks(const ObservedHostRegion& region, uint64_t block_bytes) {
  if (block_bytes == 0) return 1;
  const uint64_t first = (region.hpa_bytes + block_bytes - 1) / block_bytes;
  const uint64_t end = (region.hpa_bytes + region.size_bytes) / block_bytes;
  return end > first ? static_cast<uint32_t>(end - first) : 0;
}

inline void ApplyDestroy(uint64_t serial, HostObservation& host) {
  const ObservedHostRegion* region = FindHostRegion(host, serial);
  if (region == nullptr) return;
  const std::string* name = BridgeNameOf(*region, host);
  const uint64_t hpa_bytes = region->hpa_bytes;
  const uint64_t size_bytes = region->size_bytes;
  const bool held_decoder = region->committed;
  ObservedBridge* bridge = name == nullptr ? nullptr : BridgeOf(*name, host);
  host.regions.erase(host.regions.begin() + (region - host.regions.data()));
  if (bridge == nullptr || !held_decoder) return;
  bridge->live_regions -= std::min(bridge->live_regions, 1u);
  bridge->free_window_bytes =
      std::min(bridge->window_bytes, bridge->free_window_bytes + size_bytes);
  const ObservedHostRegion* top = Topmost(bridge->name, host);
  bridge->blocking_serial = top == nullptr ? 0 : top->serials.front();
  // The decoder stack's rule (proto/support/cxl_host.h). Where an earlier hole lies is not
  // observed: a bridge that was blocked counts as blocked while anything is live there.
  bridge->blocked = top != nullptr && (bridge->blocked || top->hpa_bytes > hpa_bytes);
}

}  // namespace played

// Makes `host` as the kernel would show it after the rung, had that full effect and nothing else
// happened meanwhile. Names and addresses are made up. `desired` learns what an agent would
// remember: that the slot was powered off. A segment that has no host region is given only rungs
// that need none: `region` is read by the others.
inline void ApplyStep(const Step& step, DesiredSegment& desired, HostObservation& host) {
  DesiredTarget& target = desired.targets[step.target];
  ObservedHostRegion* const region = played::MutableRegionOf(desired, host);
  switch (step.kind) {
    case Step::Kind::kPowerOn:
      return played::ApplyPowerOn(target, desired, host);
    case Step::Kind::kCreateHostRegion:
      return played::ApplyCreate(desired, host);
    case Step::Kind::kBindDax:
      region->dax_driver = step.driver;
      region->total_blocks = step.driver == DaxDriver::kKmem
                                 ? played::WholeBlocks(*region, host.memory_block_bytes)
                                 : 0;
      return;
    case Step::Kind::kOnlineBlocks:
      region->online_blocks = region->total_blocks;
      region->all_movable = desired.zone == MemoryZone::kMovable;
      return;
    case Step::Kind::kOfflineBlocks:
      region->online_blocks = 0;
      region->all_movable = false;
      return;
    case Step::Kind::kUnbindDax:
      region->dax_driver = DaxDriver::kNone;
      region->total_blocks = 0;
      return;
    case Step::Kind::kDestroyHostRegion:
      return played::ApplyDestroy(step.serial, host);
    case Step::Kind::kPowerOff:
      std::erase_if(host.memdevs,
                    [&](const ObservedMemdev& m) { return m.serial == target.serial; });
      target.powered_off = true;
      return;
    case Step::Kind::kDone:
    case Step::Kind::kWait:
    case Step::Kind::kRefuse:
      return;
  }
}

// One rung a target up and down, and one each for whatever has to be taken down first.
inline constexpr size_t kMaxPlannedSteps = 64;

// The steps from `host` to what is wanted, if each takes full effect. All are rungs except the last
// one, which is Done, Wait or Refuse.
inline std::vector<Step> PlanSteps(DesiredSegment desired, HostObservation host,
                                   bool earlier_pending) {
  std::vector<Step> steps;
  while (steps.size() < kMaxPlannedSteps) {
    Step step = NextStep(desired, host, earlier_pending);
    if (step.is_rung()) ApplyStep(step, desired, host);
    const bool last = !step.is_rung();
    steps.push_back(std::move(step));
    if (last) break;
  }
  return steps;
}

}  // namespace cxlpool::agent

#endif  // CXLPOOL_TEST_RIGS_PLAYED_STEPS_H_
