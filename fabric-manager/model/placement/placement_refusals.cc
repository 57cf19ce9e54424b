#include "fabric-manager/model/placement/placement_refusals.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/support/refusal.h"
#include "proto/support/text.h"

namespace cxlpool::fm {
namespace {

constexpr size_t kMaxNames = 8;

// Devices that may be used by the host, but for the limit of LDs.
DeviceSet Usable(const PlacementTask& task) {
  DeviceSet devices = task.state.usable();
  if (!task.request.host.empty()) devices &= task.state.ReachOf(task.request.host);
  if (task.request.device.empty()) return devices;
  DeviceSet named;
  named.Add(*task.state.IndexOf(Interned(task.request.device)));
  return devices & named;
}

// The refusal of a request that names this device, which is not in service.
absl::Status OutOfService(const ExtentRequest& request, const Device& device) {
  const std::string name = absl::StrCat(request.label, ": device \"", device.id, "\" ");
  const RefusalData metadata = {{"device", device.id}};
  if (device.service == DeviceService::kDraining) {
    return Unfit("DEVICE_DRAINING", absl::StrCat(name, "is draining: nothing new is placed on it"),
                 absl::StrCat("name another device, or run `cxlpool device add ", device.id, "`"),
                 metadata);
  }
  if (device.service == DeviceService::kFailed) {
    return Unfit(
        "DEVICE_FAILED",
        absl::StrCat(
            name, "has failed",
            device.service_reason.empty() ? "" : absl::StrCat(": ", device.service_reason)),
        "name another device", metadata);
  }
  return Unfit("DEVICE_FAILED", absl::StrCat(name, "has been removed"),
               absl::StrCat("name another device, or run `cxlpool device add ", device.id, "`"),
               metadata);
}

// The devices that might serve it are in service, and the fabric shows none of them now.
absl::Status Unseen(const ExtentRequest& request) {
  const std::string which = request.device.empty()
                                ? "none of the pool's devices is"
                                : absl::StrCat("device \"", request.device, "\" is not");
  return Unfit("DEVICE_UNREACHABLE",
               absl::StrCat(request.label, ": ", which, " seen by the fabric now"),
               "fix the fabric, or name another device",
               request.device.empty() ? RefusalData() : RefusalData{{"device", request.device}});
}

// The pool has devices, and none is in use.
absl::Status NoneInService(const PlacementTask& task) {
  const Device* best = nullptr;
  for (const auto& [id, device] : task.state.devices()) {
    if (device.service == DeviceService::kInService) return Unseen(task.request);
    if (device.service == DeviceService::kRemoved) continue;
    if (best == nullptr || device.service < best->service) best = &device;
  }
  if (best == nullptr) return FullOrFragmented(task);  // Nothing is there at all.
  const bool draining = best->service == DeviceService::kDraining;
  return Unfit(draining ? "DEVICE_DRAINING" : "DEVICE_FAILED",
               absl::StrCat(task.request.label, ": none of the pool's devices is in service; \"",
                            best->id, "\" ", draining ? "is draining" : "has failed"),
               draining
                   ? absl::StrCat("put it back: `cxlpool device add ", best->id, "`")
                   : "put devices back that were removed (`cxlpool device list`), or configure "
                     "new ones",
               {{"device", best->id}});
}

// Devices could be used, but no link leads the host to any of them.
absl::Status NoPath(const ExtentRequest& request) {
  const std::string what = request.device.empty() ? "a device of the pool that is in service"
                                                  : absl::StrCat("device \"", request.device, "\"");
  RefusalData metadata = {{"host", request.host}};
  if (!request.device.empty()) metadata.emplace_back("device", request.device);
  return Unfit("NO_PATH",
               absl::StrCat(request.label, ": no path leads host \"", request.host, "\" to ", what),
               request.device.empty() ? "use another host, or fix the topology (`cxlpool topology`)"
                                      : "name another device, or use another host",
               std::move(metadata));
}

// The bytes are there: it would fit if devices carried more LDs.
absl::Status LdLimit(const PlacementTask& task) {
  uint32_t limit = UINT32_MAX;
  DeviceSet full;
  task.allowed.ForEach([&](DeviceIndex device) {
    limit = std::min(limit, task.state.MaxLds(device));
    if (task.state.UseOf(device).lds >= task.state.MaxLds(device)) full.Add(device);
  });
  const std::string names = NamesOf(task.state, full);
  return Exhausted(
      "LD_LIMIT",
      absl::StrCat(task.request.label, " needs ", FormatBytes(task.request.size_bytes), "; ",
                   FormatBytes(TotalsOf(task).free_bytes), " are free ",
                   WhereOf(task.request, task.state), ", but a device carries at most ", limit,
                   " LDs", full.empty() ? "" : absl::StrCat(", and so many are on ", names)),
      "release a Region there, or ask for fewer and larger Regions",
      {{"max_lds_per_device", absl::StrCat(limit)},
       {"devices", NamesOf(task.state, full, ",")},
       {"free_bytes", absl::StrCat(TotalsOf(task).free_bytes)}});
}

// What is free where this request may not go.
std::string Elsewhere(const PlacementTask& task) {
  if (!task.request.device.empty()) return "";
  const PoolState& state = task.state;
  uint64_t draining = 0, unseen = 0, apart = 0;
  state.space().devices().ForEach([&](DeviceIndex index) {
    const Device& device = state.DeviceAt(index);
    const uint64_t free = state.space().free_bytes(index);
    if (device.service == DeviceService::kDraining) {
      draining += free;
    } else if (device.service != DeviceService::kInService) {
      return;
    } else if (!device.reachable) {
      unseen += free;
    } else if (!task.request.host.empty() && !state.ReachOf(task.request.host).Contains(index)) {
      apart += free;
    }
  });
  std::vector<std::string> parts;
  const auto add = [&](uint64_t bytes, const std::string& where) {
    if (bytes > 0) parts.push_back(absl::StrCat(FormatBytes(bytes), where));
  };
  add(apart, absl::StrCat(" where no path leads host \"", task.request.host, "\""));
  add(draining, " on devices that are draining");
  add(unseen, " on devices that the fabric does not see");
  return parts.empty() ? "" : absl::StrCat(", and ", absl::StrJoin(parts, ", "));
}

absl::Status Full(const PlacementTask& task, const FreeTotals& totals) {
  const ExtentRequest& request = task.request;
  return Exhausted(
      "POOL_FULL",
      absl::StrCat(
          request.label, " needs ", FormatBytes(request.size_bytes), "; free ",
          WhereOf(request, task.state), ": ", FormatBytes(totals.free_bytes),
          task.unit_bytes == 0 ? "" : absl::StrCat(" in units of ", FormatBytes(task.unit_bytes)),
          Elsewhere(task)),
      "release a Region, or ask for less",
      {{"requested_bytes", absl::StrCat(request.size_bytes)},
       {"free_bytes", absl::StrCat(totals.free_bytes)},
       {"largest_free_bytes", absl::StrCat(totals.largest_bytes)}});
}

}  // namespace

absl::Status Exhausted(const std::string& reason, const std::string& message,
                       const std::string& remedy, RefusalData metadata) {
  return Refuse(absl::StatusCode::kResourceExhausted, reason, message, remedy, std::move(metadata));
}

absl::Status Unfit(const std::string& reason, const std::string& message, const std::string& remedy,
                   RefusalData metadata) {
  return Refuse(absl::StatusCode::kFailedPrecondition, reason, message, remedy,
                std::move(metadata));
}

std::string WhereOf(const ExtentRequest& request, const PoolState& state) {
  if (!request.device.empty()) return absl::StrCat("on device \"", request.device, "\"");
  if (request.host.empty() || state.topology().connects_all()) return "in the pool";
  return absl::StrCat("where host \"", request.host, "\" has a path");
}

std::string NamesOf(const PoolState& state, const DeviceSet& devices, const char* between) {
  std::vector<std::string> names;
  devices.ForEach([&](DeviceIndex device) {
    if (names.size() < kMaxNames) names.push_back(state.DeviceAt(device).id);
  });
  return absl::StrCat(absl::StrJoin(names, between),
                      devices.size() > names.size() ? absl::StrCat(between, "...") : "");
}

absl::Status NotReached(absl::string_view label, const std::string& host, const std::string& device,
                        const std::string& why) {
  return Unfit(
      "NO_PATH",
      absl::StrCat(label, ": host \"", host, "\" does not reach device \"", device, "\": ", why),
      absl::StrCat("compare what the hosts see (`cxlpool device discover`), or use another "
                   "host or device"),
      {{"host", host}, {"device", device}});
}

absl::Status UnknownDevice(const ExtentRequest& request) {
  const std::string id = CutText(request.device, 80);
  return Refuse(
      absl::StatusCode::kNotFound, "UNKNOWN_DEVICE",
      absl::StrCat(request.label, ": the pool has no device \"", absl::CHexEscape(id), "\""),
      "see `cxlpool device list`", {{"device", id}});
}

// Counts only bytes that an extent of this request can have: in whole units of the device, which
// may be more than its granule.
FreeTotals TotalsOf(const PlacementTask& task) {
  FreeTotals totals;
  task.allowed.ForEach([&](DeviceIndex device) {
    const uint64_t longest = task.LongestOn(device);
    if (longest == 0) return;
    if (longest > totals.largest_bytes) {
      totals.largest_bytes = longest;
      totals.largest_on = device;
    }
    const uint64_t unit = task.UnitOf(device);
    if (unit == task.space().granule_bytes(device)) {
      totals.free_bytes += task.space().free_bytes(device);
      return;
    }
    for (const FreeSpace::Run& run : task.space().RunsOf(device)) {
      totals.free_bytes += run.length_bytes - run.length_bytes % unit;
    }
  });
  return totals;
}

// FULL where there is too little in all; else FRAGMENTED, and with `would_do` it is tried whether
// more extents would fit, so that the remedy names a number that works.
absl::Status FullOrFragmented(const PlacementTask& task, WouldDoFn would_do) {
  const ExtentRequest& request = task.request;
  const FreeTotals totals = TotalsOf(task);
  if (totals.free_bytes < request.size_bytes) return Full(task, totals);
  RefusalData metadata = {{"requested_bytes", absl::StrCat(request.size_bytes)},
                          {"free_bytes", absl::StrCat(totals.free_bytes)},
                          {"largest_free_bytes", absl::StrCat(totals.largest_bytes)}};
  std::string remedy = "release a Region, or ask for less";
  if (const auto parts = would_do(task.With(kMaxExtentsPerRegion)); parts.has_value()) {
    remedy = absl::StrCat("use --max-extents ", parts->extents.size());
    metadata.emplace_back("extents", absl::StrCat(parts->extents.size()));
  }
  const size_t most = std::min(task.max_extents, task.ExtentsLeft());
  return Exhausted(
      "POOL_FRAGMENTED",
      absl::StrCat(request.label, " needs ", FormatBytes(request.size_bytes), " in ",
                   most == 1 ? "one extent" : absl::StrCat("at most ", most, " extents"),
                   "; largest free is ", FormatBytes(totals.largest_bytes), " on ",
                   task.state.DeviceAt(totals.largest_on).id),
      remedy, std::move(metadata));
}

// The first obstacle that stands by itself, from the outside in: the device's service, whether it
// is seen, whether a path leads there, its limit of LDs, and last what the policy says of the
// space.
absl::Status WhyNotPlaced(const PlacementPolicy& policy, const PlacementTask& task) {
  const ExtentRequest& request = task.request;
  const PoolState& state = task.state;
  if (!request.device.empty()) {
    const Device& device = *state.FindDevice(request.device);
    if (device.service != DeviceService::kInService) return OutOfService(request, device);
    if (!device.reachable) return Unseen(request);
  } else if (state.usable().empty()) {
    return NoneInService(task);
  }
  const DeviceSet usable = Usable(task);
  if (usable.empty()) return NoPath(request);
  PlacementTask whole = task.On(usable);
  if (state.limits().max_lds_per_device != 0) {
    whole.heed_lds = false;
    if (policy.Place(whole).has_value()) return LdLimit(whole);
    whole.heed_lds = true;
  }
  return policy.WhyNot(whole);
}

}  // namespace cxlpool::fm
