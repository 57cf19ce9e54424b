#include "tools/benches/survival.h"

#include <algorithm>
#include <tuple>

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"

namespace cxlpool::bench {
namespace {

uint64_t HashOf(const v1::Region& region) {
  return absl::Hash<std::string>()(region.SerializeAsString());
}

}  // namespace

Survival& Survival::operator+=(const Survival& other) {
  acknowledged += other.acknowledged;
  lost += other.lost;
  overlap += other.overlap;
  extra += other.extra;
  if (first_loss.empty()) first_loss = other.first_loss;
  return *this;
}

void SurvivalCheck::Lose(const std::string& what) {
  ++survival_.lost;
  if (survival_.first_loss.empty()) survival_.first_loss = what;
}

void SurvivalCheck::Acknowledged(const v1::Region& region) {
  ++survival_.acknowledged;
  if (!promised_.try_emplace(region.tag(), HashOf(region)).second) {
    Lose(absl::StrCat("acknowledged twice: { ", region.ShortDebugString(), " }"));
  }
}

void SurvivalCheck::Listed(const v1::Region& region) {
  for (const v1::Extent& extent : region.extents()) {
    const uint32_t device = devices_.try_emplace(extent.device(), devices_.size()).first->second;
    extents_.push_back({device, extent.dpa_bytes(), extent.length_bytes()});
  }
  const auto promised = promised_.find(region.tag());
  if (promised == promised_.end()) {
    ++survival_.extra;
    return;
  }
  if (promised->second != HashOf(region)) {
    Lose(absl::StrCat("after the restart it is not what was acknowledged: { ",
                      region.ShortDebugString(), " }"));
  }
  promised_.erase(promised);
}

uint64_t SurvivalCheck::CountOverlaps() {
  std::sort(extents_.begin(), extents_.end(), [](const Extent& a, const Extent& b) {
    return std::tie(a.device, a.dpa) < std::tie(b.device, b.dpa);
  });
  uint64_t overlaps = 0, end = 0;
  uint32_t device = 0;
  for (const Extent& extent : extents_) {
    if (extent.device != device) end = 0;
    if (extent.dpa < end) ++overlaps;
    device = extent.device;
    end = std::max(end, extent.dpa + extent.length);
  }
  return overlaps;
}

Survival SurvivalCheck::Finish() {
  for (const auto& [tag, hash] : promised_) {
    Lose(absl::StrCat("acknowledged, and gone after the restart: the Region of tag ", tag));
  }
  survival_.overlap = CountOverlaps();
  return survival_;
}

}  // namespace cxlpool::bench
