// cxlpool.v1.InventoryService over gRPC.
#ifndef CXLPOOL_FABRIC_MANAGER_RPC_INVENTORY_RPC_H_
#define CXLPOOL_FABRIC_MANAGER_RPC_INVENTORY_RPC_H_

#include <string>

#include "cxlpool/v1/inventory_service.pb.h"
#include "fabric-manager/rpc/backup_rpc.h"
#include "fabric-manager/rpc/calls.h"
#include "fabric-manager/rpc/server_health.h"
#include "fabric-manager/service/pool_service.h"
#include "fabric-manager/service/view.h"

namespace cxlpool::fm {

class InventoryRpc final {
 public:
  // `fabric`: the driver's name, for GetTopology. `backups` outlives this. `answers` runs what
  // builds answers to changes, so that the writer does not.
  // `server_health`: for Explain.
  InventoryRpc(PoolService* service, const ViewHolder* views, BackupStreams* backups,
               Executor* answers, const ServerHealth* server_health, std::string fabric);

  // Adds each method of the service. This outlives `calls`.
  void AddTo(Calls& calls);

 private:
  void ListDevices(UnaryCall<v1::ListDevicesRequest, v1::ListDevicesResponse>& call);
  void DiscoverDevices(UnaryCall<v1::DiscoverDevicesRequest, v1::DiscoverDevicesResponse>& call);
  void AddDevice(UnaryCall<v1::AddDeviceRequest, v1::Device>& call);
  void DrainDevice(UnaryCall<v1::DrainDeviceRequest, v1::DrainDeviceResponse>& call);
  void RemoveDevice(UnaryCall<v1::RemoveDeviceRequest, v1::Device>& call);
  void FailDevice(UnaryCall<v1::FailDeviceRequest, v1::Device>& call);
  void ListHosts(UnaryCall<v1::ListHostsRequest, v1::ListHostsResponse>& call);
  void AddHost(UnaryCall<v1::AddHostRequest, v1::Host>& call);
  void EnrolHost(UnaryCall<v1::EnrolHostRequest, v1::Host>& call);
  void RetireHost(UnaryCall<v1::RetireHostRequest, v1::Host>& call);
  void RemoveHost(UnaryCall<v1::RemoveHostRequest, v1::RemoveHostResponse>& call);
  void FenceHost(UnaryCall<v1::FenceHostRequest, v1::Host>& call);
  void SetTenant(UnaryCall<v1::SetTenantRequest, v1::Tenant>& call);
  void GetTenant(UnaryCall<v1::GetTenantRequest, v1::Tenant>& call);
  void ListTenants(UnaryCall<v1::ListTenantsRequest, v1::ListTenantsResponse>& call);
  void RemoveTenant(UnaryCall<v1::RemoveTenantRequest, v1::RemoveTenantResponse>& call);
  void RevokeCertificate(UnaryCall<v1::RevokeCertificateRequest, v1::Revocation>& call);
  void RestoreCertificate(
      UnaryCall<v1::RestoreCertificateRequest, v1::RestoreCertificateResponse>& call);
  void ListRevocations(UnaryCall<v1::ListRevocationsRequest, v1::ListRevocationsResponse>& call);
  void GetTopology(UnaryCall<v1::GetTopologyRequest, v1::Topology>& call);
  void ApplyTopology(UnaryCall<v1::ApplyTopologyRequest, v1::ApplyTopologyResponse>& call);
  void Explain(UnaryCall<v1::ExplainRequest, v1::ExplainResponse>& call);  // explain_rpc.cc

  // Answers from the latest view: `fill(view)` gives the status.
  template <typename Request, typename Response, typename Fill>
  void Read(UnaryCall<Request, Response>& call, Fill fill);

  // Has the service do something about what `name` of `collection` names: `start(id, done)` calls
  // it, or gives the status that refuses the call first; `fill(view, id)` answers once it is done.
  template <typename Request, typename Response, typename Start, typename Fill>
  void Do(UnaryCall<Request, Response>& call, absl::string_view collection, const std::string& name,
          Start start, Fill fill);

  // Likewise, by PoolService::ChangePool: `plan(id)` gives the PoolPlan.
  template <typename Request, typename Response, typename Plan, typename Fill>
  void Change(UnaryCall<Request, Response>& call, absl::string_view collection,
              const std::string& name, PoolCall change, Plan plan, Fill fill);

  PoolService* const service_;
  const ViewHolder* const views_;
  BackupStreams* const backups_;
  Calls* calls_ = nullptr;  // Since AddTo: a revocation ends what is under way.
  Executor* const answers_;
  const ServerHealth* const server_health_;
  const std::string fabric_;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_RPC_INVENTORY_RPC_H_
