#include "fabric-manager/service/reconciler.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "proto/support/log.h"
#include "proto/support/mutant.h"
#include "proto/support/names.h"
#include "proto/support/refusal.h"

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

}  // namespace

Reconciler::Reconciler(Options options, Executor* executor, Clock* clock, Writer* writer,
                       FabricDriver* driver, HostSessions* sessions, Probe probe)
    : options_(options),
      executor_(executor),
      clock_(clock),
      writer_(writer),
      driver_(driver),
      chooses_serial_(driver->capabilities().chooses_serial),
      keeps_keys_(driver->capabilities().keeps_keys),
      sessions_(sessions),
      probe_(probe ? std::move(probe) : [](absl::string_view) {}),
      media_({}, executor, clock, writer, sessions) {}

void Reconciler::Start(Done done) {
  for (const Key key : writer_->state().RegionKeys()) {
    const Region& region = **writer_->state().FindRegion(key);
    for (const Attachment& attachment : region.attachments) {
      Track& track = tracks_.Of(region, attachment);
      // An earlier manager may have bound any of them, and the fabric lost it since.
      for (const Segment& segment : attachment.segments) track.serials_tried.insert(segment.serial);
      OfferAsRecorded(region, attachment, track);
    }
    if (!Settled(region)) Touch(key);
  }
  for (const auto& [id, device] : writer_->state().devices()) {
    if (device.service != DeviceService::kFailed) continue;
    FailDevice(Audit{{}, "manager", "FailDevice", device.service_reason}, id,
               [id = id](const absl::Status& status) {
                 if (!status.ok()) LogError("reconciler", "device ", id, ": ", status.message());
               });
  }
  KnownFabric known;
  for (const auto& [id, host] : writer_->state().hosts()) known.hosts[id] = host.fabric_incarnation;
  driver_->Start(std::move(known), [this](FabricEvent event) {
    executor_->Post([this, event = std::move(event)] { OnFabricEvent(event); });
  });
  LookFirst(clock_->Elapsed() + options_.first_look, std::move(done));
}

bool IsFabricBusy(const absl::Status& status) { return ReasonOf(status) == "FABRIC_BUSY"; }

// Reads the fabric until it could be read, at most until `give_up`, and answers when what it showed
// is durable: whoever is served then finds the pool's devices.
void Reconciler::LookFirst(absl::Duration give_up, Done done) {
  Discover("", [this, give_up, done = std::move(done)](absl::Status status) mutable {
    if (!viewed_ && clock_->Elapsed() < give_up && !IsFabricBusy(status)) {
      executor_->PostAfter(options_.retry, [this, give_up, done = std::move(done)]() mutable {
        LookFirst(give_up, std::move(done));
      });
      return;
    }
    Tick();
    if (!status.ok() || CXLPOOL_MUTANT("ready-before-devices")) {
      std::move(done)(std::move(status));
      return;
    }
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
  if (clock_->Elapsed() >= next_discover_) Discover("", [](const absl::Status&) {});
  StepActive();
  executor_->PostAfter(options_.tick, [this] { Tick(); });
}

void Reconciler::PostStep() {
  if (std::exchange(step_posted_, true)) return;
  executor_->Post([this] { StepActive(); });
}

void Reconciler::StepActive() {
  step_posted_ = false;
  stepped_.assign(active_.begin(), active_.end());
  for (Key key : stepped_) Step(key);
}

void Reconciler::Pass(absl::string_view moment, absl::string_view rung) {
  passed_.assign(moment.data(), moment.size());
  passed_.append(rung.data(), rung.size());
  probe_(passed_);
}

RegionPtr Reconciler::Durable(Key key) const { return writer_->Durable(key); }

std::string Reconciler::NameOf(Key region) const {
  const RegionPtr* known = writer_->state().FindRegion(region);
  return known == nullptr ? absl::StrCat("region record ", region)
                          : absl::StrCat("regions/", (*known)->id);
}

void Reconciler::Forget(Key key) {
  while (!tracks_.OfRegion(key).empty()) DropTrack(tracks_.OfRegion(key).begin()->first);
  regions_.erase(key);
  active_.erase(key);
}

void Reconciler::DropTrack(uint64_t generation) {
  const Track* const track = tracks_.Find(generation);
  if (track == nullptr) return;
  if (discovering_.empty()) {
    dropped_.clear();
  } else {
    dropped_[track->host] = ++driver_epoch_;
  }
  tracks_.Erase(generation);
}

void Reconciler::TouchHost(const std::string& host) {
  for (const OccupiedSlot& slot : writer_->state().Occupied(host)) Touch(slot.region);
}

void Reconciler::Step(Key key) {
  const RegionPtr region = Durable(key);
  if (region == nullptr) {  // Not committed yet, or gone.
    if (writer_->state().FindRegion(key) == nullptr) {
      active_.erase(key);
      regions_.erase(key);
    }
    return;
  }
  RegionTrack& own = regions_[key];
  if (own.committing) return;
  if (Settled(*region)) active_.erase(key);
  for (const Attachment& attachment : region->attachments) {
    StepAttachment(*region, attachment, own);
    if (own.committing) return;
  }
  StepRegion(*region, own);
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

// `own` is the Region's.
void Reconciler::StepAttachment(const Region& region, const Attachment& attachment,
                                const RegionTrack& own) {
  Track& track = tracks_.Of(region, attachment);
  // Hosts take down last what came up first.
  for (size_t part = attachment.parts.size(); part-- > 0;) {
    StepPart(region, attachment, part, track);
    if (own.committing) return;
  }
  RecordObserved(region, attachment, track);
}

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
  const bool operator_vouched =
      attachment.operator_vouched && part.detaching && track.driver_calls == 0 && viewed_ && mute();
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
        Discover(attachment.host, [](const absl::Status&) {});
      }
      break;
    case MoveKind::kBind:
      if (std::any_of(move.segments.begin(), move.segments.end(), [&](uint32_t i) {
            return track.serials_tried.contains(attachment.segments[first + i].serial);
          })) {
        // It may have been bound under this serial, and lost before that was recorded.
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
      BeginUnbind(region, attachment, part, track, move);
      break;
    case MoveKind::kOfferOnline:
      if (track.wants[part] == v1::Offer::WANT_ONLINE) break;
      Offer(region, attachment, part, track, v1::Offer::WANT_ONLINE);
      break;
    case MoveKind::kOfferOffline:
      Offer(region, attachment, part, track, v1::Offer::WANT_OFFLINE);
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

void Reconciler::StepRegion(const Region& region, RegionTrack& own) {
  const bool clears = region.state == RegionState::kScrubbing ||
                      region.state == RegionState::kFailed || region.resizing();
  // Bytes of a broken device are given to nobody: there is nothing to clear for. Once that is
  // durable.
  for (uint32_t i = 0; clears && i < region.extents.size(); ++i) {
    const Device* device = writer_->state().FindDevice(region.extents[i].device);
    if (device == nullptr || device->service != DeviceService::kFailed) continue;
    if (writer_->IsDurable(device->key)) own.scrubbed.insert(i);
  }
  const RegionMove move = NextRegionMove(region, own.scrubbed);
  switch (move.kind) {
    case RegionMoveKind::kNone:
      return;
    case RegionMoveKind::kSetState:
      Submit(region.key, std::string(ToString(move.state)), region.state_reason,
             [from = region.state, to = move.state](Region& edited, PlanContext&) {
               if (edited.state != from) return false;
               edited.state = to;
               return true;
             });
      return;
    case RegionMoveKind::kScrub:
      Scrub(region, own, move);
      return;
    case RegionMoveKind::kRemove:
      Bury(region);
      return;
    case RegionMoveKind::kJoinTail:
    case RegionMoveKind::kTurnTail:
    case RegionMoveKind::kDropTail:
      StepTail(region, move.kind);
      return;
  }
}

void Reconciler::OnCommitted(const std::vector<Change>& changes) {
  std::vector<Key> keys;
  for (const Change& change : changes) {
    for (const Item& item : change) {
      if (const auto* host = std::get_if<Host>(&item)) OnHost(host->id);
      const auto* region = std::get_if<RegionPtr>(&item);
      if (region == nullptr) continue;
      const Key key = (*region)->key;
      // Nothing to do, and nothing was: most Regions of a pool that is not attached yet.
      const bool at_rest = (*region)->attachments.empty() && Settled(**region);
      if (!at_rest || regions_.contains(key) || active_.contains(key)) keys.push_back(key);
    }
  }
  // As they are now, and in order: a group may have changed one several times.
  std::sort(keys.begin(), keys.end());
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  for (const Key key : keys) {
    Touch(key);
    if (const RegionPtr region = Durable(key)) FollowCommitted(*region);
  }
  if (!active_.empty()) PostStep();
}

// Of a host that is new it is said at once whether the fabric knows it.
void Reconciler::OnHost(const std::string& host) {
  RecordLife(host);
  const HostRuntime& runtime = writer_->state().Runtime(host);
  const bool looked_at = runtime.fabric_reachable || !runtime.fabric_reason.empty();
  if (!looked_at && !CXLPOOL_MUTANT("new-host-not-looked-at")) next_discover_ = {};
}

// Tells the agents what a committed Region wants of them now, and forgets the tracks of Attachments
// that it has no longer.
void Reconciler::FollowCommitted(const Region& region) {
  std::set<uint64_t> standing;
  for (const Attachment& attachment : region.attachments) {
    standing.insert(attachment.generation);
    if (!CXLPOOL_MUTANT("serials-of-the-first-bind")) tracks_.SetSerials(attachment);
    // A new name, or a part that has joined the others: what stands is told anew.
    Track* const track = tracks_.Find(attachment.generation);
    if (track == nullptr || track->wants == OfferedWants{}) continue;
    OfferedWants wants = track->wants;
    std::fill(wants.begin() + attachment.parts.size(), wants.end(), v1::Offer::WANT_UNSPECIFIED);
    // It went down with the rest: the next step says what is wanted of all.
    if (wants != track->wants && attachment.settled().detaching) continue;
    track->wants = wants;
    SendOffer(region, attachment, *track);
  }
  const TrackTable::Tracks known = tracks_.OfRegion(region.key);
  for (const auto& [generation, track] : known) {
    // One with a call under way goes when that has ended.
    if (standing.contains(generation) || track->driver_calls > 0) continue;
    sessions_->Withdraw(track->host, FormatUuid(region.tag.bytes()), generation);
    DropTrack(generation);
  }
}

}  // namespace cxlpool::fm
