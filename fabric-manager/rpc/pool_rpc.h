// cxlpool.v1.PoolService over gRPC: check, call, encode. Who calls was judged before (calls.h).
#ifndef CXLPOOL_FABRIC_MANAGER_RPC_POOL_RPC_H_
#define CXLPOOL_FABRIC_MANAGER_RPC_POOL_RPC_H_

#include <string>

#include "cxlpool/v1/pool_service.pb.h"
#include "fabric-manager/rpc/authorize.h"
#include "fabric-manager/rpc/calls.h"
#include "fabric-manager/rpc/watch_rpc.h"
#include "fabric-manager/service/pool_service.h"
#include "fabric-manager/service/view.h"
#include "fabric-manager/service/watch_hub.h"

namespace cxlpool::fm {

class PoolRpc final {
 public:
  // `answers` runs what builds long answers, so that neither the writer nor a thread of gRPC does.
  PoolRpc(PoolService* service, const ViewHolder* views, WatchHub* watch, Executor* answers,
          const FabricCapabilities& fabric);

  // Adds each method of the service. This outlives `calls`.
  void AddTo(Calls& calls);

  uint64_t watch_lag() { return watch_.Lag(); }  // As WatchStreams.

 private:
  void AllocateRegion(UnaryCall<v1::AllocateRegionRequest, v1::AllocateRegionResponse>& call);
  void BatchAllocateRegions(
      UnaryCall<v1::BatchAllocateRegionsRequest, v1::BatchAllocateRegionsResponse>& call);
  void GetRegion(UnaryCall<v1::GetRegionRequest, v1::Region>& call);
  void ListRegions(UnaryCall<v1::ListRegionsRequest, v1::ListRegionsResponse>& call);
  void ListRegionHolders(
      UnaryCall<v1::ListRegionHoldersRequest, v1::ListRegionHoldersResponse>& call);
  void AttachRegion(UnaryCall<v1::AttachRegionRequest, v1::AttachRegionResponse>& call);
  void DetachRegion(UnaryCall<v1::DetachRegionRequest, v1::DetachRegionResponse>& call);
  void ReleaseRegion(UnaryCall<v1::ReleaseRegionRequest, v1::ReleaseRegionResponse>& call);
  void BatchReleaseRegions(
      UnaryCall<v1::BatchReleaseRegionsRequest, v1::BatchReleaseRegionsResponse>& call);
  void ResizeRegion(UnaryCall<v1::ResizeRegionRequest, v1::ResizeRegionResponse>& call);
  void RenameRegion(UnaryCall<v1::RenameRegionRequest, v1::RenameRegionResponse>& call);
  void RenewRegion(UnaryCall<v1::RenewRegionRequest, v1::RenewRegionResponse>& call);
  void GetCapacity(UnaryCall<v1::GetCapacityRequest, v1::Capacity>& call);

  // A change of one Region: `start(spec, done)` calls the service, `more(committed)` puts into the
  // answer what is not the Region and its revision.
  template <typename Request, typename Response, typename Start, typename More>
  void Change(UnaryCall<Request, Response>& call, Start start, More more);
  template <typename Request, typename Response, typename Start>
  void Change(UnaryCall<Request, Response>& call, Start start);

  // `start(specs, done)` calls the service.
  template <typename Request, typename Response, typename Start>
  void Batch(UnaryCall<Request, Response>& call, Start start);

  // The Region, if it is there for the caller.
  absl::StatusOr<RegionPtr> Find(const Caller& caller, const std::string& name) const;

  // With how the Region went that `status` says is not there, for an operator. A host gets the
  // same of all that it does not see.
  absl::Status WithItsEnd(const Caller& caller, const absl::Status& status) const;

  PoolService* const service_;
  const ViewHolder* const views_;
  Executor* const answers_;
  const FabricCapabilities fabric_;
  WatchStreams watch_;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_RPC_POOL_RPC_H_
