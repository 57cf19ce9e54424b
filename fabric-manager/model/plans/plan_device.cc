// Devices in and out of service: PlanAddDevice, PlanDrainDevice, PlanRemoveDevice, PlanFailDevice.

#include <algorithm>
#include <memory>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "fabric-manager/model/plans/plan_parts.h"
#include "fabric-manager/model/plans/planner.h"
#include "proto/support/mutant.h"
#include "proto/support/text.h"

namespace cxlpool::fm {
namespace {

constexpr size_t kMaxFailReason = 512;

absl::StatusOr<Device> Get(const PoolState& state, const std::string& id) {
  const Device* known = state.FindDevice(id);
  if (known != nullptr) return *known;
  return Refuse(absl::StatusCode::kNotFound, "UNKNOWN_DEVICE",
                absl::StrCat("the pool has no device ", Quoted(id)), "see `cxlpool device list`",
                {{"device", CutText(id, 80)}});
}

absl::Status Failed(const Device& device) {
  return Refuse(
      absl::StatusCode::kFailedPrecondition, "DEVICE_FAILED",
      absl::StrCat("device \"", device.id, "\" has failed for good: ", device.service_reason),
      "remove it, and bring its successor in under another name", {{"device", device.id}});
}

absl::StatusOr<Change> Put(const PoolState& state, const std::string& id, DeviceService service,
                           absl::Time now) {
  auto device = Get(state, id);
  if (!device.ok()) return device.status();
  // Also once it was removed: what was on it was never cleared.
  if (device->service == DeviceService::kFailed || !device->service_reason.empty()) {
    return Failed(*device);
  }
  if (device->service == service) return Change{};
  device->service = service;
  device->service_since = now;
  return Change{*device};
}

absl::Status Replaced(const Device& device, const std::string& by) {
  return Refuse(absl::StatusCode::kFailedPrecondition, "DEVICE_REPLACED",
                absl::StrCat("what device \"", device.id, "\" was is device \"", by, "\" now"),
                absl::StrCat("go on with ", by, ", or drain and remove it first"),
                {{"device", device.id}, {"by", by}});
}

// Where the topology says that the device is to be found; empty: nowhere, or the driver knows.
std::string PathOf(const PoolState& state, const std::string& device) {
  for (const auto& [key, entry] : state.topology_entries()) {
    const auto* own = std::get_if<DeviceEntry>(&entry.what);
    if (own != nullptr && own->id == device) return own->path;
  }
  return "";
}

// The device that has this path, of those that were not removed; empty: none.
std::string DeviceAt(const PoolState& state, const std::string& path) {
  for (const auto& [key, entry] : state.topology_entries()) {
    const auto* other = std::get_if<DeviceEntry>(&entry.what);
    if (other != nullptr && other->path == path && !state.IsRemoved(other->id)) return other->id;
  }
  return "";
}

}  // namespace

absl::StatusOr<Change> PutInService(const PoolState& state, const std::string& id) {
  return Put(state, id, DeviceService::kInService, absl::InfinitePast());
}

// By the storage itself, which the fabric has shown under both names.
absl::Status CheckComesBack(const PoolState& state, const Device& device,
                            const std::set<std::string>& leaving) {
  if (device.identity.empty() || CXLPOOL_MUTANT("storage-comes-back-twice")) return {};
  for (const auto& [id, other] : state.devices()) {
    const bool stays = other.service != DeviceService::kRemoved && !leaving.contains(id);
    if (id != device.id && stays && other.identity == device.identity) return Replaced(device, id);
  }
  return absl::OkStatus();
}

// A device that is new, or as much of a known one as it has grown by. What is there already is
// somebody's, and a Region keeps it from everybody until an operator decides.
Change PlanSeenDevice(const PoolState& state, Device seen, bool has_bytes, PlanContext& context) {
  uint64_t known_bytes = 0;
  if (const Device* known = state.FindDevice(seen.id); known != nullptr) {
    if (known->capacity_bytes >= seen.capacity_bytes) return {};
    known_bytes = known->capacity_bytes;
    const uint64_t capacity_bytes = seen.capacity_bytes;
    seen = *known;
    seen.capacity_bytes = capacity_bytes;
  } else {
    seen.key = context.next_id();
  }
  Change change{seen};
  const bool lost_records = !context.hold_reason.empty();
  const bool found_bytes = has_bytes && !CXLPOOL_MUTANT("give-found-bytes");
  if (!lost_records && !found_bytes) return change;
  const Extent fresh = {seen.id, known_bytes, seen.capacity_bytes - known_bytes};
  std::shared_ptr<Region> hold;
  if (lost_records) {
    // Its record may be one of those that were lost, and so may be what its bytes are of.
    hold = MakeKept(state, "fsck", "hold", fresh, context);
    hold->state_reason = absl::StrCat(
        "FSCK: ", context.hold_reason, "; if device \"", seen.id,
        "\" is new to the pool, or nothing on it is needed any more, release this with force");
  } else {
    hold = MakeKept(state, "found", seen.id, fresh, context);
    hold->state_reason = absl::StrCat(
        "FOUND: device \"", seen.id,
        "\" had bytes that no record of this pool knows when it was added; if nobody needs "
        "them, release this with force, which clears them");
  }
  change.push_back(RegionPtr(hold));
  return change;
}

// A device that was removed comes back only as long as nothing else is where it was: each byte
// would have two owners.
absl::StatusOr<Change> PlanAddDevice(const PoolState& state, const Caller& caller,
                                     const std::string& device, PlanContext& /*context*/) {
  if (absl::Status status = CheckCaller(state, caller, Right::kRunPool); !status.ok()) {
    return status;
  }
  if (state.IsRemoved(device)) {
    const Device* known = state.FindDevice(device);
    if (absl::Status status = CheckComesBack(state, *known, {}); !status.ok()) return status;
    // It comes back where it was, and what is there now the fabric may not have shown yet.
    const std::string path = PathOf(state, device);
    const std::string by = path.empty() ? "" : DeviceAt(state, path);
    if (!by.empty()) return Replaced(*known, by);
  }
  return PutInService(state, device);
}

absl::StatusOr<Change> PlanDrainDevice(const PoolState& state, const Caller& caller,
                                       const std::string& device, PlanContext& context) {
  const absl::Status status = CheckCaller(state, caller, Right::kRunPool);
  if (!status.ok() && !CXLPOOL_MUTANT("anybody-runs-the-pool")) return status;
  if (state.IsRemoved(device)) return Change{};
  return Put(state, device, DeviceService::kDraining, context.now);
}

// Only an empty device goes. Its record stays, so that its bytes never become another device's.
absl::StatusOr<Change> PlanRemoveDevice(const PoolState& state, const Caller& caller,
                                        const std::string& id, PlanContext& context) {
  if (absl::Status status = CheckCaller(state, caller, Right::kRunPool); !status.ok()) {
    return status;
  }
  auto device = Get(state, id);
  if (!device.ok()) return device.status();
  if (device->service == DeviceService::kRemoved) return Change{};
  const auto owners = state.RegionsOn(id);
  if (!owners.empty()) {
    const size_t shown = std::min<size_t>(owners.size(), 16);
    const std::string names = absl::StrJoin(
        owners.begin(), owners.begin() + shown, ",",
        [](std::string* out, const RegionPtr& region) { absl::StrAppend(out, region->id); });
    return Refuse(absl::StatusCode::kFailedPrecondition, "DEVICE_NOT_EMPTY",
                  absl::StrCat("device \"", id, "\" holds bytes of ", owners.size(),
                               " Regions: ", names, shown < owners.size() ? ",..." : ""),
                  "drain it, and release them", {{"device", id}, {"regions", names}});
  }
  device->service = DeviceService::kRemoved;
  device->service_since = context.now;
  return Change{*device};
}

// The next step of failing a device: its own record first, then as many of its Regions as one
// change may have. Empty: all of it is done.
absl::StatusOr<Change> PlanFailDevice(const PoolState& state, const std::string& id,
                                      const std::string& reason, PlanContext& context) {
  if (reason.empty()) {
    return Refuse(absl::StatusCode::kInvalidArgument, "REASON_REQUIRED",
                  "failing a device is for good: say how you know", "give a reason (--reason)",
                  {{"field", "reason"}});
  }
  auto device = Get(state, id);
  if (!device.ok()) return device.status();
  Change change;
  // The device first: from then on nothing is placed there, and what is left to do is known.
  if (device->service != DeviceService::kFailed) {
    device->service = DeviceService::kFailed;
    device->service_since = context.now;
    device->service_reason = CutText(reason, kMaxFailReason);
    change.push_back(*device);
  }
  const size_t most = CXLPOOL_MUTANT("failure-in-one-change")
                          ? SIZE_MAX
                          : std::min(kFailedRegionsAChange + change.size(), context.max_items);
  for (const RegionPtr& region : state.RegionsOn(id)) {
    // What goes down already goes on: its bytes there need no scrub, for nobody gets them.
    const bool stays = region->state == RegionState::kAllocated ||
                       (region->state == RegionState::kReserved && !region->compensating);
    if (!stays) continue;
    if (change.size() >= most) break;
    auto edited = std::make_shared<Region>(*region);
    edited->revision = context.revision;
    edited->state = RegionState::kQuarantined;
    edited->state_reason =
        absl::StrCat("DEVICE_FAILED: device \"", id, "\": ", device->service_reason,
                     "; detach it everywhere, then release it with force");
    change.push_back(RegionPtr(edited));
  }
  return change;
}

}  // namespace cxlpool::fm
