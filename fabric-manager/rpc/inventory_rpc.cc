#include "fabric-manager/rpc/inventory_rpc.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "fabric-manager/rpc/convert.h"
#include "fabric-manager/rpc/convert_request.h"
#include "fabric-manager/rpc/list_inventory.h"
#include "proto/support/mutant.h"
#include "proto/support/names.h"
#include "proto/support/peer_identity.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

constexpr char kInventoryService[] = "/cxlpool.v1.InventoryService/";
constexpr size_t kMaxText = 512;
constexpr int kMaxOwners = 1000;

// Null: there is none.
const TenantView* FindTenant(const PoolView& view, const std::string& id) {
  for (const TenantView& tenant : *view.tenants) {
    if (tenant.tenant.id == id) return &tenant;
  }
  return nullptr;
}

// Whether the call is made with what `subject` names.
template <typename Call>
bool IsOwn(const Call& call, const std::string& subject) {
  if (call.caller().is_local()) return false;
  const std::optional<CertificateFacts> shown = CertificateOf(*call.context()->auth_context());
  return subject == call.caller().identity() || (shown.has_value() && subject == shown->serial);
}

absl::Status RevokesCaller(const std::string& subject) {
  return Refuse(
      absl::StatusCode::kFailedPrecondition, "REVOKES_CALLER",
      absl::StrCat(subject, " is what this call is made with: you would lock yourself out"),
      "call with another certificate, or say --yes (allow_own) if you mean it",
      {{"subject", subject}});
}

auto FillHost(v1::Host* response) {
  return [response](const PoolView& view, const std::string& id) {
    const auto it = view.hosts.find(id);
    if (it != view.hosts.end()) *response = ToProto(*it->second);
  };
}

auto FillDevice(v1::Device* response) {
  return [response](const PoolView& view, const std::string& id) {
    const DeviceView* device = FindDevice(view, id);
    // Of a device that the fabric has never shown, only the topology's entry is known.
    *response = device != nullptr ? ToProto(*device) : AllDevices(view)[id];
  };
}

// For changes whose answer says nothing.
void FillNothing(const PoolView&, const std::string&) {}

// A plan that needs to know only the id of what the call names.
auto ById(absl::StatusOr<Change> (*plan)(const PoolState&, const Caller&, const std::string&,
                                         PlanContext&)) {
  return [plan](const std::string& id) { return PlanFor(plan, id); };
}

// The same plan, whatever its id.
auto Always(PoolPlan plan) {
  return [plan = std::move(plan)](const std::string&) { return plan; };
}

// Who has bytes on the device: counts all, and names at most kMaxOwners. Looks at every Region,
// some at a time, so that no list of them all is made.
void FillOwners(const PoolView& view, const std::string& id, v1::DrainDeviceResponse* response) {
  uint64_t count = 0;
  view.regions.ForEach([&](const Region& region) {
    if (!region.HasBytesOn(id)) return true;
    if (++count <= kMaxOwners) response->add_regions(ResourceName("regions", region.id));
    return true;
  });
  response->set_region_count(count);
}

}  // namespace

InventoryRpc::InventoryRpc(PoolService* service, const ViewHolder* views, BackupStreams* backups,
                           Executor* answers, const ServerHealth* server_health, std::string fabric)
    : service_(service),
      views_(views),
      backups_(backups),
      answers_(answers),
      server_health_(server_health),
      fabric_(std::move(fabric)) {}

// Every call of InventoryService, each under the name that the .proto gives it.
void InventoryRpc::AddTo(Calls& calls) {
  calls_ = &calls;
  const auto add = [&](const char* method, auto handler) {
    calls.AddUnary(absl::StrCat(kInventoryService, method), this, handler);
  };
  add("ListDevices", &InventoryRpc::ListDevices);
  add("DiscoverDevices", &InventoryRpc::DiscoverDevices);
  add("AddDevice", &InventoryRpc::AddDevice);
  add("DrainDevice", &InventoryRpc::DrainDevice);
  add("RemoveDevice", &InventoryRpc::RemoveDevice);
  add("FailDevice", &InventoryRpc::FailDevice);
  add("ListHosts", &InventoryRpc::ListHosts);
  add("AddHost", &InventoryRpc::AddHost);
  add("EnrolHost", &InventoryRpc::EnrolHost);
  add("RetireHost", &InventoryRpc::RetireHost);
  add("RemoveHost", &InventoryRpc::RemoveHost);
  add("FenceHost", &InventoryRpc::FenceHost);
  add("SetTenant", &InventoryRpc::SetTenant);
  add("GetTenant", &InventoryRpc::GetTenant);
  add("ListTenants", &InventoryRpc::ListTenants);
  add("RemoveTenant", &InventoryRpc::RemoveTenant);
  add("RevokeCertificate", &InventoryRpc::RevokeCertificate);
  add("RestoreCertificate", &InventoryRpc::RestoreCertificate);
  add("ListRevocations", &InventoryRpc::ListRevocations);
  add("GetTopology", &InventoryRpc::GetTopology);
  add("ApplyTopology", &InventoryRpc::ApplyTopology);
  add("Explain", &InventoryRpc::Explain);
  // It answers with a stream, so it is no UnaryCall; it takes the place of one all the same.
  calls.Add(
      absl::StrCat(kInventoryService, "Backup"), Admission::Kind::kCall,
      [this, &calls](Admitted admitted) { return backups_->Start(&calls, std::move(admitted)); });
}

template <typename Request, typename Response, typename Fill>
void InventoryRpc::Read(UnaryCall<Request, Response>& call, Fill fill) {
  const PoolViewPtr view = views_->Get();
  call.Finish(fill(*view));
}

// `start` either refuses or calls `done`, so the call is finished once. The view that the answer is
// read from is taken after the change, and has it.
template <typename Request, typename Response, typename Start, typename Fill>
void InventoryRpc::Do(UnaryCall<Request, Response>& call, absl::string_view collection,
                      const std::string& name, Start start, Fill fill) {
  auto id = ParseResourceName(collection, name);
  if (!id.ok()) return call.Finish(id.status());
  const auto answer = [this, &call, fill, id = *id](const absl::Status& status) {
    if (status.ok()) fill(*views_->Get(), id);
    call.Finish(status);
  };
  const absl::Status refused = start(*id, [this, answer](absl::Status status) {
    answers_->Post([answer, status = std::move(status)] { answer(status); });
  });
  if (!refused.ok()) answer(refused);
}

// Never refuses by itself: the plan, which judges the caller too, answers by `done`.
template <typename Request, typename Response, typename Plan, typename Fill>
void InventoryRpc::Change(UnaryCall<Request, Response>& call, absl::string_view collection,
                          const std::string& name, PoolCall change, Plan plan, Fill fill) {
  Do(
      call, collection, name,
      [&](const std::string& id, Done done) {
        const Caller caller = CXLPOOL_MUTANT("somebody-drains") ? Caller::Admin("") : call.caller();
        service_->ChangePool(caller, std::move(change), plan(id), std::move(done));
        return absl::OkStatus();
      },
      fill);
}

void InventoryRpc::ListDevices(UnaryCall<v1::ListDevicesRequest, v1::ListDevicesResponse>& call) {
  Read(call, [&](const PoolView& view) {
    return fm::ListDevices(view, call.request(), call.response());
  });
}

// No host: all of them. The hosts are asked now, and what they say is put beside the view as it is
// when they have answered.
void InventoryRpc::DiscoverDevices(
    UnaryCall<v1::DiscoverDevicesRequest, v1::DiscoverDevicesResponse>& call) {
  std::string host;
  if (!call.request().host().empty()) {
    auto id = ParseResourceName("hosts", call.request().host());
    if (!id.ok()) return call.Finish(id.status());
    host = *std::move(id);
  }
  service_->DiscoverDevices(call.caller(), host, [this, &call](absl::StatusOr<SeenDevices> seen) {
    answers_->Post([this, &call, seen = std::move(seen)] {
      if (seen.ok()) FillDiscovered(*views_->Get(), *seen, call.response());
      call.Finish(seen.status());
    });
  });
}

void InventoryRpc::AddDevice(UnaryCall<v1::AddDeviceRequest, v1::Device>& call) {
  const v1::AddDeviceRequest& request = call.request();
  // Without settings it is a device that the pool has had, and that is used again.
  const auto plan = [&](const std::string& id) -> PoolPlan {
    if (!request.has_settings()) return PlanFor(&PlanAddDevice, id);
    return [entry = FromProto(id, request.settings())](const PoolState& state, const Caller& caller,
                                                       PlanContext& context) {
      return PlanPutDevice(state, caller, entry, context);
    };
  };
  Change(call, "devices", request.device(), {.method = "AddDevice", .fabric_follows = true}, plan,
         FillDevice(call.response()));
}

void InventoryRpc::DrainDevice(UnaryCall<v1::DrainDeviceRequest, v1::DrainDeviceResponse>& call) {
  Change(call, "devices", call.request().device(), {.method = "DrainDevice"},
         ById(&PlanDrainDevice), [&call](const PoolView& view, const std::string& id) {
           FillDevice(call.response()->mutable_device())(view, id);
           FillOwners(view, id, call.response());
         });
}

void InventoryRpc::RemoveDevice(UnaryCall<v1::RemoveDeviceRequest, v1::Device>& call) {
  Change(call, "devices", call.request().device(),
         {.method = "RemoveDevice", .fabric_follows = true}, ById(&PlanRemoveDevice),
         FillDevice(call.response()));
}

// To fail a device is for good: without a reason nothing of it is begun.
void InventoryRpc::FailDevice(UnaryCall<v1::FailDeviceRequest, v1::Device>& call) {
  Do(
      call, "devices", call.request().device(),
      [&](const std::string& id, Done done) {
        absl::Status status = CheckReason(call.request().reason());
        if (status.ok()) {
          const std::string why =
              CXLPOOL_MUTANT("failure-without-reason") ? "" : call.request().reason();
          service_->FailDevice(call.caller(), id, why, std::move(done));
        }
        return status;
      },
      FillDevice(call.response()));
}

void InventoryRpc::ListHosts(UnaryCall<v1::ListHostsRequest, v1::ListHostsResponse>& call) {
  Read(call,
       [&](const PoolView& view) { return fm::ListHosts(view, call.request(), call.response()); });
}

void InventoryRpc::AddHost(UnaryCall<v1::AddHostRequest, v1::Host>& call) {
  const auto plan = [&](const std::string& id) -> PoolPlan {
    return [entry = FromProto(id, call.request().settings())](
               const PoolState& state, const Caller& caller, PlanContext& context) {
      return PlanPutHost(state, caller, entry, context);
    };
  };
  Change(call, "hosts", call.request().host(), {.method = "AddHost", .fabric_follows = true}, plan,
         [&call](const PoolView& view, const std::string& id) {
           call.response()->set_name(ResourceName("hosts", id));  // It may not be enrolled yet.
           FillHost(call.response())(view, id);
         });
}

// The audit record's reason says under which identity the host was enrolled, and for which tenants.
void InventoryRpc::EnrolHost(UnaryCall<v1::EnrolHostRequest, v1::Host>& call) {
  auto spec = FromProto(call.request());
  if (!spec.ok()) return call.Finish(spec.status());
  std::string reason = absl::StrCat(spec->identity, spec->tenants.empty() ? "" : " for tenants ",
                                    absl::StrJoin(spec->tenants, ", "));
  Change(call, "hosts", call.request().host(), {.method = "EnrolHost", .reason = std::move(reason)},
         Always(PlanFor(&PlanEnrol, *std::move(spec))), FillHost(call.response()));
}

void InventoryRpc::RetireHost(UnaryCall<v1::RetireHostRequest, v1::Host>& call) {
  Change(call, "hosts", call.request().host(), {.method = "RetireHost"}, ById(&PlanRetire),
         FillHost(call.response()));
}

void InventoryRpc::RemoveHost(UnaryCall<v1::RemoveHostRequest, v1::RemoveHostResponse>& call) {
  Change(call, "hosts", call.request().host(), {.method = "RemoveHost", .fabric_follows = true},
         ById(&PlanRemoveHost), FillNothing);
}

// Without a reason nothing is begun. The answer comes with the end of the fence, done or failed.
void InventoryRpc::FenceHost(UnaryCall<v1::FenceHostRequest, v1::Host>& call) {
  Do(
      call, "hosts", call.request().host(),
      [&](const std::string& id, Done done) {
        if (call.request().reason().empty() || call.request().reason().size() > kMaxText) {
          return Refuse(absl::StatusCode::kInvalidArgument, "BAD_REASON",
                        absl::StrCat("field reason needs 1 to ", kMaxText, " characters"),
                        "say why: it is kept in the audit record");
        }
        service_->Fence(call.caller(), id, call.request().reason(), std::move(done));
        return absl::OkStatus();
      },
      FillHost(call.response()));
}

// The answer is read from the view, and so says also what the tenant uses.
void InventoryRpc::SetTenant(UnaryCall<v1::SetTenantRequest, v1::Tenant>& call) {
  auto tenant = FromProto(call.request().tenant());
  if (!tenant.ok()) return call.Finish(tenant.status());
  Change(call, "tenants", call.request().tenant().name(), {.method = "SetTenant"},
         Always(PlanFor(&PlanSetTenant, *std::move(tenant))),
         [&call](const PoolView& view, const std::string& id) {
           const TenantView* now = FindTenant(view, id);
           if (now != nullptr) *call.response() = ToProto(*now);
         });
}

// The view has "default" also where that has no record.
void InventoryRpc::GetTenant(UnaryCall<v1::GetTenantRequest, v1::Tenant>& call) {
  Read(call, [&](const PoolView& view) -> absl::Status {
    const auto id = ParseResourceName("tenants", call.request().name());
    if (!id.ok()) return id.status();
    const bool is_callers = !call.caller().for_tenants() || call.caller().HasTenant(*id) ||
                            CXLPOOL_MUTANT("tenant-sees-any-tenant");
    const TenantView* tenant = is_callers ? FindTenant(view, *id) : nullptr;
    if (tenant == nullptr) {
      return Refuse(absl::StatusCode::kNotFound, "UNKNOWN_TENANT",
                    absl::StrCat("there is no ", call.request().name()),
                    "see `cxlpool tenant list`", {{"tenant", call.request().name()}});
    }
    *call.response() = ToProto(*tenant);
    return absl::OkStatus();
  });
}

void InventoryRpc::ListTenants(UnaryCall<v1::ListTenantsRequest, v1::ListTenantsResponse>& call) {
  Read(call, [&](const PoolView& view) {
    return fm::ListTenants(view, call.caller(), call.request(), call.response());
  });
}

void InventoryRpc::RemoveTenant(
    UnaryCall<v1::RemoveTenantRequest, v1::RemoveTenantResponse>& call) {
  Change(call, "tenants", call.request().name(), {.method = "RemoveTenant"},
         ById(&PlanRemoveTenant), FillNothing);
}

void InventoryRpc::GetTopology(UnaryCall<v1::GetTopologyRequest, v1::Topology>& call) {
  Read(call, [&](const PoolView& view) {
    return fm::GetTopology(view, fabric_, call.request(), call.response());
  });
}

// The steps that were taken, once they are durable; with validate_only, those that it would take.
void InventoryRpc::ApplyTopology(
    UnaryCall<v1::ApplyTopologyRequest, v1::ApplyTopologyResponse>& call) {
  auto tables = FromProto(call.request().tables());
  if (!tables.ok()) return call.Finish(tables.status());
  service_->ApplyTopology(call.caller(), *std::move(tables), call.request().validate_only(),
                          [this, &call](absl::StatusOr<std::vector<TopologyStep>> steps) {
                            answers_->Post([&call, steps = std::move(steps)] {
                              if (steps.ok()) {
                                for (const TopologyStep& step : *steps)
                                  *call.response()->add_steps() = ToProto(step);
                              }
                              call.Finish(steps.status());
                            });
                          });
}

// The list changes first, and what comes afterwards meets it. Then the peer's sessions end
// (PoolService), the operator is answered, and whatever else the peer has under way ends.
void InventoryRpc::RevokeCertificate(
    UnaryCall<v1::RevokeCertificateRequest, v1::Revocation>& call) {
  auto revocation = FromProto(call.request(), call.caller());
  if (!revocation.ok()) return call.Finish(revocation.status());
  const std::string subject = revocation->subject;
  if (IsOwn(call, subject) && !call.request().allow_own()) {
    return call.Finish(RevokesCaller(subject));
  }
  service_->ChangePool(call.caller(), {.method = "RevokeCertificate", .reason = revocation->reason},
                       PlanFor(&PlanRevoke, *revocation),
                       [this, &call, subject](absl::Status status) {
                         answers_->Post([this, &call, subject, status = std::move(status)] {
                           const auto access = views_->GetAccessRules();
                           const auto it = access->revocations.find(subject);
                           if (it != access->revocations.end()) {
                             *call.response() = ToProto(it->second);
                           }
                           call.Finish(status);  // First: it may be the caller's own that is ended.
                           calls_->JudgeAgain();
                         });
                       });
}

void InventoryRpc::RestoreCertificate(
    UnaryCall<v1::RestoreCertificateRequest, v1::RestoreCertificateResponse>& call) {
  auto subject = ReadRevocationSubject(call.request().subject());
  if (!subject.ok()) return call.Finish(subject.status());
  service_->ChangePool(call.caller(), {.method = "RestoreCertificate", .reason = *subject},
                       PlanFor(&PlanRestore, *subject),
                       [&call](const absl::Status& status) { call.Finish(status); });
}

void InventoryRpc::ListRevocations(
    UnaryCall<v1::ListRevocationsRequest, v1::ListRevocationsResponse>& call) {
  call.Finish(
      fm::ListRevocations(views_->GetAccessRules()->revocations, call.request(), call.response()));
}

}  // namespace cxlpool::fm
