// The last changes of Regions, for watchers that resume by revision.
//
// A ring of bounded length that readers pull from: a slow reader costs nothing, and one that fell
// out of the ring has to start over. A reader that is far behind gets only the latest change of
// each Region: a later change in the ring stands for the earlier ones. Any thread.
#ifndef CXLPOOL_FABRIC_MANAGER_SERVICE_WATCH_HUB_H_
#define CXLPOOL_FABRIC_MANAGER_SERVICE_WATCH_HUB_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "fabric-manager/model/pool/region.h"
#include "proto/support/mutex.h"

namespace cxlpool::fm {

struct WatchEvent {
  uint64_t revision = 0;
  RegionPtr region;
  bool removed = false;
};

// An event as the ring and all its readers share it.
class WatchEntry {
 public:
  explicit WatchEntry(WatchEvent event) : event_(std::move(event)) {}

  const WatchEvent& event() const { return event_; }

  // What goes on the wire for it: `make` makes it for the first reader, the others share it. Every
  // caller means the same type, and makes the same of the same event.
  template <typename Make>
  const std::shared_ptr<const void>& Wire(Make make) const {
    std::call_once(once_, [&] { wire_ = make(event_); });
    return wire_;
  }

 private:
  const WatchEvent event_;
  mutable std::once_flag once_;
  mutable std::shared_ptr<const void> wire_;
};
using WatchEntryPtr = std::shared_ptr<const WatchEntry>;

class WatchHub {
 public:
  // The ring holds `ring_events`. A reader for whom more than `far_behind` wait is far behind.
  explicit WatchHub(size_t ring_events = 65536, size_t far_behind = 128)
      : ring_events_(ring_events), far_behind_(far_behind) {}

  // Empties the ring: everything up to `revision` is older than it.
  void Reset(uint64_t revision);

  // The pool is at `revision`, though no event says so (yet).
  void Advance(uint64_t revision);

  // In revision order. Wakes the subscribers.
  void Publish(std::vector<WatchEvent> events);

  // Revision of the newest event; 0 if there was none. A reader that learns of it by a wake, or
  // reads it here, finds the event. Takes no lock.
  uint64_t newest() const { return newest_.load(); }

  // Events at or below this revision have left the ring: who has seen less has to start over. Takes
  // no lock.
  uint64_t floor() const { return oldest_.load(); }

  // Events after `revision`, about `limit` at most: those of one revision are never parted. None if
  // there are none yet.
  // OUT_OF_RANGE/REVISION_COMPACTED: some after it have left the ring.
  // OUT_OF_RANGE/REVISION_UNKNOWN: greater than any so far.
  absl::StatusOr<std::vector<WatchEvent>> Read(uint64_t revision, size_t limit) const;

  // As Read, for a reader that takes them as they come: if it is far behind, without those that a
  // later one in the ring stands for. Go on from the revision of the last.
  absl::StatusOr<std::vector<WatchEntryPtr>> Take(uint64_t revision, size_t limit) const;

  // Calls `wake` (which must be quick and not block, may Read, and may not un/subscribe) after each
  // Publish, until Unsubscribe returned.
  uint64_t Subscribe(std::function<void()> wake);
  void Unsubscribe(uint64_t subscription);

 private:
  struct Slot {
    WatchEntryPtr entry;
    bool superseded = false;  // A later one of the same Region is in the ring.
  };
  using Ring = std::deque<Slot>;

  void Push(WatchEvent event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The first event after `revision`; errors as of Read.
  absl::StatusOr<Ring::const_iterator> Find(uint64_t revision) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const size_t ring_events_;
  const size_t far_behind_;
  mutable Mutex mutex_;
  Ring ring_ ABSL_GUARDED_BY(mutex_);
  uint64_t popped_ ABSL_GUARDED_BY(mutex_) = 0;  // How many have left the ring.
  // Region to its last event: the number of events before it, ever. Only of events in the ring.
  absl::flat_hash_map<Key, uint64_t> last_ ABSL_GUARDED_BY(mutex_);
  uint64_t floor_ ABSL_GUARDED_BY(mutex_) = 0;  // Events at or below it are gone.
  uint64_t latest_ ABSL_GUARDED_BY(mutex_) = 0;
  std::atomic<uint64_t> newest_{0};
  std::atomic<uint64_t> oldest_{0};  // floor_
  Mutex wakes_mutex_;                // Taken before mutex_, never after.
  uint64_t next_subscription_ ABSL_GUARDED_BY(wakes_mutex_) = 1;
  std::map<uint64_t, std::function<void()>> wakes_ ABSL_GUARDED_BY(wakes_mutex_);
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_SERVICE_WATCH_HUB_H_
