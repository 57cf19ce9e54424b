// The reconciler's dealings with the fabric driver: bind, unbind, scrub, fence, and reading back.

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "fabric-manager/model/planner.h"
#include "fabric-manager/service/offers.h"
#include "fabric-manager/service/reconciler.h"
#include "proto/support/log.h"
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

// Whether a failed Bind left the slot as it was. Of a conflicting LD the key is bound.
bool NothingWasDone(const absl::Status& status) {
  return absl::IsUnavailable(status) || (IsPermanent(status) && !absl::IsAlreadyExists(status));
}

constexpr absl::Duration kFenceWait = absl::Seconds(20);

// Whether the Region has this very LD: by key, place, serial and bytes.
bool Names(const Region& region, const BoundLd& ld) {
  for (const Attachment& attachment : region.attachments) {
    if (attachment.generation != ld.key.generation || attachment.host != ld.key.host) continue;
    for (const Segment& segment : attachment.segments) {
      const Extent& extent = region.extents[segment.extent_index];
      if (segment.ld_index.value_or(segment.extent_index) == ld.key.extent_index &&
          segment.slot == ld.slot && segment.serial == ld.serial &&
          extent.device.str() == ld.slice.device && extent.dpa_bytes == ld.slice.dpa_bytes &&
          extent.length_bytes == ld.slice.length_bytes) {
        return true;
      }
    }
  }
  return false;
}

Slice SliceOf(const Extent& extent) {
  return {extent.device.str(), extent.dpa_bytes, extent.length_bytes};
}

}  // namespace

LdKey Reconciler::KeyFor(const Region& region, const Attachment& attachment,
                         uint32_t segment) const {
  const Segment& own = attachment.segments[segment];
  return {attachment.host, FormatUuid(region.tag.bytes()), attachment.generation,
          own.ld_index.value_or(own.extent_index)};
}

void Reconciler::DriverCallBegan(Track& track) {
  ++track.driver_calls;
  track.driver_epoch = ++driver_epoch_;
}

// Posts to the executor; `then` sees the segment if the Attachment is still there.
void Reconciler::DriverCallEnded(uint64_t generation, uint32_t segment,
                                 std::function<void(Track&, SegmentKnown&)> then) {
  executor_->Post([this, generation, segment, then = std::move(then)] {
    const auto it = tracks_.find(generation);
    if (it == tracks_.end()) return;
    Track& track = it->second;
    --track.driver_calls;
    track.driver_epoch = ++driver_epoch_;
    if (segment < track.known.size()) then(track, track.known[segment]);
    const Key region = track.region;
    const RegionPtr durable = Durable(region);
    const Attachment* attachment =
        durable == nullptr ? nullptr : durable->FindAttachment(absl::string_view(track.host));
    if (track.driver_calls == 0 &&
        (attachment == nullptr || attachment->generation != generation)) {
      tracks_.erase(it);  // What the fabric still has of it, a discovery finds as a stray.
    }
    Touch(region);
    Step(region);
  });
}

void Reconciler::Bind(const Region& region, const Attachment& attachment, const Part& part,
                      const Move& move) {
  Track& track = tracks_[attachment.generation];
  if (track.driver_calls > 0 || clock_->Elapsed() < track.not_before) return;
  if (fencing_.contains(attachment.host)) return;
  for (uint32_t in_part : move.segments) {
    const uint32_t index = part.first + in_part;
    const Segment& segment = attachment.segments[index];
    // From here on nobody may take it for unbound: a detach that comes now waits for the answer.
    track.known[index].fabric = FabricSide::kUnknown;
    BindRequest request{.key = KeyFor(region, attachment, index),
                        .slot = segment.slot,
                        .slice = SliceOf(region.extents[segment.extent_index]),
                        .read_only = attachment.access == Access::kReadOnly,
                        .serial = segment.serial};
    DriverCallBegan(track);
    probe_("before-bind");
    driver_->Bind(std::move(request), [this, generation = attachment.generation, index,
                                       serial = segment.serial](absl::StatusOr<BoundLd> bound) {
      DriverCallEnded(generation, index,
                      [this, status = bound.status(), serial](Track& own, SegmentKnown& known) {
                        if (status.ok()) {
                          own.met.insert(serial);
                          probe_("after-bind");
                          known.fabric = FabricSide::kBound;
                          known.fabric_error.clear();
                          known.fabric_error_permanent = false;
                          return;
                        }
                        known.fabric_error = std::string(status.message());
                        known.fabric_error_permanent = IsPermanent(status);
                        // Unbound still, where the driver says that nothing was done.
                        if (NothingWasDone(status)) known.fabric = FabricSide::kUnbound;
                        own.not_before = clock_->Elapsed() + options_.retry;
                        LogWarning("reconciler", "bind on ", own.host, ": ", status.message());
                      });
    });
  }
}

void Reconciler::BeginUnbind(const Region& region, const Attachment& attachment, const Part& part,
                             const Move& move) {
  Track& track = tracks_[attachment.generation];
  if (track.driver_calls > 0 || clock_->Elapsed() < track.not_before) return;
  for (uint32_t in_part : move.segments) {
    const uint32_t index = part.first + in_part;
    DriverCallBegan(track);
    probe_("before-unbind");
    driver_->BeginUnbind(KeyFor(region, attachment, index), [this,
                                                             generation = attachment.generation,
                                                             index](absl::Status status) {
      DriverCallEnded(generation, index,
                      [this, status = std::move(status)](Track& own, SegmentKnown& known) {
                        if (status.ok()) {
                          probe_("after-unbind");
                          known.fabric = FabricSide::kUnbinding;
                          known.fabric_error.clear();
                          return;
                        }
                        known.fabric = FabricSide::kUnknown;
                        known.fabric_error = std::string(status.message());
                        own.not_before = clock_->Elapsed() + options_.retry;
                        LogWarning("reconciler", "unbind on ", own.host, ": ", status.message());
                      });
    });
  }
}

void Reconciler::Eject(const Region& region, const Attachment& attachment, const Part& part) {
  Offer(region, attachment, part, v1::Offer::WANT_EJECTED);
  Track& track = tracks_[attachment.generation];
  if (track.driver_calls > 0 || clock_->Elapsed() < track.not_before) return;
  for (uint32_t index = part.first; index < part.end; ++index) {
    if (track.known[index].fabric == FabricSide::kUnbound) continue;
    DriverCallBegan(track);
    driver_->AwaitUnbound(
        KeyFor(region, attachment, index), options_.unbind_wait,
        [this, generation = attachment.generation, index](absl::Status status) {
          DriverCallEnded(
              generation, index,
              [this, status = std::move(status)](Track& own, SegmentKnown& known) {
                if (status.ok()) {
                  probe_("after-proof");
                  known.fabric = FabricSide::kUnbound;
                  own.stuck.clear();
                  return;
                }
                own.not_before = clock_->Elapsed() + options_.retry;
                own.stuck = absl::StrCat("UNBIND_NOT_PROVEN: ", status.message(),
                                         "; if its agent cannot come back, `cxlpool host fence ",
                                         own.host, " --reason WHY`");
                LogWarning("reconciler", "unbind on ", own.host, ": ", status.message());
              });
        });
  }
  const std::string& reason = part.tail ? attachment.tail->reason : attachment.reason;
  if (!track.stuck.empty() && reason != track.stuck) {
    Record(region, attachment, "unbind-not-proven", track.stuck,
           [why = track.stuck, part](Region&, Attachment& edited, PlanContext&) {
             (part.tail ? edited.tail->reason : edited.reason) = why;
           });
  }
}

void Reconciler::Scrub(const Region& region, const RegionMove& move) {
  RegionTrack& track = regions_[region.key];
  if (track.scrubbing || move.extents.empty() || clock_->Elapsed() < track.not_before) return;
  const uint32_t index = move.extents.front();
  if (const BoundLd* ld = NamelessOn(SliceOf(region.extents[index]))) {
    track.not_before = clock_->Elapsed() + options_.retry;
    LogWarning("reconciler", "regions/", region.id, " waits: host ", ld->key.host, " slot ",
               ld->slot, " reaches its bytes by no record; `cxlpool host fence ", ld->key.host,
               " --reason WHY`");
    Discover([](const absl::Status&) {});
    return;
  }
  track.scrubbing = true;
  probe_("before-scrub");
  driver_->Scrub(FormatUuid(region.tag.bytes()), index, SliceOf(region.extents[index]),
                 [this, key = region.key, index](absl::Status status) {
                   executor_->Post([this, key, index, status = std::move(status)] {
                     RegionTrack& own = regions_[key];
                     own.scrubbing = false;
                     if (status.ok()) {
                       probe_("after-scrub");
                       own.scrubbed.insert(index);
                     } else {
                       own.not_before = clock_->Elapsed() + options_.retry;
                       LogWarning("reconciler", "scrub: ", status.message());
                     }
                     Touch(key);
                     Step(key);
                   });
                 });
}

void Reconciler::Discover(Done done) {
  if (discovering_) {
    std::move(done)(absl::OkStatus());
    return;
  }
  discovering_ = true;
  next_discover_ = clock_->Elapsed() + options_.discover_period;
  driver_->Discover([this, epoch = driver_epoch_,
                     done = std::move(done)](absl::StatusOr<FabricView> view) mutable {
    executor_->Post([this, epoch, view = std::move(view), done = std::move(done)]() mutable {
      discovering_ = false;
      if (view.ok()) {
        TakeView(*view, epoch);
      } else {
        LogWarning("reconciler", "discovery: ", view.status().message());
      }
      std::move(done)(view.status());
    });
  });
}

// `epoch`: driver calls that began or ended after it make the view stale for their Attachment.
void Reconciler::TakeView(const FabricView& view, uint64_t epoch) {
  AddDevices(view);
  std::set<std::string> reachable;
  for (const FabricHost& host : view.hosts) {
    if (host.reachable) reachable.insert(host.id);
    HostRuntime runtime = writer_->state().Runtime(host.id);
    if (runtime.fabric_reachable == host.reachable && runtime.fabric_slots == host.slots) continue;
    runtime.fabric_reachable = host.reachable;
    if (host.reachable) runtime.fabric_slots = host.slots;
    writer_->SetRuntime(host.id, std::move(runtime));
  }
  viewed_ = true;
  std::multimap<uint64_t, const BoundLd*> bound;  // By generation.
  for (const BoundLd& ld : view.bound) bound.emplace(ld.key.generation, &ld);
  for (auto& [generation, track] : tracks_) {
    if (track.driver_calls > 0 || track.driver_epoch > epoch) continue;
    const RegionPtr region = Durable(track.region);
    const Attachment* attachment = region == nullptr ? nullptr : region->FindAttachment(track.host);
    if (attachment == nullptr || attachment->generation != generation) continue;
    // As long as they agree: an Attachment that was resized is looked at again by its next step.
    for (size_t i = 0; i < std::min(track.known.size(), attachment->segments.size()); ++i) {
      FabricSide side =
          reachable.contains(track.host) ? FabricSide::kUnbound : FabricSide::kUnknown;
      const auto [from, to] = bound.equal_range(generation);
      for (auto at = from; at != to; ++at) {
        const BoundLd& ld = *at->second;
        const Segment& segment = attachment->segments[i];
        if (ld.key.extent_index != segment.ld_index.value_or(segment.extent_index)) continue;
        // Another LD by this one's key is neither this one nor its absence.
        side = !Names(*region, ld) ? FabricSide::kUnknown
               : ld.unbinding      ? FabricSide::kUnbinding
                                   : FabricSide::kBound;
      }
      if (track.known[i].fabric == side) continue;
      // A host that is gone for certain does not become uncertain because it cannot be asked.
      if (side == FabricSide::kUnknown && track.known[i].fabric == FabricSide::kUnbound) continue;
      track.known[i].fabric = side;
      Touch(track.region);
    }
  }
  std::map<uint64_t, std::vector<BoundLd>> strays;
  nameless_.clear();
  for (const BoundLd& ld : view.bound) {
    // A call that is under way may have made it, or be about to unmake it.
    const auto track = tracks_.find(ld.key.generation);
    const bool stale = track != tracks_.end() &&
                       (track->second.driver_calls > 0 || track->second.driver_epoch > epoch);
    if (stale || IsNamed(ld)) continue;
    nameless_.push_back(ld);
    if (!strays_.contains({ld.key.generation, ld.key.extent_index})) {
      strays[ld.key.generation].push_back(ld);
    }
  }
  for (auto& [generation, lds] : strays) AdoptStrays(std::move(lds));
  StepActive();
}

// Whether a record, as it is now or as it is about to be, has this very LD.
bool Reconciler::IsNamed(const BoundLd& ld) const {
  std::set<Key> keys;
  if (const RegionPtr* region = writer_->state().FindRegionBySerial(ld.serial)) {
    keys.insert((*region)->key);
  }
  const auto track = tracks_.find(ld.key.generation);
  if (track != tracks_.end()) keys.insert(track->second.region);
  return std::any_of(keys.begin(), keys.end(), [&](Key key) {
    const RegionPtr* planned = writer_->state().FindRegion(key);
    const RegionPtr durable = Durable(key);
    return (planned != nullptr && Names(**planned, ld)) ||
           (durable != nullptr && Names(*durable, ld));
  });
}

// A LD that reaches bytes of the slice and that no record has: nothing may be cleared under it.
const BoundLd* Reconciler::NamelessOn(const Slice& slice) const {
  for (const BoundLd& ld : nameless_) {
    const bool overlaps = ld.slice.device == slice.device &&
                          ld.slice.dpa_bytes < slice.dpa_bytes + slice.length_bytes &&
                          slice.dpa_bytes < ld.slice.dpa_bytes + ld.slice.length_bytes;
    if (overlaps && !IsNamed(ld)) return &ld;
  }
  return nullptr;
}

void Reconciler::AddDevices(const FabricView& view) {
  Change change;
  for (const FabricDevice& seen : view.devices) {
    const Device* known = writer_->state().FindDevice(seen.id);
    if (known == nullptr) {
      writer_->Submit(
          Audit{{}, "manager", "add-device", ""},
          [seen](const PoolState& state, PlanContext& context) -> absl::StatusOr<Proposal> {
            if (state.FindDevice(seen.id) != nullptr) return Proposal{};
            return Proposal::Of(Device{.key = context.next_id(),
                                       .id = seen.id,
                                       .serial = seen.serial,
                                       .capacity_bytes = seen.capacity_bytes,
                                       .granule_bytes = seen.granule_bytes,
                                       .reachable = true,
                                       .service_reason = {}},
                                nullptr);
          },
          [this, id = seen.id](const absl::StatusOr<Committed>& done) {
            if (done.ok()) writer_->SetReachable(id, true);
          });
      continue;
    }
    const bool same = known->serial == seen.serial &&
                      known->capacity_bytes == seen.capacity_bytes &&
                      known->granule_bytes == seen.granule_bytes;
    if (!same && known->reachable) {
      LogError("reconciler", "device ", seen.id, " is not what the store knows by that name ",
               "(serial, capacity or granule differ): nothing will be placed on it; give the new ",
               "device a new name");
    }
    if (known->reachable != same) writer_->SetReachable(seen.id, same);
  }
  for (const auto& [id, device] : writer_->state().devices()) {
    const bool seen = std::any_of(view.devices.begin(), view.devices.end(),
                                  [&, name = id](const FabricDevice& d) { return d.id == name; });
    if (!seen && device.reachable) {
      LogWarning("reconciler", "device ", id, " is no longer seen by the fabric");
      writer_->SetReachable(id, false);
    }
  }
}

// LDs of one Attachment that no record intends: PlanStray takes their bytes out of use.
void Reconciler::AdoptStrays(std::vector<BoundLd> lds) {
  const uint64_t generation = lds.front().key.generation;
  for (const BoundLd& ld : lds) strays_.insert({generation, ld.key.extent_index});
  std::sort(lds.begin(), lds.end(), [](const BoundLd& a, const BoundLd& b) {
    return a.key.extent_index < b.key.extent_index;
  });
  std::vector<StrayLd> found;
  for (const BoundLd& ld : lds) {
    LogError("reconciler", "host ", ld.key.host, " slot ", ld.slot, " is bound to ",
             ld.slice.device, " at ", ld.slice.dpa_bytes,
             " by no record of this pool: taking it down");
    const auto tag = ParseUuid(ld.key.tag);
    found.push_back({ld.key.host,
                     tag.ok() ? Uuid(*tag) : Uuid(),
                     generation,
                     ld.key.extent_index,
                     ld.slot,
                     ld.serial,
                     {ld.slice.device, ld.slice.dpa_bytes, ld.slice.length_bytes}});
  }
  writer_->Submit(
      Audit{{}, "manager", "adopt-stray", "bound in the fabric, but in no record"},
      [found](const PoolState& state, PlanContext& context) -> absl::StatusOr<Proposal> {
        return Proposal{PlanStray(state, found, context), nullptr};
      },
      [this, generation, host = found.front().host](const absl::StatusOr<Committed>& done) {
        if (!done.ok()) {
          // The next discovery tries again.
          std::erase_if(strays_, [&](const auto& ld) { return ld.first == generation; });
          LogError("reconciler", "cannot take down stray LD ", generation, " of ", host, ": ",
                   done.status().message(), "; `cxlpool host fence ", host, " --reason WHY` does");
        }
      });
}

void Reconciler::OnFabricEvent(const FabricEvent& event) {
  switch (event.kind) {
    case FabricEvent::Kind::kLdLost:
      LogWarning("reconciler", "host ", event.host, " lost a LD of Region ", event.key.tag);
      break;
    case FabricEvent::Kind::kHostGone:
      LogWarning("reconciler", "host ", event.host, " is gone: nothing is bound there any more");
      for (auto& [generation, track] : tracks_) {
        if (track.host != event.host || track.driver_calls > 0) continue;
        track.driver_epoch = ++driver_epoch_;
        for (SegmentKnown& known : track.known) known.fabric = FabricSide::kUnbound;
      }
      TouchHost(event.host);
      break;
    case FabricEvent::Kind::kHostReachable:
    case FabricEvent::Kind::kHostUnreachable:
      LogInfo("reconciler", "host ", event.host,
              event.kind == FabricEvent::Kind::kHostReachable ? " is" : " is not",
              " reachable by the fabric");
      break;
  }
  Discover([](const absl::Status&) {});
}

void Reconciler::Fence(const std::string& host, Audit audit, Done done) {
  if (!fencing_.insert(host).second) {
    std::move(done)(Refusal{
        absl::StatusCode::kFailedPrecondition,
        "FENCE_FAILED",
        absl::StrCat("host \"", host, "\" is being fenced already"),
        "see `cxlpool host list` in a moment",
        {}}.ToStatus());
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
  const bool busy = std::any_of(tracks_.begin(), tracks_.end(), [&](const auto& entry) {
    return entry.second.host == host && entry.second.driver_calls > 0;
  });
  if (busy && clock_->Elapsed() >= deadline) {
    std::move(done)(Refusal{
        absl::StatusCode::kFailedPrecondition,
        "FENCE_FAILED",
        absl::StrCat("calls to the fabric about host \"", host, "\" do not end"),
        "try again",
        {}}.ToStatus());
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
      if (!status.ok()) {
        std::move(done)(std::move(status));
        return;
      }
      for (auto& [generation, track] : tracks_) {
        if (track.host != host) continue;
        track.driver_epoch = ++driver_epoch_;
        for (SegmentKnown& known : track.known) known.fabric = FabricSide::kUnbound;
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
              attachment.state = AttachmentState::kUnbound;
              if (edited->state == RegionState::kReserved) {
                edited->compensating = true;
                edited->state_reason = attachment.reason;
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
