// What readers see: the pool as of one revision, immutable. The writer publishes a new one after
// each commit; RPC threads take the latest and never wait for the writer.
#ifndef CXLPOOL_FABRIC_MANAGER_SERVICE_VIEW_H_
#define CXLPOOL_FABRIC_MANAGER_SERVICE_VIEW_H_

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "fabric-manager/model/pool_state.h"
#include "fabric-manager/service/region_table.h"
#include "proto/support/mutex.h"

namespace cxlpool::fm {

// A host with what it can take and what sits in its slots.
struct HostView {
  Host host;
  HostRuntime runtime;
  std::vector<OccupiedSlot> occupied;
};

struct DeviceView {
  Device device;
  DeviceUse use;
  uint64_t largest_free_bytes = 0;
  std::string failure_domain;
  uint32_t max_lds = 0;  // 0: no limit.
};

struct TenantView {
  Tenant tenant;  // Of `default` also where it has no record.
  TenantUse use;
};

struct PoolView {
  uint64_t revision = 0;
  RegionTable regions;
  std::map<std::string, std::shared_ptr<const HostView>, std::less<>> hosts;  // By id.
  std::shared_ptr<const std::vector<DeviceView>> devices;                     // In order of id.
  std::shared_ptr<const std::vector<TenantView>> tenants;                     // In order of id.
  std::shared_ptr<const Topology> topology = std::make_shared<const Topology>();
  Capacity capacity;
};
using PoolViewPtr = std::shared_ptr<const PoolView>;

// Holds the latest, and an index of tags. Any thread.
class ViewHolder {
 public:
  PoolViewPtr Get() const {
    MutexLock lock(mutex_);
    return view_;
  }

  // Edits of the index: a tag and its Region's id, empty to take it away.
  using TagEdits = std::vector<std::pair<Uuid, std::string>>;
  void Set(PoolViewPtr view, const TagEdits& by_tag) {
    MutexLock lock(mutex_);
    view_.swap(view);
    for (const auto& [tag, id] : by_tag) {
      if (id.empty()) {
        ids_by_tag_.erase(tag);
      } else {
        ids_by_tag_[tag] = id;
      }
    }
  }

  // Empty if there is none.
  std::string IdOfTag(const Uuid& tag) const {
    MutexLock lock(mutex_);
    const auto it = ids_by_tag_.find(tag);
    return it == ids_by_tag_.end() ? std::string() : it->second;
  }

 private:
  mutable Mutex mutex_;
  PoolViewPtr view_ ABSL_GUARDED_BY(mutex_) = std::make_shared<const PoolView>();
  absl::flat_hash_map<Uuid, std::string> ids_by_tag_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_SERVICE_VIEW_H_
