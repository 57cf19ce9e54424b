#include "fabric-manager/model/placement/placement.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "fabric-manager/model/placement/placement_policy.h"
#include "fabric-manager/model/placement/placement_refusals.h"
#include "proto/support/mutant.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

// Only kIsolate keeps away from anybody. Where the caller left the policy to the pool, it is
// another one as a rule, and who asked to be apart must not believe to be.
absl::Status CheckIsolateFrom(const ExtentRequest& request) {
  if (request.isolate_from.empty() || request.policy == Policy::kIsolate ||
      CXLPOOL_MUTANT("pack-keeps-away-from-nobody")) {
    return absl::OkStatus();
  }
  return Refuse(absl::StatusCode::kInvalidArgument, "BAD_ISOLATE_FROM",
                absl::StrCat(request.label, ": policy ", ToString(request.policy),
                             " keeps away from no other Region"),
                "ask for policy isolate, or leave isolate_from out", {{"field", "isolate_from"}});
}

// What Pack gives, where one extent does: without intersecting sets of devices. The run that fits
// best anywhere that the host reaches is the one, if its device may take it.
std::optional<PlacedExtents> PackAtOnce(const PoolState& state, const ExtentRequest& request,
                                        uint64_t unit_bytes) {
  if (!request.device.empty() || request.grown != nullptr) return std::nullopt;
  if (!request.host.empty() && state.topology().names_slots()) return std::nullopt;
  if (!state.Runtime(request.host).unreached.empty()) return std::nullopt;
  const DeviceSet& devices = request.host.empty() || state.topology().connects_all()
                                 ? state.placeable()
                                 : state.ReachOf(request.host);
  const auto run = state.space().BestFit(devices, request.size_bytes, unit_bytes);
  if (!run.has_value() || !state.placeable().Contains(run->device)) return std::nullopt;
  PlacedExtents placed;
  placed.extents.push_back(MakeExtent(state, *run));
  return placed;
}

// What remains of `allowed` without what the fabric found the host not to reach, whatever the
// topology says. What the host has not been asked about yet stays: to bind waits for that. Refused
// where the named device goes, or the last one.
absl::StatusOr<DeviceSet> WhatIsReached(const PoolState& state, const ExtentRequest& request,
                                        const DeviceSet& allowed) {
  const auto& unreached = state.Runtime(request.host).unreached;
  DeviceSet reached = allowed;
  for (const auto& [id, why] : unreached) {
    if (const auto index = state.IndexOf(Interned(id)); index.has_value()) reached.Remove(*index);
  }
  auto blocker = unreached.find(request.device);
  if (blocker == unreached.end() && reached.empty() && !allowed.empty()) {
    blocker = unreached.begin();
  }
  if (blocker == unreached.end()) return reached;
  return NotReached(request.label, request.host, blocker->first, blocker->second);
}

// How many free ports of the request's host lead to each device, by index.
std::vector<uint32_t> PortsOf(const PlacementTask& task) {
  const HostRuntime& runtime = task.state.Runtime(task.request.host);
  std::vector<uint32_t> free;
  for (const Bridge& bridge : runtime.bridges) {
    const BridgeOutlook outlook = LookAt(bridge, runtime, task.state.Occupied(task.request.host));
    if (!outlook.usable) continue;
    free.insert(free.end(), outlook.free_slots.begin(), outlook.free_slots.end());
  }
  std::vector<uint32_t> ports(kMaxDevices);
  task.allowed.ForEach([&](DeviceIndex device) {
    const Path* path = task.PathTo(device);
    if (path == nullptr) return;
    for (const uint32_t slot : free) {
      ports[device] +=
          path->slots.empty() || std::binary_search(path->slots.begin(), path->slots.end(), slot);
    }
  });
  return ports;
}

// Where links name slots, a device with room may have no port left that leads there: then another
// will do. Nothing: `placed` can enter the host, or nothing else can.
std::optional<PlacedExtents> WherePortsAre(const PlacementPolicy& policy, const PlacementTask& task,
                                           const PlacedExtents& placed) {
  const absl::Status enters = PlaceOnHost(task.state, {.host = task.request.host,
                                                       .label = {},
                                                       .extents = placed.extents,
                                                       .interleave_ways = placed.interleave_ways})
                                  .status();
  if (ReasonOf(enters) != "NO_FREE_PORT" && ReasonOf(enters) != "BRIDGE_BLOCKED" &&
      ReasonOf(enters) != "BRIDGE_FULL") {
    return std::nullopt;
  }
  const std::vector<uint32_t> ports = PortsOf(task);
  DeviceSet led_to;
  task.allowed.ForEach([&](DeviceIndex device) {
    if (ports[device] > 0) led_to.Add(device);
  });
  PlacementTask narrower = task.On(led_to);
  narrower.ports = &ports;
  return policy.Place(narrower);
}

}  // namespace

const PlacementPolicy& PolicyOf(const ExtentRequest& request) {
  if (request.grown != nullptr && request.grown->interleave_ways > 1) return BandwidthPolicy();
  switch (request.policy) {
    case Policy::kSpread:
      return SpreadPolicy();
    case Policy::kBandwidth:
      return BandwidthPolicy();
    case Policy::kLatency:
      return LatencyPolicy();
    case Policy::kIsolate:
      return IsolatePolicy();
    case Policy::kPack:
      break;
  }
  return PackPolicy();
}

PlacementTask PlacementTask::On(const DeviceSet& devices) const {
  return {state, request, devices, unit_bytes, max_extents, heed_lds, ports};
}

PlacementTask PlacementTask::With(size_t extents) const {
  return {state, request, allowed, unit_bytes, extents, heed_lds, ports};
}

uint32_t PlacementTask::LdsLeft(DeviceIndex device) const {
  const uint32_t limit = state.MaxLds(device);
  const uint32_t leads = ports == nullptr ? UINT32_MAX : (*ports)[device];
  if (!heed_lds) return leads;
  return std::min(leads, limit - std::min(limit, state.UseOf(device).lds));
}

double PlacementTask::LoadWith(DeviceIndex device, uint64_t more_bytes) const {
  const double capacity = static_cast<double>(space().capacity_bytes(device));
  const double free = static_cast<double>(space().free_bytes(device));
  return (capacity - free + static_cast<double>(more_bytes)) / capacity;
}

const Path* PlacementTask::PathTo(DeviceIndex device) const {
  if (request.host.empty() && !state.topology().connects_all()) return nullptr;
  return state.topology().Find(request.host, state.DeviceAt(device).id);
}

size_t PlacementTask::ExtentsLeft() const {
  const size_t there = request.grown == nullptr ? 0 : request.grown->extents.size();
  return kMaxExtentsPerRegion - std::min(kMaxExtentsPerRegion, there);
}

size_t PlacementTask::HostRoom() const {
  const HostRuntime& runtime = state.Runtime(request.host);
  if (request.host.empty() || runtime.bridges.empty()) return SIZE_MAX;
  size_t room = 0;
  for (const Bridge& bridge : runtime.bridges) {
    const BridgeOutlook outlook = LookAt(bridge, runtime, state.Occupied(request.host));
    if (!outlook.usable) continue;
    room += std::min<size_t>(outlook.free_slots.size(), bridge.depth() - outlook.stack);
  }
  return room;
}

Extent MakeExtent(const PoolState& state, const FreeSpace::Run& run) {
  return {state.NameAt(run.device), run.dpa_bytes, run.length_bytes};
}

// First which devices may be used at all: placeable, reached by the host, and the one that the
// request names. Then the policy decides among them. Where slots lie behind certain links, devices
// whose slots are free are preferred.
absl::StatusOr<PlacedExtents> PlaceExtents(const PoolState& state, const ExtentRequest& request) {
  const PlacementPolicy& policy = PolicyOf(request);
  if (absl::Status status = policy.Check(request); !status.ok()) return status;
  if (absl::Status status = CheckIsolateFrom(request); !status.ok()) return status;
  const uint64_t unit_bytes =
      CommonUnit(request.unit_bytes, state.limits().extent_granule_bytes).value_or(UINT64_MAX);
  if (&policy == &PackPolicy()) {
    if (auto placed = PackAtOnce(state, request, unit_bytes); placed.has_value()) {
      return *std::move(placed);
    }
  }
  const DeviceSet* allowed = &state.placeable();
  std::optional<DeviceSet> narrowed;
  if (!request.host.empty() && !state.topology().connects_all()) {
    allowed = &(narrowed.emplace(*allowed) &= state.ReachOf(request.host));
  }
  if (!state.Runtime(request.host).unreached.empty() && !CXLPOOL_MUTANT("unreached-is-placed")) {
    absl::StatusOr<DeviceSet> reached = WhatIsReached(state, request, *allowed);
    if (!reached.ok()) return reached.status();
    allowed = &narrowed.emplace(*reached);
  }
  if (!request.device.empty()) {
    const Device* device = state.FindDevice(request.device);
    if (device == nullptr) return UnknownDevice(request);
    const DeviceIndex index = *state.IndexOf(Interned(device->id));
    const bool may = allowed->Contains(index);
    allowed = &narrowed.emplace();
    if (may) narrowed->Add(index);
  }
  const PlacementTask task{state, request, *allowed, unit_bytes,
                           std::max<size_t>(request.max_extents, 1)};
  auto placed = policy.Place(task);
  if (!placed.has_value()) return WhyNotPlaced(policy, task);
  if (request.host.empty() || !state.topology().names_slots()) return *std::move(placed);
  if (auto entering = WherePortsAre(policy, task, *placed); entering.has_value()) return *entering;
  return *std::move(placed);  // PlaceOnHost says what is in the way.
}

}  // namespace cxlpool::fm
