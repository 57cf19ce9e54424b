// cxlpool.v1.InventoryService over gRPC.
#ifndef CXLPOOL_FABRIC_MANAGER_RPC_INVENTORY_RPC_H_
#define CXLPOOL_FABRIC_MANAGER_RPC_INVENTORY_RPC_H_

#include <string>

#include "cxlpool/v1/inventory_service.grpc.pb.h"
#include "fabric-manager/rpc/authorize.h"
#include "fabric-manager/rpc/backup_rpc.h"
#include "fabric-manager/service/pool_service.h"
#include "fabric-manager/service/view.h"

namespace cxlpool::fm {

class InventoryRpc final : public v1::InventoryService::CallbackService {
 public:
  // `fabric`: the driver's name, for GetTopology. `backups` outlives this. `answers` runs what
  // builds answers to changes, so that the writer does not.
  InventoryRpc(PoolService* service, const ViewHolder* views, BackupStreams* backups,
               Executor* answers, std::string fabric);

  using Context = grpc::CallbackServerContext;
  using Reactor = grpc::ServerUnaryReactor;

  Reactor* ListDevices(Context* context, const v1::ListDevicesRequest* request,
                       v1::ListDevicesResponse* response) override;
  Reactor* AddDevice(Context* context, const v1::AddDeviceRequest* request,
                     v1::Device* response) override;
  Reactor* DrainDevice(Context* context, const v1::DrainDeviceRequest* request,
                       v1::DrainDeviceResponse* response) override;
  Reactor* RemoveDevice(Context* context, const v1::RemoveDeviceRequest* request,
                        v1::Device* response) override;
  Reactor* FailDevice(Context* context, const v1::FailDeviceRequest* request,
                      v1::Device* response) override;
  Reactor* ListHosts(Context* context, const v1::ListHostsRequest* request,
                     v1::ListHostsResponse* response) override;
  Reactor* EnrolHost(Context* context, const v1::EnrolHostRequest* request,
                     v1::Host* response) override;
  Reactor* RetireHost(Context* context, const v1::RetireHostRequest* request,
                      v1::Host* response) override;
  Reactor* FenceHost(Context* context, const v1::FenceHostRequest* request,
                     v1::Host* response) override;
  Reactor* SetTenant(Context* context, const v1::SetTenantRequest* request,
                     v1::Tenant* response) override;
  Reactor* GetTenant(Context* context, const v1::GetTenantRequest* request,
                     v1::Tenant* response) override;
  Reactor* ListTenants(Context* context, const v1::ListTenantsRequest* request,
                       v1::ListTenantsResponse* response) override;
  Reactor* RemoveTenant(Context* context, const v1::RemoveTenantRequest* request,
                        v1::RemoveTenantResponse* response) override;
  Reactor* GetTopology(Context* context, const v1::GetTopologyRequest* request,
                       v1::Topology* response) override;
  grpc::ServerWriteReactor<v1::BackupResponse>* Backup(Context* context,
                                                       const v1::BackupRequest* request) override;

 private:
  // Answers from the latest view: `fill(view)` gives the status.
  template <typename Fill>
  Reactor* Read(Context* context, absl::string_view method, Fill fill);

  // Changes what `name` of `collection` names: `start(principal, id, done)` calls the service, or
  // gives the status that refuses it first; `fill(view, id)` answers once it is made.
  template <typename Start, typename Fill>
  Reactor* Change(Context* context, absl::string_view method, absl::string_view collection,
                  const std::string& name, Start start, Fill fill);

  PoolService* const service_;
  const ViewHolder* const views_;
  BackupStreams* const backups_;
  Executor* const answers_;
  const std::string fabric_;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_RPC_INVENTORY_RPC_H_
