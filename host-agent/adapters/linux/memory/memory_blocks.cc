#include "host-agent/adapters/linux/memory/memory_blocks.h"

#include <unistd.h>

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "host-agent/adapters/linux/machine/kernel_text.h"
#include "host-agent/adapters/linux/memory/node_room.h"
#include "host-agent/ports/process_watch.h"
#include "proto/support/refusal.h"

namespace cxlpool::agent {
namespace {

constexpr absl::string_view kMemory = "sys/devices/system/memory";
constexpr uint64_t kMaxBlocks = 1 << 20;
constexpr size_t kMaxNamedBlocks = 32;  // To programs.
constexpr size_t kMaxShownBlocks = 8;   // To people.
constexpr absl::Duration kUsersTimeout = absl::Seconds(2);

std::string BlockPath(uint64_t index, absl::string_view attribute) {
  return absl::StrCat(kMemory, "/memory", index, "/", attribute);
}

absl::Status NoBlocks(const DaxDevice& dax) {
  return Refuse(absl::StatusCode::kFailedPrecondition, "NOT_SYSTEM_RAM",
                absl::StrCat(dax.name, " has no memory blocks: it is not bound to kmem"),
                "bind it to kmem first");
}

// Those of `blocks` that are online stay so: "blocks 34, 35 (2 of 4) stay online in zone Normal".
// And who uses their node; theirs may be other blocks of it.
absl::Status Busy(const HostFiles& files, const DaxDevice& dax,
                  const std::vector<MemoryBlock>& blocks, std::string cause, std::string why,
                  std::string remedy) {
  std::vector<ProcessId> users;
  if (dax.target_node.has_value()) {
    for (const NodeUser& user :
         FindNodeUsers(files, *dax.target_node, getpid(), Deadline::In(kUsersTimeout))) {
      users.push_back({static_cast<uint32_t>(user.pid), user.start_ticks});
    }
  }
  std::sort(users.begin(), users.end());  // The same from one try to the next.
  std::vector<uint32_t> pids;
  std::vector<uint64_t> starts;
  for (const ProcessId& user : users) {
    pids.push_back(user.pid);
    starts.push_back(user.start_ticks);
  }
  if (!pids.empty()) {
    absl::StrAppend(&why, "; NUMA node ", *dax.target_node, " is used most by process ",
                    absl::StrJoin(pids, ", "));
  }
  std::vector<uint64_t> online;
  std::vector<std::string> zones;
  for (const MemoryBlock& block : blocks) {
    if (block.offline) continue;
    online.push_back(block.index);
    if (!block.zone.empty() && std::find(zones.begin(), zones.end(), block.zone) == zones.end()) {
      zones.push_back(block.zone);
    }
  }
  const bool one = online.size() == 1;
  const std::string zone = absl::StrJoin(zones, ", ");
  const absl::Span<const uint64_t> all(online);
  std::string named = absl::StrJoin(all.subspan(0, kMaxShownBlocks), ", ");
  if (online.size() > kMaxShownBlocks) {
    absl::StrAppend(&named, " and ", online.size() - kMaxShownBlocks, " more");
  }
  return Refuse(
      absl::StatusCode::kFailedPrecondition, "BLOCKS_BUSY",
      absl::StrCat(dax.name, ": block", one ? " " : "s ", named, " (", online.size(), " of ",
                   blocks.size(), one ? ") stays" : ") stay", " online in zone",
                   zones.size() > 1 ? "s " : " ", zone.empty() ? "unknown" : zone, ": ", why),
      std::move(remedy),
      {{"cause", std::move(cause)},
       {"blocks", absl::StrJoin(all.subspan(0, kMaxNamedBlocks), ",")},
       {"zone", zone},
       {"pids", absl::StrJoin(pids, ",")},
       {"starts", absl::StrJoin(starts, ",")}});
}

// OK if what is in these blocks can go elsewhere.
absl::Status CheckRoom(const HostFiles& files, const DaxDevice& dax,
                       const std::vector<MemoryBlock>& blocks, uint64_t online_bytes) {
  const NodeRoom room = ReadNodeRoom(files, dax.target_node.value_or(-1), online_bytes);
  if (room.wanted_bytes <= room.free_elsewhere_bytes) return absl::OkStatus();
  return Busy(files, dax, blocks, "no_room",
              absl::StrCat("up to ", room.wanted_bytes, " bytes are in use on NUMA node ",
                           dax.target_node.value_or(-1), " and the other nodes have room for ",
                           room.free_elsewhere_bytes),
              "stop programs on this host, or attach other memory to it first");
}

}  // namespace

uint64_t MemoryBlockBytes(const HostFiles& files) {
  const std::optional<std::string> text = files.Read(absl::StrCat(kMemory, "/block_size_bytes"));
  return text.has_value() ? ParseHex(*text).value_or(0) : 0;
}

// Leaves out a block that is partly outside the range, since its other part may belong to another
// device, and one that disappears meanwhile.
std::vector<MemoryBlock> ReadMemoryBlocks(const HostFiles& files, uint64_t hpa_bytes,
                                          uint64_t size_bytes) {
  std::vector<MemoryBlock> blocks;
  const uint64_t block_bytes = MemoryBlockBytes(files);
  if (block_bytes == 0 || hpa_bytes + size_bytes < hpa_bytes) return blocks;
  const uint64_t first = hpa_bytes / block_bytes + (hpa_bytes % block_bytes != 0);
  const uint64_t end = std::min((hpa_bytes + size_bytes) / block_bytes, first + kMaxBlocks);
  for (uint64_t index = first; index < end; ++index) {
    const std::optional<std::string> state = files.Read(BlockPath(index, "state"));
    if (!state.has_value()) continue;
    MemoryBlock block{.index = index, .offline = *state == "offline", .zone = {}};
    if (!block.offline) block.zone = files.Read(BlockPath(index, "valid_zones")).value_or("");
    if (block.zone == "none") block.zone.clear();
    block.movable = block.zone == "Movable";
    blocks.push_back(std::move(block));
  }
  return blocks;
}

uint32_t CountOnline(const std::vector<MemoryBlock>& blocks) {
  return static_cast<uint32_t>(
      std::count_if(blocks.begin(), blocks.end(), [](const MemoryBlock& b) { return !b.offline; }));
}

absl::Status CheckNoBlocksStay(const HostFiles& files, absl::string_view what, uint64_t hpa_bytes,
                               uint64_t size_bytes) {
  if (hpa_bytes == 0) return absl::OkStatus();
  const std::vector<MemoryBlock> blocks = ReadMemoryBlocks(files, hpa_bytes, size_bytes);
  const uint32_t online = CountOnline(blocks);
  if (online == 0) return absl::OkStatus();
  return Refuse(absl::StatusCode::kFailedPrecondition, "BLOCKS_BUSY",
                absl::StrCat(online, " of ", blocks.size(), " memory blocks of ", what,
                             " are online, and no driver has them: the kernel does not let go of "
                             "them any more"),
                "reboot the host");
}

// Tries every block, and judges by what all of them show afterwards: a block that is in the wrong
// zone is refused even where this call did not put it there.
absl::Status OnlineMemoryBlocks(const HostFiles& files, const DaxDevice& dax, MemoryZone zone) {
  const bool movable = zone == MemoryZone::kMovable;
  std::vector<MemoryBlock> blocks = ReadMemoryBlocks(files, dax.hpa_bytes, dax.size_bytes);
  if (blocks.empty()) return NoBlocks(dax);
  int error = 0;
  for (const MemoryBlock& block : blocks) {
    if (!block.offline) continue;
    const int failed =
        files.Write(BlockPath(block.index, "state"), movable ? "online_movable" : "online_kernel");
    if (error == 0) error = failed;
  }
  blocks = ReadMemoryBlocks(files, dax.hpa_bytes, dax.size_bytes);
  for (const MemoryBlock& block : blocks) {
    if (block.offline || block.movable || !movable) continue;
    return Refuse(absl::StatusCode::kFailedPrecondition, "NOT_MOVABLE",
                  absl::StrCat(dax.name, ": memory block ", block.index,
                               " is online outside ZONE_MOVABLE, from where it may never come "
                               "back"),
                  "bring it offline; see that no udev rule and no memhp_default_state onlines "
                  "memory by itself");
  }
  const uint32_t online = CountOnline(blocks);
  if (online == blocks.size()) return absl::OkStatus();
  return Refuse(absl::StatusCode::kInternal, "BLOCK_ONLINE",
                absl::StrCat(dax.name, ": ", online, " of ", blocks.size(),
                             " memory blocks came online: ", ErrnoText(error)),
                "look at the kernel's log");
}

// Reads the blocks back even if the child failed or was killed: if all of them are offline, that is
// success. Blocks that went offline stay so even if others do not.
absl::Status OfflineMemoryBlocks(const HostFiles& files, const DaxDevice& dax, OfflineChild& child,
                                 const Deadline& deadline) {
  std::vector<MemoryBlock> blocks = ReadMemoryBlocks(files, dax.hpa_bytes, dax.size_bytes);
  const uint64_t online_bytes = CountOnline(blocks) * MemoryBlockBytes(files);
  if (online_bytes == 0) return absl::OkStatus();
  if (absl::Status s = CheckRoom(files, dax, blocks, online_bytes); !s.ok()) return s;
  std::vector<std::string> state_files;
  for (auto it = blocks.rbegin(); it != blocks.rend(); ++it) {
    if (!it->offline) state_files.push_back(files.Path(BlockPath(it->index, "state")));
  }
  const absl::StatusOr<OfflineChild::Outcome> outcome = child.Run(state_files, deadline);
  if (!outcome.ok()) return outcome.status();
  blocks = ReadMemoryBlocks(files, dax.hpa_bytes, dax.size_bytes);
  if (CountOnline(blocks) == 0) return absl::OkStatus();
  return Busy(files, dax, blocks, outcome->killed ? "timeout" : "busy",
              outcome->killed ? "the kernel took too long and was stopped"
                              : absl::StrCat("the kernel says ", ErrnoText(outcome->error)),
              "stop the programs that use or pin this memory; it is tried again");
}

}  // namespace cxlpool::agent
