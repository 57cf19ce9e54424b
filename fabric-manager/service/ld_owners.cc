#include "fabric-manager/service/ld_owners.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "fabric-manager/model/plans/planner.h"
#include "fabric-manager/service/ld_names.h"
#include "proto/support/log.h"
#include "proto/support/mutant.h"
#include "proto/support/names.h"

namespace cxlpool::fm {

// Which strays are held together: those of one key. One without a key is held by itself, by its
// slot.
LdOwners::StrayOf LdOwners::StrayOfLd(const BoundLd& ld) {
  if (ld.key.has_value()) return {ld.key->generation, ld.host, ld.key->tag};
  return {0, ld.host, absl::StrCat("slot ", ld.slot)};
}

uint32_t LdOwners::IndexOf(const BoundLd& ld) {
  return ld.key.has_value() ? ld.key->extent_index : 0;
}

// What the records have of a host is gone through once, however many LDs are bound there.
void LdOwners::NameByPlace(std::vector<BoundLd>& bound) const {
  if (keeps_keys_ || CXLPOOL_MUTANT("unnamed-is-a-stray")) return;
  std::map<absl::string_view, std::multimap<uint32_t, BoundLd*>> unnamed;  // By host and slot.
  for (BoundLd& ld : bound) {
    if (!ld.key.has_value()) unnamed[ld.host].emplace(ld.slot, &ld);
  }
  for (const auto& [host, in_slot] : unnamed) {
    for (const auto& [generation, track] : tracks_->OfHost(host)) {
      const RegionPtr region = writer_->Durable(track->region);
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

// Of a host that is retired, or listed no more, the operator has said that it is off.
bool LdOwners::IsGivenUp(const std::string& host) const {
  if (const Host* known = writer_->state().FindHost(host); known != nullptr) {
    return known->retired && writer_->IsDurable(known->key);
  }
  const std::vector<HostEntry>& listed = writer_->DurableTables().hosts;
  return std::none_of(listed.begin(), listed.end(),
                      [&](const HostEntry& entry) { return entry.id == host; });
}

// LDs of a host that cannot be asked are unknown, not absent: what it was seen to have it counts as
// having. A host that the fabric does not show at all has nothing.
std::vector<LdOwners::Unrecorded> LdOwners::TakeLds(const std::string& only, const FabricView& view,
                                                    const HasEnded& has_ended) {
  std::map<absl::string_view, const FabricHost*> hosts;
  for (const FabricHost& host : view.hosts) hosts[host.id] = &host;
  std::vector<Unrecorded> lds;
  for (const Unrecorded& before : unrecorded_) {
    const std::string& host = before.ld.host;
    const auto now = hosts.find(host);
    if (now == hosts.end() || now->second->reachable || before.doubted) continue;
    if (CXLPOOL_MUTANT("unreachable-hosts-have-no-strays")) continue;
    if (has_ended(host, before.life) || IsGivenUp(host)) continue;
    std::vector<BoundLd> ld = {before.ld};
    NameByPlace(ld);  // It may have a record by now.
    lds.push_back({std::move(ld.front()), before.life, /*shown=*/false, /*doubted=*/false});
  }
  std::erase_if(unrecorded_, [&](const Unrecorded& before) {
    return only.empty() || before.ld.host == only || CXLPOOL_MUTANT("one-look-forgets-strays");
  });
  for (const BoundLd& ld : view.bound) {
    const auto host = hosts.find(ld.host);
    const std::string life = host == hosts.end() ? "" : host->second->fabric_incarnation;
    lds.push_back({ld, life, /*shown=*/true, /*doubted=*/false});
  }
  return lds;
}

// A stray is told of once, and held for as long as it is seen: whatever of its bytes anybody could
// be given is held again, for its device may have come in, or grown, since it was seen first.
std::set<std::string> LdOwners::TakeView(const std::string& only, const FabricView& view,
                                         uint64_t epoch, const HasEnded& has_ended) {
  std::set<std::string> again;
  std::map<StrayOf, std::vector<BoundLd>> strays;
  std::set<std::pair<StrayOf, uint32_t>> seen;
  for (Unrecorded& each : TakeLds(only, view, has_ended)) {
    const BoundLd ld = each.ld;
    // A call that is under way may have bound it, or be about to unbind it. One about another host
    // did nothing here.
    const Track* const track = ld.key.has_value() ? tracks_->Find(ld.key->generation) : nullptr;
    const bool stale = track != nullptr && track->host == ld.host && calls_->IsStale(*track, epoch);
    if (CXLPOOL_MUTANT("ignore-strays") || IsNamed(ld)) continue;
    if (stale) {
      if (!each.shown) unrecorded_.push_back(std::move(each));  // It stays what it was.
      continue;
    }
    each.doubted =
        each.shown && calls_->DroppedSince(ld.host, epoch) && !CXLPOOL_MUTANT("gone-is-a-stray");
    const bool doubted = each.doubted;
    unrecorded_.push_back(std::move(each));
    // After two restores, LDs of two hosts may bear one generation.
    const std::pair stray(StrayOfLd(ld), IndexOf(ld));
    seen.insert(stray);
    if (doubted) {
      again.insert(ld.host);
      continue;
    }
    // Of other storage than the records know by that name: whose bytes it shows nobody can say.
    const Device* device = writer_->state().FindDevice(ld.slice.device);
    const bool other = device != nullptr && !device->reachable;
    if (!CXLPOOL_MUTANT("adopt-unknown-storage") && other) continue;
    const bool free = LooksFree(ld, view);
    if (device == nullptr && !free) continue;  // Nobody can be given its bytes, and none be held.
    const bool known = strays_.contains(stray);
    if (!known || (free && !CXLPOOL_MUTANT("stray-is-held-once"))) {
      strays[stray.first].push_back(ld);
    }
  }
  // One that has gone is told of anew if it comes back.
  std::set<std::string> asked;
  for (const FabricHost& host : view.hosts) {
    if (host.reachable) asked.insert(host.id);
  }
  std::erase_if(strays_, [&](const auto& stray) {
    return asked.contains(std::get<1>(stray.first)) && !seen.contains(stray);
  });
  for (auto& [of, lds] : strays) Adopt(std::move(lds));
  return again;
}

// Whether bytes of the LD can be given to somebody: now, or once the device is on record that this
// look shows for the first time, or larger than before. That is in the Writer's queue already, so
// that what is submitted now comes right behind it.
bool LdOwners::LooksFree(const BoundLd& ld, const FabricView& view) const {
  const PoolState& state = writer_->state();
  const Slice& slice = ld.slice;
  const Device* known = state.FindDevice(slice.device);
  for (const FabricDevice& device : view.devices) {
    const bool comes = known == nullptr || known->capacity_bytes < device.capacity_bytes;
    if (device.id == slice.device && comes) return true;
  }
  // What is on a failed device is given to nobody, and no scrub of it waits for the LD to go.
  if (known == nullptr || known->service == DeviceService::kFailed) return false;
  const DeviceIndex index = *state.IndexOf(Interned(known->id));
  return !state.space().FreeIn(index, slice.dpa_bytes, slice.length_bytes).empty();
}

// Whether a record, as it is now or as it is about to be, has this very LD.
bool LdOwners::IsNamed(const BoundLd& ld) const {
  const auto names_it = [&](Key key) {
    const RegionPtr* planned = writer_->state().FindRegion(key);
    if (planned != nullptr && Names(**planned, ld, chooses_serial_)) return true;
    const RegionPtr durable = writer_->Durable(key);
    return durable != nullptr && Names(*durable, ld, chooses_serial_);
  };
  const RegionPtr* region = writer_->state().FindRegionBySerial(ld.serial);
  if (region != nullptr && names_it((*region)->key)) return true;
  const Track* const track = ld.key.has_value() ? tracks_->Find(ld.key->generation) : nullptr;
  return track != nullptr && names_it(track->region);
}

const BoundLd* LdOwners::UnrecordedOn(const Slice& slice) const {
  for (const Unrecorded& each : unrecorded_) {
    const BoundLd& ld = each.ld;
    // Without a sum: a host may say any length.
    const bool overlaps = ld.slice.device == slice.device &&
                          (ld.slice.dpa_bytes < slice.dpa_bytes
                               ? slice.dpa_bytes - ld.slice.dpa_bytes < ld.slice.length_bytes
                               : ld.slice.dpa_bytes - slice.dpa_bytes < slice.length_bytes);
    if (overlaps && !IsNamed(ld)) return &ld;
  }
  return nullptr;
}

// LDs of one Attachment that no record intends: PlanStray holds their bytes, and what uses them,
// for an operator's decision.
void LdOwners::Adopt(std::vector<BoundLd> lds) {
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
        if (done.ok()) {
          writer_->meters().strays.Add();
          // From now on the record says what becomes of it, also where its host cannot be asked.
          std::erase_if(unrecorded_, [this](const Unrecorded& each) { return IsNamed(each.ld); });
        } else {
          // The next look tries again.
          std::erase_if(strays_, [&](const auto& ld) { return ld.first == of; });
          LogError("reconciler", "cannot hold stray LD ", generation, " of ", host, ": ",
                   done.status().message(), "; `cxlpool host fence ", host,
                   " --reason WHY` takes it from the host");
        }
      });
}

}  // namespace cxlpool::fm
