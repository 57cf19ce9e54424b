// A Region, its Extents and its Attachments: the values the pool is made of, and the ladder they
// climb.
//
//   Region      RESERVED -> ALLOCATED ---------------------> RELEASING -> SCRUBBING -> (gone)
//                              +-> FAILED / QUARANTINED
//   Attachment  WANTED -> BOUND -> ONLINE -> OFFLINE -> EJECTING -> UNBOUND
//                                    +-> RELEASE_BLOCKED
//
// Plain values; units are bytes; ids are the last segment of a resource name. Regions are shared
// as immutable values (RegionPtr): a change makes a new one.
#ifndef CXLPOOL_FABRIC_MANAGER_MODEL_REGION_H_
#define CXLPOOL_FABRIC_MANAGER_MODEL_REGION_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace cxlpool::fm {

// Key of a record; from PoolState's counter, never used twice.
using Key = uint64_t;

// One contiguous slice of one device.
struct Extent {
  std::string device;
  uint64_t dpa_bytes = 0;
  uint64_t length_bytes = 0;
  friend bool operator==(const Extent&, const Extent&) = default;
};

enum class Mode : uint8_t { kDevdax = 1, kSystemRam = 2 };
enum class Access : uint8_t { kReadWrite = 1, kReadOnly = 2 };
enum class Sharing : uint8_t { kExclusive = 1, kSingleWriter = 2, kMultiWriter = 3 };

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
absl::string_view ToString(Access access);

// Serials that hosts see are this and a number of the pool's own: never a Device's serial.
inline constexpr uint64_t kSerialBase = 0x0c00'0000'0000'0000;

// What a host region is made of, where it enters the host, and what the host last said of it.
struct Segment {
  uint32_t extent_index = 0;
  uint32_t slot = 0;
  std::string host_bridge;
  uint64_t serial = 0;  // Unique for ever.

  std::string memdev;
  std::string host_region;
  std::string dax_device;
  std::optional<int32_t> numa_node;
  uint64_t hpa_bytes = 0;
  uint32_t online_blocks = 0;
  uint32_t total_blocks = 0;
  friend bool operator==(const Segment&, const Segment&) = default;
};

// One host's use of a Region.
struct Attachment {
  std::string host;
  Mode mode = Mode::kDevdax;
  Access access = Access::kReadWrite;
  AttachmentState state = AttachmentState::kWanted;
  bool detaching = false;   // Wanted down.
  uint64_t generation = 0;  // Never used twice in the pool.
  std::vector<Segment> segments;
  std::string reason;  // Why it is where it is, for people.
  friend bool operator==(const Attachment&, const Attachment&) = default;
};

// Who asked for a change, so that a retry finds it again.
struct RequestId {
  std::string principal;  // Identity URI.
  std::string method;     // "AllocateRegion"
  std::string id;         // 16 bytes.
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
  std::string tag;  // 16 bytes.
  std::string id;
  std::string tenant;
  uint64_t generation = 0;
  uint64_t requested_bytes = 0;
  Sharing sharing = Sharing::kExclusive;
  RegionState state = RegionState::kReserved;
  std::string state_reason;
  bool compensating = false;    // On its way down because it could not be made: ends FAILED, gone.
  std::vector<Extent> extents;  // In Region order.
  std::vector<Attachment> attachments;  // In order of host.
  absl::Time create_time;
  std::vector<Request> requests;
  uint64_t revision = 0;  // Of the last change.
  friend bool operator==(const Region&, const Region&) = default;

  uint64_t size_bytes() const;
  const Attachment* FindAttachment(absl::string_view host) const;
  Attachment* FindAttachment(absl::string_view host);
  // Opaque text that changes with every change: it is made of generation and revision.
  std::string etag() const;
};
using RegionPtr = std::shared_ptr<const Region>;

// Whether `to` may follow `from`: every edge of the ladder and no other. A state may follow itself,
// with another reason.
//
// Besides the picture above, an Attachment goes
//   WANTED -> OFFLINE           turned round before the host made anything of what was bound
//   BOUND -> OFFLINE            turned round while the host was at it
//   BOUND -> RELEASE_BLOCKED    turned round, and a part that was online already will not go
//   BOUND -> WANTED             the fabric lost it on its way up: bind again
//   ONLINE -> BOUND             the host rebooted and has to bring it online again
//   ONLINE -> WANTED            the fabric lost it, and the host has nothing left of it: bind again
//   RELEASE_BLOCKED -> OFFLINE  what blocked it went away
//   any -> UNBOUND              proof: the host was fenced, ejected it by itself, or never had it
// and a Region
//   RESERVED -> RELEASING       released while its first Attachment was under way
//   any -> QUARANTINED          its bytes cannot be proven free
//   QUARANTINED -> RELEASING    an operator says that they are
bool MayFollow(AttachmentState from, AttachmentState to);
bool MayFollow(RegionState from, RegionState to);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_MODEL_REGION_H_
