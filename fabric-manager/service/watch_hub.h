// The last changes of Regions, for watchers that resume by revision.
//
// A ring of bounded length that readers pull from: a slow reader costs nothing, and one that fell
// out of the ring is told to start over. Any thread.
#ifndef CXLPOOL_FABRIC_MANAGER_SERVICE_WATCH_HUB_H_
#define CXLPOOL_FABRIC_MANAGER_SERVICE_WATCH_HUB_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <vector>

#include "absl/status/statusor.h"
#include "fabric-manager/model/region.h"
#include "proto/support/mutex.h"

namespace cxlpool::fm {

struct WatchEvent {
  uint64_t revision = 0;
  RegionPtr region;
  bool removed = false;
};

class WatchHub {
 public:
  explicit WatchHub(size_t ring_events = 65536) : ring_events_(ring_events) {}

  // Everything up to `revision` is older than the ring. Once, before Publish.
  void Reset(uint64_t revision);

  // The pool is at `revision`, though no event says so (yet).
  void Advance(uint64_t revision);

  // In revision order. Wakes the subscribers.
  void Publish(std::vector<WatchEvent> events);

  // Events after `revision`, at most `limit`; none if there are none yet.
  // OUT_OF_RANGE/REVISION_COMPACTED: some after it have left the ring.
  // OUT_OF_RANGE/REVISION_UNKNOWN: greater than any so far.
  absl::StatusOr<std::vector<WatchEvent>> Read(uint64_t revision, size_t limit) const;

  // Calls `wake` (which must be quick and not block, may Read, and may not un/subscribe) after each
  // Publish, until Unsubscribe returned.
  uint64_t Subscribe(std::function<void()> wake);
  void Unsubscribe(uint64_t subscription);

 private:
  const size_t ring_events_;
  mutable Mutex mutex_;
  std::deque<WatchEvent> ring_ ABSL_GUARDED_BY(mutex_);
  uint64_t floor_ ABSL_GUARDED_BY(mutex_) = 0;  // Events at or below it are gone.
  uint64_t latest_ ABSL_GUARDED_BY(mutex_) = 0;
  Mutex wakes_mutex_;  // Taken before mutex_, never after.
  uint64_t next_subscription_ ABSL_GUARDED_BY(wakes_mutex_) = 1;
  std::map<uint64_t, std::function<void()>> wakes_ ABSL_GUARDED_BY(wakes_mutex_);
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_SERVICE_WATCH_HUB_H_
