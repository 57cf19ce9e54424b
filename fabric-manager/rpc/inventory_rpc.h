// cxlpool.v1.InventoryService over gRPC.
#ifndef CXLPOOL_FABRIC_MANAGER_RPC_INVENTORY_RPC_H_
#define CXLPOOL_FABRIC_MANAGER_RPC_INVENTORY_RPC_H_

#include <string>

#include "cxlpool/v1/inventory_service.grpc.pb.h"
#include "fabric-manager/rpc/authorize.h"
#include "fabric-manager/service/pool_service.h"
#include "fabric-manager/service/view.h"

namespace cxlpool::fm {

class InventoryRpc final : public v1::InventoryService::CallbackService {
 public:
  // `fabric`: the driver's name, for GetTopology.
  InventoryRpc(PoolService* service, const ViewHolder* views, std::string fabric);

  grpc::ServerUnaryReactor* ListDevices(grpc::CallbackServerContext* context,
                                        const v1::ListDevicesRequest* request,
                                        v1::ListDevicesResponse* response) override;
  grpc::ServerUnaryReactor* ListHosts(grpc::CallbackServerContext* context,
                                      const v1::ListHostsRequest* request,
                                      v1::ListHostsResponse* response) override;
  grpc::ServerUnaryReactor* EnrolHost(grpc::CallbackServerContext* context,
                                      const v1::EnrolHostRequest* request,
                                      v1::Host* response) override;
  grpc::ServerUnaryReactor* RetireHost(grpc::CallbackServerContext* context,
                                       const v1::RetireHostRequest* request,
                                       v1::Host* response) override;
  grpc::ServerUnaryReactor* FenceHost(grpc::CallbackServerContext* context,
                                      const v1::FenceHostRequest* request,
                                      v1::Host* response) override;
  grpc::ServerUnaryReactor* GetTopology(grpc::CallbackServerContext* context,
                                        const v1::GetTopologyRequest* request,
                                        v1::Topology* response) override;

 private:
  // Answers with the host as it is once the change is made.
  Done AnswerHost(grpc::CallbackServerContext* context, grpc::ServerUnaryReactor* reactor,
                  const std::string& host, v1::Host* response);

  PoolService* const service_;
  const ViewHolder* const views_;
  const std::string fabric_;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_RPC_INVENTORY_RPC_H_
