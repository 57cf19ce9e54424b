// For tests: the pool as one would write it on a napkin. An owner for every granule, plain lists,
// everything looked for from the beginning. Slow, and obviously right; naive_pool_test.cc compares
// it with the real one.
//
// All devices have the same granule; lengths are in granules.
#ifndef CXLPOOL_TEST_MODEL_NAIVE_POOL_H_
#define CXLPOOL_TEST_MODEL_NAIVE_POOL_H_

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "fabric-manager/model/plans/planner.h"

namespace cxlpool::fm {

struct NaiveRun {
  int device = 0;
  int start = 0;
  int length = 0;
  friend bool operator==(const NaiveRun&, const NaiveRun&) = default;
};
using NaiveRuns = std::vector<NaiveRun>;

struct NaiveDevice {
  std::string id;
  std::string domain;
  int latency = 0;
  bool in_service = true;
  std::vector<Key> owner;  // Of each granule; 0: free.
};

struct NaiveRegion {
  std::string id;
  std::string tenant;
  Policy policy = Policy::kPack;
  int ways = 1;
  NaiveRuns extents;
  bool going = false;  // Released: holds its bytes until it is gone.
};

struct TenantLimits {
  int quota = 0;  // 0: none.
  int reserved = 0;
};

struct NaivePool {
  std::vector<NaiveDevice> devices;
  std::map<std::string, TenantLimits> limits;
  std::map<Key, NaiveRegion> regions;  // Those that hold bytes.
  int lds_per_device = 0;              // 0: no limit.

  NaiveRuns RunsOf(int device) const {
    NaiveRuns runs;
    const std::vector<Key>& owner = devices[device].owner;
    for (int i = 0; i < static_cast<int>(owner.size()); ++i) {
      if (owner[i] != 0) continue;
      const bool joins = !runs.empty() && runs.back().start + runs.back().length == i;
      joins ? ++runs.back().length : (runs.push_back({device, i, 1}), 0);
    }
    return runs;
  }
  int Free(int device) const {
    return static_cast<int>(
        std::count(devices[device].owner.begin(), devices[device].owner.end(), Key{0}));
  }
  int Longest(int device) const {
    int longest = 0;
    for (const NaiveRun& run : RunsOf(device)) longest = std::max(longest, run.length);
    return longest;
  }
  int Lds(int device) const {
    int lds = 0;
    for (const auto& [key, region] : regions) {
      for (const NaiveRun& extent : region.extents) lds += extent.device == device;
    }
    return lds;
  }
  int LdsLeft(int device) const {
    return lds_per_device == 0 ? 1000 : std::max(0, lds_per_device - Lds(device));
  }
  std::set<int> Usable() const {
    std::set<int> usable;
    for (int i = 0; i < static_cast<int>(devices.size()); ++i) {
      if (devices[i].in_service) usable.insert(i);
    }
    return usable;
  }
  int Free(const std::set<int>& among) const {
    int free = 0;
    for (const int device : among) free += Free(device);
    return free;
  }
  int Held(const std::string& tenant) const {
    int held = 0;
    for (const auto& [key, region] : regions) {
      if (region.tenant != tenant) continue;
      for (const NaiveRun& extent : region.extents) held += extent.length;
    }
    return held;
  }

  // What policy pack gives. The smallest run that fits; else the longest run, and again for the
  // rest.
  std::optional<NaiveRuns> Pack(const std::set<int>& among, int length, int max_extents,
                                bool heed_lds = true) const {
    NaiveRuns free;
    std::map<int, int> lds_left;
    for (const int device : among) {
      lds_left[device] = heed_lds ? LdsLeft(device) : 1000;
      for (const NaiveRun& run : RunsOf(device)) free.push_back(run);
    }
    NaiveRuns taken;
    while (static_cast<int>(taken.size()) < max_extents) {
      std::erase_if(free, [&](const NaiveRun& run) { return lds_left[run.device] == 0; });
      const NaiveRun* best = nullptr;
      const NaiveRun* longest = nullptr;
      for (const NaiveRun& run : free) {  // In order of device and address: the first of equals.
        if (run.length >= length && (best == nullptr || run.length < best->length)) best = &run;
        if (longest == nullptr || run.length > longest->length) longest = &run;
      }
      if (best != nullptr) {
        taken.push_back({best->device, best->start, length});
        return taken;
      }
      if (longest == nullptr) return std::nullopt;
      taken.push_back(*longest);
      length -= longest->length;
      --lds_left[longest->device];
      std::erase(free, NaiveRun(taken.back()));
    }
    return std::nullopt;
  }

  // Whether one stripe set can be had.
  bool OneSet(const std::set<int>& among, int share, int ways, bool heed_lds = true) const {
    int fit = 0;
    for (const int device : among) {
      fit += Longest(device) >= share && (!heed_lds || LdsLeft(device) > 0);
    }
    return fit >= ways;
  }

  std::set<std::string> DomainsOf(Key key) const {
    std::set<std::string> domains;
    for (const NaiveRun& extent : regions.at(key).extents) {
      domains.insert(devices[extent.device].domain);
    }
    return domains;
  }

  // False: somebody has a granule of it already.
  bool Take(Key key, const NaiveRuns& extents) {
    for (const NaiveRun& extent : extents) {
      for (int i = 0; i < extent.length; ++i) {
        Key& owner = devices[extent.device].owner.at(extent.start + i);
        if (owner != 0) return false;
        owner = key;
      }
    }
    return true;
  }
  void Give(const NaiveRuns& extents) {
    for (const NaiveRun& extent : extents) {
      std::fill_n(devices[extent.device].owner.begin() + extent.start, extent.length, Key{0});
    }
  }
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_TEST_MODEL_NAIVE_POOL_H_
