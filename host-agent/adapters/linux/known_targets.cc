#include "host-agent/adapters/linux/known_targets.h"

#include <algorithm>
#include <utility>

namespace cxlpool::agent {

void KnownTargets::Complete(CxlSnapshot& snapshot) {
  MutexLock lock(mutex_);
  std::map<std::string, Known> now;
  for (CxlHostRegion& region : snapshot.regions) {
    Known known{region.hpa_bytes, {}};
    const auto before = regions_.find(region.name);
    if (before != regions_.end() && before->second.hpa_bytes == region.hpa_bytes) {
      known = before->second;
    }
    const size_t ways = std::max(region.targets.size(), known.serials.size());
    region.targets.resize(ways);
    known.serials.resize(ways);
    for (size_t i = 0; i < ways; ++i) {
      if (region.targets[i].serial != 0) known.serials[i] = region.targets[i].serial;
      region.targets[i].serial = known.serials[i];
    }
    now.emplace(region.name, std::move(known));
  }
  regions_ = std::move(now);
}

}  // namespace cxlpool::agent
