// One WatchRegions stream: everything as it is, then each change, pulled from the WatchHub as the
// reader takes them. A slow reader holds one message and nothing else.
#ifndef CXLPOOL_FABRIC_MANAGER_RPC_WATCH_RPC_H_
#define CXLPOOL_FABRIC_MANAGER_RPC_WATCH_RPC_H_

#include <atomic>

#include "absl/status/status.h"
#include "cxlpool/v1/pool_service.grpc.pb.h"
#include "fabric-manager/service/view.h"
#include "fabric-manager/service/watch_hub.h"

namespace cxlpool::fm {

// How many streams are open.
struct WatchLimit {
  static constexpr int kMaxStreams = 16384;
  std::atomic<int> open{0};
};

// Starts a stream; `admitted` that is not OK ends it with that. Errors as in pool_service.proto.
// The pointers outlive the stream.
grpc::ServerWriteReactor<v1::WatchRegionsResponse>* StartWatch(
    grpc::CallbackServerContext* context, const absl::Status& admitted,
    const v1::WatchRegionsRequest& request, const ViewHolder* views, WatchHub* hub,
    WatchLimit* limit, bool hardware_coherent);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_RPC_WATCH_RPC_H_
