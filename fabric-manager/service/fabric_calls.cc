#include "fabric-manager/service/fabric_calls.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "fabric-manager/service/host_fences.h"
#include "fabric-manager/service/ld_names.h"
#include "fabric-manager/service/region_log.h"
#include "proto/support/log.h"
#include "proto/support/mutant.h"
#include "proto/support/refusal.h"
#include "proto/support/text.h"

namespace cxlpool::fm {
namespace {

// Whether a look contradicts the record of a segment: it is recorded as bound, and there it is not.
// What has no such record yet, or is on its way out, may be either.
bool Contradicts(FabricSide seen, AttachmentState recorded) {
  switch (recorded) {
    case AttachmentState::kBound:
    case AttachmentState::kOnline:
    case AttachmentState::kReleaseBlocked:
      return seen == FabricSide::kUnbound || seen == FabricSide::kUnbinding;
    case AttachmentState::kWanted:
    case AttachmentState::kOffline:
    case AttachmentState::kEjecting:
    case AttachmentState::kUnbound:
      break;
  }
  return false;
}

// Whether calling the driver again with the same arguments can help.
bool IsPermanent(const absl::Status& status) {
  return status.code() == absl::StatusCode::kAlreadyExists ||
         status.code() == absl::StatusCode::kNotFound ||
         status.code() == absl::StatusCode::kInvalidArgument || ReasonOf(status) == "NO_FREE_PORT";
}

// Hosts that the view could look at, with the slots of which it can say what is in them.
std::map<absl::string_view, std::set<uint32_t>> SlotsSeen(const FabricView& view) {
  std::map<absl::string_view, std::set<uint32_t>> seen;
  for (const FabricHost& host : view.hosts) {
    if (!host.reachable) continue;
    std::set<uint32_t>& slots = seen[host.id];
    slots.insert(host.slots.begin(), host.slots.end());
    slots.insert(host.closed_slots.begin(), host.closed_slots.end());
  }
  return seen;
}

}  // namespace

std::string FabricErrorText(absl::string_view message, size_t max_bytes) {
  if (CXLPOOL_MUTANT("fabric-errors-without-end")) return std::string(message);
  return CutText(message, max_bytes);
}

FabricCalls::FabricCalls(Options options, Executor* executor, Clock* clock, const Writer* writer,
                         FabricDriver* driver, TrackTable* tracks, ProbePoints* probe,
                         std::function<void(uint64_t generation)> ended)
    : options_(options),
      executor_(executor),
      clock_(clock),
      writer_(writer),
      driver_(driver),
      chooses_serial_(driver->capabilities().chooses_serial),
      tracks_(tracks),
      probe_(probe),
      ended_(std::move(ended)) {}

bool FabricCalls::MayCall(const Track& track) const {
  return track.driver_calls == 0 && clock_->Elapsed() >= track.not_before;
}

void FabricCalls::BackOff(Track& track) { track.not_before = clock_->Elapsed() + options_.retry; }

// From here on a look that began before says nothing of the Track.
void FabricCalls::Began(Track& track) {
  ++track.driver_calls;
  track.driver_epoch = ++epoch_;
}

// Takes an answer on the executor: `then` with what is known of the segment. The Track may be gone,
// or have fewer segments than when it was asked. A host whose life ended meanwhile is taken for
// unbound with the last answer that was outstanding, and not before: that call may have bound.
void FabricCalls::Ended(uint64_t generation, uint32_t segment,
                        std::function<void(Track&, SegmentKnown&)> then) {
  executor_->Post([this, generation, segment, then = std::move(then)] {
    Track* const track = tracks_->Find(generation);
    if (track == nullptr) return;
    --track->driver_calls;
    track->driver_epoch = ++epoch_;
    if (segment < track->known.size()) {
      const LogScope scope(FieldsOf(writer_->state(), track->region, track->host));
      then(*track, track->known[segment]);
    }
    if (track->life_ended && track->driver_calls == 0) LifeEnded(*track);
    ended_(generation);
  });
}

// One call for each segment of the move. `incarnation` and `claim`: under which the host was last
// believed; under others the driver does nothing.
void FabricCalls::Bind(const Region& region, const Attachment& attachment, size_t part,
                       Track& track, const Move& move, const std::string& incarnation,
                       uint64_t claim) {
  for (uint32_t in_part : move.segments) {
    const uint32_t index = attachment.parts[part].first_segment + in_part;
    const Segment& segment = attachment.segments[index];
    // From here on nobody may take it for unbound: a detach that comes now waits for the answer.
    if (!CXLPOOL_MUTANT("forget-bind-under-way")) track.known[index].fabric = FabricSide::kUnknown;
    BindRequest request{.key = KeyFor(region, attachment, index),
                        .slot = segment.slot,
                        .slice = SliceOf(region.extents[segment.extent_index]),
                        .read_only = attachment.access == Access::kReadOnly,
                        .serial = segment.serial,
                        .incarnation = incarnation,
                        .claim = claim};
    Began(track);
    probe_->Pass("before-bind");
    driver_->Bind(std::move(request), [this, generation = attachment.generation, index,
                                       serial = segment.serial](absl::StatusOr<BoundLd> bound) {
      const uint64_t seen = bound.ok() ? bound->serial : 0;
      Ended(generation, index,
            [this, status = bound.status(), serial, seen](Track& own, SegmentKnown& known) {
              own.serials_tried.insert(serial);
              if (status.ok()) {
                probe_->Pass("after-bind");
                known.fabric = FabricSide::kBound;
                known.serial = seen;
                known.fabric_error.clear();
                known.fabric_error_permanent = false;
                return;
              }
              known.fabric_error = FabricErrorText(status.message());
              known.fabric_error_permanent = IsPermanent(status);
              // Whatever it says of what was done: the fabric is read back.
              if (CXLPOOL_MUTANT("failed-bind-is-unbound")) known.fabric = FabricSide::kUnbound;
              BackOff(own);
              writer_->meters().CountFailure(Rung::kBind, status);
              LogWarning("reconciler", NameOf(writer_->state(), own.region), " on ", own.host,
                         " cannot be bound: ", known.fabric_error);
            });
    });
  }
}

// Success is no proof: the host has been asked to let go, and may hold on.
void FabricCalls::BeginUnbind(const Region& region, const Attachment& attachment, size_t part,
                              Track& track, const Move& move) {
  for (uint32_t in_part : move.segments) {
    const uint32_t index = attachment.parts[part].first_segment + in_part;
    Began(track);
    probe_->Pass("before-unbind");
    driver_->BeginUnbind(BindingFor(region, attachment, index), [this,
                                                                 generation = attachment.generation,
                                                                 index](absl::Status status) {
      Ended(generation, index, [this, status = std::move(status)](Track& own, SegmentKnown& known) {
        if (status.ok()) {
          probe_->Pass("after-unbind");
          known.fabric = FabricSide::kUnbinding;
          if (CXLPOOL_MUTANT("begun-is-proof")) known.fabric = FabricSide::kUnbound;
          known.fabric_error.clear();
          return;
        }
        known.fabric = FabricSide::kUnknown;
        known.fabric_error = FabricErrorText(status.message());
        BackOff(own);
        writer_->meters().CountFailure(Rung::kEject, status);
        LogWarning("reconciler", NameOf(writer_->state(), own.region), " on ", own.host,
                   " cannot be unbound: ", known.fabric_error);
      });
    });
  }
}

// Of the segments that are not proven yet. Without proof in time the Region is stuck there, and
// says what an operator can do.
void FabricCalls::AwaitUnbound(const Region& region, const Attachment& attachment, size_t part,
                               Track& track) {
  for (uint32_t index = attachment.parts[part].first_segment; index < attachment.EndOf(part);
       ++index) {
    if (track.known[index].fabric == FabricSide::kUnbound) continue;
    Began(track);
    driver_->AwaitUnbound(
        BindingFor(region, attachment, index), options_.unbind_wait,
        [this, generation = attachment.generation, index](absl::Status status) {
          Ended(generation, index,
                [this, status = std::move(status)](Track& own, SegmentKnown& known) {
                  if (CXLPOOL_MUTANT("timeout-is-proof") || status.ok()) {
                    probe_->Pass("after-proof");
                    known.fabric = FabricSide::kUnbound;
                    own.stuck.clear();
                    return;
                  }
                  BackOff(own);
                  writer_->meters().CountFailure(Rung::kProve, status);
                  const std::string why = FabricErrorText(status.message());
                  own.stuck =
                      absl::StrCat("UNBIND_NOT_PROVEN: ", why, "; if its agent cannot come back, ",
                                   HowToCutOff(driver_->capabilities(), own.host));
                  LogWarning("reconciler", NameOf(writer_->state(), own.region), " on ", own.host,
                             " is not proven to be unbound: ", why);
                });
        });
  }
}

void FabricCalls::MarkUnbound(Track& track) {
  track.driver_epoch = ++epoch_;
  for (SegmentKnown& known : track.known) known.fabric = FabricSide::kUnbound;
}

void FabricCalls::LifeEnded(Track& track) {
  track.life_ended = track.driver_calls > 0 && !CXLPOOL_MUTANT("life-of-the-busy-goes-on");
  if (track.driver_calls > 0) return;
  MarkUnbound(track);
  track.stuck.clear();
}

// Takes a look for what it says of each segment: bound under the segment's own key, bound
// otherwise, absent, or nothing. Absence counts only where the fabric could look, or the host is
// gone.
void FabricCalls::TakeView(const std::string& only, const FabricView& view, uint64_t epoch,
                           const std::function<bool(const std::string& host)>& is_gone,
                           ActiveRegions& active) {
  const auto slots_seen = SlotsSeen(view);
  std::multimap<uint64_t, const BoundLd*> bound;  // By generation.
  for (const BoundLd& ld : view.bound) {
    if (ld.key.has_value()) bound.emplace(ld.key->generation, &ld);
  }
  for (const auto& [generation, of] : only.empty() ? tracks_->All() : tracks_->OfHost(only)) {
    Track& track = *of;
    if (!CXLPOOL_MUTANT("believe-old-view") && IsStale(track, epoch)) continue;
    const RegionPtr region = writer_->Durable(track.region);
    const Attachment* attachment = region == nullptr ? nullptr : region->FindAttachment(track.host);
    if (attachment == nullptr || attachment->generation != generation) continue;
    const auto slots = slots_seen.find(track.host);
    const bool all_seen = CXLPOOL_MUTANT("unreachable-is-unbound") || is_gone(track.host);
    const auto [from, to] = bound.equal_range(generation);
    // As long as they agree: an Attachment that was resized is looked at again by its next step.
    for (size_t i = 0; i < std::min(track.known.size(), attachment->segments.size()); ++i) {
      const Segment& segment = attachment->segments[i];
      // What is not shown is absent only where the fabric can look: in a slot that it knows.
      const bool seen =
          all_seen || (slots != slots_seen.end() && (CXLPOOL_MUTANT("unseen-slot-is-unbound") ||
                                                     slots->second.contains(segment.slot)));
      FabricSide side = seen ? FabricSide::kUnbound : FabricSide::kUnknown;
      bool other_there = false;  // By this segment's key.
      for (auto at = from; at != to; ++at) {
        const BoundLd& ld = *at->second;
        // Where agents say what is bound, one of them may say of its own host whatever it likes.
        if (ld.host != track.host && !CXLPOOL_MUTANT("a-host-speaks-of-anothers-lds")) continue;
        if (ld.key->extent_index != segment.ld_index.value_or(segment.extent_index)) continue;
        // Another LD by this one's key is neither this one nor its absence.
        const bool same =
            CXLPOOL_MUTANT("forget-ld-conflicts") || Names(*region, ld, chooses_serial_);
        side = !same          ? FabricSide::kUnknown
               : ld.unbinding ? FabricSide::kUnbinding
                              : FabricSide::kBound;
        if (same) track.known[i].serial = ld.serial;
        other_there = !same;
      }
      SegmentKnown& known = track.known[i];
      // Counted at the first look of a manager, too: there kUnknown is no news.
      const bool is_other_new = other_there && !known.other_there;
      if (seen || other_there) known.other_there = other_there;
      const bool is_news = known.fabric != side;
      if (is_other_new || (is_news && Contradicts(side, attachment->PartOf(i).state))) {
        writer_->meters().fabric_differences.Add();
      }
      if (!is_news) continue;
      // A host that is gone for certain does not become uncertain because it cannot be asked.
      if (side == FabricSide::kUnknown && known.fabric == FabricSide::kUnbound) continue;
      known.fabric = side;
      // A later repair is not to begin with what this one waited for.
      if (side == FabricSide::kUnbound) track.stuck.clear();
      active.Touch(track.region);
    }
  }
}

void FabricCalls::Drop(uint64_t generation, bool looks_under_way) {
  const Track* const track = tracks_->Find(generation);
  if (track == nullptr) return;
  if (looks_under_way) {
    dropped_[track->host] = ++epoch_;
  } else {
    dropped_.clear();  // No look is left that began before.
  }
  tracks_->Erase(generation);
}

bool FabricCalls::DroppedSince(const std::string& host, uint64_t epoch) const {
  const auto dropped = dropped_.find(host);
  return dropped != dropped_.end() && dropped->second > epoch;
}

}  // namespace cxlpool::fm
