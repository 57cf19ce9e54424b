#include "fabric-manager/service/region_table.h"

#include <algorithm>
#include <map>
#include <utility>

namespace cxlpool::fm {
namespace {

bool IdLess(const RegionPtr& region, absl::string_view id) {
  return absl::string_view(region->id) < id;
}

}  // namespace

// The leaf that holds `id`, or would: the last whose first id is not greater.
size_t RegionTable::LeafOf(absl::string_view id) const {
  const auto after = std::upper_bound(
      spine_.begin(), spine_.end(), id,
      [](absl::string_view want, const auto& leaf) { return want < leaf->front()->id; });
  return after == spine_.begin() ? 0 : static_cast<size_t>(after - spine_.begin()) - 1;
}

RegionTable RegionTable::With(const std::vector<Edit>& edits) const {
  // Which leaf each edit falls into is decided on the old spine; leaves are cut or dropped after.
  std::map<size_t, Leaf> touched;
  RegionTable next = *this;
  for (const Edit& edit : edits) {
    const size_t at = LeafOf(edit.id);
    const auto [it, fresh] = touched.try_emplace(at);
    if (fresh && at < spine_.size()) it->second = *spine_[at];
    Leaf& leaf = it->second;
    const auto place = std::lower_bound(leaf.begin(), leaf.end(), edit.id, IdLess);
    const bool found = place != leaf.end() && (*place)->id == edit.id;
    if (edit.region == nullptr) {
      if (!found) continue;
      leaf.erase(place);
      --next.size_;
    } else if (found) {
      *place = edit.region;
    } else {
      leaf.insert(place, edit.region);
      ++next.size_;
    }
  }
  for (auto it = touched.rbegin(); it != touched.rend(); ++it) {
    const auto& [at, leaf] = *it;
    std::vector<std::shared_ptr<const Leaf>> parts;
    const size_t count = (leaf.size() + kLeaf - 1) / kLeaf;
    for (size_t part = 0; part < count; ++part) {
      parts.push_back(std::make_shared<const Leaf>(
          leaf.begin() + static_cast<ptrdiff_t>(leaf.size() * part / count),
          leaf.begin() + static_cast<ptrdiff_t>(leaf.size() * (part + 1) / count)));
    }
    const auto position = next.spine_.begin() + static_cast<ptrdiff_t>(at);
    if (at < spine_.size()) {
      next.spine_.insert(next.spine_.erase(position), parts.begin(), parts.end());
    } else {
      next.spine_.insert(position, parts.begin(), parts.end());
    }
  }
  return next;
}

RegionPtr RegionTable::Find(absl::string_view id) const {
  if (spine_.empty()) return nullptr;
  const Leaf& leaf = *spine_[LeafOf(id)];
  const auto place = std::lower_bound(leaf.begin(), leaf.end(), id, IdLess);
  return place != leaf.end() && (*place)->id == id ? *place : nullptr;
}

std::vector<RegionPtr> RegionTable::List(absl::string_view after, size_t limit) const {
  std::vector<RegionPtr> out;
  if (spine_.empty()) return out;
  for (size_t at = LeafOf(after); at < spine_.size() && out.size() < limit; ++at) {
    const Leaf& leaf = *spine_[at];
    auto place = std::lower_bound(leaf.begin(), leaf.end(), after, IdLess);
    if (place != leaf.end() && (*place)->id == after) ++place;
    for (; place != leaf.end() && out.size() < limit; ++place) out.push_back(*place);
  }
  return out;
}

}  // namespace cxlpool::fm
