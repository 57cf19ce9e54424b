// What happens next to a Region: the whole lifecycle as one pure function from what is known to
// the next move. The reconciler only carries moves out.
//
// Moves of different Attachments are independent; those of one Attachment alternate between the
// driver and the host agent and meet on (host, slot).
//
// Reasons that a move records begin with the agent's or the driver's own (HOLDERS, NO_FREE_PORT,
// ...) or with one of
//   LD_LOST         the fabric no longer shows it to the host, though nobody asked; bound again
//   HOST_RESTARTED  the host no longer has it online; brought online again
//   REBIND          the fabric lost it while it came up; bound again
//   UNBINDING       the fabric unbinds it, though nobody asked; turned round
//   ATTACH_TIMEOUT  it was not online in time; turned round
#ifndef CXLPOOL_FABRIC_MANAGER_MODEL_LADDER_LADDER_H_
#define CXLPOOL_FABRIC_MANAGER_MODEL_LADDER_LADDER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "fabric-manager/model/pool/pool_state.h"

namespace cxlpool::fm {

// How far a segment is on the host, as the agent last said in this session.
enum class HostSide : uint8_t { kUnknown, kAbsent, kPresent, kRegion, kOnline, kStopping };

// How a segment is in the fabric, as the driver last said.
enum class FabricSide : uint8_t { kUnknown, kUnbound, kBound, kUnbinding };

struct SegmentKnown {
  HostSide host = HostSide::kUnknown;
  FabricSide fabric = FabricSide::kUnknown;
  std::string host_error;  // Reason and message of the agent's last failed step; empty: none.
  bool host_error_permanent = false;
  std::string fabric_error;
  bool fabric_error_permanent = false;
  uint64_t serial = 0;  // That the host sees, as the fabric said; 0: it is not bound, or not said.
  bool other_there = false;  // Another LD is bound by its key, as the last look at it showed.
};

enum class MoveKind : uint8_t {
  kNone,
  kDiscover,      // The fabric's side is unknown: read it back.
  kBind,          // Driver, segment by segment.
  kOfferOnline,   // Agent.
  kOfferOffline,  // Agent.
  kBeginUnbind,   // Driver.
  kOfferEject,    // Agent, while the driver awaits the proof.
  kSetState,      // Record `state` and `reason`: a rung was reached.
  kGiveUp,        // Coming up failed for good: turn round (detaching = true, reason).
  kDrop,          // Proven unbound: take the part out of the Attachment; the last one, with it.
};

struct Move {
  MoveKind kind = MoveKind::kNone;
  std::vector<uint32_t> segments;  // Counted from the part's first: kBind, kBeginUnbind.
  AttachmentState state = AttachmentState::kWanted;
  std::string reason;
  friend bool operator==(const Move&, const Move&) = default;
};

// The next move of one part of the Attachment. `known` has an entry for each of its segments.
// `may_go_down` is false while another Attachment is coming up on the same host bridge: the decoder
// stack must not lose a lower region meanwhile. `deadline_passed`: coming up took longer than is
// allowed; that turns it round the first time, never the repair of what was online before (reason
// LD_LOST or HOST_RESTARTED).
//
// Offers stand until replaced, so an Attachment whose agent is away (HostSide::kUnknown) is offered
// down all the same; unbinding waits for the agent's word or for the fabric's proof.
Move NextMove(const Attachment& attachment, size_t part, const std::vector<SegmentKnown>& known,
              bool may_go_down, bool deadline_passed);

// What the record is to say of a part whose unbind the fabric does not prove: `why`
// (UNBIND_NOT_PROVEN). A repair stays one, and would be given up if its reason did not say so.
std::string WhyUnproven(const Part& part, const std::string& why);

// The same for the Region itself, once its Attachments are what they are. `scrubbed`: indices of
// extents whose scrub succeeded or is not needed; what is not in it is scrubbed (again), but for
// bad extents.
enum class RegionMoveKind : uint8_t {
  kNone,
  kSetState,
  kScrub,
  kRemove,
  kJoinTail,  // The tail is up everywhere: it is part of the Region.
  kTurnTail,  // It cannot come up on some host: it leaves everywhere.
  kDropTail,  // It has left every host and is scrubbed: its extents go.
};
struct RegionMove {
  RegionMoveKind kind = RegionMoveKind::kNone;
  RegionState state = RegionState::kReserved;
  std::vector<uint32_t> extents;  // kScrub: those not yet scrubbed.
  friend bool operator==(const RegionMove&, const RegionMove&) = default;
};
RegionMove NextRegionMove(const Region& region, const absl::flat_hash_set<uint32_t>& scrubbed);

// What moves make of the Region's record (ladder_record.cc).

// kSetState, kGiveUp and kDrop, of one part of the Attachment with `generation`. Where what is to
// join gives up the rest stays as it is; where the first Attachment of a Region does, the Region
// goes down.
void RecordMove(Region& region, uint64_t generation, size_t part, const Move& move);

// kJoinTail, kTurnTail and kDropTail. False: the Region is not at that rung any more. The
// caller that records kDropTail keeps the bad Extents of the tail from everybody in the same change
// (plan_media.h).
bool RecordTailMove(Region& region, RegionMoveKind move);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_MODEL_LADDER_LADDER_H_
