#include "fabric-manager/model/ladder/ladder.h"

#include <algorithm>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/support/check.h"
#include "proto/support/mutant.h"

namespace cxlpool::fm {
namespace {

using Known = std::vector<SegmentKnown>;

// The host has a host region, or something of one.
bool HasHostRegion(const SegmentKnown& known) {
  return known.host == HostSide::kRegion || known.host == HostSide::kOnline ||
         known.host == HostSide::kStopping;
}

bool Any(const Known& known, FabricSide side) {
  return std::any_of(known.begin(), known.end(), [=](const auto& k) { return k.fabric == side; });
}
bool All(const Known& known, FabricSide side) {
  return std::all_of(known.begin(), known.end(), [=](const auto& k) { return k.fabric == side; });
}
bool Any(const Known& known, HostSide side) {
  return std::any_of(known.begin(), known.end(), [=](const auto& k) { return k.host == side; });
}
bool All(const Known& known, HostSide side) {
  return std::all_of(known.begin(), known.end(), [=](const auto& k) { return k.host == side; });
}
bool AnyHostRegion(const Known& known) {
  return std::any_of(known.begin(), known.end(), HasHostRegion);
}

std::vector<uint32_t> Those(const Known& known, FabricSide side) {
  std::vector<uint32_t> segments;
  for (uint32_t i = 0; i < known.size(); ++i) {
    if (known[i].fabric == side) segments.push_back(i);
  }
  return segments;
}

Move Do(MoveKind kind) { return Move{.kind = kind, .segments = {}, .reason = {}}; }
Move DoWith(MoveKind kind, std::vector<uint32_t> segments) {
  return Move{.kind = kind, .segments = std::move(segments), .reason = {}};
}
Move Reach(AttachmentState state, std::string reason) {
  return Move{
      .kind = MoveKind::kSetState, .segments = {}, .state = state, .reason = std::move(reason)};
}
Move GiveUp(std::string reason) {
  return Move{.kind = MoveKind::kGiveUp, .segments = {}, .reason = std::move(reason)};
}

constexpr char kLost[] = "LD_LOST";
constexpr char kRestarted[] = "HOST_RESTARTED";
constexpr char kNotCleared[] = ": what is left of it is not cleared away yet: ";

bool IsLost(const Known& known) {
  return Any(known, FabricSide::kUnbound) || Any(known, FabricSide::kUnbinding);
}

// It was online before: it climbs again for as long as it takes, and no time-out takes it from a
// host that is slow to boot.
bool IsRepair(const Part& part) {
  return absl::StartsWith(part.reason, kLost) || absl::StartsWith(part.reason, kRestarted);
}

const char* NameOfRepair(const Part& part) {
  return absl::StartsWith(part.reason, kLost) ? kLost : kRestarted;
}

// What a part says that goes back to WANTED. That a proof was missing is over with the proof.
std::string WhyWantedAgain(const Part& part) {
  if (!IsRepair(part)) return "REBIND: the fabric lost it while it came up; it is bound again";
  if (!absl::StrContains(part.reason, kNotCleared)) return part.reason;
  return absl::StrCat(NameOfRepair(part),
                      ": what was left of it is cleared away, and it is bound again");
}

// What keeps the host from a repair that it cannot make, with the remedy. It is tried again all the
// while. Empty: nothing new to say.
std::string WhyRepairWaits(const Part& part, const Known& known) {
  if (!IsRepair(part)) return "";
  const auto stuck = std::find_if(known.begin(), known.end(),
                                  [](const SegmentKnown& k) { return !k.host_error.empty(); });
  if (stuck == known.end()) return "";
  const std::string why = absl::StrCat(
      NameOfRepair(part), ": it is to be brought online again, but ", stuck->host_error);
  return why == part.reason ? "" : why;
}

// Why attaching cannot succeed, or "".
std::string WhyGiveUp(const Part& part, const Known& known, bool deadline_passed) {
  std::string last;
  for (const SegmentKnown& k : known) {
    if (k.fabric_error_permanent) return k.fabric_error;
    if (k.host_error_permanent) return k.host_error;
    if (last.empty()) last = k.host_error.empty() ? k.fabric_error : k.host_error;
  }
  // What a repair loses once more is cleared away, as it was when that began.
  const bool stays = IsRepair(part) && !CXLPOOL_MUTANT("repair-ends-with-what-is-pulled");
  if (!stays && Any(known, FabricSide::kUnbinding) && !Any(known, FabricSide::kUnbound)) {
    return "UNBINDING: the fabric is unbinding it, which nobody asked for";
  }
  if (!deadline_passed || IsRepair(part)) return "";
  return absl::StrCat("ATTACH_TIMEOUT: it was not online in time",
                      last.empty() ? "" : absl::StrCat("; last error: ", last));
}

// WANTED: the intent is durable; make the fabric show every segment to the host.
Move Bind(const Part& part, const Known& known, bool may_go_down, bool deadline_passed) {
  if (All(known, FabricSide::kBound)) {
    return Reach(AttachmentState::kBound, IsRepair(part) ? part.reason : "");
  }
  if (std::string why = WhyGiveUp(part, known, deadline_passed); !why.empty()) {
    return GiveUp(why);
  }
  if (Any(known, FabricSide::kUnknown)) return Do(MoveKind::kDiscover);
  // In a repair the Offer of before still stands, and the host goes ahead with what is bound. A
  // host region that it made cannot take in a part which was lost again and comes under a new
  // serial.
  if (AnyHostRegion(known)) return Do(may_go_down ? MoveKind::kOfferOffline : MoveKind::kNone);
  std::vector<uint32_t> unbound = Those(known, FabricSide::kUnbound);
  // In a repair the rest may be on its way out.
  if (unbound.empty()) return Do(MoveKind::kDiscover);
  return DoWith(MoveKind::kBind, std::move(unbound));
}

// The fabric lost a segment. All of them go, in order, so that the Attachment begins again as a
// whole: nothing when that is done, and it may go back to WANTED.
std::optional<Move> ClearAway(const Known& known, bool may_go_down) {
  if (AnyHostRegion(known)) return Do(may_go_down ? MoveKind::kOfferOffline : MoveKind::kNone);
  if (All(known, FabricSide::kUnbound)) return std::nullopt;
  if (Any(known, FabricSide::kUnknown)) return Do(MoveKind::kDiscover);
  // While the agent is away nobody else can say whether the host uses the rest.
  if (Any(known, HostSide::kUnknown)) return Do(MoveKind::kNone);
  if (Any(known, FabricSide::kBound)) {
    return DoWith(MoveKind::kBeginUnbind, Those(known, FabricSide::kBound));
  }
  return Do(MoveKind::kOfferEject);
}

// BOUND: the host brings it online. If the fabric loses it meanwhile it is bound again, from WANTED
// and so under new serials: the host may have met these.
Move BringOnline(const Part& part, const Known& known, bool may_go_down, bool deadline_passed) {
  const bool lost = IsLost(known);
  if (All(known, HostSide::kOnline) && !lost) return Reach(AttachmentState::kOnline, "");
  if (std::string why = WhyGiveUp(part, known, deadline_passed); !why.empty()) {
    return GiveUp(why);
  }
  if (Any(known, FabricSide::kUnknown)) return Do(MoveKind::kDiscover);
  if (std::string why = WhyRepairWaits(part, known); !lost && !why.empty()) {
    return Reach(part.state, why);
  }
  if (!lost) return Do(MoveKind::kOfferOnline);
  if (auto move = ClearAway(known, may_go_down); move.has_value()) return *std::move(move);
  return Reach(AttachmentState::kWanted, WhyWantedAgain(part));
}

// ONLINE, and a segment is gone from the fabric though nobody asked: say so, clear the rest away,
// and begin again from WANTED. The bytes are safe in the pool all the while. While the agent is
// away nothing is done: nobody else can say what the host still has of it.
Move Repair(const Part& part, const Known& known, bool may_go_down) {
  const std::string reason = absl::StrCat(
      kLost,
      ": the fabric no longer shows it to the host (unplugged behind our back?); it is "
      "bound again as soon as the host has let go of what is left");
  const bool away = Any(known, HostSide::kUnknown);
  const auto clear = ClearAway(known, may_go_down);
  if (!clear.has_value() && !away) return Reach(AttachmentState::kWanted, reason);
  if (!absl::StartsWith(part.reason, kLost)) return Reach(part.state, reason);
  return clear.value_or(Do(MoveKind::kNone));
}

// ONLINE, and meant to stay.
Move StayOnline(const Part& part, const Known& known, bool may_go_down) {
  if (!CXLPOOL_MUTANT("ignore-lost-ld") && IsLost(known)) {
    return Repair(part, known, may_go_down);
  }
  if (All(known, HostSide::kOnline)) {
    // Reported lost, and yet it is there.
    if (IsRepair(part)) return Reach(part.state, "");
    // Also where the rest was to be cleared away for a part that was lost, and has left since.
    return Do(MoveKind::kOfferOnline);
  }
  // An agent that is away takes nothing with it.
  if (Any(known, HostSide::kUnknown)) return Do(MoveKind::kNone);
  if (Any(known, FabricSide::kUnknown)) return Do(MoveKind::kDiscover);
  return Reach(AttachmentState::kBound,
               absl::StrCat(kRestarted,
                            ": the host no longer has it online (rebooted?); it is "
                            "being brought online again"));
}

bool SaysBlocked(absl::string_view error) {
  return absl::StartsWith(error, "HOLDERS") || absl::StartsWith(error, "BLOCKS_BUSY") ||
         absl::StartsWith(error, "OFFLINE_STUCK");
}

// What keeps the host from letting go, or "". An error that attaching had may still be there.
std::string WhyBlocked(const Part& part, const Known& known) {
  const bool was_up =
      part.state == AttachmentState::kOnline || part.state == AttachmentState::kReleaseBlocked;
  for (const SegmentKnown& k : known) {
    const bool going_down = was_up || k.host == HostSide::kStopping || SaysBlocked(k.host_error);
    if (!k.host_error.empty() && going_down) return k.host_error;
  }
  return "";
}

// While it is detached and the host may still have host regions.
Move TakeOffline(const Part& part, const Known& known, bool may_go_down) {
  const std::string blocked = WhyBlocked(part, known);
  if (All(known, FabricSide::kUnbound)) {
    // That is the proof. Left-overs keep decoders of the host: it clears them up if it can.
    if (!AnyHostRegion(known) || !blocked.empty()) {
      return Reach(AttachmentState::kUnbound, part.reason);
    }
    return Do(may_go_down ? MoveKind::kOfferOffline : MoveKind::kNone);
  }
  const bool away = !CXLPOOL_MUTANT("away-is-offline") && Any(known, HostSide::kUnknown);
  if (!AnyHostRegion(known) && !away) {
    const bool was_blocked = part.state == AttachmentState::kReleaseBlocked;
    return Reach(AttachmentState::kOffline, was_blocked ? "" : part.reason);
  }
  if (away && Any(known, FabricSide::kUnknown)) return Do(MoveKind::kDiscover);
  if (!may_go_down) return Do(MoveKind::kNone);
  const bool news = part.state != AttachmentState::kReleaseBlocked || part.reason != blocked;
  if (!blocked.empty() && news && part.state != AttachmentState::kWanted) {
    return Reach(AttachmentState::kReleaseBlocked, blocked);
  }
  // Stands until heard, also by an agent that is away.
  return Do(MoveKind::kOfferOffline);
}

// OFFLINE and EJECTING: driver and host alternate until the proof.
Move Unbind(const Part& part, const Known& known) {
  const bool one = CXLPOOL_MUTANT("one-proof-for-all") && Any(known, FabricSide::kUnbound);
  if (one || All(known, FabricSide::kUnbound)) {
    return Reach(AttachmentState::kUnbound, part.reason);
  }
  if (Any(known, FabricSide::kUnknown)) return Do(MoveKind::kDiscover);
  const bool begun = part.state == AttachmentState::kEjecting;
  // Made again meanwhile, by whatever means: never pull the slot from under a host region.
  const bool up = !CXLPOOL_MUTANT("unbind-under-host-region") && AnyHostRegion(known);
  if (!begun && up) return Do(MoveKind::kOfferOffline);
  if (Any(known, FabricSide::kBound)) {
    return DoWith(MoveKind::kBeginUnbind, Those(known, FabricSide::kBound));
  }
  return begun ? Do(MoveKind::kOfferEject) : Reach(AttachmentState::kEjecting, part.reason);
}

// A Region of which the last extents are joining or leaving.
RegionMoveKind NextTailMove(const Region& region) {
  bool any = false;  // Attachment that has segments of the last extents.
  bool all_up = true;
  bool some_down = false;
  bool some_up = false;
  for (const Attachment& attachment : region.attachments) {
    // One that goes down as a whole has no part on a way of its own, and yet may reach the bytes.
    any |= std::any_of(
        attachment.segments.begin(), attachment.segments.end(),
        [&](const Segment& segment) { return segment.extent_index >= region.settled_extents(); });
    for (const Part& part : attachment.moving()) {
      some_down |= part.detaching;
      some_up |= !part.detaching;
      all_up &= part.is_up();
    }
  }
  if (region.tail_leaving) {
    if (some_up) return RegionMoveKind::kTurnTail;
    if (CXLPOOL_MUTANT("scrub-tail-before-proof")) return RegionMoveKind::kScrub;
    return any ? RegionMoveKind::kNone : RegionMoveKind::kScrub;
  }
  if (some_down) return RegionMoveKind::kTurnTail;
  if (CXLPOOL_MUTANT("join-tail-early")) return RegionMoveKind::kJoinTail;
  return all_up ? RegionMoveKind::kJoinTail : RegionMoveKind::kNone;
}

}  // namespace

std::string WhyUnproven(const Part& part, const std::string& why) {
  const bool stays = IsRepair(part) && !CXLPOOL_MUTANT("repair-ends-without-a-proof");
  if (part.detaching || !stays) return why;
  return absl::StrCat(NameOfRepair(part), kNotCleared, why);
}

// Each part by itself: a tail climbs or leaves while the rest stays. What nobody has said anything
// about yet counts as unknown, which never proves anything.
Move NextMove(const Attachment& attachment, size_t index, const std::vector<SegmentKnown>& given,
              bool may_go_down, bool deadline_passed) {
  CXLPOOL_CHECK(index < attachment.parts.size(), "attachment ", attachment.generation, " has ",
                attachment.parts.size(), " parts, and no part ", index);
  const Part& part = attachment.parts[index];
  const size_t segments = attachment.EndOf(index) - part.first_segment;
  // "Every segment is unbound" is the proof, and would hold of none.
  CXLPOOL_CHECK(segments > 0, "part ", index, " of attachment ", attachment.generation,
                " has no segments: nothing could prove that its host has let go");
  if (given.size() != segments) {
    Known known = given;
    known.resize(segments);
    return NextMove(attachment, index, known, may_go_down, deadline_passed);
  }
  using enum AttachmentState;
  // A stray waits for an operator's decision, and stays as it is until then.
  const bool waits = attachment.held && !part.detaching && part.state != kUnbound;
  if (waits && !CXLPOOL_MUTANT("stray-comes-online")) return Do(MoveKind::kNone);
  switch (part.state) {
    case kUnbound:
      return Do(MoveKind::kDrop);
    case kOffline:
    case kEjecting:
      return Unbind(part, given);
    case kWanted:
      if (!part.detaching) return Bind(part, given, may_go_down, deadline_passed);
      break;
    case kBound:
      if (!part.detaching) return BringOnline(part, given, may_go_down, deadline_passed);
      break;
    case kOnline:
      if (!part.detaching) return StayOnline(part, given, may_go_down);
      break;
    case kReleaseBlocked:
      break;
  }
  return TakeOffline(part, given, may_go_down);
}

// A Region follows its Attachments: it is up when all of them are, and its bytes are scrubbed when
// none is left. Only then does it go.
RegionMove NextRegionMove(const Region& region, const absl::flat_hash_set<uint32_t>& scrubbed) {
  const auto reach = [](RegionState state) {
    return RegionMove{.kind = RegionMoveKind::kSetState, .state = state, .extents = {}};
  };
  const auto scrub = [&](size_t first, RegionMoveKind then) {
    RegionMove move{.kind = RegionMoveKind::kScrub, .state = region.state, .extents = {}};
    for (uint32_t i = static_cast<uint32_t>(first); i < region.extents.size(); ++i) {
      if (CXLPOOL_MUTANT("skip-scrub")) continue;
      // Kept from everybody, and cleared when an operator gives it free (plan_media.h).
      if (region.FindBad(i) != nullptr) continue;
      if (!scrubbed.contains(i)) move.extents.push_back(i);
    }
    if (move.extents.empty()) move.kind = then;
    return move;
  };
  const RegionMove none{.kind = RegionMoveKind::kNone, .state = region.state, .extents = {}};
  const bool attached = !region.attachments.empty();
  switch (region.state) {
    case RegionState::kReserved: {
      if (region.compensating) return reach(RegionState::kFailed);
      const bool up = std::all_of(region.attachments.begin(), region.attachments.end(),
                                  [](const Attachment& a) { return a.settled().is_up(); });
      return up ? reach(RegionState::kAllocated) : none;
    }
    case RegionState::kReleasing:
      return attached ? none : reach(RegionState::kScrubbing);
    case RegionState::kScrubbing:
    case RegionState::kFailed:
      return attached ? none : scrub(0, RegionMoveKind::kRemove);
    case RegionState::kAllocated: {
      if (!region.resizing()) return none;
      const RegionMoveKind tail = NextTailMove(region);
      if (tail == RegionMoveKind::kScrub) {
        return scrub(region.settled_extents(), RegionMoveKind::kDropTail);
      }
      return RegionMove{.kind = tail, .state = region.state, .extents = {}};
    }
    case RegionState::kQuarantined:
      return none;
  }
  return none;
}

}  // namespace cxlpool::fm
