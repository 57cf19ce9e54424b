#include "fabric-manager/model/pool/host.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "proto/support/cxl_host.h"
#include "proto/support/mutant.h"

namespace cxlpool::fm {
namespace {

constexpr absl::string_view kNotReached = "DEVICE_NOT_REACHED ";

bool Contains(const std::vector<uint32_t>& slots, uint32_t slot) {
  return std::find(slots.begin(), slots.end(), slot) != slots.end();
}

// Left its decoder already, so that it is a hole if something stays above. Without a host address
// it never got as far as a decoder.
bool IsGone(const OccupiedSlot& entry) {
  return entry.hpa_bytes != 0 &&
         (entry.state == AttachmentState::kOffline || entry.state == AttachmentState::kEjecting);
}

// The topmost of those that stay above a hole, or above what will be one; null if there is none.
const OccupiedSlot* Blocker(const std::vector<const OccupiedSlot*>& entries) {
  using Entry = const OccupiedSlot*;
  const Entry* const blocker = TopmostAboveHole<Entry>(
      entries, [](Entry entry) { return entry->leaving() || IsGone(*entry); },
      [](Entry entry) {
        const bool leaves = entry->detaching && !CXLPOOL_MUTANT("two-leavers-are-blocked");
        return !leaves && (entry->live() || entry->pending());
      },
      [](Entry a, Entry b) { return LiesUnder(*a, *b); });
  return blocker == nullptr ? nullptr : *blocker;
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

bool LiesUnder(const OccupiedSlot& a, const OccupiedSlot& b) {
  if (a.hpa_bytes != 0 && b.hpa_bytes != 0) return a.hpa_bytes < b.hpa_bytes;
  return a.generation < b.generation;
}

// What a host bridge could still take: free slots, how many host regions its decoders have below
// them, and what keeps it from taking more. What the records intend and what the agent reports
// overlap: a host region that is in both is counted once.
BridgeOutlook LookAt(const Bridge& bridge, const HostRuntime& runtime,
                     const std::vector<OccupiedSlot>& occupied) {
  BridgeOutlook outlook;
  std::vector<uint32_t> taken;
  std::vector<const OccupiedSlot*> entries;
  for (const OccupiedSlot& entry : occupied) {
    taken.push_back(entry.slot);
    if (entry.host_bridge == bridge.name || Contains(bridge.slots, entry.slot)) {
      entries.push_back(&entry);
    }
  }
  // Set against each other in order: a bridge may have a thousand slots.
  std::vector<uint32_t> of_bridge = bridge.slots;
  std::vector<uint32_t> of_fabric = runtime.fabric_slots;
  std::vector<uint32_t> known;
  for (std::vector<uint32_t>* slots : {&of_bridge, &of_fabric, &taken}) {
    std::sort(slots->begin(), slots->end());
  }
  std::set_intersection(of_bridge.begin(), of_bridge.end(), of_fabric.begin(), of_fabric.end(),
                        std::back_inserter(known));
  std::set_difference(known.begin(), known.end(), taken.begin(), taken.end(),
                      std::back_inserter(outlook.free_slots));

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
  if (bridge.any_order && !CXLPOOL_MUTANT("any-order-is-a-stack")) {
    outlook.leaving = false;
    outlook.free_window_bytes = UINT64_MAX;
    outlook.usable = !outlook.full && !outlook.free_slots.empty();
    return outlook;
  }

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

std::map<std::string, absl::Time> WrongSince(const HostRuntime& before, const HostRuntime& after,
                                             absl::Time now) {
  std::map<std::string, absl::Time> wrong;
  const auto add = [&](const std::string& what, absl::Time began) {
    const auto known = before.wrong_since.find(what);
    const bool goes_on =
        known != before.wrong_since.end() && !CXLPOOL_MUTANT("outage-begins-with-each-report");
    wrong[what] = goes_on ? known->second : began;
  };
  // Without a reason nobody has looked yet.
  if (!after.fabric_reachable && !after.fabric_reason.empty()) add("FABRIC_AWAY", now);
  const bool came = after.last_heartbeat != absl::InfinitePast();
  if (!after.online && came) add("AGENT_AWAY", after.last_heartbeat);
  // Also while the agent is away: what it said last is true until it says otherwise.
  if (!after.unfit_reason.empty()) add("UNFIT", now);
  for (const auto& [device, seen] : after.unreached) {
    add(absl::StrCat(kNotReached, device), now);
  }
  // Nobody knows that it reaches them while it cannot be asked, nor when its agent has just come
  // back, for then the host is looked at anew.
  const bool is_looked_at = after.fabric_reachable && (before.online || !after.online);
  for (const auto& [what, since] : before.wrong_since) {
    if (!is_looked_at && absl::StartsWith(what, kNotReached)) wrong.emplace(what, since);
  }
  for (const Bridge& bridge : after.bridges) {
    if (bridge.blocked) add(absl::StrCat("BRIDGE_BLOCKED ", bridge.name), now);
  }
  return wrong;
}

}  // namespace cxlpool::fm
