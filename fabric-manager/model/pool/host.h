// A host as the pool knows it: who it is (durable), and what it can take now (as its agent and the
// fabric last said; gone with a restart).
//
// The CXL host bridge is the unit of host capacity: its HDM decoders are a stack (CXL 3.1,
// 8.2.4.20). Host regions on a bridge are made in ascending host address order; freeing one that
// is not the topmost leaves a hole, and until all above it are freed nothing can be made there.
#ifndef CXLPOOL_FABRIC_MANAGER_MODEL_POOL_HOST_H_
#define CXLPOOL_FABRIC_MANAGER_MODEL_POOL_HOST_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "fabric-manager/model/pool/region.h"

namespace cxlpool::fm {

// Durable.
struct Host {
  Key key = 0;
  std::string id;
  std::string identity;  // URI SAN its agent's certificate must carry.
  bool retired = false;
  // The life of its side of the fabric that anything may be bound in
  // (FabricHost::fabric_incarnation): recorded before the first bind in it. Empty: the fabric has
  // not shown it yet.
  std::string fabric_incarnation = {};
  std::vector<std::string> tenants = {};  // For whom it may allocate; in order, none twice.

  bool Serves(absl::string_view tenant) const;
  friend bool operator==(const Host&, const Host&) = default;
};

// With retired ones. As many as may have a session at once (rpc/admission.h).
inline constexpr size_t kMaxEnrolledHosts = 16'384;

// How deep the stack of a bridge is taken to be that nobody has looked at yet. Where that is too
// deep the agent refuses what is too much (DECODERS_FULL), and the Attachment is turned round.
inline constexpr uint32_t kAssumedDepth = 4;

// As the agent reported it.
struct Bridge {
  std::string name;
  std::vector<uint32_t> slots;
  uint32_t max_regions = 0;
  bool depth_unknown = false;  // The kernel shows `max_regions` with the first memdev only.
  uint32_t live_regions = 0;
  bool blocked = false;
  uint64_t blocking_serial = 0;  // Of a target of the topmost live host region; 0: none.
  uint64_t window_bytes = 0;
  uint64_t free_window_bytes = 0;
  // It has no decoder stack and no window: host regions come and go in any order, as long as a slot
  // is free and there are fewer than `max_regions`.
  bool any_order = false;

  // How many host regions it takes, to plan with.
  uint32_t depth() const {
    return depth_unknown && max_regions < kAssumedDepth ? kAssumedDepth : max_regions;
  }
  friend bool operator==(const Bridge&, const Bridge&) = default;
};

// A process that has a Region open, as its host's agent reported.
struct Holder {
  uint32_t pid = 0;
  uint64_t start_ticks = 0;  // When it started, since the host's boot; 0: not known.
  uint32_t uid = 0;
  std::string program;
  uint64_t open_bytes = 0;
  // As it counts itself; all 0: it does not say.
  uint64_t mapped_bytes = 0;
  uint64_t live_bytes = 0;
  uint64_t slack_bytes = 0;
  uint32_t pins = 0;
  friend bool operator==(const Holder&, const Holder&) = default;
};

// Who uses what on a host, as its agent last said in its session. For people: nothing is decided by
// it.
struct HolderReport {
  struct OfAttachment {
    std::vector<Holder> holders;
    uint32_t more = 0;                         // Others, not listed.
    std::optional<absl::Time> unopened_since;  // Unset: somebody had it open, or it is not known.
    friend bool operator==(const OfAttachment&, const OfAttachment&) = default;
  };
  absl::Time time;                                 // When it was said.
  std::map<uint64_t, OfAttachment> by_generation;  // Of the Attachment. Nobody holds one not in it.
};

// Not durable.
struct HostRuntime {
  bool online = false;            // Its agent has a session.
  bool fabric_reachable = false;  // The driver can bind there.
  std::string fabric_reason;      // Why it cannot, for people.
  std::string incarnation;
  std::string agent_version;
  std::string kernel_release;
  std::vector<uint32_t> fabric_slots;            // Where the fabric can bind.
  std::map<std::string, std::string> unreached;  // As of FabricHost.
  std::vector<Bridge> bridges;
  uint64_t region_granule_bytes = 0;  // Host regions are multiples of this; 256 MiB on Linux.
  uint64_t memory_block_bytes = 0;
  uint64_t page_struct_spare_bytes = 0;
  // Why it can take nothing at all: its agent says so, or says what cannot be. Empty: it can.
  std::string unfit_reason;
  absl::Time last_heartbeat = absl::InfinitePast();
  std::string certificate_serial;  // Shown in the last session; empty: none was.
  absl::Time certificate_end;
  // Null: its agent has said nothing in this session, or has none. Shared, since a HostRuntime is
  // copied for each change of it.
  std::shared_ptr<const HolderReport> holders;
  // What of the above is wrong, by the name that `explain` has for it, and since when as far as
  // this manager knows (WrongSince). What is about one of several things has that one's name behind
  // it: "BRIDGE_BLOCKED ACPI0016:00".
  std::map<std::string, absl::Time> wrong_since = {};
  friend bool operator==(const HostRuntime&, const HostRuntime&) = default;
};
using HostRuntimePtr = std::shared_ptr<const HostRuntime>;

// Whether it is there to take memory now. What a host that is not would want is nobody's concern.
inline bool MayAttach(const Host& host, const HostRuntime& runtime) {
  return runtime.online && !host.retired && runtime.unfit_reason.empty();
}

// The `wrong_since` of `after`, which takes the place of `before` now: what was wrong before keeps
// its time. An agent is away since it was last heard; one that never came is not missed. Devices
// that a host does not reach are not taken for reached while it cannot be asked, nor as soon as its
// agent is back.
std::map<std::string, absl::Time> WrongSince(const HostRuntime& before, const HostRuntime& after,
                                             absl::Time now);

// A segment that occupies a slot of the host, from the moment it is planned until the proof that
// it is unbound.
struct OccupiedSlot {
  Key region = 0;
  std::string region_id;
  uint64_t generation = 0;  // Of the Attachment: order of creation on a bridge.
  AttachmentState state = AttachmentState::kWanted;
  bool detaching = false;
  bool held = false;  // Of a stray: it may hold a decoder, and is on no way.
  uint32_t slot = 0;
  std::string host_bridge;
  uint64_t serial = 0;
  uint64_t hpa_bytes = 0;
  uint64_t length_bytes = 0;
  // Extent that the stripe set begins with: entries of one generation and set share a host region,
  // and so a decoder.
  uint32_t set = 0;
  uint32_t ways = 1;
  absl::Duration expected_lifetime = absl::InfiniteDuration();

  // Holds a decoder now.
  bool live() const {
    return state == AttachmentState::kOnline || state == AttachmentState::kReleaseBlocked ||
           (held && !detaching);
  }
  // Will hold one.
  bool pending() const {
    return !detaching && !held &&
           (state == AttachmentState::kWanted || state == AttachmentState::kBound);
  }
  // Being detached, and holds a decoder or (turned round half-way) may hold one.
  bool leaving() const { return detaching && (live() || state == AttachmentState::kBound); }
  friend bool operator==(const OccupiedSlot&, const OccupiedSlot&) = default;
};

// How a bridge will be once everything under way is through: the agent's report plus plans.
struct BridgeOutlook {
  bool usable = false;  // A host region can be made here now: a slot and a decoder are free,
                        // and it is neither blocked nor being left.
  std::vector<uint32_t> free_slots;  // Ascending.
  uint32_t stack = 0;                // Decoders live, leaving or pending.
  bool full = false;                 // The stack is as deep as it gets.
  bool leaving = false;              // One of them is being detached.
  bool blocked = false;              // A hole is, or will be, under one that stays.
  std::string blocked_by;  // Id of the Region that has to go first; empty if nobody knows.
  uint64_t free_window_bytes = 0;
};

// Whether `b` is above `a` on their bridge: in order of host address where both are known, else of
// generation, since hosts make them in turn.
bool LiesUnder(const OccupiedSlot& a, const OccupiedSlot& b);

// `occupied` is everything on the host; a segment is on the bridge that has its slot, or that it
// was planned for. Blocked: the agent says so, or a leaving segment lies under one that stays
// (the decoder stack, proto/support/cxl_host.h). A bridge of any order is never blocked nor left,
// and its window never ends.
BridgeOutlook LookAt(const Bridge& bridge, const HostRuntime& runtime,
                     const std::vector<OccupiedSlot>& occupied);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_MODEL_POOL_HOST_H_
