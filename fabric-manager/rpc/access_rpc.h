// AccessService: which identity has which role.
#ifndef CXLPOOL_FABRIC_MANAGER_RPC_ACCESS_RPC_H_
#define CXLPOOL_FABRIC_MANAGER_RPC_ACCESS_RPC_H_

#include "cxlpool/v1/access_service.pb.h"
#include "fabric-manager/rpc/calls.h"
#include "fabric-manager/service/pool_service.h"
#include "fabric-manager/service/view.h"

namespace cxlpool::fm {

// Any thread. All outlive this.
class AccessRpc {
 public:
  // `epoch`: under which this manager leads.
  AccessRpc(PoolService* service, const ViewHolder* views, Executor* answers, uint64_t epoch)
      : service_(service), views_(views), answers_(answers), epoch_(epoch) {}

  void AddTo(Calls& calls);

 private:
  void ListRoleBindings(UnaryCall<v1::ListRoleBindingsRequest, v1::ListRoleBindingsResponse>& call);
  void SetRoleBinding(UnaryCall<v1::SetRoleBindingRequest, v1::RoleBinding>& call);
  void RemoveRoleBinding(
      UnaryCall<v1::RemoveRoleBindingRequest, v1::RemoveRoleBindingResponse>& call);
  void ListEvents(UnaryCall<v1::ListEventsRequest, v1::ListEventsResponse>& call);
  void VerifyAudit(UnaryCall<v1::VerifyAuditRequest, v1::VerifyAuditResponse>& call);
  void GetSelf(UnaryCall<v1::GetSelfRequest, v1::Self>& call);

  PoolService* const service_;
  const ViewHolder* const views_;
  Executor* const answers_;
  const uint64_t epoch_;
  Calls* calls_ = nullptr;  // Since AddTo.
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_RPC_ACCESS_RPC_H_
