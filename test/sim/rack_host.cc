// A host's hand on the rack: its kernel, its decoder stacks and its applications' stores.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "host-agent/model/online_plan.h"
#include "proto/support/cxl_host.h"
#include "proto/support/refusal.h"
#include "test/sim/rack.h"

namespace cxlpool::sim {
namespace {

using agent::DaxDriver;
using agent::MemoryZone;
using agent::ObservedHostRegion;

constexpr int kWindowShift = 40;  // Bridge b's window begins at (b + 1) << 40.
constexpr uint32_t kWindowGranularityBytes = 256;

uint64_t WindowBase(size_t bridge) { return uint64_t{bridge + 1} << kWindowShift; }

size_t BridgeAt(const ObservedHostRegion& region) {
  return static_cast<size_t>(region.hpa_bytes >> kWindowShift) - 1;
}

BridgeStack StackOf(const RackHost& host, size_t bridge) {
  BridgeStack stack(WindowBase(bridge), kWindowGranules * kGranule);
  for (const ObservedHostRegion& region : host.regions) {
    if (BridgeAt(region) != bridge) continue;
    stack.Add(region.hpa_bytes, region.size_bytes, region.serials.front());
  }
  return stack;
}

// The bridge as its host's kernel shows it.
agent::ObservedBridge Show(const RackHost& host, size_t bridge) {
  const BridgeStack stack = StackOf(host, bridge);
  if (host.shared) {
    const uint64_t window = kWindowGranules * kGranule;
    uint64_t used = 0;
    for (const ObservedHostRegion& region : host.regions) used += region.size_bytes;
    return {.name = host.bridges[bridge].name,
            .slots = host.bridges[bridge].slots,
            .max_regions = host.bridges[bridge].max_regions,
            .live_regions = static_cast<uint32_t>(host.regions.size()),
            .window_bytes = window,
            .free_window_bytes = window - std::min(window, used),
            .any_order = true};
  }
  return {.name = host.bridges[bridge].name,
          .slots = host.bridges[bridge].slots,
          .max_regions = host.bridges[bridge].max_regions,
          .live_regions = stack.live(),
          .blocked = stack.blocked(),
          .blocking_serial = stack.topmost_serial(),
          .window_bytes = kWindowGranules * kGranule,
          .free_window_bytes = stack.free_bytes()};
}

ObservedHostRegion* FindRegion(RackHost& host, uint64_t serial) {
  for (ObservedHostRegion& region : host.regions) {
    for (const uint64_t own : region.serials) {
      if (own == serial) return &region;
    }
  }
  return nullptr;
}

PluggedLd* FindPowered(RackHost& host, uint64_t serial) {
  for (auto& [slot, plugged] : host.slots) {
    if (plugged.ld.serial == serial && plugged.powered) return &plugged;
  }
  return nullptr;
}

absl::Status NotCommitted(const char* why) {
  return Refuse(absl::StatusCode::kInternal, "REGION_COMMIT", why, "detach the Region");
}

// Whether the targets are there, under that bridge, and make up the size.
absl::Status CheckTargets(RackHost& host, const agent::HostRegionSpec& spec) {
  const size_t ways = spec.serials.size();
  if (host.shared && ways > 1) {
    return Refuse(absl::StatusCode::kUnimplemented, "INTERLEAVE_UNSUPPORTED",
                  "a shared device is interleaved by firmware", "use another policy");
  }
  if (ways == 0 || ways > 16 || (ways & (ways - 1)) != 0) return NotCommitted("no such ways");
  uint64_t target_bytes = 0;
  for (size_t i = 0; i < ways; ++i) {
    const PluggedLd* target = FindPowered(host, spec.serials[i]);
    if (target == nullptr) {
      return FailedPrecondition(
          "MEMDEV_GONE", absl::StrCat("serial ", spec.serials[i], " is in no slot that is on"),
          "power the slot on first");
    }
    if (host.bridges[target->bridge].name != spec.host_bridge) {
      return FailedPrecondition("WRONG_BRIDGE",
                                absl::StrCat("serial ", spec.serials[i], " is not under it"),
                                "ask for the other bridge");
    }
    const uint64_t bytes = target->ld.slice.length_bytes;
    if (i > 0 && bytes != target_bytes) return NotCommitted("targets of unequal size");
    if (std::find(spec.serials.begin(), spec.serials.begin() + static_cast<ptrdiff_t>(i),
                  spec.serials[i]) != spec.serials.begin() + static_cast<ptrdiff_t>(i)) {
      return NotCommitted("a target twice");
    }
    if (FindRegion(host, spec.serials[i]) != nullptr) {
      return Refuse(absl::StatusCode::kAlreadyExists, "OTHER_REGION",
                    "a target is in another host region", "destroy that first");
    }
    target_bytes = bytes;
  }
  if (spec.size_bytes != target_bytes * ways) return NotCommitted("not the targets' size");
  return absl::OkStatus();
}

}  // namespace

void Rack::Say(absl::string_view what, const RackHost& host, uint64_t serial) {
  if (trace) trace(absl::StrCat("rack: ", host.id, " ", what, " serial ", serial));
}

void Rack::JudgeDown(const RackHost& host, const std::vector<uint64_t>& serials, const char* how) {
  if (!judge_.stays) return;
  for (const uint64_t serial : serials) {
    if (!judge_.stays(host.id, serial)) continue;
    Breach(absl::StrCat(how, " on ", host.id, " serial ", serial,
                        ": taken down though it is to stay"));
    return;
  }
}

// --- Rungs up.

bool Rack::PowerOn(RackHost& host, uint32_t slot, uint64_t serial) {
  const auto it = host.slots.find(slot);
  if (!host.powered || it == host.slots.end() || it->second.ld.serial != serial) return false;
  if (it->second.powered) return true;
  it->second.powered = true;
  it->second.memdev = "mem" + std::to_string(host.names++);
  Say("powers on", host, serial);
  return true;
}

absl::Status Rack::CreateHostRegion(RackHost& host, const agent::HostRegionSpec& spec) {
  const uint32_t granularity = spec.interleave_granularity_bytes == 0
                                   ? kWindowGranularityBytes
                                   : spec.interleave_granularity_bytes;
  if (!spec.serials.empty()) {
    const ObservedHostRegion* there = FindRegion(host, spec.serials.front());
    if (there != nullptr && there->serials == spec.serials &&
        there->size_bytes == spec.size_bytes &&
        (spec.serials.size() == 1 || there->interleave_granularity_bytes == granularity)) {
      return absl::OkStatus();
    }
  }
  if (absl::Status status = CheckTargets(host, spec); !status.ok()) return status;
  const size_t bridge = FindPowered(host, spec.serials.front())->bridge;
  if (auto refusal = agent::WhyBridgeTakesNoMore(Show(host, bridge), spec.size_bytes)) {
    return refusal->ToStatus();
  }
  const std::string number = std::to_string(host.names++);
  ObservedHostRegion region;
  region.name = "region" + number;
  region.serials = spec.serials;
  region.committed = true;
  region.hpa_bytes = StackOf(host, bridge).next_hpa_bytes();
  region.size_bytes = spec.size_bytes;
  region.interleave_granularity_bytes = granularity;
  region.dax_device = "dax" + number + ".0";
  region.numa_node = static_cast<int>(bridge) + 1;
  region.dax_align_bytes = uint64_t{2} << 20;
  const auto at =
      std::find_if(host.regions.begin(), host.regions.end(),
                   [&](const ObservedHostRegion& r) { return r.hpa_bytes > region.hpa_bytes; });
  StoreInto(host, *host.regions.insert(at, std::move(region)));
  Say("makes a host region on", host, spec.serials.front());
  return absl::OkStatus();
}

absl::Status Rack::BindDax(RackHost& host, uint64_t serial, DaxDriver driver) {
  ObservedHostRegion* region = FindRegion(host, serial);
  if (region == nullptr || FindPowered(host, serial) == nullptr) {
    return FailedPrecondition("NO_HOST_REGION",
                              absl::StrCat("serial ", serial, " has no host region"),
                              "create the host region first");
  }
  if (region->dax_driver == driver) return absl::OkStatus();
  if (region->dax_driver != DaxDriver::kNone) {
    return FailedPrecondition("DAX_BOUND", "another driver has the DAX device", "unbind it first");
  }
  region->dax_driver = driver;
  if (driver == DaxDriver::kKmem) {
    region->total_blocks = static_cast<uint32_t>(region->size_bytes / kGranule);
  }
  Say(driver == DaxDriver::kKmem ? "binds kmem to" : "binds device_dax to", host, serial);
  return absl::OkStatus();
}

absl::Status Rack::OnlineBlocks(RackHost& host, uint64_t serial, MemoryZone zone) {
  ObservedHostRegion* region = FindRegion(host, serial);
  if (region == nullptr || region->dax_driver != DaxDriver::kKmem) {
    return FailedPrecondition("NOT_KMEM", absl::StrCat("serial ", serial, " is not with kmem"),
                              "bind the DAX device to kmem first");
  }
  region->online_blocks = region->total_blocks;
  region->all_movable = zone == MemoryZone::kMovable;
  Say("brings online", host, serial);
  return absl::OkStatus();
}

// --- Rungs down.

absl::Status Rack::OfflineBlocks(RackHost& host, uint64_t serial) {
  ObservedHostRegion* region = FindRegion(host, serial);
  if (region == nullptr || region->online_blocks == 0) return absl::OkStatus();
  JudgeDown(host, region->serials, "OfflineBlocks");
  region->online_blocks = host.refuses_offline ? (region->online_blocks + 1) / 2 : 0;
  region->all_movable = region->online_blocks > 0;
  Say(host.refuses_offline ? "brings half offline of" : "brings offline", host, serial);
  if (region->online_blocks == 0) return absl::OkStatus();
  return FailedPrecondition("BLOCKS_BUSY",
                            absl::StrCat(region->online_blocks, " of ", region->total_blocks,
                                         " memory blocks stay online"),
                            "try again later");
}

absl::Status Rack::UnbindDax(RackHost& host, uint64_t serial) {
  ObservedHostRegion* region = FindRegion(host, serial);
  if (region == nullptr || region->dax_driver == DaxDriver::kNone) return absl::OkStatus();
  if (region->online_blocks > 0) {
    return FailedPrecondition("BLOCKS_BUSY",
                              absl::StrCat(region->online_blocks, " memory blocks are online"),
                              "bring them offline first");
  }
  JudgeDown(host, region->serials, "UnbindDax");
  region->dax_driver = DaxDriver::kNone;
  region->total_blocks = 0;
  Say("unbinds the driver from", host, serial);
  return absl::OkStatus();
}

absl::Status Rack::DestroyHostRegion(RackHost& host, uint64_t serial) {
  ObservedHostRegion* region = FindRegion(host, serial);
  if (region == nullptr) return absl::OkStatus();
  if (region->dax_driver != DaxDriver::kNone) {
    return FailedPrecondition("DAX_BOUND", "a driver has the DAX device", "unbind it first");
  }
  JudgeDown(host, region->serials, "DestroyHostRegion");
  host.held.erase(region->serials.front());
  host.regions.erase(host.regions.begin() + (region - host.regions.data()));
  Say("destroys the host region on", host, serial);
  return absl::OkStatus();
}

absl::Status Rack::PowerOff(RackHost& host, uint32_t slot, uint64_t serial) {
  if (FindRegion(host, serial) != nullptr) {
    return FailedPrecondition("REGION_LIVE",
                              absl::StrCat("serial ", serial, " is in a host region"),
                              "destroy the host region first");
  }
  const auto it = host.slots.find(slot);
  if (it == host.slots.end()) return absl::OkStatus();
  PluggedLd& plugged = it->second;
  if (plugged.ld.serial != serial) {
    if (!plugged.powered) return absl::OkStatus();
    return FailedPrecondition("OTHER_MEMDEV",
                              absl::StrCat("slot ", slot, " holds serial ", plugged.ld.serial),
                              "see on the manager what is bound there");
  }
  if (plugged.powered) JudgeDown(host, {serial}, "PowerOff");
  if (!shared) plugged.powered = false;
  Say("powers off", host, serial);
  if (plugged.ld.unbinding) LeaveSlot(host, slot, Gone::kUnbound);
  return absl::OkStatus();
}

// --- Looking and storing.

agent::HostObservation Rack::Observe(const RackHost& host) const {
  agent::HostObservation seen;
  seen.memory_block_bytes = kGranule;
  seen.region_granule_bytes = kGranule;
  seen.page_struct_spare_bytes = uint64_t{1} << 40;
  if (!host.powered) return seen;
  seen.bridges.reserve(host.bridges.size());
  for (size_t b = 0; b < host.bridges.size(); ++b) seen.bridges.push_back(Show(host, b));
  seen.memdevs.reserve(host.slots.size());
  for (const auto& [slot, plugged] : host.slots) {
    if (!plugged.powered) continue;
    agent::ObservedMemdev& out = seen.memdevs.emplace_back();
    out.serial = plugged.ld.serial;
    out.slot = slot;
    out.name = plugged.memdev;
    out.size_bytes = plugged.ld.slice.length_bytes;
    out.host_bridge = host.bridges[plugged.bridge].name;
  }
  seen.regions = host.regions;
  return seen;
}

// Through the targets that are still there: what was pulled out takes no stores.
void Rack::StoreInto(RackHost& host, const ObservedHostRegion& region) {
  for (const uint64_t serial : region.serials) {
    const PluggedLd* target = FindPowered(host, serial);
    if (target == nullptr || target->ld.read_only) continue;
    if (const PluggedLd* other =
            Reaches(target->device, target->first, target->end, target->ld.key->tag)) {
      Breach(absl::StrCat(host.id, " stores into what it has of serial ", serial,
                          ", and these bytes are tag ", other->ld.key->tag, "'s, on ",
                          other->ld.host));
    }
    std::vector<uint32_t>& content = devices[target->device].content;
    std::fill(content.begin() + static_cast<ptrdiff_t>(target->first),
              content.begin() + static_cast<ptrdiff_t>(target->end), target->hash);
  }
}

bool Rack::Poison(RackHost& host, uint32_t slot) {
  const auto plugged = host.slots.find(slot);
  if (plugged == host.slots.end() || !plugged->second.powered) return false;
  RackDevice& device = devices[plugged->second.device];
  device.poison.resize(device.content.size());
  device.poison[plugged->second.end - 1] = plugged->second.hash;
  Say("loses bytes of", host, plugged->second.ld.serial);
  return true;
}

std::vector<Rack::PoisonSeen> Rack::PoisonOn(const RackHost& host) const {
  std::vector<PoisonSeen> seen;
  for (const auto& [slot, plugged] : host.slots) {
    const std::vector<uint32_t>& poison = devices[plugged.device].poison;
    if (!plugged.powered || poison.empty()) continue;
    for (uint64_t g = plugged.first; g < plugged.end; ++g) {
      if (poison[g] != 0) seen.push_back({plugged.ld.serial, (g - plugged.first) * kGranule});
    }
  }
  return seen;
}

bool Rack::AnyPoison() const {
  return std::any_of(devices.begin(), devices.end(), [](const RackDevice& device) {
    return std::any_of(device.poison.begin(), device.poison.end(),
                       [](uint32_t granule) { return granule != 0; });
  });
}

void Rack::Store(RackHost& host) {
  if (!host.powered) return;
  for (const ObservedHostRegion& region : host.regions) StoreInto(host, region);
}

}  // namespace cxlpool::sim
