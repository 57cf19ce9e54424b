#include "fabric-manager/rpc/pool_rpc.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "fabric-manager/rpc/convert.h"
#include "fabric-manager/rpc/convert_request.h"
#include "fabric-manager/rpc/list_regions.h"
#include "fabric-manager/rpc/tenant_view.h"
#include "proto/support/mutant.h"
#include "proto/support/names.h"
#include "proto/support/refusal.h"
#include "proto/support/text.h"

namespace cxlpool::fm {
namespace {

constexpr char kPoolService[] = "/cxlpool.v1.PoolService/";
// What a batch may have. A request to allocate has some 20 fields.
constexpr RequestLimits kBatchLimits{.max_bytes = size_t{4} << 20, .max_elements = 64 * kMaxBatch};

// The first thing wrong with a batch as a whole.
template <typename Requests>
absl::Status CheckBatch(const Requests& requests) {
  const auto size = static_cast<size_t>(requests.size());
  if (size > kMaxBatch) {
    return Refuse(absl::StatusCode::kInvalidArgument, "BATCH_TOO_LARGE",
                  absl::StrCat("field requests has ", size, " elements"),
                  absl::StrCat("send at most ", kMaxBatch, " at a time"),
                  {{"max", absl::StrCat(kMaxBatch)}});
  }
  if (size == 0) {
    return Refuse(absl::StatusCode::kInvalidArgument, "BAD_BATCH", "field requests is empty",
                  absl::StrCat("send 1 to ", kMaxBatch, " requests"));
  }
  // A batch is a dry run as a whole or not at all: the service decides that once for all of it.
  if constexpr (requires { requests.at(0).validate_only(); }) {
    const bool dry = requests.at(0).validate_only();
    if (!std::all_of(requests.begin(), requests.end(),
                     [&](const auto& request) { return request.validate_only() == dry; })) {
      return Refuse(absl::StatusCode::kInvalidArgument, "BAD_BATCH",
                    "field validate_only is set in some requests of the batch and not in others",
                    "set it in all or in none");
    }
  }
  return absl::OkStatus();
}

// The answer to a call that was only a question says nothing that was made up for it.
template <typename Request>
void ForgetIfDry(const Request& request, v1::Region* region) {
  // Only an allocation has this field, and only by one the Region would be new.
  if constexpr (requires { request.region_id(); }) {
    if (request.validate_only()) ForgetMadeUp(true, !request.region_id().empty(), region);
  } else if constexpr (requires { request.validate_only(); }) {
    if (request.validate_only()) ForgetMadeUp(false, true, region);
  }
}

// One item's outcome: what the same call by itself would be answered, but for a dry run's plan.
template <typename Request>
void FillResult(const Request& request, const absl::StatusOr<Committed>& outcome,
                const FabricCapabilities& fabric, v1::BatchResult* out) {
  if (outcome.ok()) {
    FillRegion(*outcome->region, fabric, out->mutable_region());
    ForgetIfDry(request, out->mutable_region());
    out->set_revision(outcome->revision);
    return;
  }
  out->set_code(static_cast<int32_t>(outcome.status().code()));
  FillOutcome(outcome.status(), out->mutable_message(), out->mutable_error());
}

}  // namespace

PoolRpc::PoolRpc(PoolService* service, const ViewHolder* views, WatchHub* watch, Executor* answers,
                 const FabricCapabilities& fabric)
    : service_(service),
      views_(views),
      answers_(answers),
      fabric_(fabric),
      watch_(views, watch, fabric) {}

void PoolRpc::AddTo(Calls& calls) {
  const auto add = [&](const char* method, auto handler, const RequestLimits& limits = {}) {
    calls.AddUnary(absl::StrCat(kPoolService, method), this, handler, limits);
  };
  add("AllocateRegion", &PoolRpc::AllocateRegion);
  add("BatchAllocateRegions", &PoolRpc::BatchAllocateRegions, kBatchLimits);
  add("GetRegion", &PoolRpc::GetRegion);
  add("ListRegions", &PoolRpc::ListRegions);
  add("ListRegionHolders", &PoolRpc::ListRegionHolders);
  add("AttachRegion", &PoolRpc::AttachRegion);
  add("DetachRegion", &PoolRpc::DetachRegion);
  add("ReleaseRegion", &PoolRpc::ReleaseRegion);
  add("BatchReleaseRegions", &PoolRpc::BatchReleaseRegions, kBatchLimits);
  add("ResizeRegion", &PoolRpc::ResizeRegion);
  add("RenameRegion", &PoolRpc::RenameRegion);
  add("RenewRegion", &PoolRpc::RenewRegion);
  add("GetCapacity", &PoolRpc::GetCapacity);
  calls.Add(
      absl::StrCat(kPoolService, "WatchRegions"), Admission::Kind::kWatch,
      [this, &calls](Admitted admitted) { return watch_.Start(&calls, std::move(admitted)); });
}

// A request that is wrong by itself is answered before the service sees it. `done` may come from
// any thread, this one too: the call and its request stay until it is finished.
template <typename Request, typename Response, typename Start, typename More>
void PoolRpc::Change(UnaryCall<Request, Response>& call, Start start, More more) {
  auto spec = FromProto(call.request(), call.caller());
  if (!spec.ok()) return call.Finish(spec.status());
  start(*std::move(spec), [this, &call, more](const absl::StatusOr<Committed>& committed) {
    if (committed.ok()) {
      FillRegion(*committed->region, fabric_, call.response()->mutable_region());
      ForgetIfDry(call.request(), call.response()->mutable_region());
      if (!CXLPOOL_MUTANT("answer-without-revision")) {
        call.response()->set_revision(committed->revision);
      }
      more(*committed);
    }
    call.Finish(WithItsEnd(call.caller(), committed.status()));
  });
}

template <typename Request, typename Response, typename Start>
void PoolRpc::Change(UnaryCall<Request, Response>& call, Start start) {
  Change(call, std::move(start), [](const Committed&) {});
}

// Answers in the order of the requests. One that is wrong by itself stands in its place as an
// error, and spoils none of the others.
template <typename Request, typename Response, typename Start>
void PoolRpc::Batch(UnaryCall<Request, Response>& call, Start start) {
  const auto& requests = call.request().requests();
  if (absl::Status status = CheckBatch(requests); !status.ok()) return call.Finish(status);
  std::vector<decltype(FromProto(requests.at(0), call.caller()))> specs;
  specs.reserve(static_cast<size_t>(requests.size()));
  for (const auto& item : requests) {
    specs.push_back(FromProto(item, call.caller()));
  }
  // The request stays until the call is finished.
  start(std::move(specs), [this, &call, &requests](Outcomes outcomes) {
    answers_->Post([this, &call, &requests, outcomes = std::move(outcomes)]() mutable {
      call.response()->mutable_results()->Reserve(requests.size());
      for (int i = 0; i < requests.size(); ++i) {
        v1::BatchResult* result = call.response()->add_results();
        result->set_request_id(requests.at(i).request_id());
        absl::StatusOr<Committed>& outcome = outcomes[static_cast<size_t>(i)];
        if (!outcome.ok()) outcome = WithItsEnd(call.caller(), outcome.status());
        if (absl::IsPermissionDenied(outcome.status()) && !CXLPOOL_MUTANT("batch-hides-refusals")) {
          call.NoteRefused(requests.at(i), outcome.status());
        }
        FillResult(requests.at(i), outcome, fabric_, result);
      }
      call.Finish(absl::OkStatus());
    });
  });
}

// A host or a tenant gets the same answer for Regions that do not concern it and of those that are
// not there.
absl::StatusOr<RegionPtr> PoolRpc::Find(const Caller& caller, const std::string& name) const {
  auto id = ParseResourceName("regions", name);
  if (!id.ok()) return id.status();
  const PoolViewPtr view = views_->Get();
  RegionPtr region = view->regions.Find(*id);
  if (region == nullptr) {
    if (Uuid tag; ParseUuid(*id, tag)) region = view->regions.Find(views_->IdOfTag(tag));
  }
  if (region != nullptr && MaySee(caller, OwnHost(*view, caller), *region)) return region;
  const Refusal refusal{absl::StatusCode::kNotFound,
                        "UNKNOWN_REGION",
                        caller.is_host()
                            ? absl::StrCat("host \"", caller.host(), "\" has no ", name)
                            : absl::StrCat("there is no ", name),
                        "see `cxlpool region list`",
                        {{"region", name}}};
  return WithItsEnd(caller, refusal.ToStatus());
}

// Only UNKNOWN_REGION is changed. Its metadata says which Region it is, as an id or as a whole
// name; ends are kept by id.
absl::Status PoolRpc::WithItsEnd(const Caller& caller, const absl::Status& status) const {
  if (!absl::IsNotFound(status) || !caller.for_pool()) return status;
  std::optional<Refusal> refusal = RefusalOf(status);
  if (!refusal.has_value() || refusal->reason != "UNKNOWN_REGION") return status;
  for (const auto& [key, name] : refusal->metadata) {
    if (key != "region") continue;
    const std::optional<RegionEnd> end = views_->EndOf(absl::StripPrefix(name, "regions/"));
    if (!end.has_value()) break;
    absl::StrAppend(&refusal->message, ": the last of that name went at ", UtcText(end->time), ": ",
                    end->reason);
    return refusal->ToStatus();
  }
  return status;
}

// A dry run is answered with the plan, too: why the Region would be as it is shown.
void PoolRpc::AllocateRegion(
    UnaryCall<v1::AllocateRegionRequest, v1::AllocateRegionResponse>& call) {
  const bool dry = call.request().validate_only();
  Change(
      call,
      [this, dry](AllocateSpec&& spec, auto done) {
        service_->Allocate(std::move(spec), dry, std::move(done));
      },
      [this, dry, &call](const Committed& planned) {
        if (!dry) return;
        *call.response()->mutable_plan() = PlanToProto(planned, *views_->Get()->topology);
      });
}

void PoolRpc::BatchAllocateRegions(
    UnaryCall<v1::BatchAllocateRegionsRequest, v1::BatchAllocateRegionsResponse>& call) {
  Batch(call, [this, &call](auto specs, auto done) {
    const bool dry =
        call.request().requests(0).validate_only() && !CXLPOOL_MUTANT("dry-batch-allocates");
    service_->AllocateBatch(std::move(specs), dry, std::move(done));
  });
}

void PoolRpc::GetRegion(UnaryCall<v1::GetRegionRequest, v1::Region>& call) {
  auto region = Find(call.caller(), call.request().name());
  if (!region.ok()) return call.Finish(region.status());
  FillRegion(**region, fabric_, *views_->Get(), call.response());
  call.Finish(absl::OkStatus());
}

void PoolRpc::ListRegions(UnaryCall<v1::ListRegionsRequest, v1::ListRegionsResponse>& call) {
  const PoolViewPtr view = views_->Get();
  call.Finish(fm::ListRegions(*view, call.caller(), call.request(), fabric_, call.response()));
}

void PoolRpc::ListRegionHolders(
    UnaryCall<v1::ListRegionHoldersRequest, v1::ListRegionHoldersResponse>& call) {
  auto region = Find(call.caller(), call.request().name());
  if (!region.ok()) return call.Finish(region.status());
  FillHolders(**region, call.caller(), *views_->Get(), call.response());
  call.Finish(absl::OkStatus());
}

void PoolRpc::AttachRegion(UnaryCall<v1::AttachRegionRequest, v1::AttachRegionResponse>& call) {
  Change(call, [this, &call](AttachSpec&& spec, auto done) {
    const bool dry = call.request().validate_only() && !CXLPOOL_MUTANT("dry-run-attaches");
    service_->Attach(std::move(spec), dry, std::move(done));
  });
}

void PoolRpc::DetachRegion(UnaryCall<v1::DetachRegionRequest, v1::DetachRegionResponse>& call) {
  Change(call, [this](DetachSpec&& spec, auto done) {
    service_->Detach(std::move(spec), std::move(done));
  });
}

void PoolRpc::ReleaseRegion(UnaryCall<v1::ReleaseRegionRequest, v1::ReleaseRegionResponse>& call) {
  Change(call, [this](ReleaseSpec&& spec, auto done) {
    service_->Release(std::move(spec), std::move(done));
  });
}

void PoolRpc::BatchReleaseRegions(
    UnaryCall<v1::BatchReleaseRegionsRequest, v1::BatchReleaseRegionsResponse>& call) {
  Batch(call, [this](auto specs, auto done) {
    service_->ReleaseBatch(std::move(specs), std::move(done));
  });
}

void PoolRpc::ResizeRegion(UnaryCall<v1::ResizeRegionRequest, v1::ResizeRegionResponse>& call) {
  Change(call, [this, &call](ResizeSpec&& spec, auto done) {
    const bool dry = call.request().validate_only() && !CXLPOOL_MUTANT("dry-run-resizes");
    service_->Resize(std::move(spec), dry, std::move(done));
  });
}

void PoolRpc::RenameRegion(UnaryCall<v1::RenameRegionRequest, v1::RenameRegionResponse>& call) {
  Change(call, [this](RenameSpec&& spec, auto done) {
    service_->Rename(std::move(spec), std::move(done));
  });
}

void PoolRpc::RenewRegion(UnaryCall<v1::RenewRegionRequest, v1::RenewRegionResponse>& call) {
  Change(call, [this](RenewSpec&& spec, auto done) {
    service_->Renew(std::move(spec), std::move(done));
  });
}

void PoolRpc::GetCapacity(UnaryCall<v1::GetCapacityRequest, v1::Capacity>& call) {
  const PoolViewPtr view = views_->Get();
  *call.response() =
      call.caller().for_tenants() ? CapacityOfTenants(*view, call.caller()) : ToProto(*view);
  call.Finish(absl::OkStatus());
}

}  // namespace cxlpool::fm
