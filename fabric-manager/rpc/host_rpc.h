// cxlpool.v1.HostService over gRPC: carries messages between a stream and HostSessions.
#ifndef CXLPOOL_FABRIC_MANAGER_RPC_HOST_RPC_H_
#define CXLPOOL_FABRIC_MANAGER_RPC_HOST_RPC_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "cxlpool/v1/host_service.pb.h"
#include "fabric-manager/rpc/calls.h"
#include "fabric-manager/service/host_sessions.h"
#include "proto/support/executor.h"

namespace cxlpool::fm {

class HostRpc final {
 public:
  // A stream that has not said hello within this time is ended.
  static constexpr absl::Duration kHelloTime = absl::Seconds(5);

  // `refused`: the agent at `peer` (grpc::ServerContext::peer) said hello and was refused.
  using OnRefused = std::function<void(const std::string& peer, const absl::Status& why)>;

  HostRpc(Executor* executor, HostSessions* sessions, OnRefused refused);

  // Adds each method of the service. This outlives `calls`.
  void AddTo(Calls& calls);

 private:
  void CheckSession(UnaryCall<v1::CheckSessionRequest, v1::CheckSessionResponse>& call);

  Executor* const executor_;
  HostSessions* const sessions_;
  const OnRefused refused_;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_RPC_HOST_RPC_H_
