#include "fabric-manager/model/pool/host.h"

#include <algorithm>
#include <utility>

#include "proto/support/mutant.h"

namespace cxlpool::fm {
namespace {

bool Contains(const std::vector<uint32_t>& slots, uint32_t slot) {
  return std::find(slots.begin(), slots.end(), slot) != slots.end();
}

bool LiesUnder(const OccupiedSlot& a, const OccupiedSlot& b) {
  if (a.hpa_bytes != 0 && b.hpa_bytes != 0) return a.hpa_bytes < b.hpa_bytes;
  return a.generation < b.generation;
}

// Left its decoder already, so that it is a hole if something stays above. Without a host address
// it never got as far as a decoder.
bool IsGone(const OccupiedSlot& entry) {
  return entry.hpa_bytes != 0 &&
         (entry.state == AttachmentState::kOffline || entry.state == AttachmentState::kEjecting);
}

// The topmost of those that stay above a hole; null if there is no hole.
const OccupiedSlot* Blocker(const std::vector<const OccupiedSlot*>& entries) {
  const OccupiedSlot* blocker = nullptr;
  for (const OccupiedSlot* hole : entries) {
    if (!hole->leaving() && !IsGone(*hole)) continue;
    for (const OccupiedSlot* above : entries) {
      const bool leaves = above->detaching && !CXLPOOL_MUTANT("two-leavers-are-blocked");
      if (leaves || !(above->live() || above->pending())) continue;
      if (!LiesUnder(*hole, *above)) continue;
      if (blocker == nullptr || LiesUnder(*blocker, *above)) blocker = above;
    }
  }
  return blocker;
}

// A decoder is a host region's, and so one stripe set's.
using Decoder = std::pair<uint64_t, uint32_t>;  // Generation and set.

uint32_t Count(std::vector<Decoder> decoders) {
  std::sort(decoders.begin(), decoders.end());
  return static_cast<uint32_t>(std::unique(decoders.begin(), decoders.end()) - decoders.begin());
}

}  // namespace

bool Host::Serves(absl::string_view tenant) const {
  return CXLPOOL_MUTANT("host-serves-all-tenants") ||
         std::find(tenants.begin(), tenants.end(), tenant) != tenants.end();
}

BridgeOutlook LookAt(const Bridge& bridge, const HostRuntime& runtime,
                     const std::vector<OccupiedSlot>& occupied) {
  BridgeOutlook outlook;
  outlook.free_slots = bridge.slots;
  std::vector<const OccupiedSlot*> entries;
  for (const OccupiedSlot& entry : occupied) {
    std::erase(outlook.free_slots, entry.slot);
    if (entry.host_bridge == bridge.name || Contains(bridge.slots, entry.slot)) {
      entries.push_back(&entry);
    }
  }
  std::erase_if(outlook.free_slots,
                [&](uint32_t slot) { return !Contains(runtime.fabric_slots, slot); });
  std::sort(outlook.free_slots.begin(), outlook.free_slots.end());

  std::vector<Decoder> live;
  std::vector<Decoder> pending;
  std::vector<Decoder> committed;  // Pending, but the host region is there already.
  outlook.free_window_bytes = bridge.free_window_bytes;
  for (const OccupiedSlot* entry : entries) {
    const Decoder decoder(entry->generation, entry->set);
    if (entry->live() || entry->leaving()) live.push_back(decoder);
    outlook.leaving |= entry->leaving();
    if (!entry->pending()) continue;
    pending.push_back(decoder);
    if (entry->hpa_bytes != 0) committed.push_back(decoder);
    outlook.free_window_bytes -= std::min(outlook.free_window_bytes, entry->length_bytes);
  }
  // The agent also counts host regions that the pool did not make.
  const uint32_t reported =
      bridge.live_regions - std::min(bridge.live_regions, Count(std::move(committed)));
  outlook.stack = std::max(Count(std::move(live)), reported) + Count(std::move(pending));
  outlook.full = outlook.stack >= bridge.depth();

  const OccupiedSlot* blocker = Blocker(entries);
  if (blocker == nullptr && bridge.blocked) {
    for (const OccupiedSlot& entry : occupied) {
      if (bridge.blocking_serial != 0 && entry.serial == bridge.blocking_serial) blocker = &entry;
    }
  }
  outlook.blocked = bridge.blocked || blocker != nullptr;
  if (blocker == nullptr && outlook.leaving) {
    const auto leaver = std::find_if(entries.begin(), entries.end(),
                                     [](const OccupiedSlot* entry) { return entry->leaving(); });
    blocker = *leaver;
  }
  if (blocker != nullptr) outlook.blocked_by = blocker->region_id;
  outlook.usable =
      !outlook.blocked && !outlook.leaving && !outlook.full && !outlook.free_slots.empty();
  return outlook;
}

}  // namespace cxlpool::fm
