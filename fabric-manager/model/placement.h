// Where a Region's bytes go, and where they enter a host. Pure: reads PoolState, changes nothing.
//
// Refusals name the blocker and the remedy; their reasons are in docs/errors.md.
#ifndef CXLPOOL_FABRIC_MANAGER_MODEL_PLACEMENT_H_
#define CXLPOOL_FABRIC_MANAGER_MODEL_PLACEMENT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "fabric-manager/model/pool_state.h"

namespace cxlpool::fm {

struct ExtentRequest {
  std::string label;         // For messages: region "kv".
  uint64_t size_bytes = 0;   // As asked for; rounded up to whole units.
  uint64_t unit_bytes = 0;   // Extents are multiples of max(device granule, unit); 0: granule.
  std::string device;        // Only there; empty: anywhere reachable.
  uint32_t max_extents = 1;  // 1..kMaxExtentsPerRegion.
};

// Fewest extents first: one best-fitting run on any device (smallest that fits; ties by device
// id); else the longest runs, and for the rest the run that fits it best.
// RESOURCE_EXHAUSTED/POOL_FULL: less is free than asked for. POOL_FRAGMENTED: enough is free, not
// in so few extents (metadata largest_free_bytes, and extents: how many would do).
// NOT_FOUND/UNKNOWN_DEVICE. FAILED_PRECONDITION/DEVICE_UNREACHABLE.
absl::StatusOr<std::vector<Extent>> PlaceExtents(const PoolState& state,
                                                 const ExtentRequest& request);

// Whether anything can be placed on the host at all. NOT_FOUND/UNKNOWN_HOST.
// FAILED_PRECONDITION/HOST_RETIRED, HOST_NOT_ONLINE (its agent has no session).
// UNAVAILABLE/HOST_UNREACHABLE: the fabric cannot bind there now.
absl::Status CheckHost(const PoolState& state, absl::string_view host);

// Gives each length (in Region order) a slot and bridge of the host: an empty bridge first, then
// the shallowest stack that nobody is leaving, the bridge's name breaking ties. Serials are left 0.
// Errors of CheckHost. RESOURCE_EXHAUSTED: NO_FREE_PORT, BRIDGE_BLOCKED (blocked_by names the
// Region that has to go first), BRIDGE_FULL (decoder stacks are full), WINDOW_FULL,
// PAGE_STRUCT_SPACE (the host's own memory cannot hold the page structs; 64 bytes per 4 KiB).
absl::StatusOr<std::vector<Segment>> PlaceOnHost(const PoolState& state, absl::string_view host,
                                                 const std::vector<uint64_t>& lengths_bytes,
                                                 absl::string_view label);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_MODEL_PLACEMENT_H_
