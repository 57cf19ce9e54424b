// For tests: what the naive pool says to a request, and why not.
#ifndef CXLPOOL_TEST_MODEL_NAIVE_ANSWERS_H_
#define CXLPOOL_TEST_MODEL_NAIVE_ANSWERS_H_

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "test/model/model_rig.h"
#include "test/model/naive_pool.h"

namespace cxlpool::fm {

// No reasons: yes. Else one of them is the right one. `exact` where there is one right answer.
struct NaiveAnswer {
  std::set<std::string> reasons;
  std::optional<NaiveRuns> exact;
};

struct NaiveAnswers {
  const NaivePool& pool;

  NaiveAnswer WouldHold(const std::string& tenant, uint64_t bytes) const {
    const TenantLimits& limits = pool.limits.at(tenant);
    const uint64_t held = pool.Held(tenant) * kUnit;
    if (limits.quota != 0 && held + bytes > limits.quota * kUnit) return {{"QUOTA_EXCEEDED"}, {}};
    uint64_t promised = 0;
    for (const auto& [other, theirs] : pool.limits) {
      if (other != tenant) promised += std::max(0, theirs.reserved - pool.Held(other)) * kUnit;
    }
    const uint64_t free = pool.Free(pool.Usable()) * kUnit;
    if (promised > 0 && bytes <= free && bytes + promised > free) {
      return {{"RESERVED_FOR_OTHERS"}, {}};
    }
    return {};
  }

  // Rounded up it may be too much for the tenant, which is seen once it is placed.
  NaiveAnswer AndHold(const std::string& tenant, int length, NaiveAnswer answer) const {
    if (!answer.reasons.empty()) return answer;
    const NaiveAnswer hold = WouldHold(tenant, length * kUnit);
    return hold.reasons.empty() ? answer : hold;
  }

  std::set<int> Among(const AllocateSpec& spec) const {
    std::set<int> among = pool.Usable();
    if (!spec.device.empty()) {
      std::erase_if(among, [&](int i) { return pool.devices[i].id != spec.device; });
    }
    return among;
  }

  NaiveAnswer WouldPlace(const AllocateSpec& spec, int length, const std::vector<Key>& away,
                         const NaiveRegion* grown) const {
    const std::set<int> among = Among(spec);
    if (among.empty()) return {{"DEVICE_DRAINING"}, {}};
    const std::string tenant = grown == nullptr ? spec.tenant : grown->tenant;
    const int there = grown == nullptr ? 0 : static_cast<int>(grown->extents.size());
    const int most = std::min<int>(spec.max_extents, kMaxExtentsPerRegion - there);
    const std::string full = pool.Free(among) < length ? "POOL_FULL" : "POOL_FRAGMENTED";
    const int ways = grown == nullptr ? static_cast<int>(spec.interleave_ways) : grown->ways;
    if (ways > 1) return WouldStripe(among, length, ways, there, most, tenant, full);
    std::vector<std::set<int>> places = {among};
    if (*spec.policy == Policy::kIsolate) places = Domains(among, away, grown);
    bool fits = false;
    bool fits_without_lds = false;
    for (const std::set<int>& place : places) {
      fits |= pool.Pack(place, length, most).has_value();
      fits_without_lds |= pool.Pack(place, length, most, false).has_value();
    }
    NaiveAnswer answer;
    if (fits) {
      if (*spec.policy == Policy::kPack) answer.exact = pool.Pack(among, length, most);
      return AndHold(tenant, length, answer);
    }
    if (fits_without_lds) return {{"LD_LIMIT"}, {}};
    if (*spec.policy == Policy::kIsolate && pool.Pack(among, length, most, false)) {
      // With LDs at their limit either may be named first.
      if (pool.lds_per_device == 0) return {{"NOT_ISOLATED"}, {}};
      return {{"NOT_ISOLATED", full}, {}};
    }
    return {{full}, {}};
  }

  NaiveAnswer WouldStripe(const std::set<int>& among, int length, int ways, int there, int most,
                          const std::string& tenant, const std::string& full) const {
    const int share = (length + ways - 1) / ways;
    const bool room = there + ways <= static_cast<int>(kMaxExtentsPerRegion);
    if (room && pool.OneSet(among, share, ways)) return AndHold(tenant, share * ways, {});
    NaiveAnswer answer{{full, "LD_LIMIT"}, {}};
    if (static_cast<int>(among.size()) < ways) return {{"TOO_FEW_DEVICES"}, {}};
    // Several sets may do: the real one says, and it is judged by what it gives.
    if (most > 1 && room) answer.reasons.insert({"", "QUOTA_EXCEEDED", "RESERVED_FOR_OTHERS"});
    return answer;
  }

  // The failure domains that are left.
  std::vector<std::set<int>> Domains(const std::set<int>& among, const std::vector<Key>& away,
                                     const NaiveRegion* grown) const {
    std::set<std::string> out;
    for (const Key key : away) out.merge(pool.DomainsOf(key));
    std::set<std::string> own;
    if (grown != nullptr) {
      for (const NaiveRun& e : grown->extents) own.insert(pool.devices[e.device].domain);
    }
    std::map<std::string, std::set<int>> domains;
    for (const int i : among) {
      const std::string& domain = pool.devices[i].domain;
      if (out.contains(domain) || (grown != nullptr && !own.contains(domain))) continue;
      domains[domain].insert(i);
    }
    std::vector<std::set<int>> places;
    for (const auto& [domain, devices] : domains) places.push_back(devices);
    return places;
  }
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_TEST_MODEL_NAIVE_ANSWERS_H_
