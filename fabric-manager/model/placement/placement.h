// Where a Region's bytes go, and where they enter a host. Pure: reads PoolState, changes nothing.
//
// A Policy decides among devices that may be used at all: seen by the fabric, in service, below
// the fabric's limit of LDs, reached by the host, and the named one where one is named. Refusals
// name the blocker and the remedy; their reasons are in docs/errors.md.
#ifndef CXLPOOL_FABRIC_MANAGER_MODEL_PLACEMENT_PLACEMENT_H_
#define CXLPOOL_FABRIC_MANAGER_MODEL_PLACEMENT_PLACEMENT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "fabric-manager/model/pool/pool_state.h"

namespace cxlpool::fm {

struct ExtentRequest {
  std::string label;         // For messages: region "kv".
  uint64_t size_bytes = 0;   // As asked for; rounded up to whole units.
  uint64_t unit_bytes = 0;   // Extents are multiples of max(device granule, unit); 0: granule.
  std::string device;        // Only there; empty: anywhere reachable.
  uint32_t max_extents = 1;  // 1..kMaxExtentsPerRegion; interleaved: of stripe sets.
  Policy policy = Policy::kPack;
  std::string host = {};  // Only what it reaches; empty: anywhere.
  // kBandwidth: 2, 4, 8, 16; 0: the most that there are devices (and ports under one bridge of the
  // host) for, and that rounding up makes at most an eighth larger.
  uint32_t interleave_ways = 0;
  uint32_t interleave_granularity_bytes = 0;  // kBandwidth: 256..16384, a power of two; 0: 256.
  std::vector<RegionPtr> isolate_from = {};   // kIsolate.
  // Growth: what the Region has already. Its stripe geometry stands, its devices count for
  // kIsolate and kSpread.
  const Region* grown = nullptr;
};

struct PlacedExtents {
  std::vector<Extent> extents;
  uint32_t interleave_ways = 1;
  uint32_t interleave_granularity_bytes = 0;
  friend bool operator==(const PlacedExtents&, const PlacedExtents&) = default;
};

// By policy:
//   kPack       fewest extents; one best-fitting run on any device (smallest that fits; ties by the
//               order in which devices were added); else the longest runs, and for the rest the run
//               that fits it best
//   kSpread     on the device that leaves the load most even; several extents on several devices
//               where max_extents and the host's ports allow. A host of a sparse pod leaves most to
//               those that it shares devices with (balanced_spread.h)
//   kBandwidth  stripe sets of `ways` equal extents on distinct devices, the widest and least
//               loaded ways first; falls back to no fewer ways than asked for
//   kLatency    as kPack among the nearest devices, then among the next nearest, then among both
//   kIsolate    as kPack, in one failure domain that holds no byte of `isolate_from`
// Every policy uses several extents where one run does not fit and max_extents allows: with
// kMaxExtentsPerRegion an allocation succeeds whenever the free units suffice, bounded by that.
// (Interleaved: whenever so many equal shares can be cut.)
//
// RESOURCE_EXHAUSTED/POOL_FULL: less is free than asked for. POOL_FRAGMENTED: enough is free, not
// in so few extents (metadata largest_free_bytes, and extents: how many would do). LD_LIMIT: free,
// but on devices that carry as many LDs as the fabric allows.
// NOT_FOUND/UNKNOWN_DEVICE. FAILED_PRECONDITION: DEVICE_UNREACHABLE, DEVICE_DRAINING,
// DEVICE_FAILED (also of a removed one), NO_PATH, NOT_ISOLATED, TOO_FEW_DEVICES.
// INVALID_ARGUMENT/BAD_INTERLEAVE.
absl::StatusOr<PlacedExtents> PlaceExtents(const PoolState& state, const ExtentRequest& request);

// Whether anything can be placed on the host at all. NOT_FOUND/UNKNOWN_HOST.
// FAILED_PRECONDITION/HOST_RETIRED, HOST_NOT_ONLINE (its agent has no session).
// UNAVAILABLE/HOST_UNREACHABLE: the fabric cannot bind there now.
absl::Status CheckHost(const PoolState& state, absl::string_view host);

struct HostRequest {
  std::string host;
  std::string label;
  std::vector<Extent> extents;  // In Region order.
  uint32_t interleave_ways = 1;
  absl::Duration expected_lifetime = absl::InfiniteDuration();
  Key region = 0;  // Growth: whose. What it has there already goes together with it.
};

// Where the pieces would go, and what that means for the bridges.
struct HostPlacement {
  struct OnBridge {
    std::string host_bridge;
    uint32_t stack_depth = 0;  // Decoders once it is there.
    // Ids of Regions it lies on, lowest first: they cannot leave first without blocking the bridge.
    std::vector<std::string> above;
    // Ids of Regions that can leave this host once this one is gone.
    std::vector<std::string> unblocks;
  };
  std::vector<Segment> segments;  // One an extent; extent_index counts from 0; serials are left 0.
  std::vector<OnBridge> bridges;  // In order of name.
};

// Gives each extent (stripe sets together) slots and a bridge of the host. The slot is one that the
// topology leads to the extent's device. A stripe set is one host region: all its slots hang under
// one bridge, with one decoder. Choice among bridges that can take it, first difference decides:
//   an interleaved set: a bridge without others; and no other on a bridge of a set, if that can be
//     had
//   an empty bridge
//   a bridge where everything is expected to stay at least as long (short above long)
//   the fewest Regions that it would lie on, then the shallowest stack, then the bridge's name
// Errors of CheckHost. RESOURCE_EXHAUSTED: NO_FREE_PORT, BRIDGE_BLOCKED (blocked_by names the
// Region that has to go first), BRIDGE_FULL (decoder stacks are full), WINDOW_FULL,
// PAGE_STRUCT_SPACE (the host's own memory cannot hold the page structs).
// FAILED_PRECONDITION: NO_PATH (none of the host's slots leads to the device),
// INTERLEAVE_UNSUPPORTED (a stripe set, on a host that sees its devices whole).
absl::StatusOr<HostPlacement> PlaceOnHost(const PoolState& state, const HostRequest& request);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_MODEL_PLACEMENT_PLACEMENT_H_
