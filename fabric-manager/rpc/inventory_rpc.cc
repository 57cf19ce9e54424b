#include "fabric-manager/rpc/inventory_rpc.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "fabric-manager/rpc/convert.h"
#include "fabric-manager/rpc/unary.h"
#include "proto/support/names.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

constexpr size_t kMaxText = 512;

}  // namespace

InventoryRpc::InventoryRpc(PoolService* service, const ViewHolder* views, std::string fabric)
    : service_(service), views_(views), fabric_(std::move(fabric)) {}

grpc::ServerUnaryReactor* InventoryRpc::ListDevices(grpc::CallbackServerContext* context,
                                                    const v1::ListDevicesRequest*,
                                                    v1::ListDevicesResponse* response) {
  auto caller = Authorize(*context, "ListDevices");
  if (!caller.ok()) return FinishNow(context, caller.status());
  const PoolViewPtr view = views_->Get();
  for (const DeviceView& device : view->devices) *response->add_devices() = ToProto(device);
  return FinishNow(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* InventoryRpc::ListHosts(grpc::CallbackServerContext* context,
                                                  const v1::ListHostsRequest*,
                                                  v1::ListHostsResponse* response) {
  auto caller = Authorize(*context, "ListHosts");
  if (!caller.ok()) return FinishNow(context, caller.status());
  const PoolViewPtr view = views_->Get();
  for (const auto& [id, host] : view->hosts) *response->add_hosts() = ToProto(*host);
  return FinishNow(context, absl::OkStatus());
}

Done InventoryRpc::AnswerHost(grpc::CallbackServerContext* context,
                              grpc::ServerUnaryReactor* reactor, const std::string& host,
                              v1::Host* response) {
  return [this, context, reactor, host, response](const absl::Status& status) {
    if (status.ok()) {
      const PoolViewPtr view = views_->Get();
      const auto it = view->hosts.find(host);
      if (it != view->hosts.end()) *response = ToProto(*it->second);
    }
    reactor->Finish(ToWire(status, *context));
  };
}

grpc::ServerUnaryReactor* InventoryRpc::EnrolHost(grpc::CallbackServerContext* context,
                                                  const v1::EnrolHostRequest* request,
                                                  v1::Host* response) {
  auto caller = Authorize(*context, "EnrolHost");
  if (!caller.ok()) return FinishNow(context, caller.status());
  auto host = ParseResourceName("hosts", request->host());
  if (!host.ok()) return FinishNow(context, host.status());
  const std::string identity =
      request->identity().empty() ? absl::StrCat("cxlpool://host/", *host) : request->identity();
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  service_->Enrol(caller->identity.uri, *host, identity,
                  AnswerHost(context, reactor, *host, response));
  return reactor;
}

grpc::ServerUnaryReactor* InventoryRpc::RetireHost(grpc::CallbackServerContext* context,
                                                   const v1::RetireHostRequest* request,
                                                   v1::Host* response) {
  auto caller = Authorize(*context, "RetireHost");
  if (!caller.ok()) return FinishNow(context, caller.status());
  auto host = ParseResourceName("hosts", request->host());
  if (!host.ok()) return FinishNow(context, host.status());
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  service_->Retire(caller->identity.uri, *host, AnswerHost(context, reactor, *host, response));
  return reactor;
}

grpc::ServerUnaryReactor* InventoryRpc::FenceHost(grpc::CallbackServerContext* context,
                                                  const v1::FenceHostRequest* request,
                                                  v1::Host* response) {
  auto caller = Authorize(*context, "FenceHost");
  if (!caller.ok()) return FinishNow(context, caller.status());
  auto host = ParseResourceName("hosts", request->host());
  if (!host.ok()) return FinishNow(context, host.status());
  if (request->reason().empty() || request->reason().size() > kMaxText) {
    return FinishNow(context,
                     Refusal{absl::StatusCode::kInvalidArgument,
                             "BAD_REASON",
                             absl::StrCat("field reason needs 1 to ", kMaxText, " characters"),
                             "say why: it is kept in the audit record",
                             {}}
                         .ToStatus());
  }
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  service_->Fence(caller->identity.uri, *host, request->reason(),
                  AnswerHost(context, reactor, *host, response));
  return reactor;
}

grpc::ServerUnaryReactor* InventoryRpc::GetTopology(grpc::CallbackServerContext* context,
                                                    const v1::GetTopologyRequest*,
                                                    v1::Topology* response) {
  auto caller = Authorize(*context, "GetTopology");
  if (!caller.ok()) return FinishNow(context, caller.status());
  const PoolViewPtr view = views_->Get();
  response->set_fabric(fabric_);
  for (const DeviceView& device : view->devices) *response->add_devices() = ToProto(device);
  for (const auto& [id, host] : view->hosts) *response->add_hosts() = ToProto(*host);
  return FinishNow(context, absl::OkStatus());
}

}  // namespace cxlpool::fm
