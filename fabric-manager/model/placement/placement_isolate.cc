// kIsolate: one failure domain, and not that of certain other Regions.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "fabric-manager/model/placement/placement_policy.h"
#include "fabric-manager/model/placement/placement_refusals.h"

namespace cxlpool::fm {
namespace {

DeviceSet DomainsOf(const PoolState& state, const Region& region) {
  DeviceSet devices;
  for (const Extent& extent : region.extents) {
    const auto index = state.IndexOf(extent.device);
    if (index.has_value()) devices |= state.domains()[state.DomainOf(*index)];
  }
  return devices;
}

// What is left once every domain is out that holds bytes of those to keep away from. What grows
// stays in its own.
DeviceSet Apart(const PlacementTask& task) {
  DeviceSet devices = task.allowed;
  for (const RegionPtr& other : task.request.isolate_from) {
    devices -= DomainsOf(task.state, *other);
  }
  if (task.request.grown != nullptr) devices &= DomainsOf(task.state, *task.request.grown);
  return devices;
}

std::optional<PlacedExtents> PlaceApart(const PlacementTask& task) {
  const DeviceSet apart = Apart(task);
  if (auto placed = Pack(task.On(apart).With(1)); placed.has_value()) return placed;
  if (task.max_extents == 1) return std::nullopt;
  std::optional<PlacedExtents> best;
  for (const DeviceSet& domain : task.state.domains()) {
    const DeviceSet devices = domain & apart;
    if (devices.empty()) continue;
    auto placed = Pack(task.On(devices));
    if (!placed.has_value()) continue;
    if (!best || placed->extents.size() < best->extents.size()) best = std::move(placed);
  }
  return best;
}

class Isolating : public PlacementPolicy {
 public:
  std::optional<PlacedExtents> Place(const PlacementTask& task) const override {
    return PlaceApart(task);
  }

  // Names a remedy that helps: more extents only where the Region was found to fit in so many,
  // another domain only where none is left.
  absl::Status WhyNot(const PlacementTask& task) const override {
    // Without the demand for isolation it would not fit either: that is the reason then.
    if (!Pack(task).has_value()) return FullOrFragmented(task, PlaceApart);
    const DeviceSet apart = Apart(task);
    uint64_t most_free = 0;
    for (const DeviceSet& domain : task.state.domains()) {
      const DeviceSet devices = domain & apart;
      most_free = std::max(most_free, TotalsOf(task.On(devices)).free_bytes);
    }
    std::vector<std::string> others;
    for (const RegionPtr& other : task.request.isolate_from) others.push_back(other->id);
    const std::string names = absl::StrJoin(others, ", ");
    const bool grows = task.request.grown != nullptr;
    RefusalData metadata = {{"isolate_from", absl::StrJoin(others, ",")},
                            {"free_bytes", absl::StrCat(most_free)}};
    std::string remedy = "release a Region there";
    if (apart.empty() && !grows) {
      remedy = "isolate it from fewer Regions, or add a device of another failure domain";
    } else if (const auto parts = PlaceApart(task.With(kMaxExtentsPerRegion)); parts.has_value()) {
      remedy = absl::StrCat("use --max-extents ", parts->extents.size());
      metadata.emplace_back("extents", absl::StrCat(parts->extents.size()));
    } else if (grows) {
      remedy = "release a Region there, or allocate another Region";
    }
    return Unfit(
        "NOT_ISOLATED",
        absl::StrCat(task.request.label, " needs ", FormatBytes(task.request.size_bytes),
                     task.max_extents == 1 ? " in one extent" : "", " in ",
                     grows ? "the failure domain that it is in" : "one failure domain",
                     names.empty() ? "" : absl::StrCat(" without bytes of ", names), "; ",
                     apart.empty() ? "there is none"
                                   : absl::StrCat("most free is ", FormatBytes(most_free))),
        remedy, std::move(metadata));
  }
};

}  // namespace

const PlacementPolicy& IsolatePolicy() {
  static const Isolating& policy = *new Isolating();
  return policy;
}

}  // namespace cxlpool::fm
