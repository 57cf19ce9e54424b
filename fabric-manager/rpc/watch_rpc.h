// The WatchRegions streams: everything as it is, then each change, pulled from the WatchHub as the
// reader takes them. An event is serialised once, for all streams. A slow reader holds a bounded
// number of messages, and gets the latest of each Region where it is far behind (watch_hub.h).
#ifndef CXLPOOL_FABRIC_MANAGER_RPC_WATCH_RPC_H_
#define CXLPOOL_FABRIC_MANAGER_RPC_WATCH_RPC_H_

#include <atomic>
#include <memory>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "cxlpool/v1/pool_service.grpc.pb.h"
#include "fabric-manager/service/view.h"
#include "fabric-manager/service/watch_hub.h"
#include "proto/support/loop.h"
#include "proto/support/mutex.h"

namespace cxlpool::fm {

class Watch;

// All streams of one server. A thread of its own wakes those that wait, so that the writer, who
// publishes, starts no write. Any thread; outlives its streams.
class WatchStreams {
 public:
  static constexpr int kMaxStreams = 16384;

  WatchStreams(const ViewHolder* views, WatchHub* hub, bool hardware_coherent);
  ~WatchStreams();

  // Starts a stream; `admitted` that is not OK ends it with that. `request` is a
  // WatchRegionsRequest as it came. Errors as in pool_service.proto.
  grpc::ServerWriteReactor<grpc::ByteBuffer>* Start(grpc::CallbackServerContext* context,
                                                    const absl::Status& admitted,
                                                    const grpc::ByteBuffer& request);

 private:
  friend class Watch;

  // Wakes `watch` once after the next event: read again after this, or miss one.
  void Park(std::shared_ptr<Watch> watch);
  // The stream is over.
  void Leave(const std::shared_ptr<Watch>& watch);
  void WakeAll();

  const ViewHolder* const views_;
  WatchHub* const hub_;
  const bool hardware_coherent_;
  std::atomic<int> open_{0};
  std::atomic<bool> waking_{false};  // WakeAll is posted, and has not begun.
  Mutex mutex_;                      // Taken after a Watch's own.
  absl::flat_hash_set<std::shared_ptr<Watch>> parked_ ABSL_GUARDED_BY(mutex_);
  Loop loop_{"fm-watch"};
  const uint64_t subscription_;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_RPC_WATCH_RPC_H_
