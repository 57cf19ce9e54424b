#include "host-agent/adapters/linux/node_room.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "host-agent/adapters/linux/kernel_text.h"

namespace cxlpool::agent {
namespace {

constexpr absl::string_view kNodes = "sys/devices/system/node";

std::vector<NodeMemory> ReadNodes(const HostFiles& files, absl::string_view list) {
  std::vector<NodeMemory> nodes;
  const std::optional<std::string> text = files.Read(absl::StrCat(kNodes, "/", list));
  if (!text.has_value()) return nodes;
  for (const int node : ParseNumberList(*text)) {
    const auto meminfo = files.Read(absl::StrCat(kNodes, "/node", node, "/meminfo"));
    if (!meminfo.has_value()) continue;
    if (const auto memory = ParseNodeMeminfo(node, *meminfo)) nodes.push_back(*memory);
  }
  return nodes;
}

uint64_t LessMargin(uint64_t bytes, uint64_t margin) { return bytes - std::min(bytes, margin); }

}  // namespace

std::optional<NodeMemory> ParseNodeMeminfo(int node, absl::string_view meminfo) {
  const auto total = MeminfoBytes(meminfo, "MemTotal");
  const auto free = MeminfoBytes(meminfo, "MemFree");
  const auto active = MeminfoBytes(meminfo, "Active(file)");
  const auto inactive = MeminfoBytes(meminfo, "Inactive(file)");
  if (!total || !free || !active || !inactive || *free > *total) return std::nullopt;
  return NodeMemory{node, *total, *free, std::min(*active + *inactive, *total - *free)};
}

uint64_t PageStructSpareBytes(const std::vector<NodeMemory>& normal_nodes,
                              uint64_t available_bytes) {
  uint64_t total = 0, spare = 0;
  for (const NodeMemory& node : normal_nodes) {
    total += node.total_bytes;
    spare += node.free_bytes + node.cache_bytes / 2;
  }
  return LessMargin(std::min(spare, available_bytes), total / 16);
}

uint64_t ReadPageStructSpare(const HostFiles& files) {
  const std::optional<std::string> meminfo = files.Read("proc/meminfo");
  if (!meminfo.has_value()) return 0;
  return PageStructSpareBytes(ReadNodes(files, "has_normal_memory"),
                              MeminfoBytes(*meminfo, "MemAvailable").value_or(0));
}

NodeRoom RoomFor(const std::vector<NodeMemory>& nodes, int node, uint64_t online_bytes) {
  NodeRoom room;
  uint64_t total = 0;
  for (const NodeMemory& memory : nodes) {
    if (memory.node == node) {
      room.wanted_bytes = std::min(memory.total_bytes - memory.free_bytes, online_bytes);
      room.free_elsewhere_bytes += LessMargin(memory.free_bytes, online_bytes);
    } else {
      total += memory.total_bytes;
      room.free_elsewhere_bytes += memory.free_bytes + memory.cache_bytes / 2;
    }
  }
  room.free_elsewhere_bytes = LessMargin(room.free_elsewhere_bytes, total / 32);
  return room;
}

NodeRoom ReadNodeRoom(const HostFiles& files, int node, uint64_t online_bytes) {
  return RoomFor(ReadNodes(files, "has_memory"), node, online_bytes);
}

}  // namespace cxlpool::agent
