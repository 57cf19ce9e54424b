// What the reconciler makes of a look at the fabric: devices, hosts, which LDs are there, and which
// of them no record has.

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "fabric-manager/model/plans/planner.h"
#include "fabric-manager/model/space/bytes.h"
#include "fabric-manager/service/reconciler.h"
#include "proto/support/log.h"
#include "proto/support/mutant.h"
#include "proto/support/names.h"

namespace cxlpool::fm {
namespace {

constexpr char kNotShownYet[] = "the fabric has not shown it yet";

bool HasBytes(const Region& region, const Segment& segment, const BoundLd& ld) {
  const Extent& extent = region.extents[segment.extent_index];
  return extent.device.str() == ld.slice.device && extent.dpa_bytes == ld.slice.dpa_bytes &&
         extent.length_bytes == ld.slice.length_bytes;
}

// Whether the Region has this very LD: by key, place, serial and bytes. Where hardware chooses the
// serials, a record has the pool's wish until it was told the fact.
bool Names(const Region& region, const BoundLd& ld, bool chooses_serial) {
  if (!ld.key.has_value()) return false;
  for (const Attachment& attachment : region.attachments) {
    if (attachment.generation != ld.key->generation || attachment.host != ld.host) continue;
    for (const Segment& segment : attachment.segments) {
      const bool wish = !chooses_serial && (segment.serial & kSerialBase) == kSerialBase;
      if (segment.ld_index.value_or(segment.extent_index) == ld.key->extent_index &&
          segment.slot == ld.slot && (wish || segment.serial == ld.serial) &&
          HasBytes(region, segment, ld)) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace

// What strays are taken in hand together, and which of them this is. One that bears no name is
// taken in hand by itself: by its slot.
Reconciler::StrayOf Reconciler::StrayOfLd(const BoundLd& ld) {
  if (ld.key.has_value()) return {ld.key->generation, ld.host, ld.key->tag};
  return {0, ld.host, absl::StrCat("slot ", ld.slot)};
}

uint32_t Reconciler::IndexOf(const BoundLd& ld) {
  return ld.key.has_value() ? ld.key->extent_index : 0;
}

// One look at a time covers a host, so that what was seen later is never overwritten by what was
// seen before. A look at a host that is asked for meanwhile follows: the one that is under way may
// have read the host before what it was asked for happened. That one answers `done` at once.
void Reconciler::Discover(const std::string& host, Done done) {
  const bool covered = discovering_.contains("") && !CXLPOOL_MUTANT("older-look-wins");
  if (covered || discovering_.contains(host)) {
    if (!host.empty()) look_again_.insert(host);
    std::move(done)(absl::OkStatus());
    return;
  }
  discovering_.insert(host);
  if (host.empty()) ++full_looks_;
  auto take = [this, host, full_looks = full_looks_, epoch = driver_epoch_,
               done = std::move(done)](absl::StatusOr<FabricView> view) mutable {
    executor_->Post(
        [this, host, full_looks, epoch, view = std::move(view), done = std::move(done)]() mutable {
          discovering_.erase(host);
          if (!view.ok()) {
            LogWarning("reconciler", "discovery: ", view.status().message());
          } else if (full_looks == full_looks_) {
            TakeView(host, *std::move(view), epoch);
          } else {  // A look at everything began after this one: it knows more of this host.
            look_again_.insert(host);
          }
          std::move(done)(view.status());
          LookAgain();
        });
  };
  if (!host.empty()) return driver_->DiscoverHost(host, std::move(take));
  next_discover_ = clock_->Elapsed() + options_.discover_period;
  Configure([this, take = std::move(take)](absl::Status configured) mutable {
    if (!configured.ok()) {
      LogWarning("reconciler", "the fabric does not take its topology: ", configured.message());
    }
    // Later it goes on as it was; at the start it has nothing yet to show.
    if (!configured.ok() && !viewed_) return take(std::move(configured));
    driver_->Discover(std::move(take));
  });
}

// Looks at the hosts that had to wait for another look.
void Reconciler::LookAgain() {
  if (discovering_.contains("")) return;
  for (const std::string& host : std::exchange(look_again_, {})) {
    if (discovering_.contains(host)) {
      look_again_.insert(host);
    } else {
      Discover(host, [](const absl::Status&) {});
    }
  }
}

// Whose the bindings are that the driver has no names for: what the records have in that slot of
// that host, with those bytes. The rest is nobody's.
void Reconciler::NameByPlace(std::vector<BoundLd>& bound) const {
  if (keeps_keys_ || CXLPOOL_MUTANT("unnamed-is-a-stray")) return;
  std::map<absl::string_view, std::multimap<uint32_t, BoundLd*>> unnamed;  // By host and slot.
  for (BoundLd& ld : bound) {
    if (!ld.key.has_value()) unnamed[ld.host].emplace(ld.slot, &ld);
  }
  // What the records have of a host is gone through once, however many LDs are bound there.
  for (const auto& [host, in_slot] : unnamed) {
    for (const auto& [generation, track] : tracks_.OfHost(host)) {
      const RegionPtr region = Durable(track->region);
      const Attachment* attachment = region == nullptr ? nullptr : region->FindAttachment(host);
      if (attachment == nullptr || attachment->generation != generation) continue;
      for (uint32_t i = 0; i < attachment->segments.size(); ++i) {
        const auto [from, to] = in_slot.equal_range(attachment->segments[i].slot);
        for (auto at = from; at != to; ++at) {
          if (!HasBytes(*region, attachment->segments[i], *at->second)) continue;
          at->second->key = KeyFor(*region, *attachment, i);
        }
      }
    }
  }
}

// Where the topology is another than the driver was last given. Nothing but what is durable: the
// driver never knows a device that a restart would not know.
void Reconciler::Configure(Done done) {
  if (!stale_topology_ || !IsImported(writer_->state())) {
    std::move(done)(absl::OkStatus());
    return;
  }
  stale_topology_ = false;
  FabricParts parts{writer_->DurableTables(), {}};
  if (CXLPOOL_MUTANT("topology-before-commit")) parts.tables = writer_->state().GetTopologyTables();
  for (const auto& [id, host] : writer_->state().hosts()) {
    parts.known.hosts[id] = host.fabric_incarnation;
  }
  driver_->Configure(std::move(parts), [this, done = std::move(done)](absl::Status status) mutable {
    executor_->Post([this, status = std::move(status), done = std::move(done)]() mutable {
      if (!status.ok()) stale_topology_ = true;
      std::move(done)(std::move(status));
    });
  });
}

void Reconciler::FollowTopology(Done done) {
  if (!IsImported(writer_->state())) return std::move(done)(absl::OkStatus());
  stale_topology_ = true;
  // A look that is under way may have passed by what is new.
  if (discovering_.contains("")) {
    executor_->PostAfter(options_.look_again, [this, done = std::move(done)]() mutable {
      FollowTopology(std::move(done));
    });
    return;
  }
  Discover("", [this, done = std::move(done)](const absl::Status&) mutable {
    AnswerBehindDevices(std::move(done));
  });
}

// `only`: the one host that was looked at; empty: all, and the devices. `epoch`: driver calls that
// began or ended after it make the view stale for their Attachment.
void Reconciler::TakeView(const std::string& only, FabricView view, uint64_t epoch) {
  NameByPlace(view.bound);
  if (only.empty()) TakeDevices(view);
  TakeHosts(only, view);
  std::map<absl::string_view, std::set<uint32_t>> reachable;  // Hosts, with the slots to be seen.
  for (const FabricHost& host : view.hosts) {
    if (!host.reachable) continue;
    std::set<uint32_t>& slots = reachable[host.id];
    slots.insert(host.slots.begin(), host.slots.end());
    slots.insert(host.closed_slots.begin(), host.closed_slots.end());
  }
  viewed_ |= only.empty();
  std::multimap<uint64_t, const BoundLd*> bound;  // By generation.
  for (const BoundLd& ld : view.bound) {
    if (ld.key.has_value()) bound.emplace(ld.key->generation, &ld);
  }
  for (const auto& [generation, of] : only.empty() ? tracks_.All() : tracks_.OfHost(only)) {
    Track& track = *of;
    const bool old = track.driver_calls > 0 || track.driver_epoch > epoch;
    if (!CXLPOOL_MUTANT("believe-old-view") && old) continue;
    const RegionPtr region = Durable(track.region);
    const Attachment* attachment = region == nullptr ? nullptr : region->FindAttachment(track.host);
    if (attachment == nullptr || attachment->generation != generation) continue;
    const auto host = reachable.find(track.host);
    const bool all_seen = CXLPOOL_MUTANT("unreachable-is-unbound") || IsGone(track.host);
    const auto [from, to] = bound.equal_range(generation);
    // As long as they agree: an Attachment that was resized is looked at again by its next step.
    for (size_t i = 0; i < std::min(track.known.size(), attachment->segments.size()); ++i) {
      const Segment& segment = attachment->segments[i];
      // What is not shown is absent only where the fabric can look: in a slot that it knows.
      const bool seen =
          all_seen || (host != reachable.end() && (CXLPOOL_MUTANT("unseen-slot-is-unbound") ||
                                                   host->second.contains(segment.slot)));
      FabricSide side = seen ? FabricSide::kUnbound : FabricSide::kUnknown;
      for (auto at = from; at != to; ++at) {
        const BoundLd& ld = *at->second;
        if (ld.key->extent_index != segment.ld_index.value_or(segment.extent_index)) continue;
        // Another LD by this one's key is neither this one nor its absence.
        const bool same =
            CXLPOOL_MUTANT("forget-ld-conflicts") || Names(*region, ld, chooses_serial_);
        side = !same          ? FabricSide::kUnknown
               : ld.unbinding ? FabricSide::kUnbinding
                              : FabricSide::kBound;
        if (same) track.known[i].serial = ld.serial;
      }
      if (track.known[i].fabric == side) continue;
      // A host that is gone for certain does not become uncertain because it cannot be asked.
      if (side == FabricSide::kUnknown && track.known[i].fabric == FabricSide::kUnbound) continue;
      track.known[i].fabric = side;
      Touch(track.region);
    }
  }
  std::map<StrayOf, std::vector<BoundLd>> strays;
  std::erase_if(unrecorded_lds_, [&](const BoundLd& ld) {
    return only.empty() || ld.host == only || CXLPOOL_MUTANT("one-look-forgets-strays");
  });
  for (const BoundLd& ld : view.bound) {
    // A call that is under way may have made it, or be about to unmake it.
    const Track* const track = ld.key.has_value() ? tracks_.Find(ld.key->generation) : nullptr;
    const bool stale = track != nullptr && (track->driver_calls > 0 || track->driver_epoch > epoch);
    if (CXLPOOL_MUTANT("ignore-strays") || stale || IsNamed(ld)) continue;
    unrecorded_lds_.push_back(ld);
    // Its record may have gone since the look began, and the LD with it: another look tells.
    const auto dropped = dropped_.find(ld.host);
    if (dropped != dropped_.end() && dropped->second > epoch &&
        !CXLPOOL_MUTANT("gone-is-a-stray")) {
      look_again_.insert(ld.host);
      continue;
    }
    // Of other storage than the records know by that name: whose bytes it shows nobody can say.
    const Device* device = writer_->state().FindDevice(ld.slice.device);
    const bool other = device != nullptr && !device->reachable;
    if (!CXLPOOL_MUTANT("adopt-unknown-storage") && other) continue;
    // After two restores, LDs of two hosts may bear one generation.
    const StrayOf of = StrayOfLd(ld);
    if (!strays_.contains({of, IndexOf(ld)})) strays[of].push_back(ld);
  }
  for (auto& [of, lds] : strays) AdoptStrays(std::move(lds));
  StepActive();
}

// Whether a record, as it is now or as it is about to be, has this very LD.
bool Reconciler::IsNamed(const BoundLd& ld) const {
  const auto names_it = [&](Key key) {
    const RegionPtr* planned = writer_->state().FindRegion(key);
    if (planned != nullptr && Names(**planned, ld, chooses_serial_)) return true;
    const RegionPtr durable = Durable(key);
    return durable != nullptr && Names(*durable, ld, chooses_serial_);
  };
  const RegionPtr* region = writer_->state().FindRegionBySerial(ld.serial);
  if (region != nullptr && names_it((*region)->key)) return true;
  const Track* const track = ld.key.has_value() ? tracks_.Find(ld.key->generation) : nullptr;
  return track != nullptr && names_it(track->region);
}

// A LD that reaches bytes of the slice and that no record has: nothing may be cleared under it.
const BoundLd* Reconciler::UnrecordedOn(const Slice& slice) const {
  for (const BoundLd& ld : unrecorded_lds_) {
    const bool overlaps = ld.slice.device == slice.device &&
                          ld.slice.dpa_bytes < slice.dpa_bytes + slice.length_bytes &&
                          slice.dpa_bytes < ld.slice.dpa_bytes + ld.slice.length_bytes;
    if (overlaps && !IsNamed(ld)) return &ld;
  }
  return nullptr;
}

// What the view says of the hosts themselves; a host that it lacks cannot be asked.
void Reconciler::TakeHosts(const std::string& only, const FabricView& view) {
  std::map<std::string, const FabricHost*> shown;
  for (const FabricHost& host : view.hosts) shown[host.id] = &host;
  if (only.empty()) {
    for (const auto& [id, host] : writer_->state().hosts()) shown.try_emplace(id, nullptr);
  } else if (writer_->state().FindHost(only) != nullptr) {
    shown.try_emplace(only, nullptr);
  }
  for (const auto& [id, host] : shown) {
    const bool reachable = host != nullptr && host->reachable;
    std::string reason;
    if (reachable) {
      lives_[id] = host->fabric_incarnation;
    } else {
      reason =
          host != nullptr
              ? host->unreachable_reason
              : absl::StrCat("the pool's topology has no host of this id; `cxlpool host add ", id,
                             "` adds it, or if it was enrolled by mistake `cxlpool host remove ",
                             id, "` forgets it");
      lives_.erase(id);
    }
    RecordLife(id);
    const HostRuntime& known = writer_->state().Runtime(id);
    const std::map<std::string, std::string> unreached =
        reachable ? host->unreached : std::map<std::string, std::string>();
    const bool news = known.fabric_reachable != reachable || known.fabric_reason != reason ||
                      (reachable && known.fabric_slots != host->slots) ||
                      known.unreached != unreached;
    if (!news) continue;
    if (!reason.empty() && reason != known.fabric_reason) {
      LogWarning("reconciler", "host ", id, " cannot be asked what is bound there: ", reason);
    }
    HostRuntime runtime = known;
    runtime.fabric_reachable = reachable;
    runtime.fabric_reason = std::move(reason);
    if (reachable) runtime.fabric_slots = host->slots;
    runtime.unreached = unreached;
    writer_->SetRuntime(id, std::move(runtime));
  }
}

// A driver shows a host in another life only once everything that was bound in the former one is
// gone.
void Reconciler::RecordLife(const std::string& host) {
  const auto life = lives_.find(host);
  const Host* known = writer_->state().FindHost(host);
  if (known == nullptr || life == lives_.end() || known->fabric_incarnation == life->second) return;
  writer_->Submit(
      Audit{{}, "manager", "see-host", life->second},
      [host, seen = life->second](const PoolState& state,
                                  PlanContext&) -> absl::StatusOr<Proposal> {
        const Host* now = state.FindHost(host);
        if (now == nullptr || now->fabric_incarnation == seen) return Proposal{};
        Host edited = *now;
        edited.fabric_incarnation = seen;
        return Proposal::Of(edited, nullptr);
      },
      [this, host](const absl::StatusOr<Committed>&) {
        TouchHost(host);
        PostStep();
      });
}

std::string Reconciler::LifeOf(const std::string& host) const {
  const Host* known = writer_->state().FindHost(host);
  const auto life = lives_.find(host);
  if (known == nullptr || life == lives_.end() || known->fabric_incarnation != life->second) {
    return "";
  }
  const bool durable =
      writer_->IsDurable(known->key) || CXLPOOL_MUTANT("bind-before-life-is-durable");
  return durable ? known->fabric_incarnation : "";
}

bool Reconciler::IsGone(const std::string& host) const {
  const auto gone = gone_.find(host);
  const Host* known = writer_->state().FindHost(host);
  if (gone == gone_.end() || known == nullptr) return false;
  return known->fabric_incarnation.empty() || known->fabric_incarnation == gone->second;
}

// Compares what the fabric shows with what the records know by that name: what differs is another
// device, and nothing is done with it.
void Reconciler::TakeDevices(const FabricView& view) {
  std::map<std::string, std::string> why_not;  // Of each that the records know.
  for (const FabricDevice& seen : view.devices) {
    const Device* known = writer_->state().FindDevice(seen.id);
    if (known == nullptr) {
      AddDevice(seen);
      continue;
    }
    const bool other_storage = !known->identity.empty() && known->identity != seen.identity;
    std::string& why = why_not[seen.id];
    if (known->serial != seen.serial) {
      why = absl::StrCat("its serial is ", seen.serial, ", and the pool's records say ",
                         known->serial);
    } else if (known->capacity_bytes != seen.capacity_bytes && HasGrown(*known, seen)) {
      AddDevice(seen);
    } else if (known->capacity_bytes != seen.capacity_bytes) {
      why = absl::StrCat("its capacity is ", FormatBytes(seen.capacity_bytes),
                         ", and the pool's records say ", FormatBytes(known->capacity_bytes));
    } else if (known->granule_bytes != seen.granule_bytes) {
      why = absl::StrCat("its granule is ", FormatBytes(seen.granule_bytes),
                         ", and the pool's records say ", FormatBytes(known->granule_bytes));
    } else if (known->max_lds != seen.max_lds) {
      why = absl::StrCat("it places ", seen.max_lds, " LDs itself, and the pool's records say ",
                         known->max_lds);
    } else if (other_storage && !CXLPOOL_MUTANT("any-storage-will-do")) {
      why = "other storage stands behind its name than the pool's records know";
    } else if (known->identity != seen.identity) {
      RecordIdentity(seen);
    }
    if (!why.empty()) {
      absl::StrAppend(
          &why, "; put that right (`cxlpool topology`), or give what is new an id of its own");
    }
  }
  for (const auto& [id, device] : writer_->state().devices()) {
    // What was removed is let go.
    if (why_not.contains(id) || device.service == DeviceService::kRemoved) continue;
    const auto missing = view.missing_devices.find(id);
    why_not[id] = missing != view.missing_devices.end()
                      ? missing->second
                      : "the fabric does not show it; is it still part of `cxlpool topology`?";
  }
  stale_topology_ |= !view.missing_devices.empty();  // Tried again before the next look.
  std::erase_if(why_not, [this](const auto& entry) {
    const Device& known = *writer_->state().FindDevice(entry.first);
    return known.reachable == entry.second.empty() && known.unreachable_reason == entry.second;
  });
  const auto& unseen = writer_->UnseenDevices();
  for (const DeviceEntry& entry : writer_->DurableTables().devices) {
    if (writer_->state().FindDevice(entry.id) != nullptr || view.Shows(entry.id)) continue;
    const auto missing = view.missing_devices.find(entry.id);
    const std::string why = missing != view.missing_devices.end() ? missing->second : kNotShownYet;
    const auto known = unseen.find(entry.id);
    if (known == unseen.end() || known->second != why) why_not[entry.id] = why;
  }
  for (const auto& [id, why] : why_not) {
    if (why.empty()) {
      LogInfo("reconciler", "device ", id, " is seen by the fabric");
    } else {
      LogError("reconciler", "device ", id, " cannot be used: ", why);
    }
  }
  writer_->SetReachable(why_not);
  for (const auto& [id, why] : why_not) {
    for (const RegionPtr& region : writer_->state().RegionsOn(id)) Touch(region->key);
  }
}

// Whether the operator made the device larger, and the fabric shows it so.
bool Reconciler::HasGrown(const Device& known, const FabricDevice& seen) const {
  const auto& entries = writer_->DurableTables().devices;
  return known.max_lds == 0 && known.capacity_bytes < seen.capacity_bytes &&
         known.identity == seen.identity &&
         std::any_of(entries.begin(), entries.end(), [&](const DeviceEntry& entry) {
           return entry.id == seen.id && entry.capacity_bytes == seen.capacity_bytes;
         });
}

// Bytes that are there already are somebody's of whom the records know nothing: kept from everybody
// until an operator says otherwise, by a forced release, which scrubs them.
void Reconciler::AddDevice(const FabricDevice& seen) {
  // A look that began before a device was taken out of the topology still shows it.
  const auto& entries = writer_->DurableTables().devices;
  const bool listed = std::any_of(entries.begin(), entries.end(),
                                  [&](const DeviceEntry& entry) { return entry.id == seen.id; });
  if (!listed && IsImported(writer_->state())) return;
  // The same storage under two names would give each byte to two owners.
  for (const auto& [id, device] : writer_->state().devices()) {
    if (id == seen.id || seen.identity.empty() || device.identity != seen.identity ||
        device.service == DeviceService::kRemoved || CXLPOOL_MUTANT("one-storage-two-devices")) {
      continue;
    }
    if (renamed_.insert(seen.id).second) {
      LogError("reconciler", "device ", seen.id,
               " is not added: it is the storage that the pool's ", "records know as device ", id,
               "; call it so again");
    }
    return;
  }
  writer_->Submit(
      Audit{{}, "manager", "add-device", ""},
      [seen](const PoolState& state, PlanContext& context) -> absl::StatusOr<Proposal> {
        return Proposal{PlanSeenDevice(state,
                                       Device{.id = seen.id,
                                              .serial = seen.serial,
                                              .capacity_bytes = seen.capacity_bytes,
                                              .granule_bytes = seen.granule_bytes,
                                              .identity = seen.identity,
                                              .max_lds = seen.max_lds,
                                              .reachable = true,
                                              .service_reason = {}},
                                       seen.has_bytes, context),
                        nullptr};
      },
      [this, id = seen.id](const absl::StatusOr<Committed>& done) {
        if (done.ok()) writer_->SetReachable({{id, ""}});
      });
}

void Reconciler::RecordIdentity(const FabricDevice& seen) {
  writer_->Submit(
      Audit{{}, "manager", "see-device", seen.identity},
      [seen](const PoolState& state, PlanContext&) -> absl::StatusOr<Proposal> {
        const Device* now = state.FindDevice(seen.id);
        if (now == nullptr || !now->identity.empty()) return Proposal{};
        Device edited = *now;
        edited.identity = seen.identity;
        return Proposal::Of(edited, nullptr);
      },
      [](const absl::StatusOr<Committed>&) {});
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
  const StrayOf of = StrayOfLd(lds.front());
  const uint64_t generation = std::get<0>(of);
  for (const BoundLd& ld : lds) strays_.insert({of, IndexOf(ld)});
  std::sort(lds.begin(), lds.end(),
            [](const BoundLd& a, const BoundLd& b) { return IndexOf(a) < IndexOf(b); });
  std::vector<StrayLd> found;
  for (const BoundLd& ld : lds) {
    LogError("reconciler", "host ", ld.host, " slot ", ld.slot, " is bound to ", ld.slice.device,
             " at ", ld.slice.dpa_bytes,
             " by no record of this pool: held for your decision, see `cxlpool region list`");
    const auto tag = ParseUuid(ld.key.has_value() ? ld.key->tag : "");
    found.push_back({ld.host,
                     tag.ok() ? Uuid(*tag) : Uuid(),
                     generation,
                     ld.key.has_value() ? ld.key->extent_index : 0,
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
