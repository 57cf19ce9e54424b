#include "tools/benches/survival.h"

#include <algorithm>
#include <tuple>
#include <unordered_map>

#include "absl/strings/str_cat.h"

namespace cxlpool::bench {
namespace {

uint64_t CountOverlaps(const std::vector<v1::Region>& listed) {
  std::vector<std::tuple<std::string, uint64_t, uint64_t>> extents;
  for (const v1::Region& region : listed) {
    for (const v1::Extent& extent : region.extents()) {
      extents.emplace_back(extent.device(), extent.dpa_bytes(), extent.length_bytes());
    }
  }
  std::sort(extents.begin(), extents.end());
  uint64_t overlaps = 0;
  std::string device;
  uint64_t end = 0;
  for (const auto& [on, dpa, length] : extents) {
    if (on != device) end = 0;
    if (dpa < end) ++overlaps;
    device = on;
    end = std::max(end, dpa + length);
  }
  return overlaps;
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

Survival Compare(const std::vector<v1::Region>& acknowledged,
                 const std::vector<v1::Region>& listed) {
  std::unordered_map<std::string, const v1::Region*> by_tag;
  for (const v1::Region& region : listed) by_tag[region.tag()] = &region;

  Survival survival;
  survival.acknowledged = acknowledged.size();
  survival.overlap = CountOverlaps(listed);
  for (const v1::Region& promised : acknowledged) {
    const auto found = by_tag.find(promised.tag());
    if (found != by_tag.end() &&
        found->second->SerializeAsString() == promised.SerializeAsString()) {
      by_tag.erase(found);  // Acknowledged twice would be a loss.
      continue;
    }
    ++survival.lost;
    if (survival.first_loss.empty()) {
      survival.first_loss = absl::StrCat(
          "acknowledged { ", promised.ShortDebugString(), " }, after the restart ",
          found == by_tag.end() ? "nothing"
                                : absl::StrCat("{ ", found->second->ShortDebugString(), " }"));
    }
    if (found != by_tag.end()) by_tag.erase(found);
  }
  survival.extra = by_tag.size();
  return survival;
}

}  // namespace cxlpool::bench
