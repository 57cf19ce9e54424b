// How much ordinary memory the host can spare, for two questions: page structs of new memory, and
// a place for what is in memory that goes away. And who uses what is to go.
//
// Estimates, on the careful side; nothing is reserved.
#ifndef CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_MEMORY_NODE_ROOM_H_
#define CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_MEMORY_NODE_ROOM_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "host-agent/adapters/linux/machine/host_files.h"
#include "host-agent/support/deadline.h"
#include "proto/support/mutex.h"

namespace cxlpool::agent {

struct NodeMemory {
  int node = 0;
  uint64_t total_bytes = 0;
  uint64_t free_bytes = 0;
  uint64_t cache_bytes = 0;  // File pages that can be written back and dropped.
};

// From /sys/devices/system/node/nodeN/meminfo; nothing if it lacks a line.
std::optional<NodeMemory> ParseNodeMeminfo(int node, absl::string_view meminfo);

// What DRAM can be given to page structs. They come only from nodes with ZONE_NORMAL
// (has_normal_memory), not from pool memory, whose ZONE_MOVABLE takes no kernel allocation:
// the sum over those nodes of free memory and half the cache, at most `available_bytes`
// (MemAvailable, which also allows for what the kernel keeps back), less a margin of a sixteenth
// of these nodes' memory.
uint64_t PageStructSpareBytes(const std::vector<NodeMemory>& normal_nodes,
                              uint64_t available_bytes);
uint64_t ReadPageStructSpare(const HostFiles& files);

// The same, remembered for a moment: the kernel adds up what each processor has, for every reader,
// and from one look to the next it is another number anyway. Thread-safe.
class PageStructSpare {
 public:
  static constexpr absl::Duration kMaxAge = absl::Milliseconds(500);

  explicit PageStructSpare(const HostFiles& files) : files_(files) {}

  uint64_t Read(absl::Time now = absl::Now());

  // Page structs were just made.
  void Forget();

 private:
  const HostFiles& files_;
  Mutex mutex_;
  absl::Time read_at_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  uint64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

struct NodeRoom {
  uint64_t wanted_bytes = 0;          // May have to move; at most what goes offline.
  uint64_t free_elsewhere_bytes = 0;  // On the other nodes: free memory and half the cache, less a
                                      // margin of 1/32.
};

// For taking `online_bytes` of `node` offline. What the rest of the same node has free counts as
// elsewhere only beyond `online_bytes`.
NodeRoom RoomFor(const std::vector<NodeMemory>& nodes, int node, uint64_t online_bytes);
NodeRoom ReadNodeRoom(const HostFiles& files, int node, uint64_t online_bytes);

// A process with pages on a node, by its numa_maps.
struct NodeUser {
  int pid = 0;
  uint64_t bytes = 0;
  uint64_t start_ticks = 0;
  friend bool operator==(const NodeUser&, const NodeUser&) = default;
};
inline constexpr size_t kMaxNodeUsers = 8;

// What one line of numa_maps has on `node`.
uint64_t NumaMapsLineBytes(absl::string_view line, int node);

// Those with the most bytes on `node`, in that order, without `self`; at most kMaxNodeUsers. Of the
// processes that this one may look at, as many as were read before the deadline.
std::vector<NodeUser> FindNodeUsers(const HostFiles& files, int node, int self,
                                    const Deadline& deadline);

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_MEMORY_NODE_ROOM_H_
