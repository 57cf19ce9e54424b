#include "fabric-manager/model/ladder/ladder_record.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "fabric-manager/model/plans/plan_media.h"
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

void RecordGiveUp(Region& region, Attachment& attachment, const Part& part,
                  const std::string& why) {
  if (part.tail) {
    attachment.tail->detaching = true;
    attachment.tail->reason = why;
    region.state_reason = absl::StrCat("RESIZE_FAILED: ", why);
    // At once: nobody may take what is left for a Region that has grown.
    region.tail_leaving = !CXLPOOL_MUTANT("failed-growth-stays");
    return;
  }
  attachment.TurnDown(why);
  if (!CXLPOOL_MUTANT("half-made-stays") && region.state == RegionState::kReserved) {
    region.compensating = true;
    region.state_reason = why;
  }
}

}  // namespace

void RecordMove(Region& region, uint64_t generation, const Part& part, const Move& move) {
  const auto at = std::find_if(region.attachments.begin(), region.attachments.end(),
                               [&](const Attachment& a) { return a.generation == generation; });
  if (at == region.attachments.end() || part.tail != (part.tail && at->tail.has_value())) return;
  switch (move.kind) {
    case MoveKind::kSetState:
      (part.tail ? at->tail->state : at->state) = move.state;
      (part.tail ? at->tail->reason : at->reason) = move.reason;
      break;
    case MoveKind::kGiveUp:
      RecordGiveUp(region, *at, part, move.reason);
      break;
    case MoveKind::kDrop:
      if (part.tail) {
        at->segments.resize(at->tail->first_segment);
        at->tail.reset();
      } else {
        region.attachments.erase(at);
        // Requests outlive what they made: a late copy of an attach must not attach again.
        if (CXLPOOL_MUTANT("attach-is-forgotten-with-its-end")) {
          std::erase_if(region.requests,
                        [](const Request& r) { return r.id.method == Interned("AttachRegion"); });
        }
      }
      break;
    default:
      break;
  }
}

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
      for (Attachment& attachment : region.attachments) attachment.tail.reset();
      region.tail_extents = 0;
      return true;
    case RegionMoveKind::kTurnTail:
      if (NextRegionMove(region, {}).kind != move) return false;
      region.tail_leaving = true;
      for (Attachment& attachment : region.attachments) {
        if (!attachment.tail.has_value() || attachment.tail->detaching) continue;
        attachment.tail->detaching = true;
        attachment.tail->reason = region.state_reason;
      }
      return true;
    case RegionMoveKind::kDropTail:
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
