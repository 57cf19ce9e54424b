// What the agent's replies mean, checked so that the rest of libpool can rely on it.
//
// The agent is another program of perhaps another version: whatever breaks local.proto is
// INTERNAL/BAD_REPLY, never a crash or a wrong map. Pure functions, any thread.
#ifndef CXLPOOL_LIBPOOL_SRC_REPLY_H_
#define CXLPOOL_LIBPOOL_SRC_REPLY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cxlpool/types.h"
#include "cxlpool/v1/local.pb.h"

namespace cxlpool::libpool {

// A piece of a Region, and where in a descriptor its bytes are.
struct MapSegment {
  size_t descriptor = 0;
  uint64_t offset_bytes = 0;
  uint64_t length_bytes = 0;  // More than 0.
  uint64_t region_offset_bytes = 0;
  uint64_t alignment_bytes = 0;  // A power of two, a page at least; the three above are multiples.
};

// Invariant: devdax: the segments cover [0, size_bytes) in order, without gap or overlap, and
// name descriptors that are there. system-ram: a NUMA node and no segments.
struct OpenReply {
  std::string name;
  std::string tag;
  uint64_t generation = 0;
  uint64_t size_bytes = 0;
  Access access = Access::kReadWrite;
  Mode mode = Mode::kDevdax;
  Coherence coherence = Coherence::kSoftware;
  std::vector<MapSegment> segments;
  std::optional<int> numa_node;
};

// The Status that the agent sent, its reason, metadata and remedy included.
absl::Status StatusOf(const v1::LocalResponse& response);

// `descriptors`: how many came with the packet. `page_bytes`: of this machine.
absl::StatusOr<OpenReply> ParseOpen(const v1::LocalOpenResponse& open, size_t descriptors,
                                    uint64_t page_bytes);

// Unknown enum values become kUnknown or the weakest meaning: a listing is never refused.
RegionInfo ParseListed(const v1::LocalRegion& region);

absl::Status BadReply(absl::string_view what);

}  // namespace cxlpool::libpool

#endif  // CXLPOOL_LIBPOOL_SRC_REPLY_H_
