// The bridges of a host while a Region is being placed on it: which can take a piece, and which
// takes it best.
//
// Private to PlaceOnHost. Pure.
#ifndef CXLPOOL_FABRIC_MANAGER_MODEL_POOL_HOST_BRIDGES_H_
#define CXLPOOL_FABRIC_MANAGER_MODEL_POOL_HOST_BRIDGES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fabric-manager/model/placement/placement.h"

namespace cxlpool::fm {

inline constexpr uint64_t kPlanned = UINT64_MAX;  // Generation: above everything that is there.

// What becomes one host region: an extent, or a stripe set.
struct Piece {
  size_t first = 0;  // Extent that it begins with.
  uint64_t length_bytes = 0;
  // For each extent, the slots that lead to its device; empty: any.
  std::vector<std::vector<uint32_t>> slots;

  size_t ways() const { return slots.size(); }
  bool picky() const;  // Not every slot will do.
};

// A slot for each extent of the piece, all different; the lowest. Nothing: there are not enough.
std::optional<std::vector<uint32_t>> SlotsFor(const Piece& piece,
                                              const std::vector<uint32_t>& free_slots);

struct Look {
  const Bridge* bridge = nullptr;
  BridgeOutlook outlook;
  std::vector<uint32_t> all_slots;                // That agent and fabric know.
  std::vector<const OccupiedSlot*> holding = {};  // Decoders here, lowest first.
};

// In order of name. Points into `runtime` and `occupied`.
std::vector<Look> LookAtAll(const HostRuntime& runtime, const std::vector<OccupiedSlot>& occupied);

// The one for the piece, as placement.h says; null: none can take it. `own`: the Region's key.
const Look* Choose(const std::vector<Look>& looks, const Piece& piece, absl::Duration lifetime,
                   Key own);

// Why there is none.
absl::Status WhyNoBridge(const PoolState& state, const HostRequest& request, const Piece& piece,
                         const std::vector<Look>& looks);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_MODEL_POOL_HOST_BRIDGES_H_
