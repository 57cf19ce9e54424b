#include "fabric-manager/rpc/inventory_rpc.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "fabric-manager/rpc/convert.h"
#include "fabric-manager/rpc/convert_request.h"
#include "fabric-manager/rpc/unary.h"
#include "proto/support/names.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

using Context = InventoryRpc::Context;
using Reactor = InventoryRpc::Reactor;

constexpr size_t kMaxText = 512;
constexpr int kMaxOwners = 1000;
constexpr size_t kStep = 1000;  // Regions taken from a view at a time.

// Null: there is none.
const DeviceView* FindDevice(const PoolView& view, const std::string& id) {
  for (const DeviceView& device : *view.devices) {
    if (device.device.id == id) return &device;
  }
  return nullptr;
}
const TenantView* FindTenant(const PoolView& view, const std::string& id) {
  for (const TenantView& tenant : *view.tenants) {
    if (tenant.tenant.id == id) return &tenant;
  }
  return nullptr;
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
    if (device != nullptr) *response = ToProto(*device);
  };
}

// Who has bytes on the device. Looks at every Region.
void FillOwners(const PoolView& view, const std::string& id, v1::DrainDeviceResponse* response) {
  uint64_t count = 0;
  std::string after;
  while (true) {
    const std::vector<RegionPtr> step = view.regions.List(after, kStep);
    for (const RegionPtr& region : step) {
      after = region->id;
      if (std::none_of(region->extents.begin(), region->extents.end(),
                       [&](const Extent& extent) { return extent.device.str() == id; })) {
        continue;
      }
      ++count;
      if (response->regions_size() < kMaxOwners) {
        response->add_regions(ResourceName("regions", region->id));
      }
    }
    if (step.size() < kStep) break;
  }
  response->set_region_count(count);
}

}  // namespace

InventoryRpc::InventoryRpc(PoolService* service, const ViewHolder* views, BackupStreams* backups,
                           Executor* answers, std::string fabric)
    : service_(service),
      views_(views),
      backups_(backups),
      answers_(answers),
      fabric_(std::move(fabric)) {}

template <typename Fill>
Reactor* InventoryRpc::Read(Context* context, absl::string_view method, Fill fill) {
  auto caller = Authorize(*context, method);
  if (!caller.ok()) return FinishNow(context, caller.status());
  const PoolViewPtr view = views_->Get();
  return FinishNow(context, fill(*view));
}

template <typename Start, typename Fill>
Reactor* InventoryRpc::Change(Context* context, absl::string_view method,
                              absl::string_view collection, const std::string& name, Start start,
                              Fill fill) {
  auto caller = Authorize(*context, method);
  if (!caller.ok()) return FinishNow(context, caller.status());
  auto id = ParseResourceName(collection, name);
  if (!id.ok()) return FinishNow(context, id.status());
  Reactor* reactor = context->DefaultReactor();
  const auto answer = [=, this, id = *id](const absl::Status& status) {
    if (status.ok()) fill(*views_->Get(), id);
    reactor->Finish(ToWire(status, *context));
  };
  const absl::Status refused =
      start(caller->identity.uri, *id, [this, answer](absl::Status status) {
        answers_->Post([answer, status = std::move(status)] { answer(status); });
      });
  if (!refused.ok()) answer(refused);
  return reactor;
}

Reactor* InventoryRpc::ListDevices(Context* context, const v1::ListDevicesRequest*,
                                   v1::ListDevicesResponse* response) {
  return Read(context, "ListDevices", [&](const PoolView& view) {
    for (const DeviceView& device : *view.devices) *response->add_devices() = ToProto(device);
    return absl::OkStatus();
  });
}

Reactor* InventoryRpc::AddDevice(Context* context, const v1::AddDeviceRequest* request,
                                 v1::Device* response) {
  return Change(
      context, "AddDevice", "devices", request->device(),
      [this](const std::string& principal, const std::string& id, Done done) {
        service_->AddDevice(principal, id, std::move(done));
        return absl::OkStatus();
      },
      FillDevice(response));
}

Reactor* InventoryRpc::DrainDevice(Context* context, const v1::DrainDeviceRequest* request,
                                   v1::DrainDeviceResponse* response) {
  return Change(
      context, "DrainDevice", "devices", request->device(),
      [this](const std::string& principal, const std::string& id, Done done) {
        service_->DrainDevice(principal, id, std::move(done));
        return absl::OkStatus();
      },
      [response](const PoolView& view, const std::string& id) {
        FillDevice(response->mutable_device())(view, id);
        FillOwners(view, id, response);
      });
}

Reactor* InventoryRpc::RemoveDevice(Context* context, const v1::RemoveDeviceRequest* request,
                                    v1::Device* response) {
  return Change(
      context, "RemoveDevice", "devices", request->device(),
      [this](const std::string& principal, const std::string& id, Done done) {
        service_->RemoveDevice(principal, id, std::move(done));
        return absl::OkStatus();
      },
      FillDevice(response));
}

Reactor* InventoryRpc::FailDevice(Context* context, const v1::FailDeviceRequest* request,
                                  v1::Device* response) {
  return Change(
      context, "FailDevice", "devices", request->device(),
      [this, request](const std::string& principal, const std::string& id, Done done) {
        absl::Status status = CheckReason(request->reason());
        if (status.ok()) {
          service_->FailDevice(principal, id, request->reason(), std::move(done));
        }
        return status;
      },
      FillDevice(response));
}

Reactor* InventoryRpc::ListHosts(Context* context, const v1::ListHostsRequest*,
                                 v1::ListHostsResponse* response) {
  return Read(context, "ListHosts", [&](const PoolView& view) {
    for (const auto& [id, host] : view.hosts) *response->add_hosts() = ToProto(*host);
    return absl::OkStatus();
  });
}

Reactor* InventoryRpc::EnrolHost(Context* context, const v1::EnrolHostRequest* request,
                                 v1::Host* response) {
  return Change(
      context, "EnrolHost", "hosts", request->host(),
      [this, request](const std::string& principal, const std::string& id, Done done) {
        const std::string identity =
            request->identity().empty() ? absl::StrCat("cxlpool://host/", id) : request->identity();
        service_->Enrol(principal, id, identity, std::move(done));
        return absl::OkStatus();
      },
      FillHost(response));
}

Reactor* InventoryRpc::RetireHost(Context* context, const v1::RetireHostRequest* request,
                                  v1::Host* response) {
  return Change(
      context, "RetireHost", "hosts", request->host(),
      [this](const std::string& principal, const std::string& id, Done done) {
        service_->Retire(principal, id, std::move(done));
        return absl::OkStatus();
      },
      FillHost(response));
}

Reactor* InventoryRpc::FenceHost(Context* context, const v1::FenceHostRequest* request,
                                 v1::Host* response) {
  return Change(
      context, "FenceHost", "hosts", request->host(),
      [this, request](const std::string& principal, const std::string& id, Done done) {
        if (request->reason().empty() || request->reason().size() > kMaxText) {
          return Refusal{absl::StatusCode::kInvalidArgument,
                         "BAD_REASON",
                         absl::StrCat("field reason needs 1 to ", kMaxText, " characters"),
                         "say why: it is kept in the audit record",
                         {}}
              .ToStatus();
        }
        service_->Fence(principal, id, request->reason(), std::move(done));
        return absl::OkStatus();
      },
      FillHost(response));
}

Reactor* InventoryRpc::SetTenant(Context* context, const v1::SetTenantRequest* request,
                                 v1::Tenant* response) {
  return Change(
      context, "SetTenant", "tenants", request->tenant().name(),
      [this, request](const std::string& principal, const std::string& id, Done done) {
        Tenant tenant;
        tenant.id = id;
        tenant.quota_bytes = request->tenant().quota_bytes();
        tenant.reserved_bytes = request->tenant().reserved_bytes();
        tenant.host_cap_bytes = request->tenant().host_cap_bytes();
        service_->SetTenant(principal, tenant, std::move(done));
        return absl::OkStatus();
      },
      [response](const PoolView& view, const std::string& id) {
        const TenantView* tenant = FindTenant(view, id);
        if (tenant != nullptr) *response = ToProto(*tenant);
      });
}

Reactor* InventoryRpc::GetTenant(Context* context, const v1::GetTenantRequest* request,
                                 v1::Tenant* response) {
  return Read(context, "GetTenant", [&](const PoolView& view) -> absl::Status {
    const auto id = ParseResourceName("tenants", request->name());
    if (!id.ok()) return id.status();
    const TenantView* tenant = FindTenant(view, *id);
    if (tenant == nullptr) {
      return Refusal{absl::StatusCode::kNotFound,
                     "UNKNOWN_TENANT",
                     absl::StrCat("there is no ", request->name()),
                     "see `cxlpool tenant list`",
                     {{"tenant", request->name()}}}
          .ToStatus();
    }
    *response = ToProto(*tenant);
    return absl::OkStatus();
  });
}

Reactor* InventoryRpc::ListTenants(Context* context, const v1::ListTenantsRequest*,
                                   v1::ListTenantsResponse* response) {
  return Read(context, "ListTenants", [&](const PoolView& view) {
    for (const TenantView& tenant : *view.tenants) *response->add_tenants() = ToProto(tenant);
    return absl::OkStatus();
  });
}

Reactor* InventoryRpc::RemoveTenant(Context* context, const v1::RemoveTenantRequest* request,
                                    v1::RemoveTenantResponse*) {
  return Change(
      context, "RemoveTenant", "tenants", request->name(),
      [this](const std::string& principal, const std::string& id, Done done) {
        service_->RemoveTenant(principal, id, std::move(done));
        return absl::OkStatus();
      },
      [](const PoolView&, const std::string&) {});
}

Reactor* InventoryRpc::GetTopology(Context* context, const v1::GetTopologyRequest*,
                                   v1::Topology* response) {
  return Read(context, "GetTopology", [&](const PoolView& view) {
    response->set_fabric(fabric_);
    for (const DeviceView& device : *view.devices) *response->add_devices() = ToProto(device);
    for (const auto& [id, host] : view.hosts) *response->add_hosts() = ToProto(*host);
    for (const auto& [ends, path] : view.topology->paths()) {
      *response->add_paths() = ToProto(ends, path);
    }
    return absl::OkStatus();
  });
}

grpc::ServerWriteReactor<v1::BackupResponse>* InventoryRpc::Backup(Context* context,
                                                                   const v1::BackupRequest*) {
  auto caller = Authorize(*context, "Backup");
  return backups_->Start(context, caller.status());
}

}  // namespace cxlpool::fm
