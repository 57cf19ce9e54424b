#include "tools/cli/render/topology.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "proto/support/byte_size.h"
#include "tools/cli/render/inventory.h"
#include "tools/cli/render/printable.h"
#include "tools/cli/render/words.h"

namespace cxlpool::cli {
namespace {

struct Node {
  std::string text;
  std::vector<Node> children;
};

// Appends only what is below `node`, each line behind `lead`; the caller writes the node's own
// line.
void Append(const Node& node, const std::string& lead, std::string& out) {
  for (size_t i = 0; i < node.children.size(); ++i) {
    const bool last = i + 1 == node.children.size();
    const Node& child = node.children[i];
    absl::StrAppend(&out, lead, last ? "`-- " : "|-- ", Printable(child.text), "\n");
    Append(child, lead + (last ? "    " : "|   "), out);
  }
}

struct Use {
  uint64_t dpa = 0;
  uint64_t length = 0;
  std::string text;
};

// By device name, each in order of address.
std::map<std::string, std::vector<Use>> UsesByDevice(const v1::ListRegionsResponse& regions) {
  std::map<std::string, std::vector<Use>> uses;
  for (const v1::Region& region : regions.regions()) {
    const std::string held = region.state() == v1::Region::ALLOCATED
                                 ? ""
                                 : absl::StrCat(" ", v1::Region::State_Name(region.state()));
    const std::string attached = AttachmentsText(region);
    for (const v1::Extent& extent : region.extents()) {
      uses[extent.device()].push_back(
          {extent.dpa_bytes(), extent.length_bytes(),
           absl::StrCat(ShortName(region.name()), held, attached.empty() ? "" : " -> ", attached)});
    }
  }
  for (auto& [device, list] : uses) {
    std::stable_sort(list.begin(), list.end(),
                     [](const Use& a, const Use& b) { return a.dpa < b.dpa; });
  }
  return uses;
}

Node DeviceNode(const v1::Device& device, const std::vector<Use>& uses) {
  Node node{
      absl::StrCat("device ", ShortName(device.name()), "  ",
                   v1::Device::State_Name(device.state()), "  ",
                   FormatByteSize(device.capacity_bytes()), ", ", FormatByteSize(FreeBytes(device)),
                   " free, largest extent ", FormatByteSize(device.largest_free_bytes()),
                   device.failure_domain().empty() ? "" : ", fails with ", device.failure_domain()),
      {}};
  for (const Use& use : uses) {
    node.children.push_back(
        {absl::StrFormat("%-12s %10s  %s", Hex(use.dpa), FormatByteSize(use.length), use.text),
         {}});
  }
  return node;
}

Node SlotNode(const v1::Port& port) {
  return {absl::StrCat("slot ", port.slot(), "  ",
                       port.region().empty() ? "free" : ShortName(port.region())),
          {}};
}

std::string BridgeText(const v1::HostBridge& bridge) {
  std::string out =
      absl::StrCat("bridge ", bridge.name(), "  ", bridge.live_regions(), "/", bridge.max_regions(),
                   " host regions, window ", FormatByteSize(bridge.free_window_bytes()),
                   " free of ", FormatByteSize(bridge.window_bytes()));
  if (bridge.blocked()) {
    absl::StrAppend(&out, ", BLOCKED until ",
                    bridge.blocked_by().empty() ? "an unknown host region goes"
                                                : ShortName(bridge.blocked_by()) + " goes");
  }
  return out;
}

// "reaches cmm-0 by sw0, sw1: 230 ns, 20000 MiB/s, from slots 17, 18"
Node PathNode(const v1::Path& path) {
  std::string text = absl::StrCat("reaches ", ShortName(path.device()));
  if (path.via().empty()) {
    absl::StrAppend(&text, " directly");
  } else {
    absl::StrAppend(&text, " by ", absl::StrJoin(path.via(), ", "));
  }
  const std::string figures = FiguresText(path.latency_ns(), path.bandwidth_mib_per_second());
  if (!figures.empty()) absl::StrAppend(&text, ": ", figures);
  if (!path.slots().empty()) {
    absl::StrAppend(&text, ", from slots ", absl::StrJoin(path.slots(), ", "));
  }
  return {std::move(text), {}};
}

// Slots under their bridges. Those of bridges that the agent has not reported come last, under a
// node of their own.
Node HostNode(const v1::Host& host) {
  Node node{absl::StrCat("host ", ShortName(host.name()), "  ", StateWord(host),
                         host.unfit_reason().empty() ? "" : ", takes nothing: ",
                         Printable(host.unfit_reason())),
            {}};
  std::vector<const v1::Port*> ports;
  for (const v1::Port& port : host.ports()) ports.push_back(&port);
  std::stable_sort(ports.begin(), ports.end(),
                   [](const v1::Port* a, const v1::Port* b) { return a->slot() < b->slot(); });
  std::vector<bool> placed(ports.size(), false);
  const bool all = FreeSlots(host) <= kMaxFreeSlotsListed;
  for (const v1::HostBridge& bridge : host.bridges()) {
    Node under{BridgeText(bridge), {}};
    int more = 0;
    for (size_t i = 0; i < ports.size(); ++i) {
      if (placed[i] || ports[i]->host_bridge() != bridge.name()) continue;
      placed[i] = true;
      if (ports[i]->region().empty() && !all) {
        ++more;
      } else {
        under.children.push_back(SlotNode(*ports[i]));
      }
    }
    if (more > 0) under.children.push_back({absl::StrCat(more, " slots are free"), {}});
    node.children.push_back(std::move(under));
  }
  Node unknown{"bridge not reported yet", {}};
  for (size_t i = 0; i < ports.size(); ++i) {
    if (!placed[i]) unknown.children.push_back(SlotNode(*ports[i]));
  }
  if (!unknown.children.empty()) node.children.push_back(std::move(unknown));
  return node;
}

}  // namespace

// Extents on a device that `topology` does not list are left out: `regions` was read later.
std::string TopologyTree(const v1::Topology& topology, const v1::ListRegionsResponse& regions) {
  auto uses = UsesByDevice(regions);
  Node root{absl::StrCat("fabric ", topology.fabric()), {}};
  for (const v1::Device& device : topology.devices()) {
    root.children.push_back(DeviceNode(device, uses[device.name()]));
  }
  std::map<std::string, std::vector<const v1::Path*>> paths;
  for (const v1::Path& path : topology.paths()) paths[path.host()].push_back(&path);
  for (const v1::Host& host : topology.hosts()) {
    root.children.push_back(HostNode(host));
    for (const v1::Path* path : paths[host.name()]) {
      root.children.back().children.push_back(PathNode(*path));
    }
  }
  std::string out = absl::StrCat(Printable(root.text), "\n");
  Append(root, "", out);
  return out;
}

}  // namespace cxlpool::cli
