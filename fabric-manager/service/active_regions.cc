#include "fabric-manager/service/active_regions.h"

#include "absl/strings/str_cat.h"

namespace cxlpool::fm {

std::string NameOf(const PoolState& state, Key region) {
  const RegionPtr* known = state.FindRegion(region);
  return known == nullptr ? absl::StrCat("region record ", region)
                          : absl::StrCat("regions/", (*known)->id);
}

void ActiveRegions::TouchHost(const std::string& host) {
  for (const OccupiedSlot& slot : writer_->state().Occupied(host)) Touch(slot.region);
}

void ActiveRegions::Step(Key region) {
  Touch(region);
  step_(region);
}

void ActiveRegions::StepAll() {
  step_posted_ = false;
  stepped_.assign(active_.begin(), active_.end());
  for (const Key region : stepped_) step_(region);
}

void ActiveRegions::PostStepAll() {
  if (std::exchange(step_posted_, true)) return;
  executor_->Post([this] { StepAll(); });
}

}  // namespace cxlpool::fm
