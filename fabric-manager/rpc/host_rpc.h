// cxlpool.v1.HostService over gRPC: carries messages between a stream and HostSessions.
#ifndef CXLPOOL_FABRIC_MANAGER_RPC_HOST_RPC_H_
#define CXLPOOL_FABRIC_MANAGER_RPC_HOST_RPC_H_

#include <atomic>

#include "cxlpool/v1/host_service.grpc.pb.h"
#include "fabric-manager/service/host_sessions.h"
#include "proto/support/executor.h"

namespace cxlpool::fm {

class HostRpc final : public v1::HostService::CallbackService {
 public:
  HostRpc(Executor* executor, HostSessions* sessions);

  grpc::ServerBidiReactor<v1::AgentMessage, v1::ManagerMessage>* Session(
      grpc::CallbackServerContext* context) override;

 private:
  Executor* const executor_;
  HostSessions* const sessions_;
  std::atomic<int> streams_{0};
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_RPC_HOST_RPC_H_
