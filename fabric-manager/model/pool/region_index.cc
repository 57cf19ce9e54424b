#include "fabric-manager/model/pool/region_index.h"

#include <algorithm>

#include "proto/support/check.h"
#include "proto/support/mutant.h"

namespace cxlpool::fm {

// Applied whole or not at all.
absl::Status RegionNames::Add(const RegionPtr& region) {
  if (!by_id_.insert(region).second) {
    return Broken("there is a region \"", region->id, "\" already");
  }
  if (by_tag_.insert(region).second) return absl::OkStatus();
  by_id_.erase(region->id);
  return Broken("region \"", region->id, "\": its tag belongs to another");
}

void RegionNames::Remove(const Region& region) {
  by_id_.erase(region.id);
  by_tag_.erase(region.tag);
}

// In place: most changes of a Region leave its names alone.
void RegionNames::Replace(const RegionPtr& before, const RegionPtr& now) {
  const auto by_id = by_id_.find(now->id);
  const auto by_tag = by_tag_.find(now->tag);
  CXLPOOL_CHECK(by_id != by_id_.end() && *by_id == before, "region \"", now->id,
                "\" is not the one of that name in the index");
  CXLPOOL_CHECK(by_tag != by_tag_.end() && *by_tag == before, "region \"", now->id,
                "\" is not the one of its tag in the index");
  const_cast<RegionPtr&>(*by_id) = now;
  const_cast<RegionPtr&>(*by_tag) = now;
}

void RegionNames::Reserve(size_t regions) {
  by_id_.reserve(regions);
  by_tag_.reserve(regions);
}

const RegionPtr* RegionNames::FindById(absl::string_view id) const {
  const auto it = by_id_.find(id);
  return it == by_id_.end() ? nullptr : &*it;
}

const RegionPtr* RegionNames::FindByTag(const Uuid& tag) const {
  const auto it = by_tag_.find(tag);
  return it == by_tag_.end() ? nullptr : &*it;
}

absl::Status RegionNames::Check(const absl::flat_hash_map<Key, RegionPtr>& regions) const {
  bool by_id = by_id_.size() == regions.size();
  bool by_tag = by_tag_.size() == regions.size();
  for (const auto& [key, region] : regions) {
    const RegionPtr* named = FindById(region->id);
    by_id &= named != nullptr && *named == region;
    const RegionPtr* tagged = FindByTag(region->tag);
    by_tag &= tagged != nullptr && *tagged == region;
  }
  if (!by_id) return Broken("the index by name differs");
  return by_tag ? absl::OkStatus() : Broken("the index by tag differs");
}

// Applied whole or not at all: an id that is taken undoes those of this Region before it.
absl::Status RequestIndex::Add(const Region& region) {
  for (size_t i = 0; i < region.requests.size(); ++i) {
    const RequestId& id = region.requests[i].id;
    if (by_id_.try_emplace(id, region.key).second) continue;
    for (size_t before = 0; before < i; ++before) by_id_.erase(region.requests[before].id);
    return Broken("region \"", region.id, "\": a request of ", id.method.str(),
                  " made another change already");
  }
  return absl::OkStatus();
}

void RequestIndex::Remove(const Region& region) {
  for (const Request& request : region.requests) by_id_.erase(request.id);
}

std::optional<Key> RequestIndex::Find(const RequestId& id) const {
  const auto it = by_id_.find(id);
  return it == by_id_.end() ? std::nullopt : std::optional(it->second);
}

void Tombstones::Put(const Tombstone& tombstone) {
  const Key key = tombstone.region->key;
  if (Find(key) != nullptr) Erase(key);
  by_key_[key] = tombstone;
  by_gone_time_.insert({tombstone.gone_time, key});
}

void Tombstones::Erase(Key key) {
  const auto it = by_key_.find(key);
  CXLPOOL_CHECK(it != by_key_.end(), "record ", key, " is no tombstone");
  by_gone_time_.erase({it->second.gone_time, key});
  by_key_.erase(it);
}

const Tombstone* Tombstones::Find(Key key) const {
  const auto it = by_key_.find(key);
  return it == by_key_.end() ? nullptr : &it->second;
}

// The oldest first: those that are too old, and as many of the others as are too many in all.
std::vector<Key> Tombstones::Expired(absl::Time now, size_t limit) const {
  std::vector<Key> expired;
  size_t beyond = by_key_.size() - std::min(by_key_.size(), kMaxTombstones);
  for (const auto& [gone_time, key] : by_gone_time_) {
    if (expired.size() >= limit) break;
    const bool keep = !CXLPOOL_MUTANT("tombstones-expire-at-once");
    if (keep && beyond == 0 && now - gone_time <= kTombstoneLife) break;
    if (beyond > 0) --beyond;
    expired.push_back(key);
  }
  return expired;
}

absl::Status Tombstones::Check() const {
  bool same = by_gone_time_.size() == by_key_.size();
  for (const auto& [key, tombstone] : by_key_) {
    same &= by_gone_time_.contains({tombstone.gone_time, key});
  }
  return same ? absl::OkStatus() : Broken("the order of tombstones differs");
}

}  // namespace cxlpool::fm
