#include "fabric-manager/service/reconciler.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "fabric-manager/model/plans/plan_media.h"
#include "fabric-manager/model/plans/planner.h"
#include "fabric-manager/service/region_log.h"
#include "proto/support/log.h"
#include "proto/support/mutant.h"

namespace cxlpool::fm {
namespace {

bool Settled(const Region& region) {
  if (region.state == RegionState::kQuarantined) return region.attachments.empty();
  return region.state == RegionState::kAllocated && !region.resizing() &&
         std::all_of(region.attachments.begin(), region.attachments.end(), [](const auto& a) {
           // A reason is why it is about to leave that state.
           return std::all_of(a.parts.begin(), a.parts.end(),
                              [](const Part& part) { return part.is_up() && part.reason.empty(); });
         });
}

std::vector<uint64_t> SerialsOf(const Attachment& attachment) {
  std::vector<uint64_t> serials;
  for (const Segment& segment : attachment.segments) serials.push_back(segment.serial);
  return serials;
}

}  // namespace

Reconciler::Reconciler(Options options, Executor* executor, Clock* clock, Writer* writer,
                       FabricDriver* driver, HostSessions* sessions, Probe probe)
    : options_(options),
      executor_(executor),
      clock_(clock),
      writer_(writer),
      driver_(driver),
      probe_(std::move(probe)),
      active_(executor, writer, [this](Key key) { Step(key); }),
      recorder_(writer, &active_, &probe_, clock),
      agents_(writer, sessions, &tracks_, &active_, &probe_,
              driver->capabilities().hardware_coherent),
      calls_({.retry = options.retry, .unbind_wait = options.unbind_wait}, executor, clock, writer,
             driver, &tracks_, &probe_, [this](uint64_t generation) { CallEnded(generation); }),
      looks_(
          {.period = options.discover_period,
           .retry = options.retry,
           .wait = options.look_again,
           .first_look = options.first_look},
          executor, clock, writer, driver, [this] { return calls_.epoch(); },
          [this](const std::string& only, FabricView view, uint64_t epoch) {
            TakeView(only, std::move(view), epoch);
          }),
      members_(writer, &active_),
      owners_(writer, &tracks_, &calls_, driver->capabilities()),
      scrubs_(options.retry, executor, clock, writer, driver, &owners_, &recorder_, &active_,
              &probe_, [this](const std::string& host) { looks_.Look(host); }),
      fences_({.look_every = options.tick}, executor, clock, writer, driver, sessions, &tracks_,
              &calls_, &active_) {}

// It answers behind the devices that the first look showed: who is served from then on finds them.
void Reconciler::Start(Done done) {
  // Of a million Regions most are nobody's and settled: they are looked at once, and not sorted.
  std::vector<RegionPtr> regions;
  for (const auto& [key, region] : writer_->state().regions()) {
    if (!region->attachments.empty() || !Settled(*region)) regions.push_back(region);
  }
  std::sort(regions.begin(), regions.end(),
            [](const RegionPtr& a, const RegionPtr& b) { return a->key < b->key; });
  for (const RegionPtr& each : regions) {
    const Region& region = *each;
    for (const Attachment& attachment : region.attachments) {
      Track& track = tracks_.Of(region, attachment);
      // An earlier manager may have bound any of them, and the fabric lost it since.
      for (const Segment& segment : attachment.segments) {
        track.serials_tried.insert(segment.serial);
      }
      agents_.OfferAsRecorded(region, attachment, track);
    }
    if (!Settled(region)) active_.Touch(region.key);
  }
  for (const auto& [id, device] : writer_->state().devices()) {
    if (device.service == DeviceService::kFailed) GoOnFailing(id);
  }
  KnownFabric known{.hosts = {}, .epoch = writer_->epoch()};
  if (CXLPOOL_MUTANT("no-claim-before-discover")) known.epoch = 0;
  for (const auto& [id, host] : writer_->state().hosts()) {
    known.hosts[id] = host.fabric_incarnation;
    // Of one that is retired the operator has said that it is off.
    const bool was_there = !host.retired && !host.fabric_incarnation.empty();
    if (was_there && writer_->has_rivals()) known.unsettled.insert(id);
  }
  driver_->Start(std::move(known), [this](FabricEvent event) {
    executor_->Post([this, event = std::move(event)] { OnFabricEvent(event); });
  });
  looks_.LookFirst([this, done = std::move(done)](absl::Status status) mutable {
    Tick();
    if (!status.ok() || CXLPOOL_MUTANT("ready-before-devices")) {
      std::move(done)(std::move(status));
      return;
    }
    AnswerBehindDevices(std::move(done));
  });
}

void Reconciler::FollowTopology(Done done) {
  if (!IsImported(writer_->state())) return std::move(done)(absl::OkStatus());
  looks_.FollowTopology([this, done = std::move(done)](const absl::Status&) mutable {
    AnswerBehindDevices(std::move(done));
  });
}

// New devices are in the writer's queue. A plan that changes nothing is answered behind them.
void Reconciler::AnswerBehindDevices(Done done) {
  writer_->Submit(
      Audit{{}, "manager", "look-first", ""},
      [](const PoolState&, PlanContext&) -> absl::StatusOr<Proposal> { return Proposal{}; },
      [done = std::move(done)](const absl::StatusOr<Committed>& behind_them) mutable {
        std::move(done)(behind_them.status());
      });
}

void Reconciler::Tick() {
  looks_.Tick();
  active_.StepAll();
  executor_->PostAfter(options_.tick, [this] { Tick(); });
}

// Does what is next for the Region as it is recorded. While a commit of it is under way nothing is
// done: what is recorded is about to be something else.
void Reconciler::Step(Key key) {
  const RegionPtr region = writer_->Durable(key);
  if (region == nullptr) {  // Not committed yet, or gone.
    if (writer_->state().FindRegion(key) == nullptr) {
      active_.Erase(key);
      stepped_.erase(key);
      scrubs_.Forget(key);
    }
    return;
  }
  stepped_.insert(key);
  if (recorder_.Busy(key)) return;
  if (Settled(*region)) active_.Erase(key);
  for (const Attachment& attachment : region->attachments) {
    StepAttachment(*region, attachment);
    if (recorder_.Busy(key)) return;
  }
  StepRegion(*region);
}

// The decoder stack of a bridge must not lose a region while another is being made on it.
bool Reconciler::MayGoDown(const Attachment& attachment) const {
  if (CXLPOOL_MUTANT("down-beside-way-up")) return true;
  const std::vector<Bridge>& bridges = writer_->state().Runtime(attachment.host).bridges;
  for (const OccupiedSlot& other : writer_->state().Occupied(attachment.host)) {
    if (!other.pending() || other.generation == attachment.generation) continue;
    // One that is stuck coming up must not hold others: it may be waiting for them to go.
    const Track* const track = tracks_.Find(other.generation);
    if (track != nullptr &&
        std::any_of(track->known.begin(), track->known.end(),
                    [](const SegmentKnown& known) { return !known.host_error.empty(); })) {
      continue;
    }
    const bool stacked = std::none_of(bridges.begin(), bridges.end(), [&](const Bridge& bridge) {
      return bridge.any_order && bridge.name == other.host_bridge;
    });
    for (const Segment& segment : attachment.segments) {
      if (stacked && segment.host_bridge == other.host_bridge) return false;
    }
  }
  return true;
}

// A fence begins once no call about its host is under way. Several Attachments that wait for their
// proofs in turn would never leave it a moment for that, and it is what ends their waiting.
bool Reconciler::MayUnbind(const Attachment& attachment, const Track& track) const {
  const bool fenced =
      fences_.UnderWay(attachment.host) && !CXLPOOL_MUTANT("unbinds-go-on-beside-a-fence");
  return calls_.MayCall(track) && !fenced;
}

void Reconciler::StepAttachment(const Region& region, const Attachment& attachment) {
  Track& track = tracks_.Of(region, attachment);
  // Hosts take down last what came up first.
  for (size_t part = attachment.parts.size(); part-- > 0;) {
    StepPart(region, attachment, part, track);
    if (recorder_.Busy(region.key)) return;
  }
  RecordObserved(region, attachment, track);
}

// What the ladder says is next for the part, from what is known of the world now. It also counts
// how long the part has been coming up.
Move Reconciler::NextMoveOf(const Attachment& attachment, size_t index, Track& track) const {
  const Part& part = attachment.parts[index];
  const size_t end = attachment.EndOf(index);
  const bool coming_up = !part.detaching && !part.is_up();
  std::optional<absl::Duration>& since = track.coming_up_since[index];
  bool late = false;
  if (coming_up) {
    const absl::Duration now = clock_->Elapsed();
    if (!since.has_value()) since = now;
    late = now - *since > options_.attach_timeout;
  } else {
    since.reset();
  }
  const auto mute = [&] {
    return CXLPOOL_MUTANT("word-beats-fabric") ||
           !writer_->state().Runtime(attachment.host).fabric_reachable;
  };
  // On an operator's word, where the fabric cannot be asked and nothing is under way.
  const bool operator_vouched = attachment.operator_vouched && part.detaching &&
                                track.driver_calls == 0 && looks_.has_seen_all() && mute();
  std::optional<std::vector<SegmentKnown>> known_of_part;
  // Most have one part, and this is done at every step of every active Region.
  if (operator_vouched || attachment.parts.size() > 1) {
    known_of_part.emplace(track.known.begin() + part.first_segment, track.known.begin() + end);
  }
  if (operator_vouched) {
    for (SegmentKnown& segment : *known_of_part) {
      if (segment.fabric == FabricSide::kUnknown) segment.fabric = FabricSide::kUnbound;
    }
  }
  const std::vector<SegmentKnown>& known = known_of_part ? *known_of_part : track.known;
  Move move = NextMove(attachment, index, known, true, late);
  // Only these are held back by what else goes on there, which takes a look at the whole host.
  const bool down =
      move.kind == MoveKind::kOfferOffline ||
      (move.kind == MoveKind::kSetState && move.state == AttachmentState::kReleaseBlocked);
  if (down && !MayGoDown(attachment)) move = NextMove(attachment, index, known, false, late);
  return move;
}

// Carries out what is next for the part. Most moves begin something that ends later; a step that
// comes meanwhile finds the same move again, so each of them looks first whether it may begin.
void Reconciler::StepPart(const Region& region, const Attachment& attachment, size_t part,
                          Track& track) {
  const Move move = NextMoveOf(attachment, part, track);
  const size_t first = attachment.parts[part].first_segment;
  switch (move.kind) {
    case MoveKind::kNone:
      break;
    case MoveKind::kDiscover:
      if (const absl::Duration now = clock_->Elapsed(); now >= track.next_discover) {
        track.next_discover = now + options_.retry;
        looks_.Look(attachment.host);
      }
      break;
    case MoveKind::kBind:
      if (std::any_of(move.segments.begin(), move.segments.end(), [&](uint32_t i) {
            return track.serials_tried.contains(attachment.segments[first + i].serial);
          })) {
        // It may have been bound under this serial, and lost before that was recorded: it gets
        // another one first.
        RecordMove(region, attachment, part, track,
                   Move{.kind = MoveKind::kSetState,
                        .segments = {},
                        .state = AttachmentState::kWanted,
                        .reason = attachment.parts[part].reason});
        break;
      }
      Bind(region, attachment, part, track, move);
      break;
    case MoveKind::kBeginUnbind:
      if (MayUnbind(attachment, track)) calls_.BeginUnbind(region, attachment, part, track, move);
      break;
    case MoveKind::kOfferOnline:
      if (track.wants[part] == v1::Offer::WANT_ONLINE) break;
      agents_.Offer(region, attachment, part, track, v1::Offer::WANT_ONLINE);
      break;
    case MoveKind::kOfferOffline:
      agents_.Offer(region, attachment, part, track, v1::Offer::WANT_OFFLINE);
      break;
    case MoveKind::kOfferEject:
      Eject(region, attachment, part, track);
      break;
    case MoveKind::kSetState:
      RecordMove(region, attachment, part, track, move);
      break;
    case MoveKind::kGiveUp:
      GiveUp(region, attachment, part, move);
      break;
    case MoveKind::kDrop:
      Drop(region, attachment, part, track, move);
      break;
  }
}

// Carries out what is next for the Region itself, once its Attachments are what they are.
void Reconciler::StepRegion(const Region& region) {
  const RegionMove move = NextRegionMove(region, scrubs_.Done(region));
  switch (move.kind) {
    case RegionMoveKind::kNone:
      return;
    case RegionMoveKind::kSetState:
      recorder_.Submit(
          region.key, std::string(ToString(move.state)), region.state_reason,
          [from = region.state, to = move.state](Region& edited, PlanContext& context) {
            if (edited.state != from) return false;
            edited.state = to;
            edited.state_since = context.now;
            return true;
          });
      return;
    case RegionMoveKind::kScrub:
      scrubs_.Begin(region, move);
      return;
    case RegionMoveKind::kRemove:
      recorder_.Bury(region, [this, key = region.key] { Forget(key); });
      return;
    case RegionMoveKind::kDropTail:
      scrubs_.ForgetDone(region.key);
      [[fallthrough]];
    case RegionMoveKind::kJoinTail:
    case RegionMoveKind::kTurnTail: {
      const std::string rung = move.kind == RegionMoveKind::kJoinTail   ? "join-tail"
                               : move.kind == RegionMoveKind::kTurnTail ? "turn-tail"
                                                                        : "shrunk";
      recorder_.Submit(region.key, rung, ReasonBeforeWait(region.state_reason),
                       [kind = move.kind](Region& edited, PlanContext&) {
                         // What is cleared is waited for no longer.
                         if (kind == RegionMoveKind::kDropTail) {
                           edited.state_reason = ReasonBeforeWait(edited.state_reason);
                         }
                         return RecordTailMove(edited, kind);
                       });
      return;
    }
  }
}

// Binds segments of a part, where that may be done now. Otherwise the next step asks again.
void Reconciler::Bind(const Region& region, const Attachment& attachment, size_t part, Track& track,
                      const Move& move) {
  if (!calls_.MayCall(track) || fences_.UnderWay(attachment.host)) return;
  // Nothing is bound in a life of the host that the records do not know: after a restart nobody
  // could tell it from another.
  const std::string life = members_.LifeOf(attachment.host);
  if (life.empty()) return members_.RecordLife(attachment.host);
  for (const Extent& extent : region.extents) {
    const Device* device = writer_->state().FindDevice(extent.device);
    if (device != nullptr && device->reachable) continue;
    calls_.BackOff(track);
    return;
  }
  calls_.Bind(region, attachment, part, track, move, life, looks_.ClaimOf(attachment.host));
}

// Asks the agent to let go of the slots, and the fabric for proof that it did. Without proof it
// waits and says why (UNBIND_NOT_PROVEN), in the record too: only a fence may take the agent's
// place.
void Reconciler::Eject(const Region& region, const Attachment& attachment, size_t part,
                       Track& track) {
  agents_.Offer(region, attachment, part, track, v1::Offer::WANT_EJECTED);
  if (!MayUnbind(attachment, track)) return;
  calls_.AwaitUnbound(region, attachment, part, track);
  if (track.stuck.empty()) return;
  const std::string why = WhyUnproven(attachment.parts[part], track.stuck);
  if (attachment.parts[part].reason == why) return;
  recorder_.Record(
      region, attachment, "unbind-not-proven", why,
      [why, part](Region&, Attachment& edited, PlanContext&) { edited.parts[part].reason = why; });
}

// Records that a part has reached a rung, with what the host and the fabric say of its segments.
// Back to WANTED it gets new serials, under which it is bound again.
void Reconciler::RecordMove(const Region& region, const Attachment& attachment, size_t part,
                            Track& track, const Move& move) {
  const bool again = move.state == AttachmentState::kWanted;
  // An Offer to bring it online must not stand while the fabric begins to unbind.
  if (move.state == AttachmentState::kOffline) {
    agents_.Offer(region, attachment, part, track, v1::Offer::WANT_OFFLINE);
  }
  // Nor one to eject it while it is bound again.
  const v1::Offer::Want want = track.wants[part];
  if (again && want == v1::Offer::WANT_EJECTED) {
    agents_.Offer(region, attachment, part, track, v1::Offer::WANT_OFFLINE);
  }
  recorder_.Record(
      region, attachment, std::string(ToString(move.state)), move.reason,
      [move = move, part, again, observed = track.observed, known = track.known](
          Region& edited_region, Attachment& edited, PlanContext& context) {
        cxlpool::fm::RecordMove(edited_region, edited.generation, part, move);
        const size_t end = edited.EndOf(part);
        for (size_t i = edited.parts[part].first_segment; i < end; ++i) {
          Segment& segment = edited.segments[i];
          // Where hardware has a serial of its own, the host is offered that.
          const bool fabric_chose = !again && known[i].serial != 0;
          if (fabric_chose && !CXLPOOL_MUTANT("offer-the-wish")) segment.serial = known[i].serial;
          // The host has seen the old serial in this incarnation: never again.
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
        if (again) agents_.ForgetSerials(key, generation, serials);
      });
}

// Turns a part round that cannot come up.
void Reconciler::GiveUp(const Region& region, const Attachment& attachment, size_t part,
                        const Move& move) {
  {
    const LogScope scope(FieldsOf(region, attachment));
    LogWarning("reconciler", "regions/", region.id, " on ", attachment.host, ": giving up",
               part > 0 ? " to grow it" : "", ": ", move.reason);
  }
  recorder_.Record(region, attachment, "give-up", move.reason,
                   [part, move = move](Region& edited_region, Attachment& edited, PlanContext&) {
                     cxlpool::fm::RecordMove(edited_region, edited.generation, part, move);
                   });
}

// Takes a part that is proven unbound out of the records: the last one, with the Attachment.
void Reconciler::Drop(const Region& region, const Attachment& attachment, size_t part, Track& track,
                      const Move& move) {
  const bool rest = attachment.parts.size() > 1;
  if (rest) {
    agents_.Offer(region, attachment, part, track, v1::Offer::WANT_UNSPECIFIED);
  } else {
    agents_.Withdraw(region, attachment.generation, track);
  }
  recorder_.Record(region, attachment, rest ? "drop-tail" : "drop", attachment.parts[part].reason,
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
    recorder_.Record(region, attachment, "observed", "",
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

// The Track of an Attachment that has gone meanwhile goes with its last call.
void Reconciler::CallEnded(uint64_t generation) {
  const Track& track = *tracks_.Find(generation);
  const Key key = track.region;
  const RegionPtr durable = writer_->Durable(key);
  const Attachment* attachment =
      durable == nullptr ? nullptr : durable->FindAttachment(absl::string_view(track.host));
  if (track.driver_calls == 0 && (attachment == nullptr || attachment->generation != generation)) {
    DropTrack(generation);  // What the fabric still has of it, a look finds as a stray.
  }
  active_.Step(key);
}

// An event is a reason to look, and no more: what is bound is known by the look at the host. Only
// the end of the life that the records have of a host is believed by itself, for the driver has
// proof.
void Reconciler::OnFabricEvent(const FabricEvent& event) {
  switch (event.kind) {
    case FabricEvent::Kind::kLdLost: {
      const Track* const track =
          event.key.has_value() ? tracks_.Find(event.key->generation) : nullptr;
      LogWarning("reconciler", "host ", event.host, " lost a LD of ",
                 !event.key.has_value() ? absl::StrCat("slot ", event.slot)
                 : track == nullptr     ? absl::StrCat("the Region with tag ", event.key->tag)
                                        : NameOf(writer_->state(), track->region));
      break;
    }
    case FabricEvent::Kind::kHostGone:
      members_.LifeEnded(event.host, event.incarnation);
      // The end of another life than the one that anything was bound in proves nothing.
      if (!members_.IsGone(event.host) && !CXLPOOL_MUTANT("any-end-is-proof")) break;
      LogWarning("reconciler", "host ", event.host, " is gone: nothing is bound there any more");
      for (const auto& [generation, track] : tracks_.OfHost(event.host)) {
        calls_.LifeEnded(*track);
      }
      active_.TouchHost(event.host);
      break;
      // Devices are in looks at everything, of which one is enough for all events until the next
      // tick.
    case FabricEvent::Kind::kDevicesChanged:
      if (!CXLPOOL_MUTANT("changed-devices-wait")) looks_.LookSoon();
      return;
    case FabricEvent::Kind::kHostReachable:
    case FabricEvent::Kind::kHostUnreachable:
      LogInfo("reconciler", "host ", event.host,
              event.kind == FabricEvent::Kind::kHostReachable ? " is" : " is not",
              " reachable by the fabric");
      break;
  }
  looks_.Look(event.host);
}

// Devices and hosts come first: what is shown of LDs is judged by what they are.
void Reconciler::TakeView(const std::string& only, FabricView view, uint64_t epoch) {
  owners_.NameByPlace(view.bound);
  if (only.empty()) {
    members_.TakeDevices(view);
    if (!view.missing_devices.empty()) looks_.TopologyChanged();  // Tried again by the next look.
  }
  members_.TakeHosts(only, view);
  calls_.TakeView(
      only, view, epoch, [this](const std::string& host) { return members_.IsGone(host); },
      active_);
  const auto has_ended = [this](const std::string& host, const std::string& life) {
    return members_.HasEnded(host, life);
  };
  for (const std::string& host : owners_.TakeView(only, view, epoch, has_ended)) {
    looks_.LookAgain(host);
  }
  active_.StepAll();
}

void Reconciler::OnSession(const std::string& host, bool online) {
  agents_.OnSession(host, online);
  active_.TouchHost(host);
}

void Reconciler::OnSegments(const std::string& host, const SegmentReports& reports, bool complete) {
  agents_.OnSegments(host, reports, complete);
  if (complete) active_.TouchHost(host);
  active_.PostStepAll();
}

void Reconciler::OnCommitted(const std::vector<Change>& changes) {
  std::vector<Key> keys;
  for (const Change& change : changes) {
    for (const Item& item : change) {
      if (const auto* host = std::get_if<Host>(&item)) FollowHost(*host);
      const auto* region = std::get_if<RegionPtr>(&item);
      if (region == nullptr) continue;
      const Key key = (*region)->key;
      // Nothing to do, and nothing was: most Regions of a pool that is not attached yet.
      const bool at_rest = (*region)->attachments.empty() && Settled(**region);
      if (!at_rest || stepped_.contains(key) || active_.Contains(key)) keys.push_back(key);
    }
  }
  // As they are now, and in order: a group may have changed one several times.
  std::sort(keys.begin(), keys.end());
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  for (const Key key : keys) {
    active_.Touch(key);
    if (const RegionPtr region = writer_->Durable(key)) FollowCommitted(*region);
  }
  if (!active_.empty()) active_.PostStepAll();
}

// Whether the fabric knows a new host is looked up at once, for people who have just enrolled it.
// Of one that is retired the driver is told, for it may be waiting for that host's answer.
void Reconciler::FollowHost(const Host& host) {
  members_.RecordLife(host.id);
  if (host.retired && !CXLPOOL_MUTANT("retired-host-is-awaited")) {
    looks_.TopologyChanged();
    looks_.LookSoon();
  }
  const HostRuntime& runtime = writer_->state().Runtime(host.id);
  const bool looked_at = runtime.fabric_reachable || !runtime.fabric_reason.empty();
  if (!looked_at && !CXLPOOL_MUTANT("new-host-not-looked-at")) looks_.LookSoon();
}

// Has agents offered what a committed Region wants of them now, and forgets the Tracks of
// Attachments that it has no longer.
void Reconciler::FollowCommitted(const Region& region) {
  std::set<uint64_t> standing;
  for (const Attachment& attachment : region.attachments) {
    standing.insert(attachment.generation);
    if (!CXLPOOL_MUTANT("serials-of-the-first-bind")) tracks_.SetSerials(attachment);
    Track* const track = tracks_.Find(attachment.generation);
    if (track != nullptr) agents_.FollowCommitted(region, attachment, *track);
  }
  const TrackTable::Tracks known = tracks_.OfRegion(region.key);
  for (const auto& [generation, track] : known) {
    // One with a call under way goes when that has ended.
    if (standing.contains(generation) || track->driver_calls > 0) continue;
    agents_.Withdraw(region, generation, *track);
    DropTrack(generation);
  }
}

void Reconciler::Forget(Key key) {
  while (!tracks_.OfRegion(key).empty()) DropTrack(tracks_.OfRegion(key).begin()->first);
  stepped_.erase(key);
  scrubs_.Forget(key);
  active_.Erase(key);
}

void Reconciler::FailDevice(Audit audit, const std::string& device, Done done) {
  auto changed = std::make_shared<bool>(false);
  writer_->Submit(
      audit,
      [device, changed, reason = audit.reason](const PoolState& state,
                                               PlanContext& context) -> absl::StatusOr<Proposal> {
        absl::StatusOr<Change> change = PlanFailDevice(state, device, reason, context);
        if (!change.ok()) return change.status();
        *changed = !change->empty();
        return Proposal{*std::move(change), nullptr};
      },
      [this, audit, device, changed,
       done = std::move(done)](const absl::StatusOr<Committed>& committed) mutable {
        if (!committed.ok() || !*changed) {
          std::move(done)(committed.status());
          return;
        }
        FailDevice(std::move(audit), device, std::move(done));
      });
}

// What is left to do of a device that failed before this manager began. Nobody else would ask for
// it again where the store takes nothing just now.
void Reconciler::GoOnFailing(const std::string& id) {
  const Device* device = writer_->state().FindDevice(id);
  if (device == nullptr || device->service != DeviceService::kFailed) return;
  FailDevice(Audit{{}, "manager", "FailDevice", device->service_reason}, id,
             [this, id](const absl::Status& status) {
               if (status.ok()) return;
               LogError("reconciler", "device ", id, ": ", status.message());
               if (CXLPOOL_MUTANT("rest-of-a-failure-is-tried-once")) return;
               executor_->PostAfter(options_.discover_period, [this, id] { GoOnFailing(id); });
             });
}

}  // namespace cxlpool::fm
