#include "absl/strings/str_cat.h"
#include "tools/cli/print.h"
#include "tools/cli/render/inventory.h"
#include "tools/cli/render/topology.h"
#include "tools/cli/render/words.h"
#include "tools/cli/run.h"

namespace cxlpool::cli {
namespace {

absl::Status PrintHost(Printer& printer, const absl::StatusOr<v1::Host>& host) {
  if (!host.ok()) return host.status();
  v1::ListHostsResponse one;
  *one.add_hosts() = *host;
  return Print(printer, *host, HostTable(one));
}

absl::Status PrintDevice(Printer& printer, const absl::StatusOr<v1::Device>& device) {
  if (!device.ok()) return device.status();
  v1::ListDevicesResponse one;
  *one.add_devices() = *device;
  return Print(printer, *device, DeviceTable(one));
}

absl::Status PrintTenant(Printer& printer, const absl::StatusOr<v1::Tenant>& tenant) {
  if (!tenant.ok()) return tenant.status();
  v1::ListTenantsResponse one;
  *one.add_tenants() = *tenant;
  return Print(printer, *tenant, TenantTable(one));
}

}  // namespace

absl::Status Run(ListHosts&, Connection& connection, Printer& printer) {
  const auto hosts = connection.Call(&ManagerStub::ListHosts, v1::ListHostsRequest());
  if (!hosts.ok()) return hosts.status();
  return Print(printer, *hosts, HostTable(*hosts));
}

absl::Status Run(EnrolHost& command, Connection& connection, Printer& printer) {
  return PrintHost(printer, connection.Call(&ManagerStub::EnrolHost, command.request));
}

absl::Status Run(RetireHost& command, Connection& connection, Printer& printer) {
  return PrintHost(printer, connection.Call(&ManagerStub::RetireHost, command.request));
}

absl::Status Run(FenceHost& command, Connection& connection, Printer& printer) {
  return PrintHost(printer, connection.Call(&ManagerStub::FenceHost, command.request));
}

absl::Status Run(ListDevices&, Connection& connection, Printer& printer) {
  const auto devices = connection.Call(&ManagerStub::ListDevices, v1::ListDevicesRequest());
  if (!devices.ok()) return devices.status();
  return Print(printer, *devices, DeviceTable(*devices));
}

absl::Status Run(AddDevice& command, Connection& connection, Printer& printer) {
  return PrintDevice(printer, connection.Call(&ManagerStub::AddDevice, command.request));
}

absl::Status Run(DrainDevice& command, Connection& connection, Printer& printer) {
  const auto drained = connection.Call(&ManagerStub::DrainDevice, command.request);
  if (!drained.ok()) return drained.status();
  return Print(printer, *drained, DrainText(*drained));
}

absl::Status Run(RemoveDevice& command, Connection& connection, Printer& printer) {
  return PrintDevice(printer, connection.Call(&ManagerStub::RemoveDevice, command.request));
}

absl::Status Run(FailDevice& command, Connection& connection, Printer& printer) {
  return PrintDevice(printer, connection.Call(&ManagerStub::FailDevice, command.request));
}

absl::Status Run(ListTenants&, Connection& connection, Printer& printer) {
  const auto tenants = connection.Call(&ManagerStub::ListTenants, v1::ListTenantsRequest());
  if (!tenants.ok()) return tenants.status();
  return Print(printer, *tenants, TenantTable(*tenants));
}

absl::Status Run(ShowTenant& command, Connection& connection, Printer& printer) {
  return PrintTenant(printer, connection.Call(&ManagerStub::GetTenant, command.request));
}

absl::Status Run(SetTenant& command, Connection& connection, Printer& printer) {
  v1::Tenant& wanted = *command.request.mutable_tenant();
  v1::GetTenantRequest which;
  which.set_name(wanted.name());
  const auto known = connection.Call(&ManagerStub::GetTenant, which);
  if (!known.ok() && !absl::IsNotFound(known.status())) return known.status();
  const v1::Tenant before = known.ok() ? *known : v1::Tenant();
  wanted.set_quota_bytes(command.quota_bytes.value_or(before.quota_bytes()));
  wanted.set_reserved_bytes(command.reserved_bytes.value_or(before.reserved_bytes()));
  wanted.set_host_cap_bytes(command.host_cap_bytes.value_or(before.host_cap_bytes()));
  return PrintTenant(printer, connection.Call(&ManagerStub::SetTenant, command.request));
}

absl::Status Run(RemoveTenant& command, Connection& connection, Printer& printer) {
  const auto removed = connection.Call(&ManagerStub::RemoveTenant, command.request);
  if (!removed.ok()) return removed.status();
  return Print(printer, *removed, absl::StrCat(ShortName(command.request.name()), " is gone\n"));
}

absl::Status Run(ShowTopology&, Connection& connection, Printer& printer) {
  const auto topology = connection.Call(&ManagerStub::GetTopology, v1::GetTopologyRequest());
  if (!topology.ok()) return topology.status();
  if (printer.format == OutputFormat::kJson) return Print(printer, *topology, "");
  const auto regions = AllRegions(connection, v1::ListRegionsRequest());
  if (!regions.ok()) return regions.status();
  return Write(printer, TopologyTree(*topology, *regions));
}

}  // namespace cxlpool::cli
