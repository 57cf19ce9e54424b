#include "fabric-manager/rpc/pool_rpc.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "fabric-manager/rpc/convert.h"
#include "fabric-manager/rpc/unary.h"
#include "proto/support/names.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

constexpr uint32_t kDefaultPage = 100;
constexpr uint32_t kMaxPage = 1000;

absl::Status NotYourHost(const std::string& host) {
  return Refusal{absl::StatusCode::kPermissionDenied,
                 "NOT_YOUR_HOST",
                 absl::StrCat("host \"", host, "\" may use Regions of its own alone"),
                 "let an operator do it",
                 {{"host", host}}}
      .ToStatus();
}

// Answers `reactor` from the writer's completion.
template <typename Response>
DoneWith<Committed> Answer(grpc::CallbackServerContext* context, grpc::ServerUnaryReactor* reactor,
                           Response* response, bool hardware_coherent) {
  return [=](absl::StatusOr<Committed> committed) {
    if (committed.ok()) {
      *response->mutable_region() = ToProto(*committed->region, hardware_coherent);
      response->set_revision(committed->revision);
    }
    reactor->Finish(ToWire(committed.status(), *context));
  };
}

}  // namespace

PoolRpc::PoolRpc(PoolService* service, const ViewHolder* views, WatchHub* watch,
                 bool hardware_coherent)
    : service_(service),
      views_(views),
      hardware_coherent_(hardware_coherent),
      watch_(views, watch, hardware_coherent) {}

absl::StatusOr<RegionPtr> PoolRpc::Find(const std::string& name) const {
  auto id = ParseResourceName("regions", name);
  if (!id.ok()) return id.status();
  RegionPtr region = views_->Get()->regions.Find(*id);
  if (region == nullptr) {
    if (const auto tag = ParseUuid(*id); tag.ok()) {
      region = views_->Get()->regions.Find(views_->IdOfTag(*tag));
    }
  }
  if (region != nullptr) return region;
  return Refusal{absl::StatusCode::kNotFound,
                 "UNKNOWN_REGION",
                 absl::StrCat("there is no ", name),
                 "see `cxlpool region list`",
                 {{"region", name}}}
      .ToStatus();
}

grpc::ServerUnaryReactor* PoolRpc::AllocateRegion(grpc::CallbackServerContext* context,
                                                  const v1::AllocateRegionRequest* request,
                                                  v1::AllocateRegionResponse* response) {
  auto caller = Authorize(*context, "AllocateRegion");
  if (!caller.ok()) return FinishNow(context, caller.status());
  auto host = ActingHost(*caller, *views_->Get());
  if (!host.ok()) return FinishNow(context, host.status());
  auto spec = FromProto(*request, caller->identity.uri);
  if (!spec.ok()) return FinishNow(context, spec.status());
  if (!host->empty() && spec->host != *host) return FinishNow(context, NotYourHost(*host));
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  service_->Allocate(*std::move(spec), request->validate_only(),
                     Answer(context, reactor, response, hardware_coherent_));
  return reactor;
}

grpc::ServerUnaryReactor* PoolRpc::GetRegion(grpc::CallbackServerContext* context,
                                             const v1::GetRegionRequest* request,
                                             v1::Region* response) {
  auto caller = Authorize(*context, "GetRegion");
  if (!caller.ok()) return FinishNow(context, caller.status());
  auto host = ActingHost(*caller, *views_->Get());
  if (!host.ok()) return FinishNow(context, host.status());
  auto region = Find(request->name());
  if (!region.ok()) return FinishNow(context, region.status());
  if (!host->empty() && (*region)->FindAttachment(absl::string_view(*host)) == nullptr) {
    return FinishNow(context, NotYourHost(*host));
  }
  *response = ToProto(**region, hardware_coherent_);
  return FinishNow(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* PoolRpc::ListRegions(grpc::CallbackServerContext* context,
                                               const v1::ListRegionsRequest* request,
                                               v1::ListRegionsResponse* response) {
  auto caller = Authorize(*context, "ListRegions");
  if (!caller.ok()) return FinishNow(context, caller.status());
  const std::string& token = request->page_token();
  if (!token.empty() && !CheckResourceId(token).ok()) {
    return FinishNow(context, Refusal{absl::StatusCode::kInvalidArgument,
                                      "BAD_PAGE_TOKEN",
                                      "field page_token was not made by this call",
                                      "start again without one",
                                      {}}
                                  .ToStatus());
  }
  std::string host;
  if (!request->host().empty()) {
    auto id = ParseResourceName("hosts", request->host());
    if (!id.ok()) return FinishNow(context, id.status());
    host = *std::move(id);
  }
  const uint32_t size =
      std::min(request->page_size() == 0 ? kDefaultPage : request->page_size(), kMaxPage);
  const PoolViewPtr view = views_->Get();
  std::string after = token;
  // A filter may empty pages, never end the list early.
  while (static_cast<uint32_t>(response->regions_size()) < size) {
    const std::vector<RegionPtr> page = view->regions.List(after, kMaxPage);
    for (const RegionPtr& region : page) {
      if (static_cast<uint32_t>(response->regions_size()) == size) break;
      after = region->id;
      if (!host.empty() && region->FindAttachment(absl::string_view(host)) == nullptr) continue;
      *response->add_regions() = ToProto(*region, hardware_coherent_);
    }
    if (page.size() < kMaxPage) break;
  }
  if (!view->regions.List(after, 1).empty() && response->regions_size() > 0) {
    response->set_next_page_token(after);
  }
  response->set_revision(view->revision);
  return FinishNow(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* PoolRpc::AttachRegion(grpc::CallbackServerContext* context,
                                                const v1::AttachRegionRequest* request,
                                                v1::AttachRegionResponse* response) {
  auto caller = Authorize(*context, "AttachRegion");
  if (!caller.ok()) return FinishNow(context, caller.status());
  auto spec = FromProto(*request, caller->identity.uri);
  if (!spec.ok()) return FinishNow(context, spec.status());
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  service_->Attach(*std::move(spec), request->validate_only(),
                   Answer(context, reactor, response, hardware_coherent_));
  return reactor;
}

grpc::ServerUnaryReactor* PoolRpc::DetachRegion(grpc::CallbackServerContext* context,
                                                const v1::DetachRegionRequest* request,
                                                v1::DetachRegionResponse* response) {
  auto caller = Authorize(*context, "DetachRegion");
  if (!caller.ok()) return FinishNow(context, caller.status());
  auto spec = FromProto(*request, caller->identity.uri);
  if (!spec.ok()) return FinishNow(context, spec.status());
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  service_->Detach(*std::move(spec), Answer(context, reactor, response, hardware_coherent_));
  return reactor;
}

grpc::ServerUnaryReactor* PoolRpc::ReleaseRegion(grpc::CallbackServerContext* context,
                                                 const v1::ReleaseRegionRequest* request,
                                                 v1::ReleaseRegionResponse* response) {
  auto caller = Authorize(*context, "ReleaseRegion");
  if (!caller.ok()) return FinishNow(context, caller.status());
  auto host = ActingHost(*caller, *views_->Get());
  if (!host.ok()) return FinishNow(context, host.status());
  auto spec = FromProto(*request, caller->identity.uri);
  if (!spec.ok()) return FinishNow(context, spec.status());
  spec->only_host = *std::move(host);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  service_->Release(*std::move(spec), Answer(context, reactor, response, hardware_coherent_));
  return reactor;
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* PoolRpc::WatchRegions(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) {
  auto caller = Authorize(*context, "WatchRegions");
  return watch_.Start(context, caller.status(), *request);
}

grpc::ServerUnaryReactor* PoolRpc::GetCapacity(grpc::CallbackServerContext* context,
                                               const v1::GetCapacityRequest*,
                                               v1::Capacity* response) {
  auto caller = Authorize(*context, "GetCapacity");
  if (!caller.ok()) return FinishNow(context, caller.status());
  *response = ToProto(*views_->Get());
  return FinishNow(context, absl::OkStatus());
}

}  // namespace cxlpool::fm
