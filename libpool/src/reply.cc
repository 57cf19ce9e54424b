#include "libpool/src/reply.h"

#include <bit>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "libpool/src/errors.h"
#include "proto/support/names.h"
#include "proto/support/refusal.h"

namespace cxlpool::libpool {
namespace {

// Far above any pool, far below where sums of two would wrap.
constexpr uint64_t kMaxBytes = uint64_t{1} << 56;
constexpr int kMaxNode = 1 << 16;

absl::Status CheckSegment(const MapSegment& segment, size_t descriptors, uint64_t page_bytes,
                          uint64_t expected_region_offset) {
  if (segment.descriptor >= descriptors) return BadReply("a segment without its descriptor");
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
  return absl::OkStatus();
}

absl::Status ParseSegments(const v1::LocalOpenResponse& open, size_t descriptors,
                           uint64_t page_bytes, std::vector<MapSegment>& segments) {
  uint64_t covered = 0;
  for (const v1::LocalSegment& from : open.segments()) {
    const MapSegment segment = {.descriptor = from.fd_index(),
                                .offset_bytes = from.offset_bytes(),
                                .length_bytes = from.length_bytes(),
                                .region_offset_bytes = from.region_offset_bytes(),
                                .alignment_bytes = from.alignment_bytes()};
    absl::Status status = CheckSegment(segment, descriptors, page_bytes, covered);
    if (!status.ok()) return status;
    covered += segment.length_bytes;
    if (covered > open.size_bytes()) break;
    segments.push_back(segment);
  }
  if (covered != open.size_bytes()) return BadReply("segments that are not the Region's size");
  return absl::OkStatus();
}

absl::Status ParseEnums(const v1::LocalOpenResponse& open, OpenReply& reply) {
  if (open.access() != v1::READ_WRITE && open.access() != v1::READ_ONLY) {
    return BadReply("an access that is neither READ_WRITE nor READ_ONLY");
  }
  reply.access = open.access() == v1::READ_ONLY ? Access::kReadOnly : Access::kReadWrite;
  if (open.mode() != v1::DEVDAX && open.mode() != v1::SYSTEM_RAM) {
    return BadReply("a mode that is neither DEVDAX nor SYSTEM_RAM");
  }
  reply.mode = open.mode() == v1::SYSTEM_RAM ? Mode::kSystemRam : Mode::kDevdax;
  reply.coherence = open.coherence() == v1::HARDWARE ? Coherence::kHardware : Coherence::kSoftware;
  return absl::OkStatus();
}

AttachmentState StateOf(v1::Attachment::State state) {
  switch (state) {
    case v1::Attachment::WANTED:
      return AttachmentState::kWanted;
    case v1::Attachment::BOUND:
      return AttachmentState::kBound;
    case v1::Attachment::ONLINE:
      return AttachmentState::kOnline;
    case v1::Attachment::OFFLINE:
      return AttachmentState::kOffline;
    case v1::Attachment::EJECTING:
      return AttachmentState::kEjecting;
    case v1::Attachment::UNBOUND:
      return AttachmentState::kUnbound;
    case v1::Attachment::RELEASE_BLOCKED:
      return AttachmentState::kReleaseBlocked;
    default:
      return AttachmentState::kUnknown;
  }
}

}  // namespace

absl::Status BadReply(absl::string_view what) {
  return Error(absl::StatusCode::kInternal, "BAD_REPLY", absl::StrCat("the host agent sent ", what),
               "install the same version of cxlpool-agent and of libpool");
}

absl::Status StatusOf(const v1::LocalResponse& response) {
  if (response.code() == 0) return absl::OkStatus();
  constexpr int kLastCode = static_cast<int>(absl::StatusCode::kUnauthenticated);
  const bool known = response.code() > 0 && response.code() <= kLastCode;
  const auto code =
      known ? static_cast<absl::StatusCode>(response.code()) : absl::StatusCode::kUnknown;
  if (response.error().reason().empty()) return absl::Status(code, response.message());

  Refusal refusal;
  refusal.code = code;
  refusal.reason = response.error().reason();
  refusal.remedy = response.error().remedy();
  // ToStatus appends the remedy; the agent's message has it already.
  refusal.message = response.message();
  const std::string suffix = absl::StrCat(" (", refusal.remedy, ")");
  if (absl::EndsWith(refusal.message, suffix)) {
    refusal.message.resize(refusal.message.size() - suffix.size());
  }
  for (const auto& [key, value] : response.error().metadata()) {
    refusal.metadata.emplace_back(key, value);
  }
  return refusal.ToStatus();
}

absl::StatusOr<OpenReply> ParseOpen(const v1::LocalOpenResponse& open, size_t descriptors,
                                    uint64_t page_bytes) {
  OpenReply reply;
  if (!ParseResourceName("regions", open.name()).ok()) return BadReply("a malformed name");
  if (open.tag().empty() || open.size_bytes() == 0 || open.size_bytes() > kMaxBytes) {
    return BadReply("a Region without tag or of no possible size");
  }
  reply.name = open.name();
  reply.tag = open.tag();
  reply.generation = open.generation();
  reply.size_bytes = open.size_bytes();
  if (absl::Status status = ParseEnums(open, reply); !status.ok()) return status;

  if (reply.mode == Mode::kSystemRam) {
    if (!open.has_numa_node() || open.numa_node() < 0 || open.numa_node() > kMaxNode) {
      return BadReply("a system-ram Region without a NUMA node");
    }
    if (open.segments_size() != 0) return BadReply("segments for a system-ram Region");
    reply.numa_node = open.numa_node();
    return reply;
  }
  absl::Status status = ParseSegments(open, descriptors, page_bytes, reply.segments);
  if (!status.ok()) return status;
  return reply;
}

RegionInfo ParseListed(const v1::LocalRegion& region) {
  const v1::Attachment& attachment = region.attachment();
  return {.name = region.name(),
          .tag = region.tag(),
          .size_bytes = region.size_bytes(),
          .access = attachment.access() == v1::READ_WRITE ? Access::kReadWrite : Access::kReadOnly,
          .mode = attachment.mode() == v1::SYSTEM_RAM ? Mode::kSystemRam : Mode::kDevdax,
          .state = StateOf(attachment.state()),
          .state_reason = attachment.state_reason(),
          .detaching = attachment.detaching(),
          .opens = region.opens()};
}

}  // namespace cxlpool::libpool
