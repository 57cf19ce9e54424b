#include "libpool/src/reply.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "libpool/src/region_name.h"
#include "libpool/src/text.h"

namespace cxlpool::libpool {
namespace {

// Far above any pool, far below where sums of two would wrap.
constexpr uint64_t kMaxBytes = uint64_t{1} << 56;
constexpr int kMaxNodeOfReply = 1 << 16;
constexpr size_t kMaxPath = 4096;  // PATH_MAX.

// None at all, or an absolute one without control characters.
bool IsPath(std::string_view path) {
  const auto is_control = [](char c) { return (c >= 0 && c < ' ') || c == 0x7f; };
  return path.empty() || (path.front() == '/' && path.size() < kMaxPath &&
                          std::none_of(path.begin(), path.end(), is_control));
}

Status CheckSegment(const LocalSegment& segment, size_t descriptors, uint64_t page_bytes,
                    uint64_t expected_region_offset) {
  if (segment.fd_index >= descriptors) return BadReply("a segment without its descriptor");
  if (!std::has_single_bit(segment.alignment_bytes) || segment.alignment_bytes < page_bytes) {
    return BadReply("a segment whose alignment is no power of two or less than a page");
  }
  if (segment.length_bytes == 0 || segment.length_bytes > kMaxBytes ||
      segment.offset_bytes > kMaxBytes) {
    return BadReply("a segment of no possible length");
  }
  if (segment.region_offset_bytes != expected_region_offset) {
    return BadReply("segments that leave a gap or overlap");
  }
  const uint64_t rest = segment.alignment_bytes - 1;
  if (((segment.offset_bytes | segment.length_bytes | segment.region_offset_bytes) & rest) != 0) {
    return BadReply("a segment that is not aligned as it says");
  }
  if (!IsPath(segment.path)) return BadReply("a path that is none");
  return Status();
}

Status CheckSegments(const LocalOpenResponse& open, size_t descriptors, uint64_t page_bytes) {
  uint64_t covered = 0;
  for (const LocalSegment& segment : open.segments) {
    Status status = CheckSegment(segment, descriptors, page_bytes, covered);
    if (!status.ok()) return status;
    covered += segment.length_bytes;
    if (covered > open.size_bytes) break;
  }
  if (covered != open.size_bytes) return BadReply("segments that are not the Region's size");
  return Status();
}

}  // namespace

Status BadReply(std::string_view what) {
  return Refuse(Code::kInternal, "BAD_REPLY", Concat("the host agent sent ", what),
                "install the same version of cxlpool-agent and of libcxlpool");
}

Status StatusOf(const LocalResponse& response) {
  if (response.code == 0) return Status();
  Failure failure;
  if (response.code > 0 && response.code <= static_cast<int>(Code::kUnauthenticated)) {
    failure.code = static_cast<Code>(response.code);
  }
  failure.message = response.message;
  if (response.error.has_value()) {
    failure.reason = response.error->reason;
    failure.remedy = response.error->remedy;
  }
  // The agent's message has the remedy at its end.
  const std::string suffix = Concat(" (", failure.remedy, ")");
  if (failure.message.ends_with(suffix)) {
    failure.message.resize(failure.message.size() - suffix.size());
  }
  return Status(std::move(failure));
}

// An agent is not trusted further than needed: what is mapped by this reply must lie where it says,
// and nothing may overflow. BAD_REPLY for everything that an agent of this protocol never sends.
StatusOr<OpenReply> ParseOpen(const LocalOpenResponse& open, size_t descriptors,
                              uint64_t page_bytes) {
  const StatusOr<std::string> name = RegionNameOf(open.name);
  if (!name.ok() || *name != open.name) return BadReply("a malformed name");
  if (open.tag.empty() || open.size_bytes == 0 || open.size_bytes > kMaxBytes) {
    return BadReply("a Region without tag or of no possible size");
  }
  if (open.access != CXLPOOL_READ_WRITE && open.access != CXLPOOL_READ_ONLY) {
    return BadReply("an access that is neither READ_WRITE nor READ_ONLY");
  }
  if (open.mode != CXLPOOL_DEVDAX && open.mode != CXLPOOL_SYSTEM_RAM) {
    return BadReply("a mode that is neither DEVDAX nor SYSTEM_RAM");
  }
  OpenReply reply = {.name = open.name,
                     .tag = open.tag,
                     .generation = open.generation,
                     .size_bytes = open.size_bytes,
                     .access = open.access,
                     .mode = open.mode};
  if (open.coherence == CXLPOOL_COHERENCE_HARDWARE) reply.coherence = open.coherence;
  if (open.mode == CXLPOOL_SYSTEM_RAM) {
    const int node = open.numa_node.value_or(-1);
    if (node < 0 || node > kMaxNodeOfReply)
      return BadReply("a system-ram Region without a NUMA node");
    if (!open.segments.empty()) return BadReply("segments for a system-ram Region");
    reply.numa_node = node;
    reply.numa_nodes = open.numa_nodes;
    if (reply.numa_nodes.empty()) reply.numa_nodes.push_back(node);  // Of an older agent.
    for (const int one : reply.numa_nodes) {
      if (one < 0 || one > kMaxNodeOfReply) return BadReply("a NUMA node that cannot be");
    }
    return reply;
  }
  if (Status status = CheckSegments(open, descriptors, page_bytes); !status.ok()) return status;
  reply.segments = open.segments;
  const auto has_path = [](const LocalSegment& segment) { return !segment.path.empty(); };
  if (reply.has_paths() && !std::all_of(reply.segments.begin(), reply.segments.end(), has_path)) {
    return BadReply("paths of some segments, and not of others");
  }
  return reply;
}

uint64_t AlignmentOf(const OpenReply& open, uint64_t page_bytes) {
  uint64_t alignment = page_bytes;
  for (const LocalSegment& segment : open.segments) {
    alignment = std::max(alignment, segment.alignment_bytes);
  }
  return alignment;
}

}  // namespace cxlpool::libpool
