// kPack, and the search for several runs that other policies use as well.

#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "fabric-manager/model/placement/placement_policy.h"
#include "fabric-manager/model/placement/placement_refusals.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

using Run = FreeSpace::Run;

// The free runs of a task's devices, while some of them are spoken for. The runs of a device are
// read when its first one is taken: there are few such devices.
class RunPicker {
 public:
  explicit RunPicker(const PlacementTask& task) : task_(task) {
    task.allowed.ForEach([&](DeviceIndex device) {
      if (task.LdsLeft(device) == 0) return;
      const uint64_t unit = task.UnitOf(device);
      if (unit == 0) return;
      const auto known = std::find_if(untouched_.begin(), untouched_.end(),
                                      [&](const Class& c) { return c.unit_bytes == unit; });
      if (known != untouched_.end()) {
        known->devices.Add(device);
      } else {
        untouched_.push_back({unit, {}});
        untouched_.back().devices.Add(device);
      }
    });
  }

  // Takes the longest run, whole units of it.
  std::optional<Run> TakeLongest() {
    std::optional<Run> best;
    const auto offer = [&](Run run, uint64_t unit) {
      run.length_bytes -= run.length_bytes % unit;
      if (run.length_bytes == 0) return;
      if (!best || run.length_bytes > best->length_bytes ||
          (run.length_bytes == best->length_bytes && run.device < best->device)) {
        best = run;
      }
    };
    for (const Class& c : untouched_) {
      if (const auto run = task_.space().Longest(c.devices); run) offer(*run, c.unit_bytes);
    }
    for (const Opened& opened : opened_) {
      if (opened.next < opened.runs.size() && opened.lds_left > 0) {
        offer(opened.runs[opened.next], opened.unit_bytes);
      }
    }
    if (!best) return best;
    Opened& opened = Open(best->device);
    ++opened.next;
    --opened.lds_left;
    return best;
  }

  // The shortest run that holds `length_bytes`, cut to the units it takes.
  std::optional<Run> BestFit(uint64_t length_bytes) const {
    std::optional<Run> best;
    uint64_t best_bytes = 0;  // Of the whole run.
    const auto offer = [&](const Run& whole, uint64_t unit) {
      const auto length = RoundUp(length_bytes, unit);
      if (!length || whole.length_bytes < *length) return;
      const auto key = [](const Run& run, uint64_t bytes) {
        return std::tuple(bytes, run.device, run.dpa_bytes);
      };
      if (best && key(*best, best_bytes) < key(whole, whole.length_bytes)) return;
      best = Run{whole.device, whole.dpa_bytes, *length};
      best_bytes = whole.length_bytes;
    };
    for (const Class& c : untouched_) {
      const auto cut = task_.space().BestFit(c.devices, length_bytes, task_.unit_bytes);
      if (!cut) continue;
      for (const Run& whole : task_.space().RunsOf(cut->device)) {
        if (whole.dpa_bytes == cut->dpa_bytes) offer(whole, c.unit_bytes);
      }
    }
    for (const Opened& opened : opened_) {
      if (opened.lds_left == 0) continue;
      for (size_t i = opened.next; i < opened.runs.size(); ++i) {
        offer(opened.runs[i], opened.unit_bytes);
      }
    }
    return best;
  }

 private:
  // Devices with extents of one unit.
  struct Class {
    uint64_t unit_bytes = 0;
    DeviceSet devices;
  };
  struct Opened {
    DeviceIndex device = 0;
    uint64_t unit_bytes = 0;
    uint32_t lds_left = 0;
    std::vector<Run> runs;  // Longest first, by whole units.
    size_t next = 0;        // Those before are taken.
  };

  Opened& Open(DeviceIndex device) {
    for (Opened& opened : opened_) {
      if (opened.device == device) return opened;
    }
    for (Class& c : untouched_) c.devices.Remove(device);
    opened_.push_back(
        {device, task_.UnitOf(device), task_.LdsLeft(device), task_.space().RunsOf(device), 0});
    Opened& opened = opened_.back();
    const auto units = [&](const Run& run) { return run.length_bytes / opened.unit_bytes; };
    std::stable_sort(opened.runs.begin(), opened.runs.end(),
                     [&](const Run& a, const Run& b) { return units(a) > units(b); });
    return opened;
  }

  const PlacementTask& task_;
  std::vector<Class> untouched_;
  std::vector<Opened> opened_;
};

// The longest runs until what is left fits one. As few as can be: no other runs hold more.
std::optional<PlacedExtents> PackParts(const PlacementTask& task) {
  const size_t most = std::min(task.max_extents, task.ExtentsLeft());
  if (most < 2) return std::nullopt;
  RunPicker picker(task);
  PlacedExtents placed;
  uint64_t rest = task.request.size_bytes;
  while (placed.extents.size() < most) {
    if (const auto last = picker.BestFit(rest); last.has_value()) {
      placed.extents.push_back(MakeExtent(task.state, *last));
      return placed;
    }
    const auto longest = picker.TakeLongest();
    if (!longest.has_value()) return std::nullopt;
    placed.extents.push_back(MakeExtent(task.state, *longest));
    rest -= longest->length_bytes;  // Less than the rest, or it would have fitted.
  }
  return std::nullopt;
}

class Packing : public PlacementPolicy {
 public:
  std::optional<PlacedExtents> Place(const PlacementTask& task) const override {
    return Pack(task);
  }
};

}  // namespace

std::optional<PlacedExtents> Pack(const PlacementTask& task) {
  const auto run = task.space().BestFit(task.allowed, task.request.size_bytes, task.unit_bytes);
  if (!run.has_value() || task.ExtentsLeft() == 0) return PackParts(task);
  PlacedExtents placed;
  placed.extents.push_back(MakeExtent(task.state, *run));
  return placed;
}

absl::Status PlacementPolicy::Check(const ExtentRequest& request) const {
  if (request.interleave_ways <= 1 && request.interleave_granularity_bytes == 0) {
    return absl::OkStatus();
  }
  return Refuse(
      absl::StatusCode::kInvalidArgument, "BAD_INTERLEAVE",
      absl::StrCat(request.label, ": policy ", ToString(request.policy), " does not interleave"),
      "ask for policy bandwidth, or leave ways and granularity out",
      {{"field", "interleave_ways"}});
}

absl::Status PlacementPolicy::WhyNot(const PlacementTask& task) const {
  return FullOrFragmented(task);
}

const PlacementPolicy& PackPolicy() {
  static const Packing& policy = *new Packing();
  return policy;
}

}  // namespace cxlpool::fm
