// The reconciler's dealings with the fabric driver: bind, unbind, scrub and fence.

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "fabric-manager/model/plans/plan_media.h"
#include "fabric-manager/model/space/bytes.h"
#include "fabric-manager/service/offers.h"
#include "fabric-manager/service/reconciler.h"
#include "proto/support/log.h"
#include "proto/support/mutant.h"
#include "proto/support/names.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

// Whether calling the driver again with the same arguments can help.
bool IsPermanent(const absl::Status& status) {
  return status.code() == absl::StatusCode::kAlreadyExists ||
         status.code() == absl::StatusCode::kNotFound ||
         status.code() == absl::StatusCode::kInvalidArgument || ReasonOf(status) == "NO_FREE_PORT";
}

constexpr absl::Duration kFenceWait = absl::Seconds(20);
constexpr char kWaits[] = "WAITS: ";

Slice SliceOf(const Extent& extent) {
  return {extent.device.str(), extent.dpa_bytes, extent.length_bytes};
}

// A line in the log now and then, while a scrub that takes long goes on.
ScrubProgress TellsProgress(std::string name, uint64_t bytes, const Clock* clock) {
  constexpr absl::Duration kEvery = absl::Seconds(10);
  return [name = std::move(name), bytes, clock,
          next = clock->Elapsed() + kEvery](uint64_t done) mutable {
    if (clock->Elapsed() < next) return;
    next = clock->Elapsed() + kEvery;
    LogInfo("reconciler", name, ": ", FormatBytes(done), " of ", FormatBytes(bytes),
            " are cleared");
  };
}

}  // namespace

LdKey Reconciler::KeyFor(const Region& region, const Attachment& attachment,
                         uint32_t segment) const {
  const Segment& own = attachment.segments[segment];
  return {attachment.host, FormatUuid(region.tag.bytes()), attachment.generation,
          own.ld_index.value_or(own.extent_index)};
}

Binding Reconciler::BindingFor(const Region& region, const Attachment& attachment,
                               uint32_t segment) const {
  const Segment& own = attachment.segments[segment];
  return {KeyFor(region, attachment, segment), own.slot, SliceOf(region.extents[own.extent_index]),
          own.serial};
}

void Reconciler::DriverCallBegan(Track& track) {
  ++track.driver_calls;
  track.driver_epoch = ++driver_epoch_;
}

// Posts to the executor; `then` sees the segment if the Attachment is still there.
void Reconciler::DriverCallEnded(uint64_t generation, uint32_t segment,
                                 std::function<void(Track&, SegmentKnown&)> then) {
  executor_->Post([this, generation, segment, then = std::move(then)] {
    Track* const known = tracks_.Find(generation);
    if (known == nullptr) return;
    Track& track = *known;
    --track.driver_calls;
    track.driver_epoch = ++driver_epoch_;
    if (segment < track.known.size()) then(track, track.known[segment]);
    const Key region = track.region;
    const RegionPtr durable = Durable(region);
    const Attachment* attachment =
        durable == nullptr ? nullptr : durable->FindAttachment(absl::string_view(track.host));
    if (track.driver_calls == 0 &&
        (attachment == nullptr || attachment->generation != generation)) {
      DropTrack(generation);  // What the fabric still has of it, a discovery finds as a stray.
    }
    Touch(region);
    Step(region);
  });
}

void Reconciler::Bind(const Region& region, const Attachment& attachment, size_t part, Track& track,
                      const Move& move) {
  if (track.driver_calls > 0 || clock_->Elapsed() < track.not_before) return;
  if (fencing_.contains(attachment.host)) return;
  // Nothing is bound in a life of the host that the records do not know: after a restart nobody
  // could tell it from another.
  std::string life = LifeOf(attachment.host);
  if (life.empty()) return RecordLife(attachment.host);
  for (const Extent& extent : region.extents) {
    const Device* device = writer_->state().FindDevice(extent.device);
    if (device != nullptr && device->reachable) continue;
    track.not_before = clock_->Elapsed() + options_.retry;
    return;
  }
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
                        .incarnation = life};
    DriverCallBegan(track);
    probe_("before-bind");
    driver_->Bind(std::move(request), [this, generation = attachment.generation, index,
                                       serial = segment.serial](absl::StatusOr<BoundLd> bound) {
      const uint64_t seen = bound.ok() ? bound->serial : 0;
      DriverCallEnded(
          generation, index,
          [this, status = bound.status(), serial, seen](Track& own, SegmentKnown& known) {
            own.serials_tried.insert(serial);
            if (status.ok()) {
              probe_("after-bind");
              known.fabric = FabricSide::kBound;
              known.serial = seen;
              known.fabric_error.clear();
              known.fabric_error_permanent = false;
              return;
            }
            known.fabric_error = std::string(status.message());
            known.fabric_error_permanent = IsPermanent(status);
            // Whatever it says of what was done: the fabric is read back.
            if (CXLPOOL_MUTANT("failed-bind-is-unbound")) {
              known.fabric = FabricSide::kUnbound;
            }
            own.not_before = clock_->Elapsed() + options_.retry;
            LogWarning("reconciler", NameOf(own.region), " on ", own.host,
                       " cannot be bound: ", status.message());
          });
    });
  }
}

// Asks the fabric to take the LDs of one part away. That it has begun proves nothing: what is bound
// is known again by AwaitUnbound (Eject). A call that fails leaves the fabric's side unknown, and
// is made again after `retry`.
void Reconciler::BeginUnbind(const Region& region, const Attachment& attachment, size_t part,
                             Track& track, const Move& move) {
  if (track.driver_calls > 0 || clock_->Elapsed() < track.not_before) return;
  for (uint32_t in_part : move.segments) {
    const uint32_t index = attachment.parts[part].first_segment + in_part;
    DriverCallBegan(track);
    probe_("before-unbind");
    driver_->BeginUnbind(BindingFor(region, attachment, index),
                         [this, generation = attachment.generation, index](absl::Status status) {
                           DriverCallEnded(
                               generation, index,
                               [this, status = std::move(status)](Track& own, SegmentKnown& known) {
                                 if (status.ok()) {
                                   probe_("after-unbind");
                                   known.fabric = FabricSide::kUnbinding;
                                   if (CXLPOOL_MUTANT("begun-is-proof"))
                                     known.fabric = FabricSide::kUnbound;
                                   known.fabric_error.clear();
                                   return;
                                 }
                                 known.fabric = FabricSide::kUnknown;
                                 known.fabric_error = std::string(status.message());
                                 own.not_before = clock_->Elapsed() + options_.retry;
                                 LogWarning("reconciler", NameOf(own.region), " on ", own.host,
                                            " cannot be unbound: ", status.message());
                               });
                         });
  }
}

// Asks the agent to let go of the slots, and the fabric for proof that it did. Without proof it
// waits and says why (UNBIND_NOT_PROVEN), in the record too: only a fence may take the agent's
// place.
void Reconciler::Eject(const Region& region, const Attachment& attachment, size_t part,
                       Track& track) {
  Offer(region, attachment, part, track, v1::Offer::WANT_EJECTED);
  if (track.driver_calls > 0 || clock_->Elapsed() < track.not_before) return;
  for (uint32_t index = attachment.parts[part].first_segment; index < attachment.EndOf(part);
       ++index) {
    if (track.known[index].fabric == FabricSide::kUnbound) continue;
    DriverCallBegan(track);
    driver_->AwaitUnbound(
        BindingFor(region, attachment, index), options_.unbind_wait,
        [this, generation = attachment.generation, index](absl::Status status) {
          DriverCallEnded(generation, index,
                          [this, status = std::move(status)](Track& own, SegmentKnown& known) {
                            if (CXLPOOL_MUTANT("timeout-is-proof") || status.ok()) {
                              probe_("after-proof");
                              known.fabric = FabricSide::kUnbound;
                              own.stuck.clear();
                              return;
                            }
                            own.not_before = clock_->Elapsed() + options_.retry;
                            own.stuck = absl::StrCat(
                                "UNBIND_NOT_PROVEN: ", status.message(),
                                "; if its agent cannot come back, `cxlpool host fence ", own.host,
                                " --reason WHY`");
                            LogWarning("reconciler", NameOf(own.region), " on ", own.host,
                                       " is not proven to be unbound: ", status.message());
                          });
        });
  }
  if (!track.stuck.empty() && attachment.parts[part].reason != track.stuck) {
    Record(region, attachment, "unbind-not-proven", track.stuck,
           [why = track.stuck, part](Region&, Attachment& edited, PlanContext&) {
             edited.parts[part].reason = why;
           });
  }
}

void Reconciler::Scrub(const Region& region, RegionTrack& own, const RegionMove& move) {
  if (own.scrubbing || move.extents.empty() || clock_->Elapsed() < own.not_before) return;
  const uint32_t index = move.extents.front();
  // What stands behind the device's name now may be another's: its zeroes would say nothing.
  const Device* device = writer_->state().FindDevice(region.extents[index].device);
  if (device == nullptr || !device->reachable) {
    own.not_before = clock_->Elapsed() + options_.retry;
    return Waits(region, absl::StrCat("device ", region.extents[index].device.str(),
                                      " has to be reached to clear its bytes: ",
                                      device == nullptr ? "" : device->unreachable_reason));
  }
  const BoundLd* ld = UnrecordedOn(SliceOf(region.extents[index]));
  if (!CXLPOOL_MUTANT("scrub-under-stray") && ld != nullptr) {
    own.not_before = clock_->Elapsed() + options_.retry;
    Discover(ld->host, [](const absl::Status&) {});
    return Waits(region, absl::StrCat("host ", ld->host, " slot ", ld->slot,
                                      " reaches its bytes by no record; `cxlpool host fence ",
                                      ld->host, " --reason WHY` ends that"));
  }
  // What it waited for is over; that a scrub fails is over when one has not failed.
  if (absl::StartsWith(region.state_reason, kWaits) && own.scrub_error.empty()) {
    return Waits(region, "");
  }
  own.scrubbing = true;
  probe_("before-scrub");
  const Slice slice = SliceOf(region.extents[index]);
  driver_->Scrub(slice, TellsProgress(NameOf(region.key), slice.length_bytes, clock_),
                 [this, key = region.key, index](const absl::StatusOr<ScrubResult>& result) {
                   executor_->Post([this, key, index, status = result.status()] {
                     ScrubEnded(key, index, status);
                     Touch(key);
                     Step(key);
                   });
                 });
}

// Zero or unreadable: the bytes may be anybody's again. Bytes that their device cannot clear are
// marked, and kept from everybody when the Region goes (plan_media.h). Anything else is tried again
// until it succeeds.
void Reconciler::ScrubEnded(Key key, uint32_t index, const absl::Status& status) {
  RegionTrack& own = regions_[key];
  own.scrubbing = false;
  const bool never = ReasonOf(status) == "NOT_SCRUBBABLE";
  if (CXLPOOL_MUTANT("failed-scrub-is-done") || status.ok() ||
      (never && CXLPOOL_MUTANT("not-scrubbable-is-clear"))) {
    probe_("after-scrub");
    own.scrubbed.insert(index);
    own.scrub_error.clear();
    return;
  }
  own.not_before = clock_->Elapsed() + options_.retry;
  if (never) {
    const std::string why = absl::StrCat("NOT_SCRUBBABLE: ", status.message());
    LogWarning("reconciler", NameOf(key), ": ", why, "; its bytes are kept from everybody");
    Submit(key, "not-scrubbable", why,
           [index, why](Region& edited, PlanContext&) { return MarkBad(edited, index, why); });
    return;
  }
  own.scrub_error = std::string(status.message());
  const RegionPtr durable = Durable(key);
  if (durable == nullptr) return;
  Waits(*durable, absl::StrCat("its bytes cannot be cleared, which is tried again and again: ",
                               own.scrub_error));
}

// Says in the Region for what its release waits; empty: for nothing any more.
void Reconciler::Waits(const Region& region, const std::string& what) {
  const std::string reason = what.empty() ? "" : absl::StrCat(kWaits, what);
  if (region.state_reason == reason) return;
  if (!what.empty()) LogWarning("reconciler", "regions/", region.id, " waits: ", what);
  Submit(region.key, "waits", reason,
         [from = region.state_reason, reason](Region& edited, PlanContext&) {
           if (edited.state_reason != from) return false;
           edited.state_reason = reason;
           return true;
         });
}

void Reconciler::OnFabricEvent(const FabricEvent& event) {
  switch (event.kind) {
    case FabricEvent::Kind::kLdLost:
      LogWarning("reconciler", "host ", event.host, " lost a LD of ",
                 !event.key.has_value() ? absl::StrCat("slot ", event.slot)
                 : tracks_.Find(event.key->generation) == nullptr
                     ? absl::StrCat("the Region with tag ", event.key->tag)
                     : NameOf(tracks_.Find(event.key->generation)->region));
      break;
    case FabricEvent::Kind::kHostGone:
      gone_[event.host] = event.incarnation;
      // The end of another life than the one that anything was bound in proves nothing.
      if (!IsGone(event.host) && !CXLPOOL_MUTANT("any-end-is-proof")) break;
      LogWarning("reconciler", "host ", event.host, " is gone: nothing is bound there any more");
      for (const auto& [generation, track] : tracks_.OfHost(event.host)) {
        if (track->driver_calls > 0) continue;
        track->driver_epoch = ++driver_epoch_;
        for (SegmentKnown& known : track->known) known.fabric = FabricSide::kUnbound;
      }
      TouchHost(event.host);
      break;
    case FabricEvent::Kind::kDevicesChanged:
      // At the next tick: many may come at once, and one look at everything is enough for all.
      if (!CXLPOOL_MUTANT("changed-devices-wait")) next_discover_ = {};
      return;
    case FabricEvent::Kind::kHostReachable:
    case FabricEvent::Kind::kHostUnreachable:
      LogInfo("reconciler", "host ", event.host,
              event.kind == FabricEvent::Kind::kHostReachable ? " is" : " is not",
              " reachable by the fabric");
      break;
  }
  Discover(event.host, [](const absl::Status&) {});
}

void Reconciler::ShowDevices(const std::string& host, DoneWith<SeenDevices> done) {
  driver_->ShowDevices(host, std::move(done));
}

// Refused before the host's session ends, where nothing could come of it.
void Reconciler::Fence(const std::string& host, Audit audit, Done done) {
  if (driver_->capabilities().fence == FenceScope::kNone) {
    std::move(done)(Refuse(
        absl::StatusCode::kUnimplemented, "NO_FENCE",
        absl::StrCat("this fabric cannot cut host \"", host, "\" off"),
        "give the manager a program that can (fabric.fence_program), or cut its power by hand"));
    return;
  }
  if (!fencing_.insert(host).second) {
    std::move(done)(Refuse(absl::StatusCode::kFailedPrecondition, "FENCE_FAILED",
                           absl::StrCat("host \"", host, "\" is being fenced already"),
                           "see `cxlpool host list` in a moment"));
    return;
  }
  sessions_->End(host, absl::AbortedError("the host is being fenced"));
  FenceWhenQuiet(host, std::move(audit), clock_->Elapsed() + kFenceWait,
                 [this, host, done = std::move(done)](absl::Status status) mutable {
                   fencing_.erase(host);
                   TouchHost(host);
                   std::move(done)(std::move(status));
                 });
}

// No bind begins on a host in fencing_. One that is under way could still take effect after the
// fence, so those are waited for first.
void Reconciler::FenceWhenQuiet(const std::string& host, Audit audit, absl::Duration deadline,
                                Done done) {
  const TrackTable::Tracks& own = tracks_.OfHost(host);
  const bool busy = std::any_of(own.begin(), own.end(), [&](const auto& entry) {
    return entry.second->driver_calls > 0 && !CXLPOOL_MUTANT("fence-beside-calls");
  });
  if (busy && clock_->Elapsed() >= deadline) {
    std::move(done)(Refuse(absl::StatusCode::kFailedPrecondition, "FENCE_FAILED",
                           absl::StrCat("calls to the fabric about host \"", host, "\" do not end"),
                           "try again"));
    return;
  }
  if (busy) {
    executor_->PostAfter(options_.tick, [this, host, audit = std::move(audit), deadline,
                                         done = std::move(done)]() mutable {
      FenceWhenQuiet(host, std::move(audit), deadline, std::move(done));
    });
    return;
  }
  driver_->Fence(host, [this, host, audit = std::move(audit),
                        done = std::move(done)](absl::Status status) mutable {
    executor_->Post([this, host, audit = std::move(audit), done = std::move(done),
                     status = std::move(status)]() mutable {
      if (!CXLPOOL_MUTANT("failed-fence-is-done") && !status.ok()) {
        std::move(done)(std::move(status));
        return;
      }
      const bool others = CXLPOOL_MUTANT("fence-unbinds-others");
      for (const auto& [generation, track] : others ? tracks_.All() : tracks_.OfHost(host)) {
        track->driver_epoch = ++driver_epoch_;
        for (SegmentKnown& known : track->known) known.fabric = FabricSide::kUnbound;
      }
      writer_->Submit(
          std::move(audit),
          [host](const PoolState& state, PlanContext& context) -> absl::StatusOr<Proposal> {
            Proposal proposal;
            std::set<Key> seen;
            for (const OccupiedSlot& slot : state.Occupied(host)) {
              if (!seen.insert(slot.region).second) continue;
              auto edited = std::make_shared<Region>(**state.FindRegion(slot.region));
              Attachment& attachment = *edited->FindAttachment(absl::string_view(host));
              attachment.TurnDown("FENCED: the host was cut off");
              attachment.settled().state = AttachmentState::kUnbound;
              if (edited->state == RegionState::kReserved) {
                edited->compensating = true;
                edited->state_reason = attachment.settled().reason;
              }
              edited->revision = context.revision;
              proposal.change.push_back(RegionPtr(edited));
            }
            return proposal;
          },
          [done = std::move(done)](const absl::StatusOr<Committed>& committed) mutable {
            std::move(done)(committed.status());
          });
    });
  });
}

}  // namespace cxlpool::fm
