#include "fabric-manager/rpc/pool_rpc.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "fabric-manager/rpc/convert.h"
#include "fabric-manager/rpc/convert_request.h"
#include "fabric-manager/rpc/list_regions.h"
#include "fabric-manager/rpc/unary.h"
#include "proto/support/names.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

using Context = PoolRpc::Context;
using Reactor = PoolRpc::Reactor;

absl::Status NotYourHost(const std::string& host) {
  return Refusal{absl::StatusCode::kPermissionDenied,
                 "NOT_YOUR_HOST",
                 absl::StrCat("host \"", host, "\" may use Regions of its own alone"),
                 "let an operator do it",
                 {{"host", host}}}
      .ToStatus();
}

// The first thing wrong with a batch as a whole.
template <typename Requests>
absl::Status CheckBatch(const Requests& requests) {
  const auto size = static_cast<size_t>(requests.size());
  if (size > kMaxBatch) {
    return Refusal{absl::StatusCode::kInvalidArgument,
                   "BATCH_TOO_LARGE",
                   absl::StrCat("field requests has ", size, " elements"),
                   absl::StrCat("send at most ", kMaxBatch, " at a time"),
                   {{"max", absl::StrCat(kMaxBatch)}}}
        .ToStatus();
  }
  if (size == 0) {
    return Refusal{absl::StatusCode::kInvalidArgument,
                   "BAD_BATCH",
                   "field requests is empty",
                   absl::StrCat("send 1 to ", kMaxBatch, " requests"),
                   {}}
        .ToStatus();
  }
  if constexpr (requires { requests.at(0).validate_only(); }) {
    const bool dry = requests.at(0).validate_only();
    if (!std::all_of(requests.begin(), requests.end(),
                     [&](const auto& request) { return request.validate_only() == dry; })) {
      return Refusal{absl::StatusCode::kInvalidArgument,
                     "BAD_BATCH",
                     "field validate_only is set in some requests of the batch and not in others",
                     "set it in all or in none",
                     {}}
          .ToStatus();
    }
  }
  return absl::OkStatus();
}

void FillResult(const absl::StatusOr<Committed>& outcome, bool hardware_coherent,
                v1::BatchResult* out) {
  if (outcome.ok()) {
    FillRegion(*outcome->region, hardware_coherent, out->mutable_region());
    out->set_revision(outcome->revision);
    return;
  }
  out->set_code(static_cast<int32_t>(outcome.status().code()));
  FillOutcome(outcome.status(), out->mutable_message(), out->mutable_error());
}

}  // namespace

PoolRpc::PoolRpc(PoolService* service, const ViewHolder* views, WatchHub* watch, Executor* answers,
                 bool hardware_coherent)
    : service_(service),
      views_(views),
      answers_(answers),
      hardware_coherent_(hardware_coherent),
      watch_(views, watch, hardware_coherent) {
  SetMessageAllocatorFor_BatchAllocateRegions(&allocates_);
  SetMessageAllocatorFor_BatchReleaseRegions(&releases_);
}

template <typename Request, typename Response, typename Start, typename More>
Reactor* PoolRpc::Change(Context* context, absl::string_view method, const Request& request,
                         Response* response, Start start, More more) {
  auto caller = Authorize(*context, method);
  if (!caller.ok()) return FinishNow(context, caller.status());
  auto spec = FromProto(request, caller->identity.uri);
  if (!spec.ok()) return FinishNow(context, spec.status());
  if (absl::Status status = Restrict(*caller, *spec); !status.ok()) {
    return FinishNow(context, status);
  }
  Reactor* reactor = context->DefaultReactor();
  start(*std::move(spec), [=, this](absl::StatusOr<Committed> committed) {
    if (committed.ok()) {
      FillRegion(*committed->region, hardware_coherent_, response->mutable_region());
      response->set_revision(committed->revision);
      more(*committed);
    }
    reactor->Finish(ToWire(committed.status(), *context));
  });
  return reactor;
}

template <typename Request, typename Response, typename Start>
Reactor* PoolRpc::Change(Context* context, absl::string_view method, const Request& request,
                         Response* response, Start start) {
  return Change(context, method, request, response, std::move(start), [](const Committed&) {});
}

template <typename Request, typename Response, typename Start>
Reactor* PoolRpc::Batch(Context* context, absl::string_view method, const Request& request,
                        Response* response, Start start) {
  auto caller = Authorize(*context, method);
  if (!caller.ok()) return FinishNow(context, caller.status());
  if (absl::Status status = CheckBatch(request.requests()); !status.ok()) {
    return FinishNow(context, status);
  }
  std::vector<decltype(FromProto(request.requests(0), std::string()))> specs;
  specs.reserve(static_cast<size_t>(request.requests_size()));
  for (const auto& item : request.requests()) {
    specs.push_back(FromProto(item, caller->identity.uri));
  }
  Reactor* reactor = context->DefaultReactor();
  // The request stays until the call is finished.
  start(std::move(specs), [=, this, &request](Outcomes outcomes) {
    answers_->Post([=, this, &request, outcomes = std::move(outcomes)] {
      response->mutable_results()->Reserve(request.requests_size());
      for (int i = 0; i < request.requests_size(); ++i) {
        v1::BatchResult* result = response->add_results();
        result->set_request_id(request.requests(i).request_id());
        FillResult(outcomes[static_cast<size_t>(i)], hardware_coherent_, result);
      }
      reactor->Finish(grpc::Status::OK);
    });
  });
  return reactor;
}

absl::Status PoolRpc::Restrict(const Caller& caller, AllocateSpec& spec) const {
  auto host = ActingHost(caller, *views_);
  if (!host.ok()) return host.status();
  if (spec.owner.has_value()) return CheckOwner(caller, *host, spec.host);
  return host->empty() || spec.host == *host ? absl::OkStatus() : NotYourHost(*host);
}

absl::Status PoolRpc::Restrict(const Caller& caller, ReleaseSpec& spec) const {
  auto host = ActingHost(caller, *views_);
  if (!host.ok()) return host.status();
  if (!host->empty() && spec.force) {
    return Refusal{absl::StatusCode::kPermissionDenied,
                   "ROLE_NOT_ALLOWED",
                   absl::StrCat(caller.identity.uri, " may not release with force"),
                   "let an operator do it",
                   {{"identity", caller.identity.uri}}}
        .ToStatus();
  }
  spec.only_host = *std::move(host);
  return absl::OkStatus();
}

absl::Status PoolRpc::Restrict(const Caller& caller, RenewSpec& spec) const {
  auto host = ActingHost(caller, *views_);
  if (!host.ok()) return host.status();
  spec.by_operator = host->empty();
  return absl::OkStatus();
}

absl::StatusOr<RegionPtr> PoolRpc::Find(const std::string& name) const {
  auto id = ParseResourceName("regions", name);
  if (!id.ok()) return id.status();
  RegionPtr region = views_->Get()->regions.Find(*id);
  if (region == nullptr) {
    if (Uuid tag; ParseUuid(*id, tag)) {
      region = views_->Get()->regions.Find(views_->IdOfTag(tag));
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

Reactor* PoolRpc::AllocateRegion(Context* context, const v1::AllocateRegionRequest* request,
                                 v1::AllocateRegionResponse* response) {
  const bool dry = request->validate_only();
  return Change(
      context, "AllocateRegion", *request, response,
      [this, dry](AllocateSpec spec, auto done) {
        service_->Allocate(std::move(spec), dry, std::move(done));
      },
      [this, dry, response](const Committed& planned) {
        if (!dry) return;
        *response->mutable_plan() = PlanToProto(planned, *views_->Get()->topology);
      });
}

Reactor* PoolRpc::BatchAllocateRegions(Context* context,
                                       const v1::BatchAllocateRegionsRequest* request,
                                       v1::BatchAllocateRegionsResponse* response) {
  return Batch(context, "BatchAllocateRegions", *request, response,
               [this, request](auto specs, auto done) {
                 service_->AllocateBatch(std::move(specs), request->requests(0).validate_only(),
                                         std::move(done));
               });
}

Reactor* PoolRpc::GetRegion(Context* context, const v1::GetRegionRequest* request,
                            v1::Region* response) {
  auto caller = Authorize(*context, "GetRegion");
  if (!caller.ok()) return FinishNow(context, caller.status());
  auto host = ActingHost(*caller, *views_);
  if (!host.ok()) return FinishNow(context, host.status());
  auto region = Find(request->name());
  if (!region.ok()) return FinishNow(context, region.status());
  if (!host->empty() && (*region)->FindAttachment(absl::string_view(*host)) == nullptr) {
    return FinishNow(context, NotYourHost(*host));
  }
  FillRegion(**region, hardware_coherent_, response);
  return FinishNow(context, absl::OkStatus());
}

Reactor* PoolRpc::ListRegions(Context* context, const v1::ListRegionsRequest* request,
                              v1::ListRegionsResponse* response) {
  auto caller = Authorize(*context, "ListRegions");
  if (!caller.ok()) return FinishNow(context, caller.status());
  const PoolViewPtr view = views_->Get();
  return FinishNow(context, fm::ListRegions(*view, *request, hardware_coherent_, response));
}

Reactor* PoolRpc::AttachRegion(Context* context, const v1::AttachRegionRequest* request,
                               v1::AttachRegionResponse* response) {
  return Change(context, "AttachRegion", *request, response,
                [this, request](AttachSpec spec, auto done) {
                  service_->Attach(std::move(spec), request->validate_only(), std::move(done));
                });
}

Reactor* PoolRpc::DetachRegion(Context* context, const v1::DetachRegionRequest* request,
                               v1::DetachRegionResponse* response) {
  return Change(context, "DetachRegion", *request, response, [this](DetachSpec spec, auto done) {
    service_->Detach(std::move(spec), std::move(done));
  });
}

Reactor* PoolRpc::ReleaseRegion(Context* context, const v1::ReleaseRegionRequest* request,
                                v1::ReleaseRegionResponse* response) {
  return Change(context, "ReleaseRegion", *request, response, [this](ReleaseSpec spec, auto done) {
    service_->Release(std::move(spec), std::move(done));
  });
}

Reactor* PoolRpc::BatchReleaseRegions(Context* context,
                                      const v1::BatchReleaseRegionsRequest* request,
                                      v1::BatchReleaseRegionsResponse* response) {
  return Batch(context, "BatchReleaseRegions", *request, response, [this](auto specs, auto done) {
    service_->ReleaseBatch(std::move(specs), std::move(done));
  });
}

Reactor* PoolRpc::ResizeRegion(Context* context, const v1::ResizeRegionRequest* request,
                               v1::ResizeRegionResponse* response) {
  return Change(context, "ResizeRegion", *request, response,
                [this, request](ResizeSpec spec, auto done) {
                  service_->Resize(std::move(spec), request->validate_only(), std::move(done));
                });
}

Reactor* PoolRpc::RenameRegion(Context* context, const v1::RenameRegionRequest* request,
                               v1::RenameRegionResponse* response) {
  return Change(context, "RenameRegion", *request, response, [this](RenameSpec spec, auto done) {
    service_->Rename(std::move(spec), std::move(done));
  });
}

Reactor* PoolRpc::RenewRegion(Context* context, const v1::RenewRegionRequest* request,
                              v1::RenewRegionResponse* response) {
  return Change(context, "RenewRegion", *request, response, [this](RenewSpec spec, auto done) {
    service_->Renew(std::move(spec), std::move(done));
  });
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* PoolRpc::WatchRegions(Context* context,
                                                                  const grpc::ByteBuffer* request) {
  auto caller = Authorize(*context, "WatchRegions");
  return watch_.Start(context, caller.status(), *request);
}

Reactor* PoolRpc::GetCapacity(Context* context, const v1::GetCapacityRequest*,
                              v1::Capacity* response) {
  auto caller = Authorize(*context, "GetCapacity");
  if (!caller.ok()) return FinishNow(context, caller.status());
  *response = ToProto(*views_->Get());
  return FinishNow(context, absl::OkStatus());
}

}  // namespace cxlpool::fm
