// The online plan: from what the manager wants of a segment and what the kernel shows, the one
// next rung of the ladder.
//
//              PowerOn      CreateHostRegion      BindDax      OnlineBlocks (system-ram)
//   ABSENT  ─────────→ PRESENT ─────────→ REGION ─────────→ ─────────→ ONLINE
//           ←─────────         ←─────────         ←─────────←─────────
//              PowerOff     DestroyHostRegion    UnbindDax     OfflineBlocks
//
// Level-triggered: nothing is remembered between two calls, so a plan that is interrupted
// anywhere, by an error or by a kill, goes on from what is really there. What cannot work (a
// bridge whose decoder stack is blocked or full; page structs that the host's own memory has no
// room for, both as proto/support/cxl_host.h says; memory that would share a NUMA node with it) is
// refused with its reason and not tried.
//
// Pure functions, any thread.
#ifndef CXLPOOL_HOST_AGENT_MODEL_ONLINE_PLAN_H_
#define CXLPOOL_HOST_AGENT_MODEL_ONLINE_PLAN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "host-agent/model/observation.h"
#include "proto/support/refusal.h"

namespace cxlpool::agent {

// How often making the DAX device of a committed host region again is tried before the host region
// goes and is made afresh.
inline constexpr int kMaxRemakes = 3;

enum class Want {
  kOnline,   // Usable in its mode.
  kOffline,  // Host region destroyed; the memdev stays.
  kEjected,  // Slot powered off too.
};

enum class Mode { kDevdax, kSystemRam };

struct DesiredTarget {
  uint32_t slot = 0;
  uint64_t serial = 0;
  // Whether PowerOff has succeeded since the fabric began the unbind. An empty slot does not say
  // so: an agent may have died half way.
  bool powered_off = false;
};

// One host region that the manager wants up or down.
struct DesiredSegment {
  Want want = Want::kOnline;
  Mode mode = Mode::kDevdax;
  MemoryZone zone = MemoryZone::kMovable;  // kKernel: any zone will do.
  std::string host_bridge;
  std::vector<DesiredTarget> targets;  // At least one, in target order.
  uint32_t interleave_granularity_bytes = 0;
  uint64_t length_bytes = 0;

  // Failures in a row to make the DAX device of the committed host region again. The kernel takes
  // it away after a fatal PCIe error, and leaves host region and memdevs.
  int failed_remakes = 0;

  uint64_t first_serial() const { return targets.front().serial; }
};

// As SegmentState of host_service.proto.
enum class LadderState { kAbsent, kPresent, kRegion, kOnline, kStopping };

struct Step {
  enum class Kind {
    kDone,    // What is wanted is there.
    kWait,    // Another segment goes first.
    kRefuse,  // Cannot work now; `refusal` says why.
    kPowerOn,
    kCreateHostRegion,
    kBindDax,
    kOnlineBlocks,
    kOfflineBlocks,
    kUnbindDax,
    kDestroyHostRegion,
    kPowerOff,
  };
  Kind kind = Kind::kDone;
  size_t target = 0;    // kPowerOn, kPowerOff: index into targets.
  uint64_t serial = 0;  // Down from a host region: the target's by which it is named.
  DaxDriver driver = DaxDriver::kNone;  // kBindDax.
  bool check_holders = false;           // kUnbindDax: no process may have the DAX device open.
  Refusal refusal = {};                 // kRefuse.

  bool is_rung() const { return kind >= Kind::kPowerOn; }
  bool is_down() const { return kind >= Kind::kOfflineBlocks; }
};

// "PowerOn", as in the name of the HostMemory call.
const char* StepName(Step::Kind kind);

// How far up the ladder the segment is.
LadderState StateOf(const DesiredSegment& desired, const HostObservation& host);

// Whether the segment still has to make its host region: a later one on the same bridge must
// wait, because decoders are committed in ascending order of address.
bool AwaitsHostRegion(const DesiredSegment& desired, const HostObservation& host);

// The host region that uses any of the targets; null if there is none.
const ObservedHostRegion* HostRegionOf(const DesiredSegment& desired, const HostObservation& host);

// Whether the host region, whole, is what the segment's mode makes of it.
bool InMode(const DesiredSegment& desired, const ObservedHostRegion& region,
            const HostObservation& host);

// Whether the host region is committed and has no DAX device: kCreateHostRegion then makes only
// that.
bool LacksDaxDevice(const DesiredSegment& desired, const HostObservation& host);

// `earlier_pending`: a segment of an earlier Attachment still has to make its host region on the
// same bridge.
Step NextStep(const DesiredSegment& desired, const HostObservation& host, bool earlier_pending);

// Why the bridge cannot take one more host region of this size now: BRIDGE_BLOCKED, DECODERS_FULL,
// WINDOW_FULL, each naming what has to go first. Nothing: it can. Adapters refuse in these words
// too.
std::optional<Refusal> WhyBridgeTakesNoMore(const ObservedBridge& bridge, uint64_t size_bytes);

// The memdev, or the host region, of a serial; null if the host has none. Serial 0 stands for a
// host region that has lost all its targets, and whose owner is not known.
const ObservedMemdev* FindMemdev(const HostObservation& host, uint64_t serial);
const ObservedHostRegion* FindHostRegion(const HostObservation& host, uint64_t serial);
const ObservedBridge* FindBridge(const HostObservation& host, const std::string& name);

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_MODEL_ONLINE_PLAN_H_
