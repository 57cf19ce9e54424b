// cxlpool.v1.PoolService over gRPC: decode, authorize, check, call, encode.
#ifndef CXLPOOL_FABRIC_MANAGER_RPC_POOL_RPC_H_
#define CXLPOOL_FABRIC_MANAGER_RPC_POOL_RPC_H_

#include <functional>

#include "cxlpool/v1/pool_service.grpc.pb.h"
#include "fabric-manager/rpc/authorize.h"
#include "fabric-manager/rpc/watch_rpc.h"
#include "fabric-manager/service/pool_service.h"
#include "fabric-manager/service/view.h"
#include "fabric-manager/service/watch_hub.h"

namespace cxlpool::fm {

// WatchRegions is raw: its messages are serialised once for all streams.
class PoolRpc final
    : public v1::PoolService::WithRawCallbackMethod_WatchRegions<v1::PoolService::CallbackService> {
 public:
  PoolRpc(PoolService* service, const ViewHolder* views, WatchHub* watch, bool hardware_coherent);

  grpc::ServerUnaryReactor* AllocateRegion(grpc::CallbackServerContext* context,
                                           const v1::AllocateRegionRequest* request,
                                           v1::AllocateRegionResponse* response) override;
  grpc::ServerUnaryReactor* GetRegion(grpc::CallbackServerContext* context,
                                      const v1::GetRegionRequest* request,
                                      v1::Region* response) override;
  grpc::ServerUnaryReactor* ListRegions(grpc::CallbackServerContext* context,
                                        const v1::ListRegionsRequest* request,
                                        v1::ListRegionsResponse* response) override;
  grpc::ServerUnaryReactor* AttachRegion(grpc::CallbackServerContext* context,
                                         const v1::AttachRegionRequest* request,
                                         v1::AttachRegionResponse* response) override;
  grpc::ServerUnaryReactor* DetachRegion(grpc::CallbackServerContext* context,
                                         const v1::DetachRegionRequest* request,
                                         v1::DetachRegionResponse* response) override;
  grpc::ServerUnaryReactor* ReleaseRegion(grpc::CallbackServerContext* context,
                                          const v1::ReleaseRegionRequest* request,
                                          v1::ReleaseRegionResponse* response) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* WatchRegions(
      grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) override;
  grpc::ServerUnaryReactor* GetCapacity(grpc::CallbackServerContext* context,
                                        const v1::GetCapacityRequest* request,
                                        v1::Capacity* response) override;

 private:
  absl::StatusOr<RegionPtr> Find(const std::string& name) const;

  PoolService* const service_;
  const ViewHolder* const views_;
  const bool hardware_coherent_;
  WatchStreams watch_;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_RPC_POOL_RPC_H_
