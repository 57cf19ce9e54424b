#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "fabric-manager/topology_file.h"
#include "proto/support/byte_size.h"
#include "proto/support/names.h"
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

absl::Status Unknown(const char* reason, const char* what, const std::string& name,
                     std::string remedy) {
  return Refuse(absl::StatusCode::kNotFound, reason,
                absl::StrCat("there is no ", what, " \"", ShortName(name), "\""), std::move(remedy),
                {{what, ShortName(name)}});
}

// No steps are no error: the pool is already as the file wants it.
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

// Capacity and granule of the device that `path` (HOST/NAME) names, as its host shows it. What is
// of no use is refused here, with what was seen, rather than added and never reached.
absl::Status FillFromDiscovered(const std::string& id, v1::DeviceSettings& settings,
                                Connection& connection) {
  const size_t slash = settings.path().find('/');
  const std::string host = settings.path().substr(0, slash);
  const std::string name = slash == std::string::npos ? "" : settings.path().substr(slash + 1);
  if (host.empty() || name.empty()) {
    return Refuse(absl::StatusCode::kInvalidArgument, "BAD_VALUE",
                  absl::StrCat("--path \"", settings.path(), "\" is not HOST/NAME"),
                  "give HOST/NAME as `cxlpool device discover` has them, or --capacity",
                  {{"flag", "--path"}});
  }
  v1::DiscoverDevicesRequest request;
  request.set_host(ResourceName("hosts", host));
  const auto seen = connection.Send(request);
  if (!seen.ok()) return seen.status();
  const v1::DiscoveredDevice* found = nullptr;
  std::vector<std::string> names;
  for (const v1::DiscoveredDevice& device : seen->devices()) {
    names.push_back(device.name());
    if (device.name() == name) found = &device;
  }
  if (found == nullptr) {
    std::string why = absl::StrCat("host \"", host, "\" shows ");
    if (!seen->silent_hosts().empty()) {
      why =
          absl::StrCat("host \"", host, "\" shows nothing (", seen->silent_hosts(0).reason(), ")");
    } else {
      absl::StrAppend(&why, "no device \"", name, "\"", names.empty() ? "" : "; it shows ",
                      absl::StrJoin(names, ", "));
    }
    return Refuse(absl::StatusCode::kNotFound, "NOT_DISCOVERED", why,
                  "see `cxlpool device discover`, or give --capacity",
                  {{"host", host}, {"name", name}});
  }
  // Its mark says that it is another device of this pool: it can only come back under its own id.
  const bool other =
      found->mark() == v1::DiscoveredDevice::THIS_POOL && found->marked_device() != id;
  if (found->suggested_capacity_bytes() == 0 || other) {
    std::string why = found->unfit_reason();
    if (other) why = absl::StrCat("it is device ", found->marked_device(), " of this pool");
    if (found->mark() == v1::DiscoveredDevice::OTHER_POOL) {
      why = absl::StrCat("it has the mark of device ", found->marked_device(), " of pool ",
                         found->marked_pool(), ", which is another pool");
    }
    if (why.empty()) why = absl::StrCat("it is too small: ", FormatByteSize(found->size_bytes()));
    return Refuse(
        absl::StatusCode::kFailedPrecondition, "DEVICE_UNFIT",
        absl::StrCat(name, " of host \"", host, "\" cannot be device \"", id, "\": ", why),
        other ? absl::StrCat("add it by its own name: `cxlpool device add ", found->marked_device(),
                             "`, with the same --path")
              : "see `cxlpool device discover`, and docs/operations.md, Shared devices",
        {{"host", host}, {"name", name}});
  }
  settings.set_capacity_bytes(found->suggested_capacity_bytes());
  if (settings.granule_bytes() == 0) settings.set_granule_bytes(found->suggested_granule_bytes());
  // The operator chose another granule, so the capacity is worked out again. The first granule is
  // kept for the mark.
  if (settings.granule_bytes() != found->suggested_granule_bytes()) {
    const uint64_t granules = found->size_bytes() / settings.granule_bytes();
    settings.set_capacity_bytes(granules < 2 ? 0 : (granules - 1) * settings.granule_bytes());
  }
  return absl::OkStatus();
}

}  // namespace

// A device whose capacity was not given is looked at first. The request is what was found out, so
// that the audit and a retry have it.
absl::Status Run(AddDevice& command, Connection& connection, Printer& printer) {
  v1::AddDeviceRequest& request = command.request;
  if (request.has_settings() && request.settings().capacity_bytes() == 0) {
    absl::Status status =
        FillFromDiscovered(ShortName(request.device()), *request.mutable_settings(), connection);
    if (!status.ok()) return status;
  }
  const auto added = connection.Send(request);
  if (!added.ok()) return added.status();
  return PrintAnswer(printer, *added);
}

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

absl::Status PrintAnswer(Printer& printer, const v1::DiscoverDevicesResponse& discovered) {
  return PrintTable(printer, discovered, DiscoveredTable(discovered));
}

absl::Status PrintAnswer(Printer& printer, const v1::DrainDeviceResponse& drained) {
  return PrintTable(printer, drained, DrainText(drained));
}

absl::Status PrintAnswer(Printer& printer, const v1::ExplainResponse& explained) {
  return Print(printer, explained, FindingsText(explained, absl::Now()));
}

absl::Status PrintAnswer(Printer& printer, const v1::Tenant& tenant) {
  v1::ListTenantsResponse one;
  *one.add_tenants() = tenant;
  return PrintTable(printer, tenant, TenantTable(one));
}

absl::Status PrintAnswer(Printer& printer, const v1::ListTenantsResponse& tenants) {
  return PrintTable(printer, tenants, TenantTable(tenants));
}

// The API has no call for a single host or device, so this searches the whole list.
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

// Only the text for people shows the Regions, so only then are they asked for.
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

// The call sets all there is of a tenant, so what was not given is read first, with what a manager
// of a later release knows of it and this command does not; a tenant that does not exist yet has no
// limits. A change that somebody else makes between the two calls is lost.
absl::Status Run(SetTenant& command, Connection& connection, Printer& printer) {
  v1::GetTenantRequest which;
  which.set_name(command.request.tenant().name());
  const auto known = connection.Send(which);
  if (!known.ok() && !absl::IsNotFound(known.status())) return known.status();
  v1::Tenant wanted = known.ok() ? *known : v1::Tenant();
  wanted.set_name(which.name());
  wanted.clear_used_bytes();
  wanted.clear_regions();
  wanted.set_quota_bytes(command.quota_bytes.value_or(wanted.quota_bytes()));
  wanted.set_reserved_bytes(command.reserved_bytes.value_or(wanted.reserved_bytes()));
  wanted.set_host_cap_bytes(command.host_cap_bytes.value_or(wanted.host_cap_bytes()));
  wanted.set_isolation(command.isolation.value_or(wanted.isolation()));
  *command.request.mutable_tenant() = std::move(wanted);
  const auto set = connection.Send(command.request);
  if (!set.ok()) return set.status();
  return PrintAnswer(printer, *set);
}

// Differs from GuardedCall's Run only in what it prints: the answer contains no host.
absl::Status Run(RemoveHost& command, Connection& connection, Printer& printer) {
  const auto decision = Decide(command.consent, command.request, connection, printer);
  if (!decision.ok()) return decision.status();
  if (*decision == Decision::kDryRun) return absl::OkStatus();
  const auto removed = connection.Send(command.request);
  if (!removed.ok()) return removed.status();
  return Print(printer, *removed, absl::StrCat(ShortName(command.request.host()), " is gone\n"));
}

absl::Status Run(RemoveTenant& command, Connection& connection, Printer& printer) {
  const auto removed = connection.Send(command.request);
  if (!removed.ok()) return removed.status();
  return Print(printer, *removed, absl::StrCat(ShortName(command.request.name()), " is gone\n"));
}

// The file is read here, so that its errors have its lines, whichever release the manager is.
absl::Status Run(ApplyTopology& command, Connection& connection, Printer& printer) {
  const auto text = ReadConfigFile(command.file);
  if (absl::IsNotFound(text.status())) {
    return Refuse(absl::StatusCode::kNotFound, "NO_FILE",
                  absl::StrCat("cannot read ", command.file), "check the path");
  }
  if (!text.ok()) return text.status();
  const auto tables = fm::ParseTopologyFile(*text, command.file);
  if (!tables.ok()) return tables.status();
  *command.request.mutable_tables() = fm::ToProto(*tables);
  const auto applied = connection.Send(command.request);
  if (!applied.ok()) return applied.status();
  return Print(printer, *applied, TopologySteps(*applied, command.request.validate_only()));
}

// Only the tree shows the Regions, so JSON does without asking for them.
absl::Status Run(ShowTopology&, Connection& connection, Printer& printer) {
  const auto topology = AllPages(connection, v1::GetTopologyRequest());
  if (!topology.ok()) return topology.status();
  if (printer.for_programs()) return Print(printer, *topology, "");
  const auto regions = AllRegions(connection, v1::ListRegionsRequest());
  if (!regions.ok()) return regions.status();
  return Write(printer, TopologyTree(*topology, *regions));
}

}  // namespace cxlpool::cli
