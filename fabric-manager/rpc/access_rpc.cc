#include "fabric-manager/rpc/access_rpc.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "fabric-manager/model/plans/planner.h"
#include "fabric-manager/rpc/convert.h"
#include "fabric-manager/rpc/convert_request.h"
#include "fabric-manager/rpc/list_events.h"
#include "fabric-manager/rpc/list_inventory.h"
#include "proto/support/names.h"

namespace cxlpool::fm {

void AccessRpc::AddTo(Calls& calls) {
  calls_ = &calls;
  const auto add = [&](const char* method, auto handler) {
    calls.AddUnary(absl::StrCat("/cxlpool.v1.AccessService/", method), this, handler);
  };
  add("ListRoleBindings", &AccessRpc::ListRoleBindings);
  add("SetRoleBinding", &AccessRpc::SetRoleBinding);
  add("RemoveRoleBinding", &AccessRpc::RemoveRoleBinding);
  add("ListEvents", &AccessRpc::ListEvents);
  add("VerifyAudit", &AccessRpc::VerifyAudit);
  add("GetSelf", &AccessRpc::GetSelf);
}

void AccessRpc::ListRoleBindings(
    UnaryCall<v1::ListRoleBindingsRequest, v1::ListRoleBindingsResponse>& call) {
  call.Finish(
      fm::ListRoleBindings(views_->GetAccessRules()->bindings, call.request(), call.response()));
}

// Once it is durable, what comes afterwards meets it. Then the caller is answered, whose own role
// it may have been, and whatever nobody may do any more is ended.
void AccessRpc::SetRoleBinding(UnaryCall<v1::SetRoleBindingRequest, v1::RoleBinding>& call) {
  auto binding = FromProto(call.request(), call.caller());
  if (!binding.ok()) return call.Finish(binding.status());
  const std::string identity = binding->identity;
  service_->ChangePool(call.caller(), {.method = "SetRoleBinding", .reason = binding->reason},
                       PlanFor(&PlanBindRole, *binding),
                       [this, &call, identity](absl::Status status) {
                         answers_->Post([this, &call, identity, status = std::move(status)] {
                           const auto access = views_->GetAccessRules();
                           const auto bound = access->bindings.find(identity);
                           if (bound != access->bindings.end())
                             *call.response() = ToProto(bound->second);
                           call.Finish(status);
                           calls_->JudgeAgain();
                         });
                       });
}

void AccessRpc::RemoveRoleBinding(
    UnaryCall<v1::RemoveRoleBindingRequest, v1::RemoveRoleBindingResponse>& call) {
  auto identity = ReadUserIdentity(call.request().identity());
  if (!identity.ok()) return call.Finish(identity.status());
  service_->ChangePool(call.caller(), {.method = "RemoveRoleBinding", .reason = *identity},
                       PlanFor(&PlanUnbindRole, *identity), [this, &call](absl::Status status) {
                         answers_->Post([this, &call, status = std::move(status)] {
                           call.Finish(status);
                           calls_->JudgeAgain();
                         });
                       });
}

void AccessRpc::ListEvents(UnaryCall<v1::ListEventsRequest, v1::ListEventsResponse>& call) {
  const PoolViewPtr view = views_->Get();
  call.Finish(
      fm::ListEvents(service_->trail(), *view, call.caller(), call.request(), call.response()));
}

// Every row is hashed: no work for a thread of gRPC's.
void AccessRpc::VerifyAudit(UnaryCall<v1::VerifyAuditRequest, v1::VerifyAuditResponse>& call) {
  answers_->Post([this, &call] {
    call.Finish(fm::VerifyAudit(service_->trail(), call.request(), call.response()));
  });
}

void AccessRpc::GetSelf(UnaryCall<v1::GetSelfRequest, v1::Self>& call) {
  const Caller& caller = call.caller();
  v1::Self& self = *call.response();
  self.set_identity(caller.identity());
  self.set_role(caller.is_host() ? v1::HOST : ToProto(caller.role()));
  if (caller.is_host()) self.set_host(ResourceName("hosts", caller.host()));
  for (const std::string& tenant : caller.tenants()) {
    self.add_tenants(ResourceName("tenants", tenant));
  }
  self.set_epoch(epoch_);
  self.set_revision(views_->Get()->revision);
  call.Finish(absl::OkStatus());
}

}  // namespace cxlpool::fm
