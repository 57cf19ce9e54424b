#include "host-agent/adapters/linux/memory/node_room.h"

#include <fcntl.h>

#include <algorithm>
#include <array>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "host-agent/adapters/linux/machine/host_files.h"
#include "host-agent/adapters/linux/machine/kernel_text.h"
#include "proto/support/unique_fd.h"

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

// Piece by piece: the kernel walks a process' page tables while it is read.
uint64_t ReadNumaMaps(const std::string& path, int node, const Deadline& deadline) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  uint64_t bytes = 0;
  std::string rest;
  std::array<char, 16384> piece;
  while (fd.valid() && !deadline.passed()) {
    const ssize_t got = ::read(fd.get(), piece.data(), piece.size());
    if (got <= 0) break;
    rest.append(piece.data(), static_cast<size_t>(got));
    size_t begin = 0;
    for (size_t end; (end = rest.find('\n', begin)) != std::string::npos; begin = end + 1) {
      bytes += NumaMapsLineBytes(absl::string_view(rest).substr(begin, end - begin), node);
    }
    rest.erase(0, begin);
  }
  return bytes;
}

}  // namespace

std::optional<NodeMemory> ParseNodeMeminfo(int node, absl::string_view meminfo) {
  const auto total = MeminfoBytes(meminfo, "MemTotal");
  const auto free = MeminfoBytes(meminfo, "MemFree");
  const auto active = MeminfoBytes(meminfo, "Active(file)");
  const auto inactive = MeminfoBytes(meminfo, "Inactive(file)");
  if (!total || !free || !active || !inactive || *free > *total) return std::nullopt;
  return NodeMemory{node, *total, *free, std::min(*active + *inactive, *total - *free)};
}

// Half of the page cache counts as spare: the kernel can drop it, and some of it is in use. A
// sixteenth of the host's memory is left to the host.
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

uint64_t PageStructSpare::Read(absl::Time now) {
  const MutexLock lock(mutex_);
  if (!IsYoung(read_at_, now, kMaxAge)) {
    bytes_ = ReadPageStructSpare(files_);
    read_at_ = now;
  }
  return bytes_;
}

void PageStructSpare::Forget() {
  const MutexLock lock(mutex_);
  read_at_ = absl::InfinitePast();
}

// What is in use on the node has to move elsewhere: to other nodes, or to other memory of the same
// node, of which what is to go offline is no part.
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

uint64_t NumaMapsLineBytes(absl::string_view line, int node) {
  const std::string wanted = absl::StrCat("N", node, "=");
  uint64_t pages = 0;
  uint64_t page_kib = 4;
  for (absl::string_view word : absl::StrSplit(line, ' ', absl::SkipEmpty())) {
    uint64_t number = 0;
    if (absl::ConsumePrefix(&word, wanted)) {
      if (absl::SimpleAtoi(word, &number)) pages = number;
    } else if (absl::ConsumePrefix(&word, "kernelpagesize_kB=")) {
      if (absl::SimpleAtoi(word, &number)) page_kib = number;
    }
  }
  return pages * page_kib << 10;
}

// The largest users first. At the deadline it answers those that were found so far: they are only
// named in messages.
std::vector<NodeUser> FindNodeUsers(const HostFiles& files, int node, int self,
                                    const Deadline& deadline) {
  std::vector<NodeUser> users;
  for (const std::string& name : files.List("proc")) {
    NodeUser user;
    if (!absl::SimpleAtoi(name, &user.pid) || user.pid <= 0 || user.pid == self) continue;
    if (deadline.passed()) break;
    user.start_ticks = StartTicksIn(files, user.pid);
    user.bytes =
        ReadNumaMaps(files.Path(absl::StrCat("proc/", name, "/numa_maps")), node, deadline);
    if (user.bytes > 0) users.push_back(user);
  }
  std::sort(users.begin(), users.end(), [](const NodeUser& a, const NodeUser& b) {
    return a.bytes != b.bytes ? a.bytes > b.bytes : a.pid < b.pid;
  });
  if (users.size() > kMaxNodeUsers) users.resize(kMaxNodeUsers);
  return users;
}

}  // namespace cxlpool::agent
