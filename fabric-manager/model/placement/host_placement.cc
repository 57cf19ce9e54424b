// Where a Region's extents enter a host: PlaceOnHost.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "fabric-manager/model/placement/placement.h"
#include "fabric-manager/model/placement/placement_refusals.h"
#include "fabric-manager/model/pool/host_bridges.h"
#include "fabric-manager/model/space/bytes.h"
#include "proto/support/cxl_host.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

// That the host's own memory holds the page structs of all of it, and of what is on its way there.
absl::Status CheckPageStructs(const PoolState& state, const HostRequest& request) {
  uint64_t spare = state.Runtime(request.host).page_struct_spare_bytes;
  if (spare == 0) return absl::OkStatus();  // Not reported.
  uint64_t needed = 0;
  for (const Extent& extent : request.extents) {
    needed += PageStructBytes(extent.length_bytes);
  }
  for (const OccupiedSlot& entry : state.Occupied(request.host)) {
    if (!entry.pending()) continue;  // What is there already, the agent has counted.
    spare -= std::min(spare, PageStructBytes(entry.length_bytes));
  }
  if (needed <= spare) return absl::OkStatus();
  return Exhausted(
      "PAGE_STRUCT_SPACE",
      absl::StrCat(request.label, " needs ", FormatBytes(needed), " of host \"", request.host,
                   "\"'s own memory for page structs; it can spare ", FormatBytes(spare)),
      "ask for less, or detach a Region there",
      {{"needed_bytes", absl::StrCat(needed)},
       {"spare_bytes", absl::StrCat(spare)},
       {"host", request.host}});
}

// Where devices are seen whole there is no decoder that the host could interleave with.
absl::Status CheckInterleave(const HostRuntime& runtime, const HostRequest& request) {
  const bool decodes = std::any_of(runtime.bridges.begin(), runtime.bridges.end(),
                                   [](const Bridge& bridge) { return !bridge.any_order; });
  if (request.interleave_ways <= 1 || decodes || runtime.bridges.empty()) return absl::OkStatus();
  return Unfit(
      "INTERLEAVE_UNSUPPORTED",
      absl::StrCat(request.label, " is interleaved ", request.interleave_ways, " ways; host \"",
                   request.host, "\" sees its devices whole, and only firmware interleaves those"),
      "allocate it with another placement policy than bandwidth", {{"host", request.host}});
}

// The host regions to be. NO_PATH: a device is not led to.
absl::StatusOr<std::vector<Piece>> PiecesOf(const PoolState& state, const HostRequest& request) {
  std::vector<Piece> pieces;
  for (size_t i = 0; i < request.extents.size(); ++i) {
    const Extent& extent = request.extents[i];
    const Path* path = state.topology().Find(request.host, extent.device);
    if (path == nullptr) {
      return Unfit("NO_PATH",
                   absl::StrCat(request.label, ": no path leads host \"", request.host,
                                "\" to device \"", extent.device.str(), "\""),
                   "use a host that reaches it, or allocate another Region for this host",
                   {{"host", request.host}, {"device", extent.device.str()}});
    }
    const auto& unreached = state.Runtime(request.host).unreached;
    if (const auto why = unreached.find(extent.device.str()); why != unreached.end()) {
      return NotReached(request.label, request.host, why->first, why->second);
    }
    if (i % request.interleave_ways == 0) pieces.push_back({.first = i, .slots = {}});
    pieces.back().length_bytes += extent.length_bytes;
    pieces.back().slots.push_back(path->slots);
  }
  // Those that few slots will do for choose first.
  const auto choice = [](const Piece& piece) {
    size_t least = SIZE_MAX;
    for (const auto& leads : piece.slots) {
      if (!leads.empty()) least = std::min(least, leads.size());
    }
    return least;
  };
  std::stable_sort(pieces.begin(), pieces.end(),
                   [&](const Piece& a, const Piece& b) { return choice(a) < choice(b); });
  return pieces;
}

// Whether nothing lies on any part of the Region but itself and what is planned.
bool FreeButFor(const std::vector<Look>& looks, Key region, Key planned) {
  for (const Look& look : looks) {
    if (look.bridge->any_order) continue;
    for (const OccupiedSlot* low : look.holding) {
      if (low->region != region) continue;
      for (const OccupiedSlot* high : look.holding) {
        const bool counts = high->region != region && high->region != planned;
        if (counts && LiesUnder(*low, *high)) return false;
      }
    }
  }
  return true;
}

// What it means for the bridges: `looks` with the planned segments in place.
std::vector<HostPlacement::OnBridge> Outlook(const std::vector<Look>& looks, Key own) {
  std::vector<HostPlacement::OnBridge> bridges;
  for (const Look& look : looks) {
    const bool used = std::any_of(look.holding.begin(), look.holding.end(),
                                  [](const auto* entry) { return entry->generation == kPlanned; });
    if (!used) continue;
    HostPlacement::OnBridge bridge{look.bridge->name, look.outlook.stack, {}, {}};
    if (look.bridge->any_order) {  // It lies on nothing there.
      bridges.push_back(std::move(bridge));
      continue;
    }
    for (const OccupiedSlot* entry : look.holding) {
      // A Region does not lie on itself: its parts go together.
      if (entry->generation == kPlanned || entry->region == own) continue;
      if (std::find(bridge.above.begin(), bridge.above.end(), entry->region_id) !=
          bridge.above.end()) {
        continue;
      }
      bridge.above.push_back(entry->region_id);
      if (FreeButFor(looks, entry->region, own)) bridge.unblocks.push_back(entry->region_id);
    }
    bridges.push_back(std::move(bridge));
  }
  return bridges;
}

}  // namespace

// In the order in which a person puts it right: enrol, bring back, start the agent, fix the
// machine, fix the fabric.
absl::Status CheckHost(const PoolState& state, absl::string_view host) {
  const auto refuse = [host](absl::StatusCode code, const std::string& reason,
                             absl::string_view what, const std::string& remedy) {
    return Refuse(code, reason, absl::StrCat("host \"", host, "\" ", what), remedy,
                  {{"host", std::string(host)}});
  };
  const Host* known = state.FindHost(host);
  if (known == nullptr) {
    return refuse(absl::StatusCode::kNotFound, "UNKNOWN_HOST", "is not enrolled",
                  absl::StrCat("run `cxlpool host enrol ", host, "`"));
  }
  if (known->retired) {
    return refuse(absl::StatusCode::kFailedPrecondition, "HOST_RETIRED", "is retired",
                  absl::StrCat("run `cxlpool host enrol ", host, "` to bring it back"));
  }
  const HostRuntime& runtime = state.Runtime(host);
  if (!runtime.online) {
    return refuse(absl::StatusCode::kFailedPrecondition, "HOST_NOT_ONLINE",
                  "has no agent connected now", "start cxlpool-agent there");
  }
  if (!runtime.unfit_reason.empty()) {
    return refuse(absl::StatusCode::kFailedPrecondition, "HOST_UNFIT",
                  absl::StrCat("is unfit: ", runtime.unfit_reason),
                  "fix that there; `cxlpool-agent check` on it tells more");
  }
  if (!runtime.fabric_reachable) {
    return refuse(absl::StatusCode::kUnavailable, "HOST_UNREACHABLE",
                  "cannot be reached by the fabric now", "check its power and retry");
  }
  return absl::OkStatus();
}

// Piece by piece, each on what the ones before left: all have a place, or none is given one. A
// piece never loses its place to a later one.
absl::StatusOr<HostPlacement> PlaceOnHost(const PoolState& state, const HostRequest& request) {
  if (absl::Status status = CheckHost(state, request.host); !status.ok()) return status;
  if (absl::Status status = CheckPageStructs(state, request); !status.ok()) return status;
  const auto pieces = PiecesOf(state, request);
  if (!pieces.ok()) return pieces.status();
  const HostRuntime& runtime = state.Runtime(request.host);
  if (absl::Status status = CheckInterleave(runtime, request); !status.ok()) return status;
  std::vector<OccupiedSlot> occupied = state.Occupied(request.host);
  HostPlacement placement;
  placement.segments.resize(request.extents.size());
  for (const Piece& piece : *pieces) {
    const std::vector<Look> looks = LookAtAll(runtime, occupied);
    const Look* chosen = Choose(looks, piece, request.expected_lifetime, request.region);
    if (chosen == nullptr) return WhyNoBridge(state, request, piece, looks);
    const std::vector<uint32_t> slots = *SlotsFor(piece, chosen->outlook.free_slots);
    const std::string& bridge = chosen->bridge->name;
    for (size_t i = 0; i < piece.ways(); ++i) {
      Segment& segment = placement.segments[piece.first + i];
      segment.extent_index = static_cast<uint32_t>(piece.first + i);
      segment.slot = slots[i];
      segment.host_bridge = bridge;
      // Takes part in the next choice, above everything that is there.
      OccupiedSlot planned;
      planned.region = request.region;
      planned.generation = kPlanned;
      planned.slot = segment.slot;
      planned.host_bridge = bridge;
      planned.length_bytes = request.extents[piece.first + i].length_bytes;
      planned.set = static_cast<uint32_t>(piece.first);
      planned.ways = static_cast<uint32_t>(piece.ways());
      planned.expected_lifetime = request.expected_lifetime;
      occupied.push_back(std::move(planned));
    }
  }
  placement.bridges = Outlook(LookAtAll(runtime, occupied), request.region);
  return placement;
}

}  // namespace cxlpool::fm
