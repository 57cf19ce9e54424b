#include "host-agent/adapters/linux/cxl/known_targets.h"

#include <algorithm>
#include <utility>

#include "host-agent/adapters/linux/cxl/known_targets_file.h"
#include "proto/support/log.h"

namespace cxlpool::agent {

KnownTargets::KnownTargets(std::string file, std::string boot_id)
    : file_(std::move(file)), boot_id_(std::move(boot_id)) {
  if (file_.empty()) return;
  MutexLock lock(mutex_);
  saved_ = ReadKnownRegions(file_, boot_id_);
  regions_ = saved_;
}

void KnownTargets::Complete(CxlSnapshot& snapshot) {
  MutexLock lock(mutex_);
  KnownRegions now;
  for (CxlHostRegion& region : snapshot.regions) {
    KnownRegion known{region.hpa_bytes, region.inode, {}};
    const auto before = regions_.find(region.name);
    if (before != regions_.end() && before->second.hpa_bytes == region.hpa_bytes &&
        before->second.inode == region.inode) {
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
  if (!file_.empty()) Save();
}

void KnownTargets::Save() {
  KnownRegions wanted = WorthKeeping(regions_);
  if (wanted == saved_) return;
  const absl::Status status = WriteKnownRegions(file_, boot_id_, wanted);
  if (status.ok()) {
    saved_ = std::move(wanted);
  } else if (!std::exchange(complained_, true)) {
    LogWarning("host-memory", status.message());
  }
}

}  // namespace cxlpool::agent
