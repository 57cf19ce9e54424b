#include "host-agent/adapters/linux/cxl/bridge_view.h"

#include <algorithm>

namespace cxlpool::agent {
namespace {

bool HasHole(const DecoderStack& stack) {
  return TopmostAboveHole<HdmDecoder>(
             stack.decoders, [](const HdmDecoder& decoder) { return !decoder.in_use; },
             [](const HdmDecoder& decoder) { return decoder.in_use; },
             [](const HdmDecoder& a, const HdmDecoder& b) { return a.id < b.id; }) != nullptr;
}

const HdmDecoder* Topmost(const DecoderStack& stack) {
  for (auto it = stack.decoders.rbegin(); it != stack.decoders.rend(); ++it) {
    if (it->in_use) return &*it;
  }
  return nullptr;
}

uint64_t SerialOf(const CxlSnapshot& snapshot, const std::string& region_name) {
  for (const CxlHostRegion& region : snapshot.regions) {
    if (region.name != region_name) continue;
    for (const CxlRegionTarget& target : region.targets) {
      if (target.serial != 0) return target.serial;
    }
  }
  return 0;
}

}  // namespace

const CxlWindow* WindowOf(const CxlSnapshot& snapshot, const std::vector<std::string>& bridges) {
  const CxlWindow* best = nullptr;
  for (const CxlWindow& window : snapshot.windows) {
    if (!window.volatile_capable || window.bridges != bridges) continue;
    if (best == nullptr || window.largest_free_bytes > best->largest_free_bytes) best = &window;
  }
  return best;
}

// A bridge has several stacks: its own, and those of the switches below it. It can take as many
// host regions as the shallowest of them, and is blocked where any of them is.
std::vector<ObservedBridge> ViewBridges(const CxlSnapshot& snapshot,
                                        const std::vector<PciSlot>& slots) {
  std::vector<ObservedBridge> views;
  for (const CxlHostBridge& bridge : snapshot.bridges) {
    ObservedBridge view;
    view.name = bridge.acpi_name;
    for (const PciSlot& slot : slots) {
      if (slot.host_bridge == bridge.pci_name) view.slots.push_back(slot.number);
    }
    const CxlWindow* const window = WindowOf(snapshot, {bridge.pci_name});
    if (window != nullptr) {
      view.window_bytes = window->size_bytes;
      view.free_window_bytes = window->largest_free_bytes;
    }
    for (const DecoderStack& stack : bridge.stacks) {
      const auto decoders = static_cast<uint32_t>(stack.decoders.size());
      const bool own = &stack == &bridge.stacks.front();
      // Linux 7 enumerates a port's decoders only when a memdev appears below it.
      if (decoders != 0 && (view.max_regions == 0 || decoders < view.max_regions)) {
        view.max_regions = decoders;
      }
      const bool hole = HasHole(stack);
      const HdmDecoder* const top = Topmost(stack);
      // Decoders are used in the order of addresses: above one that lies behind the window there is
      // no free address in it.
      const bool above = top != nullptr && window != nullptr &&
                         top->hpa_bytes >= window->hpa_bytes + window->size_bytes;
      if (own) {
        view.live_regions = static_cast<uint32_t>(
            std::count_if(stack.decoders.begin(), stack.decoders.end(),
                          [](const HdmDecoder& decoder) { return decoder.in_use; }));
      }
      if (top != nullptr && (own || (hole && !view.blocked))) {
        view.blocking_serial = SerialOf(snapshot, top->region);
      }
      view.blocked = view.blocked || hole || above;
    }
    // Not enumerated yet: every port has at least one (CXL 3.1, 8.2.4.20.1).
    view.depth_unknown = view.max_regions == 0;
    if (view.depth_unknown) view.max_regions = 1;
    views.push_back(std::move(view));
  }
  return views;
}

std::string AcpiNameOf(const CxlSnapshot& snapshot, const std::string& pci_name) {
  for (const CxlHostBridge& bridge : snapshot.bridges) {
    if (bridge.pci_name == pci_name) return bridge.acpi_name;
  }
  return "";
}

}  // namespace cxlpool::agent
