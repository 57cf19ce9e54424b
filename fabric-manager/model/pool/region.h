// A Region, its Extents and its Attachments: the values the pool is made of, and the ladder they
// climb.
//
//   Region      RESERVED -> ALLOCATED ---------------------> RELEASING -> SCRUBBING -> (gone)
//                  +-> FAILED    +-> QUARANTINED (from RESERVED too) -> RELEASING
//   Attachment  WANTED -> BOUND -> ONLINE -> OFFLINE -> EJECTING -> UNBOUND
//                                    +-> RELEASE_BLOCKED
//
// Plain values; units are bytes; ids are the last segment of a resource name. Regions are shared
// as immutable values (RegionPtr): a change makes a new one.
#ifndef CXLPOOL_FABRIC_MANAGER_MODEL_POOL_REGION_H_
#define CXLPOOL_FABRIC_MANAGER_MODEL_POOL_REGION_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "proto/support/cxl_host.h"
#include "proto/support/interned.h"
#include "proto/support/uuid.h"

namespace cxlpool::fm {

// Key of a record; from PoolState's counter, never used twice.
using Key = uint64_t;

// One contiguous slice of one device.
struct Extent {
  Interned device;
  uint64_t dpa_bytes = 0;
  uint64_t length_bytes = 0;
  friend bool operator==(const Extent&, const Extent&) = default;
};

// That one Extent of a Region has lost bytes: what, and where, for people.
struct BadExtent {
  uint32_t extent_index = 0;
  std::string reason;
  friend bool operator==(const BadExtent&, const BadExtent&) = default;
};

// The process that a Region lives as long as. Its host's agent watches it.
struct Owner {
  uint32_t uid = 0;
  uint32_t pid = 0;
  uint64_t start_ticks = 0;  // Since boot: sets it apart from a later process of the same pid.
  std::string incarnation;   // Kernel boot id.
  friend bool operator==(const Owner&, const Owner&) = default;
};

// The local user who made a Region. The id means somebody only on that host.
struct Maker {
  Interned host;
  uint32_t uid = 0;
  friend bool operator==(const Maker&, const Maker&) = default;
};

// Which local users may open a Region besides its maker: users, members of groups, or everybody who
// acts for its tenant.
struct OpenTo {
  std::vector<uint32_t> uids;
  std::vector<uint32_t> gids;
  bool everybody = false;
  bool nobody() const { return uids.empty() && gids.empty() && !everybody; }
  friend bool operator==(const OpenTo&, const OpenTo&) = default;
};
inline constexpr size_t kMaxOpenTo = 64;  // Users, and groups.

enum class Mode : uint8_t { kDevdax = 1, kSystemRam = 2 };
enum class Zone : uint8_t { kMovable = 1, kKernel = 2 };  // Of system-ram.
enum class Access : uint8_t { kReadWrite = 1, kReadOnly = 2 };
enum class Sharing : uint8_t { kExclusive = 1, kSingleWriter = 2, kMultiWriter = 3 };

// Where a Region's bytes go: placement.h says how each decides.
enum class Policy : uint8_t {
  kPack = 1,
  kSpread = 2,
  kBandwidth = 3,
  kLatency = 4,
  kIsolate = 5,
};

enum class RegionState : uint8_t {
  kReserved = 1,
  kAllocated = 2,
  kReleasing = 3,
  kScrubbing = 4,
  kFailed = 5,
  kQuarantined = 6,
};

enum class AttachmentState : uint8_t {
  kWanted = 1,  // Durable intent. The fabric may or may not be bound: ask it.
  kBound = 2,
  kOnline = 3,
  kOffline = 4,   // The host let go of its host regions.
  kEjecting = 5,  // The driver's unbind has begun.
  kUnbound = 6,   // Proven. An Attachment in this state is about to leave the record.
  kReleaseBlocked = 7,
};

absl::string_view ToString(RegionState state);
absl::string_view ToString(AttachmentState state);
absl::string_view ToString(Sharing sharing);
absl::string_view ToString(Mode mode);
absl::string_view ToString(Zone zone);
absl::string_view ToString(Access access);
absl::string_view ToString(Policy policy);

// Where one Extent enters a host, and what the host last said of it. Segments of one stripe set
// share a host region: they have its names and its address in common.
struct Segment {
  uint32_t extent_index = 0;
  uint32_t slot = 0;
  std::string host_bridge;
  // What the host sees. Where the fabric lets the pool choose: a pool serial (cxl_host.h), never
  // used before. Elsewhere the hardware's own, which another Attachment may have had (ADR 27).
  uint64_t serial = 0;
  // The LD's number among those of its Attachment, by which the fabric knows it, where that is not
  // the Extent's: of a stray that was taken in.
  std::optional<uint32_t> ld_index;

  std::string memdev;
  std::string host_region;
  std::string dax_device;
  std::optional<int32_t> numa_node;
  uint64_t hpa_bytes = 0;
  uint32_t online_blocks = 0;
  uint32_t total_blocks = 0;
  friend bool operator==(const Segment&, const Segment&) = default;
};

// Consecutive segments of an Attachment that climb together, as far as the next part or the last
// segment.
struct Part {
  uint32_t first_segment = 0;
  AttachmentState state = AttachmentState::kWanted;
  bool detaching = false;   // Wanted down.
  std::string reason = {};  // Why it is where it is, for people.
  // Since when it has been in this state, or is to go down; InfinitePast: not known.
  absl::Time since = absl::InfinitePast();

  bool is_up() const { return state == AttachmentState::kOnline && !detaching; }
  friend bool operator==(const Part&, const Part&) = default;
};

// One host's use of a Region.
struct Attachment {
  std::string host;
  Mode mode = Mode::kDevdax;
  Zone zone = Zone::kMovable;
  Access access = Access::kReadWrite;
  uint64_t generation = 0;  // Never used twice in the pool.
  std::vector<Segment> segments;
  // In order of their segments; each climbs by itself. There is one, which its user has. While the
  // Region is resized there is a second one, of the segments that are to join the first or to
  // leave.
  absl::InlinedVector<Part, 1> parts = {Part{}};
  // An operator says that the host let go, and was audited: what the fabric cannot be asked about
  // is taken for unbound.
  bool operator_vouched = false;
  // It was found bound and no record had it: nothing is done with it until somebody sends it down,
  // by a detach or a fence.
  bool held = false;
  // Under which id somebody last asked for something of it: to make it, to resize it, to send it
  // down. Empty: nobody did; the pool did it by itself, or it is not known. For the log.
  Uuid request_id;

  // What the user has: its state is the Attachment's.
  const Part& settled() const { return parts.front(); }
  Part& settled() { return parts.front(); }
  // What is joining or leaving it.
  absl::Span<const Part> moving() const { return absl::MakeConstSpan(parts).subspan(1); }
  absl::Span<Part> moving() { return absl::MakeSpan(parts).subspan(1); }
  const Part& PartOf(size_t segment) const;
  size_t EndOf(size_t part) const;  // One behind its last segment.
  void Join();                      // All parts are one from now on: the first.
  void Remove(size_t part);         // With its segments. Not the only one.
  // Sends the whole of it down, as one part: what was on a way of its own goes with it.
  // `request_id`: of who asked for that; empty: nobody did.
  void TurnDown(const std::string& why, const Uuid& request_id);
  friend bool operator==(const Attachment&, const Attachment&) = default;
};
inline constexpr size_t kMaxParts = 2;

// Who asked for a change, so that a retry finds it again.
struct RequestId {
  Interned principal;  // Identity URI.
  Interned method;     // "AllocateRegion"
  Uuid id;
  friend bool operator==(const RequestId&, const RequestId&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const RequestId& r) {
    return H::combine(std::move(h), r.principal, r.method, r.id);
  }
};
struct Request {
  RequestId id;
  uint64_t payload_hash = 0;  // Same id with another payload is refused.
  friend bool operator==(const Request&, const Request&) = default;
};

// A Region remembers the request that made it and at most this many later ones.
inline constexpr size_t kMaxRequestsPerRegion = 32;
inline constexpr size_t kMaxExtentsPerRegion = 16;
inline constexpr size_t kMaxAttachmentsPerRegion = 64;

struct Region {
  Key key = 0;
  Uuid tag;
  std::string id;
  Interned tenant;
  uint64_t generation = 0;
  uint64_t requested_bytes = 0;
  Sharing sharing = Sharing::kExclusive;
  RegionState state = RegionState::kReserved;
  std::string state_reason;
  absl::Time state_since = absl::InfinitePast();  // InfinitePast: not known.
  bool compensating = false;  // Taken back because it could not be made: ends FAILED, gone.
  bool forced = false;        // Released on an operator's word: it may leave QUARANTINED.
  Policy policy = Policy::kPack;
  // Each `interleave_ways` consecutive Extents are one stripe set: equal lengths, distinct devices,
  // one host region. 1: each Extent is a host region by itself.
  uint32_t interleave_ways = 1;
  uint32_t interleave_granularity_bytes = 0;  // 0 with 1 way.
  // So many last Extents are joining, or leaving: not yet, or no longer, part of the size.
  uint32_t tail_extents = 0;
  bool tail_leaving = false;
  absl::Duration expected_lifetime = absl::InfiniteDuration();  // As the caller said.
  // A lease: released by itself at expire_time, which a renewal puts off by `ttl`.
  absl::Duration ttl = absl::InfiniteDuration();  // Infinite: no lease.
  absl::Time expire_time = absl::InfiniteFuture();
  std::optional<Owner> owner;  // Nothing: it is persistent.
  std::optional<Maker> maker;  // Nothing: an operator.
  OpenTo open_to;
  bool fabric_isolation = false;        // Attached only where the fabric enforces it.
  std::vector<Extent> extents;          // In Region order.
  std::vector<BadExtent> bad;           // In Region order, one an extent at most.
  std::vector<Attachment> attachments;  // In order of host.
  absl::Time create_time;
  std::vector<Request> requests;
  uint64_t revision = 0;  // Of the last change.
  friend bool operator==(const Region&, const Region&) = default;

  uint64_t size_bytes() const;  // What it holds for its user: without the tail.
  uint64_t held_bytes() const;  // With it.
  size_t settled_extents() const { return extents.size() - tail_extents; }
  bool resizing() const { return tail_extents != 0; }
  bool HasBytesOn(absl::string_view device) const;
  const BadExtent* FindBad(size_t extent) const;  // Null: it has lost nothing.
  const Attachment* FindAttachment(absl::string_view host) const;
  Attachment* FindAttachment(absl::string_view host);
  // Opaque text that changes with every change: it is made of generation and revision.
  std::string etag() const;
};
using RegionPtr = std::shared_ptr<const Region>;

// What a Region must be like by itself, whatever else there is. INTERNAL says what is wrong.
absl::Status CheckShape(const Region& region);

// `region` with the times since when it and its Attachments have been in their states: of what is
// not so in `before`, which is null for a Region that is new, `now`.
RegionPtr WithTimes(RegionPtr region, const Region* before, absl::Time now);

// What a change is refused with that breaks an invariant: what planned it has a bug.
template <typename... Args>
absl::Status Broken(const Args&... what) {
  return absl::InternalError(absl::StrCat(what...));
}

// Whether `to` may follow `from`: every edge of the ladder and no other. A state may follow itself,
// with another reason.
//
// Besides the picture above, an Attachment goes
//   WANTED -> OFFLINE           turned round before the host made anything of what was bound
//   BOUND -> OFFLINE            turned round while the host was at it
//   BOUND -> RELEASE_BLOCKED    turned round, and a part that was online already will not go
//   BOUND -> WANTED             the fabric lost it while it came up: bind again
//   ONLINE -> BOUND             the host rebooted and has to bring it online again
//   ONLINE -> WANTED            the fabric lost it, and the host has nothing left of it: bind again
//   RELEASE_BLOCKED -> OFFLINE  what blocked it went away
//   any -> UNBOUND              proof: the host was fenced, ejected it by itself, or never had it
// and a Region
//   RESERVED -> RELEASING       released while its first Attachment was under way
//   RESERVED, ALLOCATED -> QUARANTINED   its bytes cannot be proven free
//   QUARANTINED -> RELEASING    an operator says that they are
bool MayFollow(AttachmentState from, AttachmentState to);
bool MayFollow(RegionState from, RegionState to);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_MODEL_POOL_REGION_H_
