#include "fabric-manager/model/placement/placement_stripes.h"

#include <algorithm>
#include <functional>
#include <tuple>

#include "proto/support/mutant.h"

namespace cxlpool::fm {
namespace {

using Run = FreeSpace::Run;

// In a pool of very many devices, those with the longest runs are looked at for several sets.
constexpr size_t kMaxColumns = 64;

uint32_t WidthOf(const PlacementTask& task, DeviceIndex device) {
  const Path* path = task.PathTo(device);
  return path == nullptr ? 0 : path->bandwidth_mib_per_second;
}

bool UnitSuits(const PlacementTask& task, DeviceIndex device, uint64_t unit_bytes) {
  const uint64_t own = task.UnitOf(device);
  return own != 0 && unit_bytes % own == 0;
}

// A device, as far as one set is concerned. Better ones are less.
struct Rank {
  uint32_t width = 0;
  double load = 0;
  DeviceIndex device = 0;
  friend bool operator<(const Rank& a, const Rank& b) {
    return std::tuple(b.width, a.load, a.device) < std::tuple(a.width, b.load, b.device);
  }
};

std::optional<std::vector<Extent>> OneSet(const PlacementTask& task, const StripeShape& shape) {
  std::vector<Rank> best;
  best.reserve(shape.ways + 1);
  task.allowed.ForEach([&](DeviceIndex device) {
    if (task.space().largest_free_bytes(device) < shape.share_bytes) return;
    if (!UnitSuits(task, device, shape.unit_bytes) || task.LdsLeft(device) == 0) return;
    const Rank rank{WidthOf(task, device), task.LoadWith(device, shape.share_bytes), device};
    if (best.size() == shape.ways && !(rank < best.back())) return;
    best.insert(std::upper_bound(best.begin(), best.end(), rank), rank);
    if (best.size() > shape.ways) best.pop_back();
  });
  if (best.size() < shape.ways) return std::nullopt;
  std::vector<Extent> extents;
  for (const Rank& rank : best) {
    const auto run = task.space().BestFitOn(rank.device, shape.share_bytes, shape.unit_bytes);
    extents.push_back(MakeExtent(task.state, *run));
  }
  return extents;
}

// The runs of one device while sets are cut from them.
struct Column {
  DeviceIndex device = 0;
  uint32_t width = 0;
  uint32_t lds_left = 0;
  uint64_t free_bytes = 0;
  std::vector<Run> runs = {};

  uint64_t Longest(uint64_t unit) const {
    uint64_t longest = 0;
    if (lds_left == 0) return 0;
    for (const Run& run : runs) longest = std::max(longest, run.length_bytes);
    return longest - longest % unit;
  }
  // From the shortest run that holds it.
  Run Take(uint64_t bytes) {
    Run* best = nullptr;
    for (Run& run : runs) {
      if (run.length_bytes < bytes) continue;
      if (best == nullptr || run.length_bytes < best->length_bytes) best = &run;
    }
    const Run taken{device, best->dpa_bytes, bytes};
    best->dpa_bytes += bytes;
    best->length_bytes -= bytes;
    free_bytes -= bytes;
    if (!CXLPOOL_MUTANT("stripe-sets-beyond-lds")) --lds_left;
    return taken;
  }
};

std::vector<Column> ColumnsOf(const PlacementTask& task, uint64_t unit_bytes) {
  std::vector<std::pair<uint64_t, DeviceIndex>> devices;
  task.allowed.ForEach([&](DeviceIndex device) {
    const uint64_t longest = task.LongestOn(device);
    if (longest >= unit_bytes && UnitSuits(task, device, unit_bytes)) {
      devices.push_back({longest, device});
    }
  });
  std::stable_sort(devices.begin(), devices.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  if (devices.size() > kMaxColumns) devices.resize(kMaxColumns);
  std::vector<Column> columns;
  for (const auto& [longest, device] : devices) {
    // Where a device places its LDs itself, the rest of a run is at another LD: one is taken.
    const bool whole = task.state.DeviceAt(device).max_lds != 0;
    columns.push_back({device, WidthOf(task, device),
                       whole ? std::min(task.LdsLeft(device), 1u) : task.LdsLeft(device),
                       task.space().free_bytes(device), task.space().RunsOf(device)});
  }
  return columns;
}

// Adds a set of so long extents; false: no `ways` devices hold that.
bool CutSet(std::vector<Column>& columns, uint32_t ways, uint64_t unit, uint64_t bytes,
            bool wide_first, std::vector<Run>& runs) {
  std::vector<Column*> fit;
  for (Column& column : columns) {
    if (column.Longest(unit) >= bytes) fit.push_back(&column);
  }
  if (fit.size() < ways) return false;
  std::stable_sort(fit.begin(), fit.end(), [&](const Column* a, const Column* b) {
    if (wide_first && a->width != b->width) return a->width > b->width;
    if (a->free_bytes != b->free_bytes) return a->free_bytes > b->free_bytes;
    return a->device < b->device;
  });
  for (uint32_t i = 0; i < ways; ++i) runs.push_back(fit[i]->Take(bytes));
  return true;
}

// `sets` sets that differ by a unit at most.
bool CutEqual(std::vector<Column> columns, const StripeShape& shape, size_t sets, bool wide_first,
              std::vector<Run>& runs) {
  uint64_t units = shape.share_bytes / shape.unit_bytes;
  for (; sets > 0; --sets) {
    const uint64_t now = (units + sets - 1) / sets;
    units -= now;
    if (now > 0 &&
        !CutSet(columns, shape.ways, shape.unit_bytes, now * shape.unit_bytes, wide_first, runs)) {
      return false;
    }
  }
  return true;
}

bool CutLongest(std::vector<Column> columns, const StripeShape& shape, std::vector<Run>& runs) {
  uint64_t rest = shape.share_bytes;
  for (size_t set = 0; set < shape.max_sets && rest > 0; ++set) {
    std::vector<uint64_t> lengths;
    for (const Column& column : columns) lengths.push_back(column.Longest(shape.unit_bytes));
    if (lengths.size() < shape.ways) return false;
    std::sort(lengths.begin(), lengths.end(), std::greater<>());
    const uint64_t bytes = std::min(rest, lengths[shape.ways - 1]);
    if (bytes == 0) return false;
    CutSet(columns, shape.ways, shape.unit_bytes, bytes, false, runs);
    rest -= bytes;
  }
  return rest == 0;
}

}  // namespace

// As few sets as will do: one, then the longest equal runs, then more and shorter ones of equal
// length. Nothing: no number of sets up to the limit has room.
std::optional<std::vector<Extent>> CutStripes(const PlacementTask& task, const StripeShape& shape) {
  if (shape.max_sets == 0) return std::nullopt;
  if (auto one = OneSet(task, shape); one.has_value()) return one;
  if (shape.max_sets == 1) return std::nullopt;
  const std::vector<Column> columns = ColumnsOf(task, shape.unit_bytes);
  std::vector<Run> runs;
  if (!CutLongest(columns, shape, runs)) runs.clear();
  const size_t longest_sets = runs.empty() ? shape.max_sets + 1 : runs.size() / shape.ways;
  for (size_t sets = 2; sets < longest_sets; ++sets) {
    std::vector<Run> equal;
    bool cut = false;
    for (const bool wide_first : {true, false}) {
      if (cut) break;
      equal.clear();
      cut = CutEqual(columns, shape, sets, wide_first, equal);
    }
    if (!cut) continue;
    runs = std::move(equal);
    break;
  }
  if (runs.empty()) return std::nullopt;
  std::vector<Extent> extents;
  for (const Run& run : runs) extents.push_back(MakeExtent(task.state, run));
  return extents;
}

uint64_t LongestShare(const PlacementTask& task, uint32_t ways, uint64_t unit_bytes) {
  std::vector<uint64_t> lengths;
  task.allowed.ForEach([&](DeviceIndex device) {
    if (!UnitSuits(task, device, unit_bytes)) return;
    const uint64_t longest = task.space().largest_free_bytes(device);
    lengths.push_back(longest - longest % unit_bytes);
  });
  if (lengths.size() < ways) return 0;
  std::nth_element(lengths.begin(), lengths.begin() + (ways - 1), lengths.end(), std::greater<>());
  return lengths[ways - 1];
}

}  // namespace cxlpool::fm
