// What the reconciler makes of a look at the fabric: devices, hosts, which LDs are there, and which
// of them no record has.

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "fabric-manager/model/planner.h"
#include "fabric-manager/service/reconciler.h"
#include "proto/support/log.h"
#include "proto/support/mutant.h"
#include "proto/support/names.h"

namespace cxlpool::fm {
namespace {

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

}  // namespace

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
  std::set<absl::string_view> reachable;
  for (const FabricHost& host : view.hosts) {
    if (host.reachable) reachable.insert(host.id);
    const HostRuntime& known = writer_->state().Runtime(host.id);
    if (known.fabric_reachable == host.reachable && known.fabric_slots == host.slots) continue;
    HostRuntime runtime = known;
    runtime.fabric_reachable = host.reachable;
    if (host.reachable) runtime.fabric_slots = host.slots;
    writer_->SetRuntime(host.id, std::move(runtime));
  }
  viewed_ = true;
  std::multimap<uint64_t, const BoundLd*> bound;  // By generation.
  for (const BoundLd& ld : view.bound) bound.emplace(ld.key.generation, &ld);
  for (auto& [generation, track] : tracks_) {
    const bool old = track.driver_calls > 0 || track.driver_epoch > epoch;
    if (!CXLPOOL_MUTANT("believe-old-view") && old) continue;
    const RegionPtr region = Durable(track.region);
    const Attachment* attachment = region == nullptr ? nullptr : region->FindAttachment(track.host);
    if (attachment == nullptr || attachment->generation != generation) continue;
    const bool seen = CXLPOOL_MUTANT("unreachable-is-unbound") || reachable.contains(track.host);
    const auto [from, to] = bound.equal_range(generation);
    // As long as they agree: an Attachment that was resized is looked at again by its next step.
    for (size_t i = 0; i < std::min(track.known.size(), attachment->segments.size()); ++i) {
      FabricSide side = seen ? FabricSide::kUnbound : FabricSide::kUnknown;
      for (auto at = from; at != to; ++at) {
        const BoundLd& ld = *at->second;
        const Segment& segment = attachment->segments[i];
        if (ld.key.extent_index != segment.ld_index.value_or(segment.extent_index)) continue;
        // Another LD by this one's key is neither this one nor its absence.
        const bool same = CXLPOOL_MUTANT("forget-ld-conflicts") || Names(*region, ld);
        side = !same          ? FabricSide::kUnknown
               : ld.unbinding ? FabricSide::kUnbinding
                              : FabricSide::kBound;
      }
      if (track.known[i].fabric == side) continue;
      // A host that is gone for certain does not become uncertain because it cannot be asked.
      if (side == FabricSide::kUnknown && track.known[i].fabric == FabricSide::kUnbound) continue;
      track.known[i].fabric = side;
      Touch(track.region);
    }
  }
  std::map<StrayOf, std::vector<BoundLd>> strays;
  nameless_.clear();
  for (const BoundLd& ld : view.bound) {
    // A call that is under way may have made it, or be about to unmake it.
    const auto track = tracks_.find(ld.key.generation);
    const bool stale = track != tracks_.end() &&
                       (track->second.driver_calls > 0 || track->second.driver_epoch > epoch);
    if (CXLPOOL_MUTANT("ignore-strays") || stale || IsNamed(ld)) continue;
    nameless_.push_back(ld);
    // After two restores, LDs of two hosts may bear one generation.
    const StrayOf of{ld.key.generation, ld.key.host, ld.key.tag};
    if (!strays_.contains({of, ld.key.extent_index})) strays[of].push_back(ld);
  }
  for (auto& [of, lds] : strays) AdoptStrays(std::move(lds));
  StepActive();
}

// Whether a record, as it is now or as it is about to be, has this very LD.
bool Reconciler::IsNamed(const BoundLd& ld) const {
  const auto names_it = [&](Key key) {
    const RegionPtr* planned = writer_->state().FindRegion(key);
    if (planned != nullptr && Names(**planned, ld)) return true;
    const RegionPtr durable = Durable(key);
    return durable != nullptr && Names(*durable, ld);
  };
  const RegionPtr* region = writer_->state().FindRegionBySerial(ld.serial);
  if (region != nullptr && names_it((*region)->key)) return true;
  const auto track = tracks_.find(ld.key.generation);
  return track != tracks_.end() && names_it(track->second.region);
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
  std::vector<std::string> found;
  std::vector<std::string> lost;
  for (const FabricDevice& seen : view.devices) {
    const Device* known = writer_->state().FindDevice(seen.id);
    if (known == nullptr) {
      writer_->Submit(
          Audit{{}, "manager", "add-device", ""},
          [seen](const PoolState& state, PlanContext& context) -> absl::StatusOr<Proposal> {
            return Proposal{PlanSeenDevice(state,
                                           Device{.id = seen.id,
                                                  .serial = seen.serial,
                                                  .capacity_bytes = seen.capacity_bytes,
                                                  .granule_bytes = seen.granule_bytes,
                                                  .reachable = true,
                                                  .service_reason = {}},
                                           context),
                            nullptr};
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
    if (known->reachable != same) (same ? found : lost).push_back(seen.id);
  }
  for (const auto& [id, device] : writer_->state().devices()) {
    const bool seen = std::any_of(view.devices.begin(), view.devices.end(),
                                  [&, name = id](const FabricDevice& d) { return d.id == name; });
    if (!seen && device.reachable) {
      LogWarning("reconciler", "device ", id, " is no longer seen by the fabric");
      lost.push_back(id);
    }
  }
  writer_->SetReachable(found, true);
  writer_->SetReachable(lost, false);
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

// LDs of one Attachment that no record intends: PlanStray holds their bytes, and what uses them,
// for an operator's decision.
void Reconciler::AdoptStrays(std::vector<BoundLd> lds) {
  const LdKey& key = lds.front().key;
  const StrayOf of{key.generation, key.host, key.tag};
  const uint64_t generation = key.generation;
  for (const BoundLd& ld : lds) strays_.insert({of, ld.key.extent_index});
  std::sort(lds.begin(), lds.end(), [](const BoundLd& a, const BoundLd& b) {
    return a.key.extent_index < b.key.extent_index;
  });
  std::vector<StrayLd> found;
  for (const BoundLd& ld : lds) {
    LogError("reconciler", "host ", ld.key.host, " slot ", ld.slot, " is bound to ",
             ld.slice.device, " at ", ld.slice.dpa_bytes,
             " by no record of this pool: held for your decision, see `cxlpool region list`");
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
      [this, of, generation, host = found.front().host](const absl::StatusOr<Committed>& done) {
        if (!done.ok()) {
          // The next discovery tries again.
          std::erase_if(strays_, [&](const auto& ld) { return ld.first == of; });
          LogError("reconciler", "cannot hold stray LD ", generation, " of ", host, ": ",
                   done.status().message(), "; `cxlpool host fence ", host,
                   " --reason WHY` takes it from the host");
        }
      });
}

}  // namespace cxlpool::fm
