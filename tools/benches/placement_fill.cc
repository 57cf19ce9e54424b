#include "tools/benches/placement_fill.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "fabric-manager/model/space/bytes.h"
#include "fabric-manager/model/space/free_space.h"

namespace cxlpool::bench {
namespace {

constexpr uint64_t kFillGranule = 256 * fm::kMiB;
constexpr uint64_t kDeviceBytes = 512 * fm::kGiB;
constexpr size_t kOurExtents = 16;
constexpr size_t kNoBound = 0;  // Refuses only what is more than all that is free.
constexpr double kAdversaryFill = 0.99;

using Extents = std::vector<fm::FreeSpace::Run>;

// A pool of devices that places in at most so many extents; with kNoBound it only counts.
class FilledPool {
 public:
  FilledPool(uint32_t devices, size_t max_extents)
      : max_extents_(max_extents), capacity_(devices * kDeviceBytes), free_(capacity_) {
    for (uint32_t i = 0; i < devices; ++i) {
      if (!space_.AddDevice(kDeviceBytes, kFillGranule).ok()) std::abort();
    }
  }

  // Nothing: refused.
  std::optional<Extents> Take(uint64_t bytes) {
    if (bytes > free_) return std::nullopt;
    Extents extents;
    if (max_extents_ == kNoBound) {
      extents.push_back({0, 0, bytes});
    } else if (!Place(bytes, extents)) {
      return std::nullopt;
    }
    free_ -= bytes;
    return extents;
  }

  void Give(const Extents& extents) {
    for (const fm::FreeSpace::Run& extent : extents) {
      free_ += extent.length_bytes;
      if (max_extents_ != kNoBound) GiveBack(extent);
    }
  }

  double fill() const { return 1 - static_cast<double>(free_) / static_cast<double>(capacity_); }
  uint64_t capacity() const { return capacity_; }
  double fragmentation() const {
    const auto longest = space_.Longest(space_.devices());
    if (!longest.has_value()) return 0;
    return 1 - static_cast<double>(longest->length_bytes) / static_cast<double>(free_);
  }

 private:
  bool Place(uint64_t bytes, Extents& extents) {
    while (bytes > 0 && extents.size() < max_extents_) {
      auto run = space_.BestFit(space_.devices(), bytes);
      if (!run.has_value() && extents.size() + 1 < max_extents_)
        run = space_.Longest(space_.devices());
      if (!run.has_value()) break;
      if (!space_.Take(run->device, run->dpa_bytes, run->length_bytes).ok()) std::abort();
      extents.push_back(*run);
      bytes -= run->length_bytes;
    }
    if (bytes == 0) return true;
    for (const fm::FreeSpace::Run& extent : extents) GiveBack(extent);
    return false;
  }

  void GiveBack(const fm::FreeSpace::Run& extent) {
    if (!space_.Give(extent.device, extent.dpa_bytes, extent.length_bytes).ok()) std::abort();
  }

  const size_t max_extents_;
  const uint64_t capacity_;
  uint64_t free_;
  fm::FreeSpace space_;
};

uint64_t SizeOf(const Machine& machine) {
  return static_cast<uint64_t>(std::ceil(machine.memory_gib * 4)) * kFillGranule;
}

// The trace from its beginning; after each event step(whether it was refused), and the end when
// that answers true.
template <typename Step>
void Play(const std::vector<Machine>& machines, const std::vector<TraceEvent>& events,
          FilledPool& pool, Step step) {
  std::vector<Extents> live(machines.size());
  for (const TraceEvent& event : events) {
    bool refused = false;
    if (event.arrives) {
      auto extents = pool.Take(SizeOf(machines[event.machine]));
      refused = !extents.has_value();
      if (!refused) live[event.machine] = *std::move(extents);
    } else {
      pool.Give(std::exchange(live[event.machine], {}));
    }
    if (step(refused)) return;
  }
}

double FillAtRefusal(const std::vector<Machine>& machines, const std::vector<TraceEvent>& events,
                     uint32_t devices, size_t max_extents) {
  FilledPool pool(devices, max_extents);
  double highest = 0;
  bool ended = false;
  Play(machines, events, pool, [&](bool refused) {
    highest = std::max(highest, pool.fill());
    ended = refused;
    return refused;
  });
  return ended ? pool.fill() : highest;
}

// Fills the pool with pieces of one size, gives every second one back, and begins again with pieces
// twice as large, which no hole of before can hold.
double FillUnderAdversary(uint32_t devices, size_t max_extents) {
  FilledPool pool(devices, max_extents);
  std::vector<Extents> live;
  for (uint64_t size = kFillGranule; size < kDeviceBytes; size *= 2) {
    while (pool.fill() + static_cast<double>(size) / static_cast<double>(pool.capacity()) <=
           kAdversaryFill) {
      auto extents = pool.Take(size);
      if (!extents.has_value()) return pool.fill();
      live.push_back(*std::move(extents));
    }
    std::vector<Extents> kept;
    for (size_t i = 0; i < live.size(); ++i) {
      if (i % 2 == 0) {
        pool.Give(live[i]);
      } else {
        kept.push_back(std::move(live[i]));
      }
    }
    live = std::move(kept);
  }
  return kAdversaryFill;
}

void PrintOverTime(const std::vector<Machine>& machines, const std::vector<TraceEvent>& events,
                   uint32_t devices) {
  std::cout << absl::StreamFormat(
      "%d devices of 512 GiB over the trace, what is refused is left out\n", devices);
  for (const size_t extents : {kOurExtents, size_t{1}}) {
    FilledPool pool(devices, extents);
    size_t done = 0, refusals = 0;
    std::string line;
    Play(machines, events, pool, [&](bool refused) {
      refusals += refused;
      ++done;
      if (done * 10 / events.size() != (done - 1) * 10 / events.size()) {
        absl::StrAppendFormat(&line, "  %.3f/%.3f", pool.fill(), pool.fragmentation());
      }
      return false;
    });
    std::cout << absl::StreamFormat("%-10s refused %6d; fill/fragmentation by tenths%s\n",
                                    extents == 1 ? "best fit" : "ours", refusals, line);
  }
}

// Nothing here is a matter of chance: the control is 1.
std::vector<Round> AsRounds(const std::vector<std::pair<double, double>>& figures) {
  std::vector<Round> rounds;
  for (const auto& [ours, peer] : figures) {
    rounds.push_back({100 * ours, 100 * peer, 100 * peer, 100 * ours});
  }
  return rounds;
}

Row FillRow(const char* what, double target,
            const std::vector<std::pair<double, double>>& figures) {
  return MakeRow(7, absl::StrCat("fill at the first refusal, ", what), "% full", target,
                 Aim::kAtLeast, AsRounds(figures));
}

}  // namespace

std::vector<Row> MeasureFill(const std::vector<Machine>& machines, const FillOptions& options) {
  const std::vector<TraceEvent> events = EventsOf(machines);
  std::vector<std::pair<double, double>> by_best_fit, by_bound, adversary, adversary_bound;
  for (int i = 0; i < options.rounds; ++i) {
    const uint32_t devices =
        options.first_devices + static_cast<uint32_t>(i) * options.more_devices;
    const double ours = FillAtRefusal(machines, events, devices, kOurExtents);
    by_best_fit.emplace_back(ours, FillAtRefusal(machines, events, devices, 1));
    by_bound.emplace_back(ours, FillAtRefusal(machines, events, devices, kNoBound));
    const double attacked = FillUnderAdversary(devices, kOurExtents);
    adversary.emplace_back(attacked, FillUnderAdversary(devices, 1));
    adversary_bound.emplace_back(attacked, FillUnderAdversary(devices, kNoBound));
  }
  PrintOverTime(machines, events, options.first_devices + 4 * options.more_devices);
  const Summary bound = Summarise(AsRounds(adversary_bound), 0, options.seed);
  std::cout << absl::StreamFormat(
      "adversary: ours %.1f %%, bound %.1f %% full at the first refusal\n", bound.ours, bound.peer);
  return {FillRow("VM trace, by best fit in one extent", 1, by_best_fit),
          FillRow("VM trace, by the offline bound", 0.98, by_bound),
          FillRow("adversary, by best fit in one extent", 1, adversary)};
}

}  // namespace cxlpool::bench
