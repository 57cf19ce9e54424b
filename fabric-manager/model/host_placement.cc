// Where a Region's extents enter a host: PlaceOnHost.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "fabric-manager/model/bytes.h"
#include "fabric-manager/model/placement.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

constexpr uint64_t kBytesPerPageStructByte = 4096 / 64;

struct Look {
  const Bridge* bridge;
  BridgeOutlook outlook;
};

absl::Status Exhausted(absl::string_view host, const std::string& reason,
                       const std::string& message, const std::string& remedy,
                       std::vector<std::pair<std::string, std::string>> metadata) {
  metadata.emplace_back("host", std::string(host));
  return Refusal{absl::StatusCode::kResourceExhausted, reason, message, remedy, std::move(metadata)}
      .ToStatus();
}

absl::Status NoFreePort(absl::string_view host, absl::string_view label,
                        const std::vector<OccupiedSlot>& occupied) {
  std::vector<std::string> holders;
  for (const OccupiedSlot& entry : occupied) {
    if (!entry.region_id.empty()) holders.push_back(entry.region_id);
  }
  std::sort(holders.begin(), holders.end());
  holders.erase(std::unique(holders.begin(), holders.end()), holders.end());
  const size_t shown = std::min<size_t>(holders.size(), 8);
  const std::string names =
      absl::StrCat(absl::StrJoin(holders.begin(), holders.begin() + shown, ","),
                   shown < holders.size() ? ",..." : "");
  return Exhausted(host, "NO_FREE_PORT",
                   absl::StrCat(label, ": host \"", host, "\" has no free port",
                                holders.empty() ? "" : absl::StrCat("; taken by ", names)),
                   holders.empty() ? "see `cxlpool topology` for the ports that the fabric and the "
                                     "host's agent agree on"
                                   : "detach a Region there",
                   {{"holders", names}});
}

absl::Status Blocked(absl::string_view host, absl::string_view label, const Look& look) {
  const BridgeOutlook& outlook = look.outlook;
  const bool only_leaving = outlook.leaving && !outlook.blocked;
  const std::string& by = outlook.blocked_by;
  std::string remedy = "release what lies on it";
  if (!by.empty()) {
    remedy = only_leaving ? absl::StrCat("retry when ", by, " is gone from this host")
                          : absl::StrCat("detach or release ", by, " first");
  }
  return Exhausted(
      host, "BRIDGE_BLOCKED",
      absl::StrCat(label, ": host bridge ", look.bridge->name, " of host \"", host, "\" ",
                   only_leaving ? "is being left" : "is blocked",
                   by.empty() ? ""
                              : absl::StrCat(only_leaving ? " by " : " until ", "region \"", by,
                                             "\"", only_leaving ? "" : " goes"),
                   ", and no other bridge can take it"),
      remedy, {{"blocked_by", by}, {"host_bridge", look.bridge->name}});
}

// Why no bridge takes `length`: the refusal whose remedy helps soonest.
absl::Status WhyNot(absl::string_view host, absl::string_view label, uint64_t length_bytes,
                    const std::vector<Look>& looks, const std::vector<OccupiedSlot>& occupied) {
  const Look* blocked = nullptr;
  const Look* widest = nullptr;
  bool port = false;
  bool full = false;
  for (const Look& look : looks) {
    const BridgeOutlook& outlook = look.outlook;
    // A port that is being left is as good as free for naming who is in the way.
    const bool stuck = outlook.blocked || outlook.leaving;
    port |= !outlook.free_slots.empty();
    full |= outlook.full && !outlook.free_slots.empty() && !stuck;
    const bool better =
        blocked == nullptr || (blocked->outlook.blocked_by.empty() && !outlook.blocked_by.empty());
    if (stuck && better) blocked = &look;
    if (outlook.usable &&
        (widest == nullptr || outlook.free_window_bytes > widest->outlook.free_window_bytes)) {
      widest = &look;
    }
  }
  const bool window_helps = blocked == nullptr || blocked->bridge->free_window_bytes < length_bytes;
  if (widest != nullptr && window_helps) {
    return Exhausted(
        host, "WINDOW_FULL",
        absl::StrCat(label, " needs ", FormatBytes(length_bytes),
                     " in one memory window of host \"", host, "\"; largest free is ",
                     FormatBytes(widest->outlook.free_window_bytes), " on ", widest->bridge->name),
        "detach a Region there, or use smaller extents (--max-extents)",
        {{"largest_free_bytes", absl::StrCat(widest->outlook.free_window_bytes)},
         {"host_bridge", widest->bridge->name}});
  }
  if (blocked != nullptr) return Blocked(host, label, *blocked);
  if (!port) return NoFreePort(host, label, occupied);
  if (full) {
    return Exhausted(host, "BRIDGE_FULL",
                     absl::StrCat(label, ": every decoder stack of host \"", host,
                                  "\" that has a free port is full"),
                     "detach a Region there", {});
  }
  return NoFreePort(host, label, occupied);
}

absl::Status CheckPageStructs(absl::string_view host, absl::string_view label,
                              const HostRuntime& runtime, const std::vector<uint64_t>& lengths,
                              const std::vector<OccupiedSlot>& occupied) {
  if (runtime.page_struct_spare_bytes == 0) return absl::OkStatus();  // Not reported.
  uint64_t needed = 0;
  for (uint64_t length : lengths) needed += length / kBytesPerPageStructByte;
  uint64_t spare = runtime.page_struct_spare_bytes;
  for (const OccupiedSlot& entry : occupied) {
    if (!entry.pending()) continue;  // What is there already, the agent has counted.
    spare -= std::min(spare, entry.length_bytes / kBytesPerPageStructByte);
  }
  if (needed <= spare) return absl::OkStatus();
  return Exhausted(
      host, "PAGE_STRUCT_SPACE",
      absl::StrCat(label, " needs ", FormatBytes(needed), " of host \"", host,
                   "\"'s own memory for page structs; it can spare ", FormatBytes(spare)),
      "ask for less, or detach a Region there",
      {{"needed_bytes", absl::StrCat(needed)}, {"spare_bytes", absl::StrCat(spare)}});
}

// An empty bridge, else the shallowest stack; the name breaks ties.
const Look* Choose(const std::vector<Look>& looks, uint64_t length_bytes) {
  const Look* best = nullptr;
  for (const Look& look : looks) {
    if (!look.outlook.usable || look.outlook.free_window_bytes < length_bytes) continue;
    if (best == nullptr || look.outlook.stack < best->outlook.stack) best = &look;
  }
  return best;
}

std::vector<Look> LookAtAll(const HostRuntime& runtime, const std::vector<OccupiedSlot>& occupied) {
  std::vector<Look> looks;
  for (const Bridge& bridge : runtime.bridges) {
    looks.push_back({&bridge, LookAt(bridge, runtime, occupied)});
  }
  std::sort(looks.begin(), looks.end(),
            [](const Look& a, const Look& b) { return a.bridge->name < b.bridge->name; });
  return looks;
}

}  // namespace

absl::Status CheckHost(const PoolState& state, absl::string_view host) {
  const auto refuse = [host](absl::StatusCode code, const std::string& reason,
                             absl::string_view what, const std::string& remedy) {
    return Refusal{code,
                   reason,
                   absl::StrCat("host \"", host, "\" ", what),
                   remedy,
                   {{"host", std::string(host)}}}
        .ToStatus();
  };
  const Host* known = state.FindHost(host);
  if (known == nullptr) {
    return refuse(absl::StatusCode::kNotFound, "UNKNOWN_HOST", "is not enrolled",
                  absl::StrCat("run `cxlpool host enrol ", host, "`"));
  }
  if (known->retired) {
    return refuse(absl::StatusCode::kFailedPrecondition, "HOST_RETIRED", "is retired",
                  absl::StrCat("run `cxlpool host enrol ", host, "` to bring it back"));
  }
  const HostRuntime& runtime = state.Runtime(host);
  if (!runtime.online) {
    return refuse(absl::StatusCode::kFailedPrecondition, "HOST_NOT_ONLINE",
                  "has no agent connected now", "start cxlpool-agent there");
  }
  if (!runtime.fabric_reachable) {
    return refuse(absl::StatusCode::kUnavailable, "HOST_UNREACHABLE",
                  "cannot be reached by the fabric now", "check its power and retry");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Segment>> PlaceOnHost(const PoolState& state, absl::string_view host,
                                                 const std::vector<uint64_t>& lengths_bytes,
                                                 absl::string_view label) {
  if (absl::Status status = CheckHost(state, host); !status.ok()) return status;
  const HostRuntime& runtime = state.Runtime(host);
  std::vector<OccupiedSlot> occupied = state.Occupied(host);
  if (absl::Status status = CheckPageStructs(host, label, runtime, lengths_bytes, occupied);
      !status.ok()) {
    return status;
  }
  std::vector<Segment> segments;
  for (size_t i = 0; i < lengths_bytes.size(); ++i) {
    const std::vector<Look> looks = LookAtAll(runtime, occupied);
    const Look* chosen = Choose(looks, lengths_bytes[i]);
    if (chosen == nullptr)
      return WhyNot(host, label, lengths_bytes[i], looks, state.Occupied(host));
    Segment segment;
    segment.extent_index = static_cast<uint32_t>(i);
    segment.slot = chosen->outlook.free_slots.front();
    segment.host_bridge = chosen->bridge->name;
    segments.push_back(segment);
    // Takes part in the next choice, above everything that is there.
    OccupiedSlot planned;
    planned.generation = UINT64_MAX;
    planned.slot = segment.slot;
    planned.host_bridge = segment.host_bridge;
    planned.length_bytes = lengths_bytes[i];
    occupied.push_back(planned);
  }
  return segments;
}

}  // namespace cxlpool::fm
