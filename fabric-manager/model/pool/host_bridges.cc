#include "fabric-manager/model/pool/host_bridges.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/string_view.h"

namespace cxlpool::fm {
namespace {

bool Contains(const std::vector<uint32_t>& slots, uint32_t slot) {
  return std::find(slots.begin(), slots.end(), slot) != slots.end();
}

// Finds a slot for one more extent of a piece, moving others where that helps (Kuhn's matching).
class Matching {
 public:
  Matching(const Piece& piece, const std::vector<uint32_t>& free_slots)
      : piece_(piece), free_(free_slots), taken_by_(free_slots.size(), kNobody) {}

  bool Add(size_t extent) {
    std::vector<bool> tried(free_.size());
    return Try(extent, tried);
  }
  std::vector<uint32_t> Slots() const {
    std::vector<uint32_t> slots(piece_.ways());
    for (size_t i = 0; i < free_.size(); ++i) {
      if (taken_by_[i] != kNobody) slots[taken_by_[i]] = free_[i];
    }
    return slots;
  }

 private:
  static constexpr size_t kNobody = SIZE_MAX;

  bool Try(size_t extent, std::vector<bool>& tried) {
    const std::vector<uint32_t>& leads = piece_.slots[extent];
    for (const bool only_free : {true, false}) {
      for (size_t i = 0; i < free_.size(); ++i) {
        if (tried[i] || (!leads.empty() && !Contains(leads, free_[i]))) continue;
        if (only_free && taken_by_[i] != kNobody) continue;
        tried[i] = true;
        if (taken_by_[i] != kNobody && !Try(taken_by_[i], tried)) continue;
        taken_by_[i] = extent;
        return true;
      }
    }
    return false;
  }

  const Piece& piece_;
  const std::vector<uint32_t>& free_;
  std::vector<size_t> taken_by_;
};

// Order of the decoders: by address as far as the agent has reported one. What has none yet is made
// later, in order of generation.
bool LowerOnBridge(const OccupiedSlot* a, const OccupiedSlot* b) {
  if (a->hpa_bytes != 0 && b->hpa_bytes != 0) return a->hpa_bytes < b->hpa_bytes;
  // What has no address yet comes above what has one.
  if ((a->hpa_bytes == 0) != (b->hpa_bytes == 0)) return a->hpa_bytes != 0;
  return std::tie(a->generation, a->set) < std::tie(b->generation, b->set);
}

}  // namespace

bool Piece::picky() const {
  return std::any_of(slots.begin(), slots.end(), [](const auto& leads) { return !leads.empty(); });
}

// The lowest slots are tried first; an extent that can go elsewhere gives way to one that cannot.
std::optional<std::vector<uint32_t>> SlotsFor(const Piece& piece,
                                              const std::vector<uint32_t>& free_slots) {
  if (free_slots.size() < piece.ways()) return std::nullopt;
  Matching matching(piece, free_slots);
  for (size_t i = 0; i < piece.ways(); ++i) {
    if (!matching.Add(i)) return std::nullopt;
  }
  return matching.Slots();
}

// Each bridge with everything that is on it, or is planned to be: what is to come counts, since it
// was promised its decoder.
std::vector<Look> LookAtAll(const HostRuntime& runtime, const std::vector<OccupiedSlot>& occupied) {
  std::vector<Look> looks;
  std::vector<uint32_t> of_fabric = runtime.fabric_slots;
  std::sort(of_fabric.begin(), of_fabric.end());
  for (const Bridge& bridge : runtime.bridges) {
    Look look{&bridge, LookAt(bridge, runtime, occupied), bridge.slots};
    std::erase_if(look.all_slots, [&](uint32_t slot) {
      return !std::binary_search(of_fabric.begin(), of_fabric.end(), slot);
    });
    for (const OccupiedSlot& entry : occupied) {
      const bool here = entry.host_bridge == bridge.name || Contains(bridge.slots, entry.slot);
      if (here && (entry.live() || entry.pending())) look.holding.push_back(&entry);
    }
    std::stable_sort(look.holding.begin(), look.holding.end(), LowerOnBridge);
    looks.push_back(std::move(look));
  }
  std::sort(looks.begin(), looks.end(),
            [](const Look& a, const Look& b) { return a.bridge->name < b.bridge->name; });
  return looks;
}

// Pure comparison: the key's parts are in the order in which they decide (placement.h), less is
// better, and equal keys keep the bridge with the lower name.
const Look* Choose(const std::vector<Look>& looks, const Piece& piece, absl::Duration lifetime,
                   Key own) {
  const Look* best = nullptr;
  std::tuple<bool, bool, bool, size_t, uint32_t> best_key;
  for (const Look& look : looks) {
    if (!look.outlook.usable || look.outlook.free_window_bytes < piece.length_bytes) continue;
    if (!SlotsFor(piece, look.outlook.free_slots).has_value()) continue;
    bool set_there = false;
    bool all_stay = true;
    std::vector<Key> others;
    for (const OccupiedSlot* entry : look.holding) {
      set_there |= entry->ways > 1;
      all_stay &= entry->expected_lifetime >= lifetime;
      if (entry->region != own) others.push_back(entry->region);
    }
    std::sort(others.begin(), others.end());
    others.erase(std::unique(others.begin(), others.end()), others.end());
    const bool occupied = look.outlook.stack > 0;
    // A set wants a bridge of its own, and a bridge that has one wants no guest.
    const bool crowds = piece.ways() > 1 ? occupied : set_there;
    const std::tuple key(crowds, occupied, !all_stay, others.size(), look.outlook.stack);
    if (best != nullptr && key >= best_key) continue;
    best = &look;
    best_key = key;
  }
  return best;
}

}  // namespace cxlpool::fm
