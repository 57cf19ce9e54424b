// What the reconciler records: each rung that was reached, each part that gave up or is gone, what
// a host says of itself.

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "fabric-manager/model/ladder/ladder_record.h"
#include "fabric-manager/model/plans/plan_media.h"
#include "fabric-manager/model/plans/planner.h"
#include "fabric-manager/service/reconciler.h"
#include "proto/support/log.h"
#include "proto/support/mutant.h"
#include "proto/support/names.h"

namespace cxlpool::fm {
namespace {

std::vector<uint64_t> SerialsOf(const Attachment& attachment) {
  std::vector<uint64_t> serials;
  for (const Segment& segment : attachment.segments) serials.push_back(segment.serial);
  return serials;
}

}  // namespace

void Reconciler::RecordMove(const Region& region, const Attachment& attachment, size_t part,
                            Track& track, const Move& move) {
  const bool again = move.state == AttachmentState::kWanted;
  // An Offer to bring it online must not stand while the fabric begins to unbind.
  if (move.state == AttachmentState::kOffline) {
    Offer(region, attachment, part, track, v1::Offer::WANT_OFFLINE);
  }
  // Nor one to eject it while it is bound again.
  const v1::Offer::Want want = track.wants[part];
  if (again && want == v1::Offer::WANT_EJECTED) {
    Offer(region, attachment, part, track, v1::Offer::WANT_OFFLINE);
  }
  Record(
      region, attachment, std::string(ToString(move.state)), move.reason,
      [move = move, part, again, observed = track.observed, known = track.known](
          Region& edited_region, Attachment& edited, PlanContext& context) {
        cxlpool::fm::RecordMove(edited_region, edited.generation, part, move);
        const size_t end = edited.EndOf(part);
        for (size_t i = edited.parts[part].first_segment; i < end; ++i) {
          Segment& segment = edited.segments[i];
          // Where hardware has a serial of its own, the host is offered that.
          const bool told = !again && known[i].serial != 0;
          if (told && !CXLPOOL_MUTANT("offer-the-wish")) segment.serial = known[i].serial;
          // The host has met the old serial in this incarnation: never again.
          const bool fresh = !CXLPOOL_MUTANT("rebind-old-serial") && again;
          if (fresh && known[i].fabric != FabricSide::kBound) {
            segment.serial = kSerialBase | context.next_id();
          } else if (observed[i].serial == segment.serial) {
            segment = observed[i];
          }
        }
      },
      [this, again, serials = SerialsOf(attachment), key = region.key,
       generation = attachment.generation] {
        if (again) ForgetHostSide(key, generation, serials);
      });
}

// What the host said was of the old serials. Of those that stayed it says nothing twice.
void Reconciler::ForgetHostSide(Key key, uint64_t generation, const std::vector<uint64_t>& before) {
  Track* const track = tracks_.Find(generation);
  const RegionPtr region = Durable(key);
  if (track == nullptr || region == nullptr) return;
  const Attachment* now = region->FindAttachment(absl::string_view(track->host));
  if (now == nullptr || now->generation != generation) return;
  std::vector<SegmentKnown>& known = track->known;
  for (size_t i = 0; i < std::min({known.size(), before.size(), now->segments.size()}); ++i) {
    if (now->segments[i].serial == before[i]) continue;
    SegmentKnown fresh;
    fresh.fabric = known[i].fabric;
    fresh.fabric_error = std::move(known[i].fabric_error);  // Why it may have to be given up.
    known[i] = std::move(fresh);
  }
}

void Reconciler::GiveUp(const Region& region, const Attachment& attachment, size_t part,
                        const Move& move) {
  LogWarning("reconciler", "regions/", region.id, " on ", attachment.host, ": giving up",
             part > 0 ? " to grow it" : "", ": ", move.reason);
  Record(region, attachment, "give-up", move.reason,
         [part, move = move](Region& edited_region, Attachment& edited, PlanContext&) {
           cxlpool::fm::RecordMove(edited_region, edited.generation, part, move);
         });
}

void Reconciler::Drop(const Region& region, const Attachment& attachment, size_t part, Track& track,
                      const Move& move) {
  const bool rest = attachment.parts.size() > 1;
  if (rest) {
    track.wants[part] = v1::Offer::WANT_UNSPECIFIED;
    SendOffer(region, attachment, track);
  } else {
    sessions_->Withdraw(attachment.host, FormatUuid(region.tag.bytes()), attachment.generation);
    track.offered_revision = 0;
  }
  Record(region, attachment, rest ? "drop-tail" : "drop", attachment.parts[part].reason,
         [part, move = move](Region& edited_region, Attachment& edited, PlanContext&) {
           cxlpool::fm::RecordMove(edited_region, edited.generation, part, move);
         });
}

// What the host says of itself is recorded too, once it differs.
void Reconciler::RecordObserved(const Region& region, const Attachment& attachment, Track& track) {
  if (track.observed_revision == region.revision) return;
  for (size_t i = 0; i < attachment.segments.size(); ++i) {
    const Segment& seen = track.observed[i];
    if (seen.serial != attachment.segments[i].serial || seen == attachment.segments[i]) continue;
    Record(region, attachment, "observed", "",
           [observed = track.observed](Region&, Attachment& edited, PlanContext&) {
             for (size_t k = 0; k < edited.segments.size(); ++k) {
               if (observed[k].serial == edited.segments[k].serial) {
                 edited.segments[k] = observed[k];
               }
             }
           });
    return;
  }
  track.observed_revision = region.revision;
}

void Reconciler::StepTail(const Region& region, RegionMoveKind move) {
  const std::string rung = move == RegionMoveKind::kJoinTail   ? "join-tail"
                           : move == RegionMoveKind::kTurnTail ? "turn-tail"
                                                               : "shrunk";
  if (move == RegionMoveKind::kDropTail) regions_[region.key].scrubbed.clear();
  Submit(region.key, rung, region.state_reason,
         [move](Region& edited, PlanContext&) { return RecordTailMove(edited, move); });
}

void Reconciler::Bury(const Region& region) {
  regions_[region.key].committing = true;
  probe_("before-commit-gone");
  writer_->Submit(
      Audit{{}, "manager", "gone", region.state_reason},
      [key = region.key](const PoolState& state, PlanContext& context) -> absl::StatusOr<Proposal> {
        const RegionPtr* now = state.FindRegion(key);
        if (now == nullptr || !(*now)->attachments.empty()) return Proposal{};
        auto last = std::make_shared<Region>(**now);
        last->revision = context.revision;
        const std::string end = EndOfBytes(state, *last);
        last->state_reason =
            last->state_reason.empty() ? end : absl::StrCat(last->state_reason, "; ", end);
        Proposal proposal = Proposal::Of(Tombstone{last, context.now}, last);
        // Not free for a moment: in the same change.
        for (Item& kept : QuarantineBad(state, *last, 0, context)) {
          proposal.change.push_back(std::move(kept));
        }
        return proposal;
      },
      [this, key = region.key](absl::StatusOr<Committed> done) {
        regions_[key].committing = false;
        if (!done.ok()) return;  // Stays active: the next tick tries again.
        probe_("after-commit-gone");
        Forget(key);
      });
}

void Reconciler::Record(const Region& region, const Attachment& seen, const std::string& rung,
                        const std::string& reason,
                        std::function<void(Region&, Attachment&, PlanContext&)> edit,
                        std::function<void()> then) {
  Submit(
      region.key, rung, reason,
      [seen = seen, edit = std::move(edit)](Region& edited, PlanContext& context) {
        Attachment* attachment = edited.FindAttachment(seen.host);
        // A request came between: look again at what it made.
        if (attachment == nullptr) return false;
        if (!CXLPOOL_MUTANT("record-over-newer") && *attachment != seen) return false;
        edit(edited, *attachment, context);
        return true;
      },
      std::move(then));
}

// Commits an edit of a Region as it is when the Writer's turn comes; `edit` says false where it no
// longer applies, and then nothing is written. One commit of a Region at a time. A shrink that
// gives away bad extents leaves them behind as quarantined Regions, in the same change.
void Reconciler::Submit(Key key, const std::string& rung, const std::string& reason,
                        std::function<bool(Region&, PlanContext&)> edit,
                        std::function<void()> then) {
  regions_[key].committing = true;
  Pass("before-commit-", rung);
  writer_->Submit(
      Audit{{}, "manager", rung, reason},
      [key, edit = std::move(edit)](const PoolState& state,
                                    PlanContext& context) -> absl::StatusOr<Proposal> {
        const RegionPtr* now = state.FindRegion(key);
        if (now == nullptr) return Proposal{};
        auto edited = std::make_shared<Region>(**now);
        if (!edit(*edited, context)) return Proposal{};
        edited->revision = context.revision;
        Proposal proposal = Proposal::Of(RegionPtr(edited), edited);
        if (!(*now)->bad.empty() && edited->extents.size() < (*now)->extents.size()) {
          for (Item& kept : QuarantineBad(state, **now, edited->extents.size(), context)) {
            proposal.change.push_back(std::move(kept));
          }
        }
        return proposal;
      },
      [this, key, rung, then = std::move(then)](absl::StatusOr<Committed> done) {
        regions_[key].committing = false;
        Touch(key);
        if (!done.ok()) return;
        if (done->region != nullptr && then) then();
        Pass("after-commit-", rung);
      });
}

}  // namespace cxlpool::fm
