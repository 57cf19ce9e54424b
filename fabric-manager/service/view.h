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
  uint64_t held_bytes = 0;
  uint64_t scrubbing_bytes = 0;
  uint64_t quarantined_bytes = 0;
  uint64_t largest_free_bytes = 0;
};

struct PoolView {
  uint64_t revision = 0;
  RegionTable regions;
  std::map<std::string, std::shared_ptr<const HostView>, std::less<>> hosts;  // By id.
  std::vector<DeviceView> devices;                                            // In order of id.
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

  // `by_tag` edits the index: a tag (16 bytes) and its Region's id, empty to take it away.
  void Set(PoolViewPtr view, const std::vector<std::pair<std::string, std::string>>& by_tag) {
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
  std::string IdOfTag(absl::string_view tag) const {
    MutexLock lock(mutex_);
    const auto it = ids_by_tag_.find(tag);
    return it == ids_by_tag_.end() ? std::string() : it->second;
  }

 private:
  mutable Mutex mutex_;
  PoolViewPtr view_ ABSL_GUARDED_BY(mutex_) = std::make_shared<const PoolView>();
  absl::flat_hash_map<std::string, std::string> ids_by_tag_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_SERVICE_VIEW_H_
