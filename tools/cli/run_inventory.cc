#include <utility>

#include "absl/strings/str_cat.h"
#include "fabric-manager/topology_file.h"
#include "proto/support/refusal.h"
#include "proto/support/toml_reader.h"
#include "tools/cli/print.h"
#include "tools/cli/render/inventory.h"
#include "tools/cli/render/printable.h"
#include "tools/cli/render/topology.h"
#include "tools/cli/render/words.h"
#include "tools/cli/run.h"

namespace cxlpool::cli {
namespace {

absl::Status Unknown(const char* reason, const std::string& what, const std::string& name,
                     std::string remedy) {
  return Refusal{.code = absl::StatusCode::kNotFound,
                 .reason = reason,
                 .message = absl::StrCat("there is no ", what, " \"", ShortName(name), "\""),
                 .remedy = std::move(remedy),
                 .metadata = {{what, ShortName(name)}}}
      .ToStatus();
}

v1::TopologyTables ToProto(const fm::TopologyTables& tables) {
  v1::TopologyTables out;
  for (const fm::DeviceEntry& in : tables.devices) {
    auto& device = *out.add_devices();
    device.set_name(absl::StrCat("devices/", in.id));
    v1::DeviceSettings& settings = *device.mutable_settings();
    settings.set_serial(in.serial);
    settings.set_capacity_bytes(in.capacity_bytes);
    settings.set_granule_bytes(in.granule_bytes);
    settings.set_path(in.path);
    settings.set_latency_ns(in.latency_ns);
    settings.set_bandwidth_mib_per_second(in.bandwidth_mib_per_second);
    settings.set_heads(in.heads);
    settings.set_failure_domain(in.failure_domain);
  }
  for (const fm::HostEntry& in : tables.hosts) {
    auto& host = *out.add_hosts();
    host.set_name(absl::StrCat("hosts/", in.id));
    v1::HostSettings& settings = *host.mutable_settings();
    settings.mutable_slots()->Add(in.slots.begin(), in.slots.end());
    if (in.agent_uid.has_value()) settings.set_agent_uid(*in.agent_uid);
    settings.set_qmp_socket(in.qmp_socket);
  }
  for (const fm::SwitchEntry& in : tables.switches) {
    auto& node = *out.add_switches();
    node.set_id(in.id);
    node.set_latency_ns(in.latency_ns);
    node.set_bandwidth_mib_per_second(in.bandwidth_mib_per_second);
    node.set_failure_domain(in.failure_domain);
  }
  for (const fm::LinkEntry& in : tables.links) {
    auto& link = *out.add_links();
    link.set_from(in.a);
    link.set_to(in.b);
    link.set_latency_ns(in.latency_ns);
    link.set_bandwidth_mib_per_second(in.bandwidth_mib_per_second);
    link.mutable_slots()->Add(in.slots.begin(), in.slots.end());
  }
  return out;
}

std::string TopologySteps(const v1::ApplyTopologyResponse& applied, bool dry_run) {
  if (applied.steps().empty()) return "the pool is so already\n";
  std::string out = dry_run ? "would\n" : "";
  for (const v1::TopologyStep& step : applied.steps()) {
    const char* verb = step.verb() == v1::TopologyStep::ADD      ? "add "
                       : step.verb() == v1::TopologyStep::CHANGE ? "change "
                                                                 : "remove ";
    absl::StrAppend(&out, dry_run ? "  " : "", verb, Printable(step.what()), "\n");
  }
  return out;
}

}  // namespace

absl::Status PrintAnswer(Printer& printer, const v1::Host& host) {
  v1::ListHostsResponse one;
  *one.add_hosts() = host;
  return PrintTable(printer, host, HostTable(one));
}

absl::Status PrintAnswer(Printer& printer, const v1::ListHostsResponse& hosts) {
  return PrintTable(printer, hosts, HostTable(hosts));
}

absl::Status PrintAnswer(Printer& printer, const v1::Device& device) {
  v1::ListDevicesResponse one;
  *one.add_devices() = device;
  return PrintTable(printer, device, DeviceTable(one));
}

absl::Status PrintAnswer(Printer& printer, const v1::ListDevicesResponse& devices) {
  return PrintTable(printer, devices, DeviceTable(devices));
}

absl::Status PrintAnswer(Printer& printer, const v1::DrainDeviceResponse& drained) {
  return PrintTable(printer, drained, DrainText(drained));
}

absl::Status PrintAnswer(Printer& printer, const v1::Tenant& tenant) {
  v1::ListTenantsResponse one;
  *one.add_tenants() = tenant;
  return PrintTable(printer, tenant, TenantTable(one));
}

absl::Status PrintAnswer(Printer& printer, const v1::ListTenantsResponse& tenants) {
  return PrintTable(printer, tenants, TenantTable(tenants));
}

absl::StatusOr<v1::Host> FindHost(Connection& connection, const std::string& name) {
  const auto all = AllPages(connection, v1::ListHostsRequest());
  if (!all.ok()) return all.status();
  for (const v1::Host& host : all->hosts()) {
    if (host.name() == name) return host;
  }
  return Unknown("UNKNOWN_HOST", "host", name, "see `cxlpool host list`");
}

absl::StatusOr<v1::Device> FindDevice(Connection& connection, const std::string& name) {
  const auto all = AllPages(connection, v1::ListDevicesRequest());
  if (!all.ok()) return all.status();
  for (const v1::Device& device : all->devices()) {
    if (device.name() == name) return device;
  }
  return Unknown("UNKNOWN_DEVICE", "device", name, "see `cxlpool device list`");
}

absl::Status Run(ShowHost& command, Connection& connection, Printer& printer) {
  const auto host = FindHost(connection, command.name);
  if (!host.ok()) return host.status();
  return Print(printer, *host, HostDetails(*host));
}

absl::Status Run(ShowDevice& command, Connection& connection, Printer& printer) {
  const auto device = FindDevice(connection, command.name);
  if (!device.ok()) return device.status();
  v1::ListRegionsResponse regions;
  if (printer.format == OutputFormat::kTable) {
    auto there = AllRegions(connection, RegionsOn(*device));
    if (!there.ok()) return there.status();
    regions = *std::move(there);
  }
  return Print(printer, *device, DeviceDetails(*device, regions));
}

absl::Status Run(SetTenant& command, Connection& connection, Printer& printer) {
  v1::Tenant& wanted = *command.request.mutable_tenant();
  v1::GetTenantRequest which;
  which.set_name(wanted.name());
  const auto known = connection.Send(which);
  if (!known.ok() && !absl::IsNotFound(known.status())) return known.status();
  const v1::Tenant before = known.ok() ? *known : v1::Tenant();
  wanted.set_quota_bytes(command.quota_bytes.value_or(before.quota_bytes()));
  wanted.set_reserved_bytes(command.reserved_bytes.value_or(before.reserved_bytes()));
  wanted.set_host_cap_bytes(command.host_cap_bytes.value_or(before.host_cap_bytes()));
  const auto set = connection.Send(command.request);
  if (!set.ok()) return set.status();
  return PrintAnswer(printer, *set);
}

absl::Status Run(RemoveHost& command, Connection& connection, Printer& printer) {
  const auto decision = Decide(command.consent, command.request, connection, printer);
  if (!decision.ok()) return decision.status();
  if (*decision == Decision::kToldOnly) return absl::OkStatus();
  const auto removed = connection.Send(command.request);
  if (!removed.ok()) return removed.status();
  return Print(printer, *removed, absl::StrCat(ShortName(command.request.host()), " is gone\n"));
}

absl::Status Run(RemoveTenant& command, Connection& connection, Printer& printer) {
  const auto removed = connection.Send(command.request);
  if (!removed.ok()) return removed.status();
  return Print(printer, *removed, absl::StrCat(ShortName(command.request.name()), " is gone\n"));
}

// The file is read here, so that its errors have its lines, whoever the manager is.
absl::Status Run(ApplyTopology& command, Connection& connection, Printer& printer) {
  const auto text = ReadConfigFile(command.file);
  if (absl::IsNotFound(text.status())) {
    return Refuse(absl::StatusCode::kNotFound, "NO_FILE",
                  absl::StrCat("cannot read ", command.file), "check the path");
  }
  if (!text.ok()) return text.status();
  const auto tables = fm::ParseTopologyFile(*text, command.file);
  if (!tables.ok()) return tables.status();
  *command.request.mutable_tables() = ToProto(*tables);
  const auto applied = connection.Send(command.request);
  if (!applied.ok()) return applied.status();
  return Print(printer, *applied, TopologySteps(*applied, command.request.validate_only()));
}

absl::Status Run(ShowTopology&, Connection& connection, Printer& printer) {
  const auto topology = connection.Send(v1::GetTopologyRequest());
  if (!topology.ok()) return topology.status();
  if (printer.format == OutputFormat::kJson) return Print(printer, *topology, "");
  const auto regions = AllRegions(connection, v1::ListRegionsRequest());
  if (!regions.ok()) return regions.status();
  return Write(printer, TopologyTree(*topology, *regions));
}

}  // namespace cxlpool::cli
