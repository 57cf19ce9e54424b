#include "host-agent/model/online_plan.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "proto/support/mutant.h"

namespace cxlpool::agent {
namespace {

std::string Serial(uint64_t serial) { return absl::StrCat("0x", absl::Hex(serial)); }

Step Rung(Step::Kind kind) { return Step{.kind = kind}; }

Step Refuse(std::string reason, std::string message, std::string remedy,
            std::vector<std::pair<std::string, std::string>> metadata = {},
            absl::StatusCode code = absl::StatusCode::kFailedPrecondition) {
  Step step{.kind = Step::Kind::kRefuse};
  step.refusal = Refusal{.code = code,
                         .reason = std::move(reason),
                         .message = std::move(message),
                         .remedy = std::move(remedy),
                         .metadata = std::move(metadata)};
  return step;
}

bool SerialsMatch(const DesiredSegment& desired, const ObservedHostRegion& region) {
  return std::equal(desired.targets.begin(), desired.targets.end(), region.serials.begin(),
                    region.serials.end(),
                    [](const DesiredTarget& t, uint64_t serial) { return t.serial == serial; });
}

// A rung down. The host region can be named by its first target, or by another where the kernel
// has lost that.
Step RungDown(Step::Kind kind, const DesiredSegment& desired, const HostObservation& host) {
  Step step = Rung(kind);
  for (const DesiredTarget& target : desired.targets) {
    step.serial = target.serial;
    if (FindHostRegion(host, target.serial) != nullptr) break;
  }
  return step;
}

// Only a pool's serial can be gone: others may be of memdevs in no slot, which are not observed.
bool IsGone(uint64_t serial, const HostObservation& host) {
  return serial == 0 || (IsPoolSerial(serial) && FindMemdev(host, serial) == nullptr);
}

// Whether nothing but the segment's targets is in the region, besides what it lost: that may be
// bound again by now, and have another serial.
bool NoOtherTargets(const DesiredSegment& desired, const ObservedHostRegion& region,
                    const HostObservation& host) {
  return std::equal(desired.targets.begin(), desired.targets.end(), region.serials.begin(),
                    region.serials.end(), [&](const DesiredTarget& t, uint64_t serial) {
                      return t.serial == serial || IsGone(serial, host);
                    });
}

size_t PresentTargets(const DesiredSegment& desired, const HostObservation& host) {
  return std::count_if(desired.targets.begin(), desired.targets.end(), [&](const DesiredTarget& t) {
    return FindMemdev(host, t.serial) != nullptr;
  });
}

// Whether a memdev sits in the slot.
bool SlotTaken(uint32_t slot, const HostObservation& host) {
  return std::any_of(host.memdevs.begin(), host.memdevs.end(),
                     [slot](const ObservedMemdev& m) { return m.slot == slot; });
}

// Whether every byte is in a memory block.
bool IsInBlocks(const ObservedHostRegion& region, const HostObservation& host) {
  const uint64_t block_bytes = host.memory_block_bytes;
  return block_bytes == 0 || region.total_blocks * block_bytes == region.size_bytes;
}

// Why the kernel has no room for what it keeps of each page, in the host's own memory: for devdax
// as for system-ram, by the manager's rule (HostInventory.page_struct_spare_bytes).
std::optional<Step> RefusePageStructs(const DesiredSegment& desired, const HostObservation& host) {
  const uint64_t needed = PageStructBytes(desired.length_bytes);
  const uint64_t spare = host.page_struct_spare_bytes;
  if (spare == 0 || needed <= spare) return std::nullopt;
  return Refuse("PAGE_STRUCT_SPACE",
                absl::StrCat("memory of ", desired.length_bytes, " bytes needs ", needed,
                             " bytes of the host's own for page structs, which can spare ", spare),
                "end programs on this host, or attach less to it",
                {{"needed_bytes", absl::StrCat(needed)}, {"spare_bytes", absl::StrCat(spare)}},
                absl::StatusCode::kResourceExhausted);
}

// Why the DAX device may not become system-ram.
std::optional<Step> RefuseSystemRam(const ObservedHostRegion& region, const HostObservation& host) {
  const auto& own = host.own_nodes;
  const std::optional<int> node = region.numa_node;
  if (!node.has_value() || std::find(own.begin(), own.end(), *node) != own.end()) {
    const std::string where =
        node.has_value() ? absl::StrCat("on NUMA node ", *node, ", which is the host's own memory")
                         : "on no NUMA node";
    return Refuse("NO_OWN_NODE",
                  absl::StrCat("host region ", region.name, " would come ", where,
                               ": the firmware gives its memory window none of its own"),
                  "attach it as devdax, or have the firmware describe the window (SRAT, CEDT)",
                  {{"node", node.has_value() ? absl::StrCat(*node) : ""}},
                  absl::StatusCode::kUnimplemented);
  }
  return std::nullopt;
}

Step RefuseBlocks(const ObservedHostRegion& region, const HostObservation& host) {
  const uint64_t block_bytes = host.memory_block_bytes;
  return Refuse(
      "BLOCK_ALIGNMENT",
      absl::StrCat("host region ", region.name, " at 0x", absl::Hex(region.hpa_bytes), " has ",
                   region.size_bytes, " bytes, and the kernel uses ", region.total_blocks,
                   " memory blocks of ", block_bytes, " bytes of it: the rest would be lost"),
      "attach it as devdax, or boot the host with smaller memory blocks",
      {{"memory_block_bytes", absl::StrCat(block_bytes)}}, absl::StatusCode::kUnimplemented);
}

// Takes the DAX device out of whatever has it: the first half of taking a segment down, and of
// changing its driver.
Step LeaveDriver(const DesiredSegment& desired, const ObservedHostRegion& region,
                 const HostObservation& host) {
  if (region.dax_driver == DaxDriver::kKmem && region.online_blocks > 0) {
    return RungDown(Step::Kind::kOfflineBlocks, desired, host);
  }
  Step step = RungDown(Step::Kind::kUnbindDax, desired, host);
  step.check_holders = region.dax_driver == DaxDriver::kDeviceDax;
  return step;
}

// The region lost a target which was bound again and comes under another serial: it will never be
// whole, and goes to make room. Nothing where that is not so.
std::optional<Step> MakeRoom(const DesiredSegment& desired, const ObservedHostRegion& region,
                             const HostObservation& host) {
  std::optional<size_t> unknown;
  bool superseded = false;
  for (size_t i = 0; i < desired.targets.size(); ++i) {
    const bool present = FindMemdev(host, desired.targets[i].serial) != nullptr;
    if (region.serials[i] == 0 && !present) {
      unknown = i;
    } else {
      superseded |= region.serials[i] != desired.targets[i].serial;
    }
  }
  if (superseded && !CXLPOOL_MUTANT("keep-stale-region")) {
    if (region.dax_driver != DaxDriver::kNone) return LeaveDriver(desired, region, host);
    return RungDown(Step::Kind::kDestroyHostRegion, desired, host);
  }
  if (!unknown.has_value() || SlotTaken(desired.targets[*unknown].slot, host)) return std::nullopt;
  Step step = Rung(Step::Kind::kPowerOn);  // Which one it lost is not known: see what is there.
  step.target = *unknown;
  return step;
}

Step CreateOrRefuse(const DesiredSegment& desired, const HostObservation& host,
                    bool earlier_pending) {
  for (const DesiredTarget& target : desired.targets) {
    const ObservedMemdev* memdev = FindMemdev(host, target.serial);
    if (memdev->host_bridge != desired.host_bridge) {
      return Refuse("WRONG_BRIDGE",
                    absl::StrCat("memdev ", memdev->name, " (serial ", Serial(target.serial),
                                 ") is under host bridge ", memdev->host_bridge, ", not ",
                                 desired.host_bridge),
                    "detach the Region and attach it again",
                    {{"host_bridge", memdev->host_bridge}});
    }
  }
  const ObservedBridge* bridge = FindBridge(host, desired.host_bridge);
  if (bridge == nullptr) {
    return Refuse("UNKNOWN_BRIDGE",
                  absl::StrCat("this host has no CXL host bridge ", desired.host_bridge),
                  "detach the Region and attach it again", {{"host_bridge", desired.host_bridge}});
  }
  if (earlier_pending) return Rung(Step::Kind::kWait);
  if (auto refusal = WhyBridgeTakesNoMore(*bridge, desired.length_bytes)) {
    return Step{.kind = Step::Kind::kRefuse, .refusal = *std::move(refusal)};
  }
  return Rung(Step::Kind::kCreateHostRegion);
}

// The next step towards ONLINE: power on every target, make the host region, give its DAX device to
// the wanted driver, bring its blocks online. Each call decides from what the host shows, so it
// also takes up what an earlier agent, or somebody by hand, left half done. What is half made or in
// another mode is taken down first; what cannot be this segment's is refused, for a person to look
// at.
Step StepUp(const DesiredSegment& desired, const HostObservation& host, bool earlier_pending) {
  const ObservedHostRegion* region = HostRegionOf(desired, host);
  if (region == nullptr) {
    if (auto refusal = RefusePageStructs(desired, host)) return *std::move(refusal);
    for (size_t i = 0; i < desired.targets.size(); ++i) {
      if (FindMemdev(host, desired.targets[i].serial) != nullptr) continue;
      Step step = Rung(Step::Kind::kPowerOn);
      step.target = i;
      return step;
    }
    return CreateOrRefuse(desired, host, earlier_pending);
  }
  if (!NoOtherTargets(desired, *region, host)) {
    return Refuse(
        "FOREIGN_HOST_REGION",
        absl::StrCat("host region ", region->name, " has the memdev of serial ",
                     Serial(desired.first_serial()), " together with targets nobody asked for"),
        absl::StrCat("destroy ", region->name, " by hand, if nothing uses it"));
  }
  if (auto step = MakeRoom(desired, *region, host)) return *std::move(step);
  if (PresentTargets(desired, host) < desired.targets.size()) {
    return Refuse("MEMDEV_GONE",
                  absl::StrCat("a memdev under host region ", region->name,
                               " was unplugged behind the host's back"),
                  "detach the Region from this host");
  }
  if (!region->committed)
    return RungDown(Step::Kind::kDestroyHostRegion, desired, host);  // Half made: start again.
  if (region->size_bytes != desired.length_bytes) {
    return Refuse("SIZE_MISMATCH",
                  absl::StrCat("host region ", region->name, " has ", region->size_bytes,
                               " bytes; wanted are ", desired.length_bytes),
                  "detach the Region from this host and attach it again");
  }
  // The kernel takes the DAX device away after a fatal PCIe error. It can be made again on the same
  // host region; where that failed several times the host region is made again, too.
  if (region->dax_device.empty()) {
    return desired.failed_remakes < kMaxRemakes
               ? Rung(Step::Kind::kCreateHostRegion)
               : RungDown(Step::Kind::kDestroyHostRegion, desired, host);
  }
  if (InMode(desired, *region, host)) return Rung(Step::Kind::kDone);
  const DaxDriver wanted = desired.mode == Mode::kDevdax ? DaxDriver::kDeviceDax : DaxDriver::kKmem;
  if (region->dax_driver == DaxDriver::kNone) {
    if (wanted == DaxDriver::kKmem) {
      if (auto refusal = RefuseSystemRam(*region, host)) return *std::move(refusal);
    }
    if (auto refusal = RefusePageStructs(desired, host)) return *std::move(refusal);
    Step step = Rung(Step::Kind::kBindDax);
    step.driver = wanted;
    return step;
  }
  if (region->dax_driver != wanted) return LeaveDriver(desired, *region, host);
  if (!IsInBlocks(*region, host)) return RefuseBlocks(*region, host);
  // kmem, and not all online. What somebody else put online outside ZONE_MOVABLE comes off first:
  // it might never leave again.
  if (desired.zone == MemoryZone::kMovable && region->online_blocks > 0 && !region->all_movable) {
    return RungDown(Step::Kind::kOfflineBlocks, desired, host);
  }
  return Rung(Step::Kind::kOnlineBlocks);
}

// The next step towards OFFLINE or EJECTED: the rungs of StepUp in reverse.
Step StepDown(const DesiredSegment& desired, const HostObservation& host) {
  const bool pull = CXLPOOL_MUTANT("power-off-under-region") && desired.want == Want::kEjected;
  if (const ObservedHostRegion* region = HostRegionOf(desired, host); region != nullptr && !pull) {
    if (!NoOtherTargets(desired, *region, host) && PresentTargets(desired, host) > 0) {
      return Refuse("FOREIGN_HOST_REGION",
                    absl::StrCat("host region ", region->name, " spans the memdev of serial ",
                                 Serial(desired.first_serial()), " and targets of another segment"),
                    absl::StrCat("destroy ", region->name, " by hand, if nothing uses it"));
    }
    if (region->dax_driver != DaxDriver::kNone) return LeaveDriver(desired, *region, host);
    return RungDown(Step::Kind::kDestroyHostRegion, desired, host);
  }
  if (desired.want == Want::kEjected) {
    for (size_t i = 0; i < desired.targets.size(); ++i) {
      const DesiredTarget& target = desired.targets[i];
      // An empty slot does not show whether it is powered off, so that must have been done; and a
      // slot that another memdev has is not this target's any more.
      if (FindMemdev(host, target.serial) == nullptr &&
          (target.powered_off || SlotTaken(target.slot, host))) {
        continue;
      }
      Step step = Rung(Step::Kind::kPowerOff);
      step.target = i;
      return step;
    }
  }
  return Rung(Step::Kind::kDone);
}

}  // namespace

const char* StepName(Step::Kind kind) {
  switch (kind) {
    case Step::Kind::kDone:
      return "Done";
    case Step::Kind::kWait:
      return "Wait";
    case Step::Kind::kRefuse:
      return "Refuse";
    case Step::Kind::kPowerOn:
      return "PowerOn";
    case Step::Kind::kCreateHostRegion:
      return "CreateHostRegion";
    case Step::Kind::kBindDax:
      return "BindDax";
    case Step::Kind::kOnlineBlocks:
      return "OnlineBlocks";
    case Step::Kind::kOfflineBlocks:
      return "OfflineBlocks";
    case Step::Kind::kUnbindDax:
      return "UnbindDax";
    case Step::Kind::kDestroyHostRegion:
      return "DestroyHostRegion";
    case Step::Kind::kPowerOff:
      return "PowerOff";
  }
  return "?";
}

LadderState StateOf(const DesiredSegment& desired, const HostObservation& host) {
  const ObservedHostRegion* region = HostRegionOf(desired, host);
  const size_t present = PresentTargets(desired, host);
  if (desired.want != Want::kOnline) {
    if (region != nullptr) return LadderState::kStopping;
    return present == 0 ? LadderState::kAbsent : LadderState::kPresent;
  }
  if (present < desired.targets.size()) return LadderState::kAbsent;
  if (region == nullptr || !region->committed || !SerialsMatch(desired, *region)) {
    return LadderState::kPresent;
  }
  return InMode(desired, *region, host) && region->size_bytes == desired.length_bytes
             ? LadderState::kOnline
             : LadderState::kRegion;
}

bool AwaitsHostRegion(const DesiredSegment& desired, const HostObservation& host) {
  if (desired.want != Want::kOnline) return false;
  const ObservedHostRegion* region = HostRegionOf(desired, host);
  return region == nullptr || !region->committed;
}

const ObservedHostRegion* HostRegionOf(const DesiredSegment& desired, const HostObservation& host) {
  for (const DesiredTarget& target : desired.targets) {
    if (const auto* region = FindHostRegion(host, target.serial)) return region;
  }
  return nullptr;
}

bool InMode(const DesiredSegment& desired, const ObservedHostRegion& region,
            const HostObservation& host) {
  if (desired.mode == Mode::kDevdax) return region.dax_driver == DaxDriver::kDeviceDax;
  return region.dax_driver == DaxDriver::kKmem && region.total_blocks > 0 &&
         IsInBlocks(region, host) &&
         (CXLPOOL_MUTANT("online-before-blocks") || region.online_blocks == region.total_blocks) &&
         (CXLPOOL_MUTANT("online-in-any-zone") || desired.zone == MemoryZone::kKernel ||
          region.all_movable);
}

bool LacksDaxDevice(const DesiredSegment& desired, const HostObservation& host) {
  const ObservedHostRegion* region = HostRegionOf(desired, host);
  return region != nullptr && region->committed && region->dax_device.empty();
}

Step NextStep(const DesiredSegment& desired, const HostObservation& host, bool earlier_pending) {
  return desired.want == Want::kOnline ? StepUp(desired, host, earlier_pending)
                                       : StepDown(desired, host);
}

// In the order in which a person would have to solve them: a blocked bridge takes nothing, however
// many decoders are free, and a decoder without space is of no use.
std::optional<Refusal> WhyBridgeTakesNoMore(const ObservedBridge& bridge, uint64_t size_bytes) {
  const std::string topmost = Serial(bridge.blocking_serial);
  const auto refusal = [&](const char* reason, std::string message, const char* remedy) {
    return Refusal{.code = absl::StatusCode::kFailedPrecondition,
                   .reason = reason,
                   .message = absl::StrCat("host bridge ", bridge.name, message),
                   .remedy = remedy,
                   .metadata = {{"host_bridge", bridge.name}, {"blocking_serial", topmost}}};
  };
  constexpr char kMakeRoom[] = "detach a Region from that bridge or attach under another one";
  if (bridge.blocked) {
    return refusal("BRIDGE_BLOCKED",
                   absl::StrCat(" cannot take a host region: one below a live one was freed; "
                                "topmost is the one of serial ",
                                topmost),
                   "detach what is live on that bridge, topmost first");
  }
  if (bridge.live_regions >= bridge.max_regions) {
    return refusal("DECODERS_FULL",
                   absl::StrCat(" has all ", bridge.max_regions, " decoders in use"), kMakeRoom);
  }
  if (bridge.free_window_bytes < size_bytes) {
    return refusal("WINDOW_FULL",
                   absl::StrCat(" has ", bridge.free_window_bytes,
                                " bytes of its window free; the host region needs ", size_bytes),
                   kMakeRoom);
  }
  return std::nullopt;
}

const ObservedMemdev* FindMemdev(const HostObservation& host, uint64_t serial) {
  for (const ObservedMemdev& memdev : host.memdevs) {
    if (memdev.serial == serial) return &memdev;
  }
  return nullptr;
}

const ObservedHostRegion* FindHostRegion(const HostObservation& host, uint64_t serial) {
  for (const ObservedHostRegion& region : host.regions) {
    const bool found = serial != 0 ? std::find(region.serials.begin(), region.serials.end(),
                                               serial) != region.serials.end()
                                   : IsAnonymousOrphan(region);
    if (found) return &region;
  }
  return nullptr;
}

const ObservedBridge* FindBridge(const HostObservation& host, const std::string& name) {
  for (const ObservedBridge& bridge : host.bridges) {
    if (bridge.name == name) return &bridge;
  }
  return nullptr;
}

}  // namespace cxlpool::agent
