// cxlpool.v1.PoolService over gRPC: decode, authorize, check, call, encode.
#ifndef CXLPOOL_FABRIC_MANAGER_RPC_POOL_RPC_H_
#define CXLPOOL_FABRIC_MANAGER_RPC_POOL_RPC_H_

#include <string>

#include "cxlpool/v1/pool_service.grpc.pb.h"
#include "fabric-manager/rpc/arena_messages.h"
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
  // `answers` runs what builds long answers, so that neither the writer nor a thread of gRPC does.
  PoolRpc(PoolService* service, const ViewHolder* views, WatchHub* watch, Executor* answers,
          bool hardware_coherent);

  using Context = grpc::CallbackServerContext;
  using Reactor = grpc::ServerUnaryReactor;

  Reactor* AllocateRegion(Context* context, const v1::AllocateRegionRequest* request,
                          v1::AllocateRegionResponse* response) override;
  Reactor* BatchAllocateRegions(Context* context, const v1::BatchAllocateRegionsRequest* request,
                                v1::BatchAllocateRegionsResponse* response) override;
  Reactor* GetRegion(Context* context, const v1::GetRegionRequest* request,
                     v1::Region* response) override;
  Reactor* ListRegions(Context* context, const v1::ListRegionsRequest* request,
                       v1::ListRegionsResponse* response) override;
  Reactor* AttachRegion(Context* context, const v1::AttachRegionRequest* request,
                        v1::AttachRegionResponse* response) override;
  Reactor* DetachRegion(Context* context, const v1::DetachRegionRequest* request,
                        v1::DetachRegionResponse* response) override;
  Reactor* ReleaseRegion(Context* context, const v1::ReleaseRegionRequest* request,
                         v1::ReleaseRegionResponse* response) override;
  Reactor* BatchReleaseRegions(Context* context, const v1::BatchReleaseRegionsRequest* request,
                               v1::BatchReleaseRegionsResponse* response) override;
  Reactor* ResizeRegion(Context* context, const v1::ResizeRegionRequest* request,
                        v1::ResizeRegionResponse* response) override;
  Reactor* RenameRegion(Context* context, const v1::RenameRegionRequest* request,
                        v1::RenameRegionResponse* response) override;
  Reactor* RenewRegion(Context* context, const v1::RenewRegionRequest* request,
                       v1::RenewRegionResponse* response) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* WatchRegions(
      Context* context, const grpc::ByteBuffer* request) override;
  Reactor* GetCapacity(Context* context, const v1::GetCapacityRequest* request,
                       v1::Capacity* response) override;

 private:
  // A change of one Region: `start(spec, done)` calls the service, `more(committed)` puts into the
  // answer what is not the Region and its revision.
  template <typename Request, typename Response, typename Start, typename More>
  Reactor* Change(Context* context, absl::string_view method, const Request& request,
                  Response* response, Start start, More more);
  template <typename Request, typename Response, typename Start>
  Reactor* Change(Context* context, absl::string_view method, const Request& request,
                  Response* response, Start start);

  // `start(specs, done)` calls the service.
  template <typename Request, typename Response, typename Start>
  Reactor* Batch(Context* context, absl::string_view method, const Request& request,
                 Response* response, Start start);

  // What a host may not do with its Regions, though it may make the call.
  absl::Status Restrict(const Caller& caller, AllocateSpec& spec) const;
  absl::Status Restrict(const Caller& caller, ReleaseSpec& spec) const;
  absl::Status Restrict(const Caller& caller, RenewSpec& spec) const;
  template <typename Spec>
  absl::Status Restrict(const Caller&, Spec&) const {
    return absl::OkStatus();  // For operators alone.
  }

  absl::StatusOr<RegionPtr> Find(const std::string& name) const;

  PoolService* const service_;
  const ViewHolder* const views_;
  Executor* const answers_;
  const bool hardware_coherent_;
  WatchStreams watch_;
  ArenaMessages<v1::BatchAllocateRegionsRequest, v1::BatchAllocateRegionsResponse> allocates_;
  ArenaMessages<v1::BatchReleaseRegionsRequest, v1::BatchReleaseRegionsResponse> releases_;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_RPC_POOL_RPC_H_
