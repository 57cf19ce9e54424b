#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "fabric-manager/model/ladder/ladder.h"
#include "fabric-manager/model/plans/plan_media.h"
#include "proto/support/check.h"
#include "proto/support/mutant.h"

namespace cxlpool::fm {
namespace {

// What the Extents that are gone had lost is no longer said of the Region.
void DropBad(Region& region) {
  std::erase_if(region.bad,
                [&](const BadExtent& bad) { return bad.extent_index >= region.extents.size(); });
  if (absl::StartsWith(region.state_reason, "MEDIA_ERROR")) {
    region.state_reason = MediaReasonOf(region);
  }
}

// Turns a part that failed: a tail goes alone and leaves what was there before in use; without
// its base the Attachment goes, and with it a Region that it was to make.
void RecordGiveUp(Region& region, Attachment& attachment, size_t part, const std::string& why) {
  if (part > 0) {
    attachment.parts[part].detaching = true;
    attachment.parts[part].reason = why;
    // One that is kept from everybody, for a device of it failed meanwhile, has a better reason to
    // show: it says what to do.
    if (region.state == RegionState::kAllocated || CXLPOOL_MUTANT("any-reason-is-overwritten")) {
      region.state_reason = absl::StrCat("RESIZE_FAILED: ", why);
    }
    // At once: nobody may take what is left for a Region that has grown.
    region.tail_leaving = !CXLPOOL_MUTANT("failed-growth-stays");
    return;
  }
  // Without what its user has, nothing is left for the others to join.
  attachment.TurnDown(why, attachment.request_id);
  if (!CXLPOOL_MUTANT("half-made-stays") && region.state == RegionState::kReserved) {
    region.compensating = true;
    region.state_reason = why;
  }
}

}  // namespace

// Writes into the Region what one part of an Attachment has done. Nothing happens where the
// Attachment, or the part, is gone: the answer to a call may come later than its end.
void RecordMove(Region& region, uint64_t generation, size_t part, const Move& move) {
  const auto at = std::find_if(region.attachments.begin(), region.attachments.end(),
                               [&](const Attachment& a) { return a.generation == generation; });
  if (at == region.attachments.end() || part >= at->parts.size()) return;
  switch (move.kind) {
    case MoveKind::kSetState:
      at->parts[part].state = move.state;
      at->parts[part].reason = move.reason;
      break;
    case MoveKind::kGiveUp:
      RecordGiveUp(region, *at, part, move.reason);
      break;
    case MoveKind::kDrop:
      CXLPOOL_CHECK(at->parts[part].state == AttachmentState::kUnbound, "region \"", region.id,
                    "\": part ", part, " of its attachment to ", at->host, " is ",
                    ToString(at->parts[part].state), ": without a proof it is not dropped");
      if (at->parts.size() > 1) {
        at->Remove(part);
        break;
      }
      region.attachments.erase(at);
      // Requests outlive what they made: a late copy of an attach must not attach again.
      if (CXLPOOL_MUTANT("attach-is-forgotten-with-its-end")) {
        std::erase_if(region.requests,
                      [](const Request& r) { return r.id.method == Interned("AttachRegion"); });
      }
      break;
    default:
      break;
  }
}

// Whether `move` was made. A move that the records no longer ask for is left out: it was decided
// on an earlier Region.
bool RecordTailMove(Region& region, RegionMoveKind move) {
  if (!region.resizing() || region.state != RegionState::kAllocated) return false;
  const auto reaches = [&](const Attachment& attachment) {
    return std::any_of(
        attachment.segments.begin(), attachment.segments.end(),
        [&](const Segment& segment) { return segment.extent_index >= region.settled_extents(); });
  };
  switch (move) {
    case RegionMoveKind::kJoinTail:
      if (NextRegionMove(region, {}).kind != move) return false;
      for (Attachment& attachment : region.attachments) attachment.Join();
      region.tail_extents = 0;
      return true;
    case RegionMoveKind::kTurnTail:
      if (NextRegionMove(region, {}).kind != move) return false;
      region.tail_leaving = true;
      for (Attachment& attachment : region.attachments) {
        for (Part& part : attachment.moving()) {
          if (!part.detaching) part.reason = region.state_reason;
          part.detaching = true;
        }
      }
      return true;
    case RegionMoveKind::kDropTail:
      // Bytes may go only when no host has any of them.
      if (!region.tail_leaving ||
          std::any_of(region.attachments.begin(), region.attachments.end(), reaches)) {
        return false;
      }
      region.extents.resize(region.settled_extents());
      if (!region.bad.empty()) DropBad(region);
      region.tail_extents = 0;
      region.tail_leaving = false;
      region.requested_bytes = std::min(region.requested_bytes, region.size_bytes());
      return true;
    default:
      return false;
  }
}

}  // namespace cxlpool::fm
