#include "fabric-manager/service/fabric_members.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "fabric-manager/model/plans/plan_media.h"
#include "fabric-manager/model/plans/planner.h"
#include "fabric-manager/model/space/bytes.h"
#include "fabric-manager/service/fabric_calls.h"
#include "proto/support/log.h"
#include "proto/support/mutant.h"

namespace cxlpool::fm {
namespace {

// A driver may name several hosts, and what to do comes last.
constexpr size_t kMaxWhyMissing = 4096;
constexpr char kNotShownYet[] = "the fabric has not shown it yet";

// The device that the records know this storage as, by another name; empty: none. The same storage
// under two names would give each byte to two owners.
std::string OtherNameOf(const PoolState& state, const FabricDevice& seen) {
  if (seen.identity.empty() || CXLPOOL_MUTANT("one-storage-two-devices")) return "";
  for (const auto& [id, device] : state.devices()) {
    if (id != seen.id && device.identity == seen.identity &&
        device.service != DeviceService::kRemoved) {
      return id;
    }
  }
  return "";
}

// Whether the pool is to have a device of this name.
bool IsWanted(const PoolState& state, const std::string& id) {
  const auto& entries = state.topology_entries();
  return !IsImported(state) || std::any_of(entries.begin(), entries.end(), [&](const auto& entry) {
    const auto* device = std::get_if<DeviceEntry>(&entry.second.what);
    return device != nullptr && device->id == id;
  });
}

}  // namespace

// Of the hosts that were looked at, LifeOf has afterwards only the lives of those that could be
// asked: nothing is bound on the others until a look can ask them. Readers and the log hear only of
// news.
void FabricMembers::TakeHosts(const std::string& only, const FabricView& view) {
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
              ? FabricErrorText(host->unreachable_reason)
              : absl::StrCat("the pool's topology has no host of this id; `cxlpool host add ", id,
                             "` adds it, or if it was enrolled by mistake `cxlpool host remove ",
                             id, "` forgets it");
      lives_.erase(id);
    }
    RecordLife(id);
    const HostRuntime& known = writer_->state().Runtime(id);
    std::map<std::string, std::string> unreached;
    if (reachable) unreached = host->unreached;
    for (auto& [device, why] : unreached) why = FabricErrorText(why);
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

// Regions that wait for it are stepped once it is durable.
void FabricMembers::RecordLife(const std::string& host) {
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
      [this, host](const absl::StatusOr<Committed>& recorded) {
        active_->TouchHost(host);
        // Of a store that takes nothing the next tick asks again: a step now would come back here.
        if (recorded.ok() || CXLPOOL_MUTANT("lives-go-round-in-circles")) active_->PostStepAll();
      });
}

std::string FabricMembers::LifeOf(const std::string& host) const {
  const Host* known = writer_->state().FindHost(host);
  const auto life = lives_.find(host);
  if (known == nullptr || life == lives_.end() || known->fabric_incarnation != life->second) {
    return "";
  }
  const bool durable =
      writer_->IsDurable(known->key) || CXLPOOL_MUTANT("bind-before-life-is-durable");
  return durable ? known->fabric_incarnation : "";
}

bool FabricMembers::IsGone(const std::string& host) const {
  const auto gone = ended_.find(host);
  const Host* known = writer_->state().FindHost(host);
  if (gone == ended_.end() || known == nullptr) return false;
  return known->fabric_incarnation.empty() || known->fabric_incarnation == gone->second;
}

// Why the device that the fabric shows is not the one that the records know by that name; empty: it
// is, and what it has become is on its way into the records.
std::string FabricMembers::WhyNot(const Device& known, const FabricDevice& seen) {
  const bool other_storage = !known.identity.empty() && known.identity != seen.identity;
  if (known.serial != seen.serial) {
    return absl::StrCat("its serial is ", seen.serial, ", and the pool's records say ",
                        known.serial);
  }
  if (known.capacity_bytes != seen.capacity_bytes && HasGrown(known, seen)) {
    AddDevice(seen);
    return "";
  }
  if (known.capacity_bytes != seen.capacity_bytes) {
    return absl::StrCat("its capacity is ", FormatBytes(seen.capacity_bytes),
                        ", and the pool's records say ", FormatBytes(known.capacity_bytes));
  }
  if (known.granule_bytes != seen.granule_bytes) {
    return absl::StrCat("its granule is ", FormatBytes(seen.granule_bytes),
                        ", and the pool's records say ", FormatBytes(known.granule_bytes));
  }
  if (known.max_lds != seen.max_lds) {
    return absl::StrCat("it places ", seen.max_lds, " LDs itself, and the pool's records say ",
                        known.max_lds);
  }
  if (other_storage && !CXLPOOL_MUTANT("any-storage-will-do")) {
    return "other storage stands behind its name than the pool's records know";
  }
  if (known.identity != seen.identity) RecordIdentity(seen);
  return "";
}

// A device that is new becomes a record where the pool is to have it; one that is not what the
// records know by its name is not used, and neither is one that the fabric does not show; each says
// why. Only what is news is published and logged.
void FabricMembers::TakeDevices(const FabricView& view) {
  std::map<std::string, std::string> why_not;  // Of each that the records know.
  for (const FabricDevice& seen : view.devices) {
    const Device* known = writer_->state().FindDevice(seen.id);
    if (known == nullptr) {
      AddDevice(seen);
      continue;
    }
    std::string& why = why_not[seen.id];
    const std::string differs = WhyNot(*known, seen);
    if (!differs.empty()) {
      why = absl::StrCat(
          differs, "; put that right (`cxlpool topology`), or give what is new an id of its own");
    }
  }
  for (const auto& [id, device] : writer_->state().devices()) {
    // What was removed is let go.
    if (why_not.contains(id) || device.service == DeviceService::kRemoved) continue;
    const auto missing = view.missing_devices.find(id);
    why_not[id] = missing != view.missing_devices.end()
                      ? FabricErrorText(missing->second, kMaxWhyMissing)
                      : "the fabric does not show it; is it still part of `cxlpool topology`?";
  }
  std::erase_if(why_not, [this](const auto& entry) {
    const Device& known = *writer_->state().FindDevice(entry.first);
    return known.reachable == entry.second.empty() && known.unreachable_reason == entry.second;
  });
  // Those that the operator added, and that the fabric has never shown: they have no record yet.
  const auto& unseen = writer_->UnseenDevices();
  for (const DeviceEntry& entry : writer_->DurableTables().devices) {
    if (writer_->state().FindDevice(entry.id) != nullptr || view.Shows(entry.id)) continue;
    const auto missing = view.missing_devices.find(entry.id);
    const std::string why = missing != view.missing_devices.end()
                                ? FabricErrorText(missing->second, kMaxWhyMissing)
                                : kNotShownYet;
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
  if (why_not.empty()) return;
  // One walk, and only of Regions that hosts have: of a million others each would be stepped for
  // nothing, while this thread gives no sign of life. What is not settled is active anyway.
  for (const auto& [key, region] : writer_->state().regions()) {
    if (region->attachments.empty()) continue;
    const auto is_on = [&of = *region](const auto& entry) { return of.HasBytesOn(entry.first); };
    const bool concerned = std::any_of(why_not.begin(), why_not.end(), is_on);
    if (concerned) active_->Touch(key);
  }
}

// Whether the operator made the device larger, and the fabric shows it so.
bool FabricMembers::HasGrown(const Device& known, const FabricDevice& seen) const {
  const auto& entries = writer_->DurableTables().devices;
  return known.max_lds == 0 && known.capacity_bytes < seen.capacity_bytes &&
         known.identity == seen.identity &&
         std::any_of(entries.begin(), entries.end(), [&](const DeviceEntry& entry) {
           return entry.id == seen.id && entry.capacity_bytes == seen.capacity_bytes;
         });
}

// Bytes that are there already may be somebody's, and no record says whose: they are kept from
// everybody until an operator says otherwise, by a forced release, which scrubs them.
void FabricMembers::AddDevice(const FabricDevice& seen) {
  // A look that began before a device was taken out of the topology still shows it.
  const auto& entries = writer_->DurableTables().devices;
  const bool listed = std::any_of(entries.begin(), entries.end(),
                                  [&](const DeviceEntry& entry) { return entry.id == seen.id; });
  if (!listed && IsImported(writer_->state())) return;
  if (const std::string id = OtherNameOf(writer_->state(), seen); !id.empty()) {
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
        // Once more: what was planned before it may have taken its entry away, or be the same
        // storage, which this look shows twice.
        const bool may = IsWanted(state, seen.id) && OtherNameOf(state, seen).empty();
        if (!may && !CXLPOOL_MUTANT("devices-are-judged-before-their-turn")) return Proposal{};
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
        const bool is_there = writer_->state().FindDevice(id) != nullptr;
        if (done.ok() && is_there) writer_->SetReachable({{id, ""}});
      });
}

void FabricMembers::RecordIdentity(const FabricDevice& seen) {
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

}  // namespace cxlpool::fm
