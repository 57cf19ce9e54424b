// Why no bridge of a host takes a piece: the refusal whose remedy helps soonest.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "fabric-manager/model/placement/placement_refusals.h"
#include "fabric-manager/model/pool/host_bridges.h"
#include "fabric-manager/model/space/bytes.h"

namespace cxlpool::fm {
namespace {

constexpr size_t kMaxHolders = 8;

absl::Status OnHost(const HostRequest& request, const std::string& reason,
                    const std::string& message, const std::string& remedy, RefusalData metadata) {
  metadata.emplace_back("host", request.host);
  return Exhausted(reason, absl::StrCat(request.label, message), remedy, std::move(metadata));
}

std::string DevicesOf(const HostRequest& request, const Piece& piece) {
  std::vector<std::string> names;
  for (size_t i = 0; i < piece.ways(); ++i) {
    const std::string& name = request.extents[piece.first + i].device.str();
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  return absl::StrJoin(names, ", ");
}

// What is missing: "free port", "2 free ports under one host bridge that lead to cmm-0, cmm-1".
std::string PortsFor(const HostRequest& request, const Piece& piece, const char* kind) {
  const std::string leads = piece.picky() ? absl::StrCat(" that lead", piece.ways() == 1 ? "s" : "",
                                                         " to ", DevicesOf(request, piece))
                                          : "";
  if (piece.ways() == 1) return absl::StrCat(kind, "port", leads);
  return absl::StrCat(piece.ways(), " ", kind, "ports under one host bridge", leads);
}

// Names the Regions that have the ports which would do. Where earlier extents of the same request
// took some of them, it is the number of extents that is too great.
absl::Status NoFreePort(const PoolState& state, const HostRequest& request, const Piece& piece,
                        const std::vector<Look>& looks) {
  std::vector<std::string> holders;
  for (const OccupiedSlot& entry : state.Occupied(request.host)) {
    const auto wanted = [&](const auto& leads) {
      return leads.empty() || std::find(leads.begin(), leads.end(), entry.slot) != leads.end();
    };
    if (std::any_of(piece.slots.begin(), piece.slots.end(), wanted)) {
      holders.push_back(entry.region_id);
    }
  }
  std::sort(holders.begin(), holders.end());
  holders.erase(std::unique(holders.begin(), holders.end()), holders.end());
  const size_t shown = std::min(holders.size(), kMaxHolders);
  const std::string names =
      absl::StrCat(absl::StrJoin(holders.begin(), holders.begin() + shown, ","),
                   shown < holders.size() ? ",..." : "");
  const bool others_of_it = std::any_of(looks.begin(), looks.end(), [](const Look& look) {
    return std::any_of(look.holding.begin(), look.holding.end(),
                       [](const OccupiedSlot* entry) { return entry->generation == kPlanned; });
  });
  if (others_of_it) {
    return OnHost(
        request, "NO_FREE_PORT",
        absl::StrCat(
            " enters by ", request.extents.size(), " ports; host \"", request.host,
            "\" has fewer that are free",
            piece.picky() ? absl::StrCat(", and none more for ", DevicesOf(request, piece)) : "",
            holders.empty() ? "" : absl::StrCat("; taken by ", names)),
        holders.empty() ? "use another host, or a Region of fewer extents"
                        : "detach a Region there, or use a Region of fewer extents",
        {{"holders", names}});
  }
  return OnHost(
      request, "NO_FREE_PORT",
      absl::StrCat(": host \"", request.host, "\" has no ", PortsFor(request, piece, "free "),
                   holders.empty() ? "" : absl::StrCat("; taken by ", names)),
      holders.empty() ? "see `cxlpool topology` for the ports that the fabric and the "
                        "host's agent agree on"
                      : "detach a Region there",
      {{"holders", names}});
}

// No bridge has the ports at all, were they all free.
absl::Status NoPorts(const PoolState& state, const HostRequest& request, const Piece& piece,
                     const std::vector<Look>& looks) {
  const bool enough = std::any_of(looks.begin(), looks.end(), [&](const Look& look) {
    return look.all_slots.size() >= piece.ways();
  });
  if (piece.picky() && enough) {
    return Unfit("NO_PATH",
                 absl::StrCat(request.label, ": host \"", request.host, "\" has no ",
                              PortsFor(request, piece, "")),
                 "compare the slots of its links with `cxlpool topology`",
                 {{"host", request.host}, {"device", DevicesOf(request, piece)}});
  }
  if (piece.ways() == 1 || looks.empty()) return NoFreePort(state, request, piece, looks);
  size_t most = 0;
  for (const Look& look : looks) most = std::max(most, look.all_slots.size());
  return OnHost(request, "NO_FREE_PORT",
                absl::StrCat(" needs ", piece.ways(), " ports under one host bridge of host \"",
                             request.host, "\"; a bridge has at most ", most),
                "ask for fewer ways", {{"holders", ""}});
}

absl::Status Blocked(const HostRequest& request, const Look& look) {
  const BridgeOutlook& outlook = look.outlook;
  const bool only_leaving = outlook.leaving && !outlook.blocked;
  const std::string& by = outlook.blocked_by;
  std::string remedy = "release what lies on it";
  if (!by.empty()) {
    remedy = only_leaving ? absl::StrCat("retry when ", by, " is gone from this host")
                          : absl::StrCat("detach or release ", by, " first");
  }
  std::string by_whom;
  if (!by.empty()) {
    by_whom = only_leaving ? absl::StrCat(" by region \"", by, "\"")
                           : absl::StrCat(" until region \"", by, "\" goes");
  }
  return OnHost(request, "BRIDGE_BLOCKED",
                absl::StrCat(": host bridge ", look.bridge->name, " of host \"", request.host,
                             "\" ", only_leaving ? "is being left" : "is blocked", by_whom,
                             ", and no other bridge can take it"),
                remedy, {{"blocked_by", by}, {"host_bridge", look.bridge->name}});
}

absl::Status WindowFull(const HostRequest& request, const Piece& piece, const Look& widest) {
  const uint64_t free = widest.outlook.free_window_bytes;
  return OnHost(
      request, "WINDOW_FULL",
      absl::StrCat(" needs ", FormatBytes(piece.length_bytes), " in one memory window of host \"",
                   request.host, "\"; largest free is ", FormatBytes(free), " on ",
                   widest.bridge->name),
      "detach a Region there, or use smaller extents (--max-extents)",
      {{"largest_free_bytes", absl::StrCat(free)}, {"host_bridge", widest.bridge->name}});
}

}  // namespace

// Why no bridge of the host takes the piece. The reason named is the one whose remedy helps: a
// bridge that could never take it comes first, then room that a smaller piece would find, then who
// is in the way, then slots and decoders.
absl::Status WhyNoBridge(const PoolState& state, const HostRequest& request, const Piece& piece,
                         const std::vector<Look>& looks) {
  const Look* blocked = nullptr;
  const Look* widest = nullptr;
  bool possible = false;
  bool port = false;
  bool full = false;
  for (const Look& look : looks) {
    const BridgeOutlook& outlook = look.outlook;
    if (!SlotsFor(piece, look.all_slots).has_value()) continue;
    possible = true;
    // A port that is being left is as good as free for naming who is in the way.
    const bool stuck = outlook.blocked || outlook.leaving;
    const bool better =
        blocked == nullptr || (blocked->outlook.blocked_by.empty() && !outlook.blocked_by.empty());
    if (stuck && better) blocked = &look;
    if (!SlotsFor(piece, outlook.free_slots).has_value()) continue;
    port = true;
    full |= outlook.full && !stuck;
    if (outlook.usable &&
        (widest == nullptr || outlook.free_window_bytes > widest->outlook.free_window_bytes)) {
      widest = &look;
    }
  }
  if (!possible && !looks.empty()) return NoPorts(state, request, piece, looks);
  const bool window_helps =
      blocked == nullptr || blocked->bridge->free_window_bytes < piece.length_bytes;
  if (widest != nullptr && window_helps) return WindowFull(request, piece, *widest);
  if (blocked != nullptr) return Blocked(request, *blocked);
  if (!port || !full) return NoFreePort(state, request, piece, looks);
  return OnHost(request, "BRIDGE_FULL",
                absl::StrCat(": every decoder stack of host \"", request.host,
                             "\" that has a free port is full"),
                "detach a Region there", {});
}

}  // namespace cxlpool::fm
