// What the agent's replies mean, checked so that the rest of libpool can rely on it.
//
// The agent is another program of perhaps another version: whatever breaks local.proto is
// INTERNAL/BAD_REPLY, never a crash or a wrong map. Pure functions, any thread.
#ifndef CXLPOOL_LIBPOOL_SRC_REPLY_H_
#define CXLPOOL_LIBPOOL_SRC_REPLY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cxlpool/cxlpool.h"
#include "libpool/src/local_codec.h"
#include "libpool/src/status.h"

namespace cxlpool::libpool {

// What was opened. Invariant: devdax: the segments cover [0, size_bytes) in order, without gap or
// overlap, name descriptors that are there, and are aligned as they say: to a power of two, a page
// at least. system-ram: a NUMA node and no segments. Enums are the numbers of cxlpool.h.
struct OpenReply {
  std::string name = {};
  std::string tag = {};
  uint64_t generation = 0;
  uint64_t size_bytes = 0;
  int32_t access = CXLPOOL_READ_WRITE;
  int32_t mode = CXLPOOL_DEVDAX;
  int32_t coherence = CXLPOOL_COHERENCE_SOFTWARE;
  std::vector<LocalSegment> segments = {};
  std::optional<int> numa_node = {};
  std::vector<int> numa_nodes = {};  // As far as the agent reported them: numa_node at least.
  // Whether the segments have paths: where they were asked for (as_file). A path is absolute, and
  // fit for a terminal and a command line.
  bool has_paths() const { return !segments.empty() && !segments.front().path.empty(); }
};

// The Status that the agent sent, its reason and remedy included.
Status StatusOf(const LocalResponse& response);

// `descriptors`: how many came with the packet. `page_bytes`: of this machine.
StatusOr<OpenReply> ParseOpen(const LocalOpenResponse& open, size_t descriptors,
                              uint64_t page_bytes);

// The largest alignment of a Region's parts, or a page.
uint64_t AlignmentOf(const OpenReply& open, uint64_t page_bytes);

Status BadReply(std::string_view what);

}  // namespace cxlpool::libpool

#endif  // CXLPOOL_LIBPOOL_SRC_REPLY_H_
