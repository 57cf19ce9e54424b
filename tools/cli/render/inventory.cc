#include "tools/cli/render/inventory.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tools/cli/render/printable.h"
#include "tools/cli/render/table.h"
#include "tools/cli/render/words.h"
#include "tools/cli/sizes.h"

namespace cxlpool::cli {
namespace {

std::string LdsText(const v1::Device& device) {
  return device.max_lds() == 0 ? absl::StrCat(device.lds())
                               : absl::StrCat(device.lds(), "/", device.max_lds());
}

}  // namespace

uint64_t FreeBytes(const v1::Device& device) {
  const uint64_t taken =
      device.allocated_bytes() + device.scrubbing_bytes() + device.quarantined_bytes();
  return device.capacity_bytes() - std::min(taken, device.capacity_bytes());
}

std::string DeviceTable(const v1::ListDevicesResponse& devices) {
  Table table({{"NAME"},
               {"STATE"},
               {"SERIAL"},
               {"CAPACITY", Align::kRight},
               {"FREE", Align::kRight},
               {"ALLOCATED", Align::kRight},
               {"SCRUBBING", Align::kRight},
               {"QUARANTINED", Align::kRight},
               {"LARGEST EXTENT", Align::kRight},
               {"GRANULE", Align::kRight},
               {"LDS", Align::kRight},
               {"FAILURE DOMAIN"}});
  for (const v1::Device& device : devices.devices()) {
    table.AddRow({ShortName(device.name()), v1::Device::State_Name(device.state()), device.serial(),
                  FormatSize(device.capacity_bytes()), FormatSize(FreeBytes(device)),
                  FormatSize(device.allocated_bytes()), FormatSize(device.scrubbing_bytes()),
                  FormatSize(device.quarantined_bytes()), FormatSize(device.largest_free_bytes()),
                  FormatSize(device.granule_bytes()), LdsText(device), device.failure_domain()});
  }
  return table.ToString();
}

std::string DrainText(const v1::DrainDeviceResponse& drained) {
  v1::ListDevicesResponse one;
  *one.add_devices() = drained.device();
  std::string out = DeviceTable(one);
  if (drained.region_count() == 0) return absl::StrCat(out, "\nNobody has bytes there.\n");
  absl::StrAppend(&out, "\nRegions with bytes there: ", drained.region_count(), "\n");
  for (const std::string& name : drained.regions()) {
    absl::StrAppend(&out, "  ", Printable(ShortName(name)), "\n");
  }
  if (drained.region_count() > static_cast<uint64_t>(drained.regions_size())) {
    absl::StrAppend(&out, "  and more: see `cxlpool region list --filter \"device = ",
                    ShortName(drained.device().name()), "\"`\n");
  }
  return out;
}

std::string TenantTable(const v1::ListTenantsResponse& tenants) {
  Table table({{"NAME"},
               {"USED", Align::kRight},
               {"QUOTA", Align::kRight},
               {"RESERVED", Align::kRight},
               {"HOST CAP", Align::kRight},
               {"REGIONS", Align::kRight}});
  for (const v1::Tenant& tenant : tenants.tenants()) {
    table.AddRow({ShortName(tenant.name()), FormatSize(tenant.used_bytes()),
                  LimitText(tenant.quota_bytes()), LimitText(tenant.reserved_bytes()),
                  LimitText(tenant.host_cap_bytes()), absl::StrCat(tenant.regions())});
  }
  return table.ToString();
}

std::string HostTable(const v1::ListHostsResponse& hosts) {
  Table table({{"NAME"},
               {"STATE"},
               {"IDENTITY"},
               {"SLOTS FREE", Align::kRight},
               {"BRIDGES", Align::kRight},
               {"AGENT"},
               {"KERNEL"},
               {"LAST HEARTBEAT"}});
  for (const v1::Host& host : hosts.hosts()) {
    const auto free = std::count_if(host.ports().begin(), host.ports().end(),
                                    [](const v1::Port& port) { return port.region().empty(); });
    table.AddRow({ShortName(host.name()), v1::Host::State_Name(host.state()), host.identity(),
                  absl::StrCat(free, "/", host.ports_size()), absl::StrCat(host.bridges_size()),
                  host.agent_version(), host.kernel_release(),
                  TimeText(host.has_last_heartbeat_time(), host.last_heartbeat_time())});
  }
  std::string out = table.ToString();
  for (const v1::Host& host : hosts.hosts()) {
    if (host.unfit_reason().empty()) continue;
    absl::StrAppend(&out, ShortName(host.name()),
                    " takes nothing: ", Printable(host.unfit_reason()), "\n");
  }
  return out;
}

}  // namespace cxlpool::cli
