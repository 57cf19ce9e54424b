// kBandwidth: stripe sets over distinct devices (CXL 3.1, 9.13.1: 2, 4, 8 or 16 ways here, 256
// bytes to 16 KiB of granularity). The extents of a set become one host region.

#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"
#include "fabric-manager/model/placement/placement_policy.h"
#include "fabric-manager/model/placement/placement_refusals.h"
#include "fabric-manager/model/placement/placement_stripes.h"
#include "proto/support/cxl_host.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

constexpr size_t kMany = 256;  // So many devices are not compared each with each.

bool MayBeWays(uint32_t ways) {
  return std::has_single_bit(ways) && ways >= 2 && ways <= kMaxInterleaveWays;
}

// The ways that are asked for; 0: as many as there can be.
uint32_t WaysAsked(const ExtentRequest& request) {
  return request.grown != nullptr ? request.grown->interleave_ways : request.interleave_ways;
}

// What each extent of a set may be a multiple of: the units of the devices, smallest first, and one
// that suits all.
std::vector<uint64_t> UnitsOf(const PlacementTask& task) {
  std::vector<uint64_t> units;
  uint64_t common = 1;
  task.allowed.ForEach([&](DeviceIndex device) {
    const uint64_t unit = task.UnitOf(device);
    if (unit == 0 || std::find(units.begin(), units.end(), unit) != units.end()) return;
    units.push_back(unit);
    common = CommonUnit(common, unit).value_or(common);
  });
  units.push_back(common);
  std::sort(units.begin(), units.end());
  units.erase(std::unique(units.begin(), units.end()), units.end());
  return units;
}

// Each way's part of the Region, whole units.
uint64_t ShareOf(const PlacementTask& task, uint32_t ways, uint64_t unit_bytes) {
  const uint64_t size = task.request.size_bytes;
  return RoundUp(size / ways + (size % ways != 0), unit_bytes).value_or(0);
}

// More ways round up to more bytes: at most an eighth of the Region is worth it.
bool Wasteful(const PlacementTask& task, uint32_t ways, uint64_t share_bytes) {
  const uint64_t size = task.request.size_bytes;
  return ways > 2 && share_bytes > (size + size / 8) / ways;
}

// The devices that a set of the host could take together, for it enters by one bridge; several
// where bridges lead to different devices. Empty: no bridge has so many ports free.
std::vector<DeviceSet> BehindOneBridge(const PlacementTask& task, uint32_t ways) {
  std::vector<DeviceSet> sets;
  const std::string& host = task.request.host;
  const HostRuntime& runtime = task.state.Runtime(host);
  for (const Bridge& bridge : runtime.bridges) {
    const BridgeOutlook outlook = LookAt(bridge, runtime, task.state.Occupied(host));
    if (!outlook.usable || outlook.free_slots.size() < ways) continue;
    if (!task.state.topology().names_slots()) return {task.allowed};
    DeviceSet devices;
    task.allowed.ForEach([&](DeviceIndex device) {
      const Path* path = task.PathTo(device);
      if (path == nullptr) return;
      const bool leads =
          path->slots.empty() ||
          std::any_of(path->slots.begin(), path->slots.end(), [&](uint32_t slot) {
            return std::binary_search(outlook.free_slots.begin(), outlook.free_slots.end(), slot);
          });
      if (leads) devices.Add(device);
    });
    if (std::find(sets.begin(), sets.end(), devices) == sets.end()) sets.push_back(devices);
  }
  return sets;
}

class Interleaving : public PlacementPolicy {
 public:
  absl::Status Check(const ExtentRequest& request) const override {
    if (request.grown != nullptr) return absl::OkStatus();
    const uint32_t ways = request.interleave_ways;
    const uint32_t granularity = request.interleave_granularity_bytes;
    if (ways != 0 && !MayBeWays(ways)) {
      return Bad(request, absl::StrCat("interleave_ways is ", ways),
                 "ask for 2, 4, 8 or 16 ways, or 0 for as many as there can be", "interleave_ways");
    }
    if (granularity != 0 && !IsInterleaveGranularity(granularity)) {
      return Bad(request, absl::StrCat("interleave_granularity_bytes is ", granularity),
                 "ask for a power of two from 256 to 16384, or 0 for 256",
                 "interleave_granularity_bytes");
    }
    return absl::OkStatus();
  }

  std::optional<PlacedExtents> Place(const PlacementTask& task) const override {
    if (const uint32_t ways = WaysAsked(task.request); ways != 0) return PlaceWays(task, ways);
    for (uint32_t ways = kMaxInterleaveWays; ways >= 2; ways /= 2) {
      if (auto placed = PlaceWays(task, ways); placed.has_value()) return placed;
    }
    return std::nullopt;
  }

  absl::Status WhyNot(const PlacementTask& task) const override {
    const uint32_t asked = WaysAsked(task.request);
    const uint32_t ways = std::max(asked, 2u);
    const std::string& label = task.request.label;
    if (const size_t devices = task.allowed.size(); devices < ways) {
      return Unfit("TOO_FEW_DEVICES",
                   absl::StrCat(label, " needs ", ways, " devices for ", ways, " ways; there ",
                                devices == 1 ? "is " : "are ", devices, " ",
                                WhereOf(task.request, task.state)),
                   devices < 2 ? "ask for another policy" : "ask for fewer ways",
                   {{"ways", absl::StrCat(ways)}, {"devices", absl::StrCat(devices)}});
    }
    const FreeTotals totals = TotalsOf(task);
    if (totals.free_bytes < task.request.size_bytes) return FullOrFragmented(task);
    const uint64_t unit = UnitsOf(task).front();
    const uint64_t longest = LongestShare(task, ways, unit);
    RefusalData metadata = {{"requested_bytes", absl::StrCat(task.request.size_bytes)},
                            {"free_bytes", absl::StrCat(totals.free_bytes)},
                            {"largest_free_bytes", absl::StrCat(longest * ways)},
                            {"ways", absl::StrCat(ways)}};
    const std::string message = absl::StrCat(
        label, " needs ", FormatBytes(ShareOf(task, ways, unit)), " on each of ", ways, " devices",
        task.max_extents == 1 ? "" : absl::StrCat(" in at most ", task.max_extents, " stripe sets"),
        "; ", ways, " devices have ", FormatBytes(longest), " each in one extent");
    const std::string remedy = Remedy(task, asked, metadata);
    return Exhausted("POOL_FRAGMENTED", message, remedy, std::move(metadata));
  }

 private:
  static absl::Status Bad(const ExtentRequest& request, const std::string& what,
                          const std::string& remedy, const char* field) {
    return Refuse(absl::StatusCode::kInvalidArgument, "BAD_INTERLEAVE",
                  absl::StrCat(request.label, ": ", what), remedy, {{"field", field}});
  }

  std::optional<PlacedExtents> PlaceWays(const PlacementTask& task, uint32_t ways) const {
    if (!AtLeast(task.allowed, ways)) return std::nullopt;
    const bool choose = WaysAsked(task.request) == 0;
    if (task.request.host.empty()) return PlaceAmongSome(task, ways);
    const std::vector<DeviceSet> bridges = BehindOneBridge(task, ways);
    // Without a bridge for them, fewer ways are tried; the last are left to PlaceOnHost to refuse.
    if (bridges.empty()) {
      const bool known = !task.state.Runtime(task.request.host).bridges.empty();
      return choose && known && ways > 2 ? std::nullopt : PlaceAmongSome(task, ways);
    }
    std::optional<PlacedExtents> best;
    for (const DeviceSet& devices : bridges) {
      auto placed = PlaceAmongSome(task.On(devices), ways);
      if (!placed.has_value()) continue;
      if (!best || placed->extents.size() < best->extents.size()) best = std::move(placed);
    }
    return best;
  }

  // In a large pool a few devices that have room are compared, others at each state of the pool:
  // two for each way already leave the load even.
  std::optional<PlacedExtents> PlaceAmongSome(const PlacementTask& task, uint32_t ways) const {
    if (AtLeast(task.allowed, kMany)) {
      const uint64_t share_bytes = task.request.size_bytes / ways;
      DeviceSet some;
      uint32_t found = 0;
      // Anywhere, but the same on unchanged state.
      const size_t start = (task.space().total_free_bytes() * 0x9E3779B97F4A7C15u) >> 52;
      for (size_t i = 0; i <= DeviceSet::kWords && found < 2 * ways; ++i) {
        const size_t word = (start / 64 + i) % DeviceSet::kWords;
        uint64_t bits = task.allowed.word(word);
        const uint64_t below = (uint64_t{1} << (start % 64)) - 1;
        if (i == 0) bits &= ~below;
        if (i == DeviceSet::kWords) bits &= below;
        for (; bits != 0 && found < 2 * ways; bits &= bits - 1) {
          const auto device = static_cast<DeviceIndex>(word * 64 + std::countr_zero(bits));
          if (task.space().largest_free_bytes(device) < share_bytes) continue;
          some.Add(device);
          ++found;
        }
      }
      if (auto placed = PlaceAmong(task.On(some).With(1), ways); placed.has_value()) return placed;
    }
    return PlaceAmong(task, ways);
  }

  std::optional<PlacedExtents> PlaceAmong(const PlacementTask& task, uint32_t ways) const {
    const size_t sets = std::min(task.max_extents, task.ExtentsLeft() / ways);
    for (const uint64_t unit : UnitsOf(task)) {
      const uint64_t share = ShareOf(task, ways, unit);
      if (share == 0) continue;
      if (WaysAsked(task.request) == 0 && Wasteful(task, ways, share)) continue;
      auto extents = CutStripes(task, {ways, unit, share, sets});
      if (!extents.has_value()) continue;
      const uint32_t asked = task.request.grown != nullptr
                                 ? task.request.grown->interleave_granularity_bytes
                                 : task.request.interleave_granularity_bytes;
      return PlacedExtents{*std::move(extents), ways,
                           asked == 0 ? kMinInterleaveGranularityBytes : asked};
    }
    return std::nullopt;
  }

  static bool AtLeast(const DeviceSet& devices, size_t count) {
    for (uint64_t rest = devices.summary(); rest != 0; rest &= rest - 1) {
      const size_t here = std::popcount(devices.word(std::countr_zero(rest)));
      if (here >= count) return true;
      count -= here;
    }
    return count == 0;
  }

  // What would do instead.
  std::string Remedy(const PlacementTask& task, uint32_t asked, RefusalData& metadata) const {
    const uint32_t ways = std::max(asked, 2u);
    if (const auto sets = PlaceWays(task.With(kMaxExtentsPerRegion), ways); sets.has_value()) {
      const std::string count = absl::StrCat(sets->extents.size() / ways);
      metadata.emplace_back("extents", count);
      return absl::StrCat("use --max-extents ", count);
    }
    if (task.request.grown == nullptr) {
      for (uint32_t fewer = ways / 2; fewer >= 2; fewer /= 2) {
        if (PlaceWays(task, fewer).has_value()) return absl::StrCat("ask for ", fewer, " ways");
      }
    }
    return "release a Region, or ask for less";
  }
};

}  // namespace

const PlacementPolicy& BandwidthPolicy() {
  static const Interleaving& policy = *new Interleaving();
  return policy;
}

}  // namespace cxlpool::fm
