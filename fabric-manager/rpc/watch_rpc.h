// The WatchRegions streams: everything as it is, then each change, pulled from the WatchHub as the
// reader takes them. An event is serialised once, for all streams. A slow reader holds a bounded
// number of messages, and gets the latest of each Region where it is far behind (watch_hub.h). What
// there was when its stream began, and what a tenant or a host was shown, it keeps no longer than
// the changes since are kept: so all such readers together keep no more of what Regions were than
// the ring does.
#ifndef CXLPOOL_FABRIC_MANAGER_RPC_WATCH_RPC_H_
#define CXLPOOL_FABRIC_MANAGER_RPC_WATCH_RPC_H_

#include <atomic>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "fabric-manager/ports/fabric_driver.h"
#include "fabric-manager/rpc/calls.h"
#include "fabric-manager/service/view.h"
#include "fabric-manager/service/watch_hub.h"
#include "proto/support/loop.h"
#include "proto/support/mutex.h"

namespace cxlpool::fm {

class Watch;

// All streams of one server. The writer, who publishes, starts no write: new events are handed
// round to the streams that have nothing to do, by whichever of gRPC's threads is done with a
// write, and a thread of its own begins that and sees to it that it goes on. The other streams come
// for events when they are ready. Any thread; outlives its streams.
class WatchStreams {
 public:
  WatchStreams(const ViewHolder* views, WatchHub* hub, const FabricCapabilities& fabric);
  ~WatchStreams();

  // Starts a stream once its request is read. Errors as in pool_service.proto.
  grpc::ServerGenericBidiReactor* Start(Calls* calls, Admitted admitted);

  // How many revisions the slowest stream has yet to take, of those that events were published of.
  uint64_t Lag();

 private:
  friend class Watch;

  void Join(const std::shared_ptr<Watch>& watch);
  void Leave(const std::shared_ptr<Watch>& watch);
  // A round: the newest events for every stream that has nothing to do.
  struct Round {
    uint64_t from = 0;  // `entries` are the events after this revision.
    std::vector<WatchEntryPtr> entries;
    std::vector<std::shared_ptr<Watch>> streams;
    std::atomic<size_t> next{0};  // Of `streams`: those before have been seen to.
  };

  // Begins a round. On loop_.
  void BeginRound();
  // Takes from streams that are too slow what they cannot go on from any more. On loop_.
  void LetGoOfOldViews();
  // Sees to the next few streams of the round; false: there are none left.
  bool Help(size_t few);
  // Goes on with a round that nobody has helped with since it stood at `next`. On loop_.
  void Push(const std::shared_ptr<Round>& round, size_t next);

  const ViewHolder* const views_;
  WatchHub* const hub_;
  const FabricCapabilities fabric_;
  std::atomic<bool> beginning_{false};  // BeginRound is posted, and has not begun.
  Mutex mutex_;
  absl::flat_hash_set<std::shared_ptr<Watch>> open_ ABSL_GUARDED_BY(mutex_);
  std::atomic<size_t> open_count_{0};                     // Of them.
  std::shared_ptr<Round> round_ ABSL_GUARDED_BY(mutex_);  // Null: none, or all is seen to.
  uint64_t handed_ = 0;  // Events up to this revision had a round. On loop_.
  uint64_t let_go_ = 0;  // Views of before this revision were let go. On loop_.
  Loop loop_{"fm-watch"};
  const uint64_t subscription_;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_RPC_WATCH_RPC_H_
