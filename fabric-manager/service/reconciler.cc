#include "fabric-manager/service/reconciler.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "fabric-manager/service/offers.h"
#include "proto/support/log.h"
#include "proto/support/names.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

HostSide ToHostSide(v1::SegmentState state) {
  switch (state) {
    case v1::SEGMENT_ABSENT:
      return HostSide::kAbsent;
    case v1::SEGMENT_PRESENT:
      return HostSide::kPresent;
    case v1::SEGMENT_REGION:
      return HostSide::kRegion;
    case v1::SEGMENT_ONLINE:
      return HostSide::kOnline;
    case v1::SEGMENT_STOPPING:
      return HostSide::kStopping;
    default:
      return HostSide::kUnknown;
  }
}

// What the agent read back, in the model's words; placement stays the manager's own.
Segment Observed(const Segment& planned, const v1::Segment& seen) {
  Segment segment = planned;
  segment.memdev = seen.memdev().substr(0, 64);
  segment.host_region = seen.host_region().substr(0, 64);
  segment.dax_device = seen.dax_device().substr(0, 64);
  segment.numa_node.reset();
  if (seen.has_numa_node()) segment.numa_node = seen.numa_node();
  segment.hpa_bytes = seen.hpa_bytes();
  segment.online_blocks = seen.online_blocks();
  segment.total_blocks = seen.total_blocks();
  return segment;
}

bool Settled(const Region& region) {
  if (region.state == RegionState::kQuarantined) return region.attachments.empty();
  return region.state == RegionState::kAllocated &&
         std::all_of(region.attachments.begin(), region.attachments.end(), [](const auto& a) {
           return a.state == AttachmentState::kOnline && !a.detaching;
         });
}

}  // namespace

Reconciler::Reconciler(Options options, Executor* executor, Clock* clock, Writer* writer,
                       ViewHolder* views, FabricDriver* driver, HostSessions* sessions, Probe probe)
    : options_(options),
      executor_(executor),
      clock_(clock),
      writer_(writer),
      views_(views),
      driver_(driver),
      sessions_(sessions),
      probe_(probe ? std::move(probe) : [](absl::string_view) {}) {}

void Reconciler::Start(Done done) {
  for (const auto& [id, key] : writer_->state().regions_by_id()) {
    const Region& region = **writer_->state().FindRegion(key);
    for (const Attachment& attachment : region.attachments) {
      TrackOf(region, attachment);
      OfferAsRecorded(region, attachment);
    }
    if (!Settled(region)) Touch(key);
  }
  driver_->Start([this](FabricEvent event) {
    executor_->Post([this, event = std::move(event)] { OnFabricEvent(event); });
  });
  Discover([this, done = std::move(done)](absl::Status status) mutable {
    std::move(done)(std::move(status));
    Tick();
  });
}

// Agents forget nothing that a session tells them, but a restarted one knows nothing.
void Reconciler::OfferAsRecorded(const Region& region, const Attachment& attachment) {
  v1::Offer::Want want = v1::Offer::WANT_ONLINE;
  if (attachment.state == AttachmentState::kEjecting) {
    want = v1::Offer::WANT_EJECTED;
  } else if (attachment.detaching) {
    want = v1::Offer::WANT_OFFLINE;
  } else if (attachment.state == AttachmentState::kWanted) {
    return;  // Not bound yet: nothing to bring online.
  }
  sessions_->SetOffer(attachment.host, MakeOffer(region, attachment, want,
                                                 driver_->capabilities().hardware_coherent));
}

void Reconciler::Tick() {
  if (clock_->Elapsed() >= next_discover_) Discover([](const absl::Status&) {});
  StepActive();
  executor_->PostAfter(options_.tick, [this] { Tick(); });
}

void Reconciler::StepActive() {
  step_posted_ = false;
  const std::vector<Key> keys(active_.begin(), active_.end());
  for (Key key : keys) Step(key);
}

RegionPtr Reconciler::Durable(Key key) const {
  const RegionPtr* latest = writer_->state().FindRegion(key);
  if (latest == nullptr) return nullptr;
  RegionPtr seen = views_->Get()->regions.Find((*latest)->id);
  return seen != nullptr && seen->key == key ? seen : nullptr;
}

Reconciler::Track& Reconciler::TrackOf(const Region& region, const Attachment& attachment) {
  Track& track = tracks_[attachment.generation];
  track.region = region.key;
  track.host = attachment.host;
  track.known.resize(attachment.segments.size());
  track.observed.resize(attachment.segments.size());
  return track;
}

void Reconciler::Forget(Key key) {
  std::erase_if(tracks_, [key](const auto& entry) { return entry.second.region == key; });
  regions_.erase(key);
  active_.erase(key);
}

void Reconciler::TouchHost(const std::string& host) {
  for (const OccupiedSlot& slot : writer_->state().Occupied(host)) Touch(slot.region);
}

void Reconciler::Step(Key key) {
  const RegionPtr region = Durable(key);
  if (region == nullptr) return;  // Not committed yet, or about to be gone.
  if (regions_[key].committing) return;
  if (Settled(*region)) active_.erase(key);
  for (const Attachment& attachment : region->attachments) {
    StepAttachment(*region, attachment);
    if (regions_[key].committing) return;
  }
  StepRegion(*region);
}

// The decoder stack of a bridge must not lose a region while another is being made on it.
bool Reconciler::MayGoDown(const Attachment& attachment) const {
  for (const OccupiedSlot& other : writer_->state().Occupied(attachment.host)) {
    if (!other.pending() || other.generation == attachment.generation) continue;
    // One that is stuck on its way up must not hold others: it may be waiting for them to go.
    const auto track = tracks_.find(other.generation);
    if (track != tracks_.end() &&
        std::any_of(track->second.known.begin(), track->second.known.end(),
                    [](const SegmentKnown& known) { return !known.host_error.empty(); })) {
      continue;
    }
    for (const Segment& segment : attachment.segments) {
      if (segment.host_bridge == other.host_bridge) return false;
    }
  }
  return true;
}

void Reconciler::StepAttachment(const Region& region, const Attachment& attachment) {
  Track& track = TrackOf(region, attachment);
  const absl::Duration now = clock_->Elapsed();
  const bool way_up = !attachment.detaching && attachment.state != AttachmentState::kOnline;
  if (!way_up) {
    track.way_up_since = absl::InfiniteDuration();
  } else if (track.way_up_since == absl::InfiniteDuration()) {
    track.way_up_since = now;
  }
  const bool late = way_up && now - track.way_up_since > options_.attach_timeout;
  const Move move = NextMove(attachment, track.known, MayGoDown(attachment), late);
  switch (move.kind) {
    case MoveKind::kNone:
      break;
    case MoveKind::kDiscover:
      if (now >= track.next_discover) {
        track.next_discover = now + options_.retry;
        Discover([](const absl::Status&) {});
      }
      break;
    case MoveKind::kBind:
      Bind(region, attachment, move);
      break;
    case MoveKind::kBeginUnbind:
      BeginUnbind(region, attachment, move);
      break;
    case MoveKind::kOfferOnline:
      sessions_->SetOffer(attachment.host, MakeOffer(region, attachment, v1::Offer::WANT_ONLINE,
                                                     driver_->capabilities().hardware_coherent));
      break;
    case MoveKind::kOfferOffline:
      sessions_->SetOffer(attachment.host, MakeOffer(region, attachment, v1::Offer::WANT_OFFLINE,
                                                     driver_->capabilities().hardware_coherent));
      break;
    case MoveKind::kOfferEject:
      Eject(region, attachment);
      break;
    case MoveKind::kSetState: {
      const bool again = move.state == AttachmentState::kWanted;
      // An Offer to bring it online must not stand while the fabric begins to unbind.
      if (move.state == AttachmentState::kOffline) {
        sessions_->SetOffer(attachment.host, MakeOffer(region, attachment, v1::Offer::WANT_OFFLINE,
                                                       driver_->capabilities().hardware_coherent));
      }
      const std::vector<Segment> observed = track.observed;
      const std::vector<SegmentKnown> known = track.known;
      Record(region, attachment, std::string(ToString(move.state)), move.reason,
             [move, again, observed, known](Region&, Attachment& edited, PlanContext& context) {
               edited.state = move.state;
               edited.reason = move.reason;
               for (size_t i = 0; i < edited.segments.size(); ++i) {
                 Segment& segment = edited.segments[i];
                 // The host has met the old serial in this incarnation: never again.
                 if (again && known[i].fabric != FabricSide::kBound) {
                   segment.serial = kSerialBase | context.next_id();
                 } else if (observed[i].serial == segment.serial) {
                   segment = observed[i];
                 }
               }
             });
      if (again) {
        for (SegmentKnown& own : track.known) {
          const FabricSide side = own.fabric;
          own = SegmentKnown{};
          own.fabric = side;
        }
      }
      return;
    }
    case MoveKind::kGiveUp:
      LogWarning("reconciler", "regions/", region.id, " on ", attachment.host,
                 ": giving up: ", move.reason);
      Record(region, attachment, "give-up", move.reason,
             [move](Region& edited_region, Attachment& edited, PlanContext&) {
               edited.detaching = true;
               edited.reason = move.reason;
               if (edited_region.state == RegionState::kReserved) {
                 edited_region.compensating = true;
                 edited_region.state_reason = move.reason;
               }
             });
      return;
    case MoveKind::kDrop: {
      const std::string host = attachment.host;
      const std::string tag = FormatUuid(region.tag);
      const uint64_t generation = attachment.generation;
      sessions_->Withdraw(host, tag, generation);
      Submit(region.key, "drop", attachment.reason, [generation](Region& edited, PlanContext&) {
        return std::erase_if(edited.attachments, [generation](const Attachment& a) {
                 return a.generation == generation;
               }) > 0;
      });
      return;
    }
  }
  // What the host says of itself is recorded too, once it differs.
  for (size_t i = 0; i < attachment.segments.size(); ++i) {
    const Segment& seen = track.observed[i];
    if (seen.serial != attachment.segments[i].serial || seen == attachment.segments[i]) continue;
    const std::vector<Segment> observed = track.observed;
    Record(region, attachment, "observed", "",
           [observed](Region&, Attachment& edited, PlanContext&) {
             for (size_t k = 0; k < edited.segments.size(); ++k) {
               if (observed[k].serial == edited.segments[k].serial)
                 edited.segments[k] = observed[k];
             }
           });
    return;
  }
}

void Reconciler::StepRegion(const Region& region) {
  RegionTrack& track = regions_[region.key];
  const RegionMove move = NextRegionMove(region, track.scrubbed);
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
      Scrub(region, move);
      return;
    case RegionMoveKind::kRemove: {
      track.committing = true;
      probe_("before-commit-gone");
      const Key key = region.key;
      writer_->Submit(
          Audit{{}, "manager", "gone", region.state_reason},
          [key](const PoolState& state, PlanContext& context) -> absl::StatusOr<Proposal> {
            const RegionPtr* now = state.FindRegion(key);
            if (now == nullptr || !(*now)->attachments.empty()) return Proposal{};
            auto last = std::make_shared<Region>(**now);
            last->revision = context.revision;
            return Proposal::Of(Tombstone{last, context.now}, last);
          },
          [this, key](absl::StatusOr<Committed> done) {
            regions_[key].committing = false;
            if (!done.ok()) return;  // Stays active: the next tick tries again.
            probe_("after-commit-gone");
            Forget(key);
          });
      return;
    }
  }
}

void Reconciler::Record(const Region& region, const Attachment& seen, const std::string& rung,
                        const std::string& reason,
                        std::function<void(Region&, Attachment&, PlanContext&)> edit) {
  Submit(region.key, rung, reason,
         [seen, edit = std::move(edit)](Region& edited, PlanContext& context) {
           Attachment* attachment = edited.FindAttachment(seen.host);
           // A request came between: look again at what it made.
           if (attachment == nullptr || *attachment != seen) return false;
           edit(edited, *attachment, context);
           return true;
         });
}

void Reconciler::Submit(Key key, const std::string& rung, const std::string& reason,
                        std::function<bool(Region&, PlanContext&)> edit) {
  regions_[key].committing = true;
  probe_(absl::StrCat("before-commit-", rung));
  writer_->Submit(
      Audit{{}, "manager", rung, reason},
      [key, edit = std::move(edit)](const PoolState& state,
                                    PlanContext& context) -> absl::StatusOr<Proposal> {
        const RegionPtr* now = state.FindRegion(key);
        if (now == nullptr) return Proposal{};
        auto edited = std::make_shared<Region>(**now);
        if (!edit(*edited, context)) return Proposal{};
        edited->revision = context.revision;
        return Proposal::Of(RegionPtr(edited), edited);
      },
      [this, key, rung](absl::StatusOr<Committed> done) {
        regions_[key].committing = false;
        Touch(key);
        if (done.ok()) probe_(absl::StrCat("after-commit-", rung));
      });
}

void Reconciler::OnCommitted(const std::vector<Change>& changes) {
  for (const Change& change : changes) {
    for (const Item& item : change) {
      const auto* region = std::get_if<RegionPtr>(&item);
      if (region == nullptr) continue;
      Touch((*region)->key);
      // Others on the same bridges may have waited for this one.
      for (const Attachment& attachment : (*region)->attachments) {
        if (attachment.state == AttachmentState::kOnline || attachment.detaching) {
          TouchHost(attachment.host);
        }
      }
      std::erase_if(tracks_, [&](const auto& entry) {
        const auto& [generation, track] = entry;
        return track.region == (*region)->key && track.driver_calls == 0 &&
               std::none_of((*region)->attachments.begin(), (*region)->attachments.end(),
                            [g = generation](const Attachment& a) { return a.generation == g; });
      });
    }
  }
  if (step_posted_) return;
  step_posted_ = true;
  executor_->Post([this] { StepActive(); });
}

void Reconciler::OnSession(const std::string& host, bool online) {
  if (!online) {
    // What it said is no longer known to hold.
    for (auto& [generation, track] : tracks_) {
      if (track.host != host) continue;
      for (SegmentKnown& known : track.known) known.host = HostSide::kUnknown;
    }
  }
  TouchHost(host);
}

void Reconciler::OnSegments(const std::string& host, const std::vector<v1::SegmentReport>& reports,
                            bool complete) {
  if (complete) {
    for (auto& [generation, track] : tracks_) {
      if (track.host != host) continue;
      for (SegmentKnown& known : track.known) {
        known.host = HostSide::kAbsent;
        known.host_error.clear();
        known.host_error_permanent = false;
      }
    }
  }
  for (const v1::SegmentReport& report : reports) {
    const RegionPtr* region = writer_->state().FindRegionBySerial(report.serial());
    const Attachment* attachment =
        region == nullptr ? nullptr : (*region)->FindAttachment(absl::string_view(host));
    if (attachment == nullptr) {
      if (complete) {
        LogWarning("reconciler", "host ", host, " holds serial ", absl::Hex(report.serial()), " (",
                   report.segment().host_region(), "), which is no Attachment of its own");
      }
      continue;
    }
    Track& track = TrackOf(**region, *attachment);
    for (size_t i = 0; i < attachment->segments.size(); ++i) {
      if (attachment->segments[i].serial != report.serial()) continue;
      SegmentKnown& known = track.known[i];
      known.host = ToHostSide(report.state());
      known.host_error.clear();
      known.host_error_permanent = false;
      if (report.has_error()) {
        known.host_error =
            absl::StrCat(report.error().reason(), ": ", report.error().message()).substr(0, 1024);
        known.host_error_permanent = report.error().permanent();
      }
      track.observed[i] = Observed(attachment->segments[i], report.segment());
      probe_(absl::StrCat("report-", v1::SegmentState_Name(report.state())));
    }
    Touch((*region)->key);
  }
  TouchHost(host);
  if (step_posted_) return;
  step_posted_ = true;
  executor_->Post([this] { StepActive(); });
}

}  // namespace cxlpool::fm
