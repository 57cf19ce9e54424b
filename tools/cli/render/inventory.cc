#include "tools/cli/render/inventory.h"

#include <algorithm>
#include <map>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/support/byte_size.h"
#include "proto/support/certificate.h"
#include "tools/cli/render/printable.h"
#include "tools/cli/render/table.h"
#include "tools/cli/render/words.h"

namespace cxlpool::cli {
namespace {

// For whom a host may allocate: short names.
template <typename Message>
std::string TenantNames(const Message& of) {
  return absl::StrJoin(of.tenants(), ",", [](std::string* out, const std::string& name) {
    absl::StrAppend(out, ShortName(name));
  });
}

// If too many slots are free, none of these is listed, and HostDetails says how many there are.
Table SlotTable(const v1::Host& host) {
  Table table({{"SLOT", Align::kRight}, {"BRIDGE"}, {"REGION"}});
  const bool all = FreeSlots(host) <= kMaxFreeSlotsListed;
  for (const v1::Port& port : host.ports()) {
    if (!all && port.region().empty()) continue;
    table.AddRow({absl::StrCat(port.slot()), port.host_bridge(),
                  port.region().empty() ? "free" : ShortName(port.region())});
  }
  return table;
}

Table BridgeTable(const v1::Host& host) {
  Table table({{"BRIDGE"},
               {"HOST REGIONS", Align::kRight},
               {"WINDOW FREE", Align::kRight},
               {"WINDOW", Align::kRight},
               {"BLOCKED BY"}});
  for (const v1::HostBridge& bridge : host.bridges()) {
    // The manager may not know whose host region blocks the bridge.
    const std::string by = bridge.blocked_by().empty() ? "?" : ShortName(bridge.blocked_by());
    table.AddRow({bridge.name(), absl::StrCat(bridge.live_regions(), "/", bridge.max_regions()),
                  FormatByteSize(bridge.free_window_bytes()), FormatByteSize(bridge.window_bytes()),
                  bridge.blocked() ? by : ""});
  }
  return table;
}

std::string LdsText(const v1::Device& device) {
  return device.max_lds() == 0 ? absl::StrCat(device.lds())
                               : absl::StrCat(device.lds(), "/", device.max_lds());
}

// In the order of the devices' ids: a map of a message has none.
std::string UnreachedLines(const v1::Host& host) {
  const std::map<std::string, std::string> sorted(host.unreached_devices().begin(),
                                                  host.unreached_devices().end());
  std::string out;
  for (const auto& [device, why] : sorted) {
    absl::StrAppend(&out, ShortName(host.name()), " does not reach ", Printable(device), ": ",
                    Printable(why), "\n");
  }
  return out;
}

constexpr absl::string_view kIndent = "       ";

absl::string_view UrgencyWord(v1::Finding::Urgency urgency) {
  switch (urgency) {
    case v1::Finding::WRONG:
      return "WRONG  ";
    case v1::Finding::WAITS:
      return "WAITS  ";
    case v1::Finding::NOTE:
      return "NOTE   ";
    default:
      return kIndent;
  }
}

// " for 3m12s"; nothing where it is not known, is less than a second, or where the clocks of the
// two machines disagree.
std::string For(const v1::Finding& finding, absl::Time now) {
  if (!finding.has_since()) return "";
  const absl::Duration period = now - absl::FromUnixSeconds(finding.since().seconds());
  if (period < absl::Seconds(1)) return "";
  return absl::StrCat(" for ", absl::FormatDuration(absl::Trunc(period, absl::Seconds(1))));
}

std::string FindingText(const v1::Finding& finding, absl::Time now) {
  const std::string subject = finding.subject().empty() ? "the pool" : finding.subject();
  std::string out = absl::StrCat(UrgencyWord(finding.urgency()), Printable(subject), " ",
                                 Printable(finding.problem()), For(finding, now), "\n", kIndent,
                                 Printable(finding.text()), "\n");
  if (!finding.waits_for().empty()) {
    absl::StrAppend(&out, kIndent, "waits for ",
                    Printable(absl::StrJoin(finding.waits_for(), ", ")), "\n");
  }
  absl::string_view before = "run: ";
  for (const std::string& command : finding.commands()) {
    absl::StrAppend(&out, kIndent, before, Printable(command), "\n");
    before = "     ";
  }
  return out;
}

}  // namespace

std::string StateWord(const v1::Host& host) {
  const bool unfit = host.state() == v1::Host::ONLINE && !host.unfit_reason().empty();
  return unfit ? "UNFIT" : v1::Host::State_Name(host.state());
}

uint64_t FreeBytes(const v1::Device& device) {
  if (device.state() == v1::Device::FAILED || device.state() == v1::Device::REMOVED) return 0;
  const uint64_t taken =
      device.allocated_bytes() + device.scrubbing_bytes() + device.quarantined_bytes();
  return device.capacity_bytes() - std::min(taken, device.capacity_bytes());
}

// Below the table: why a device is in its state, where there is a reason.
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
    table.AddRow(
        {ShortName(device.name()), v1::Device::State_Name(device.state()), device.serial(),
         FormatByteSize(device.capacity_bytes()), FormatByteSize(FreeBytes(device)),
         FormatByteSize(device.allocated_bytes()), FormatByteSize(device.scrubbing_bytes()),
         FormatByteSize(device.quarantined_bytes()), FormatByteSize(device.largest_free_bytes()),
         FormatByteSize(device.granule_bytes()), LdsText(device), device.failure_domain()});
  }
  std::string out = table.ToString();
  for (const v1::Device& device : devices.devices()) {
    if (device.state_reason().empty()) continue;
    absl::StrAppend(&out, ShortName(device.name()), " is ", v1::Device::State_Name(device.state()),
                    ": ", Printable(device.state_reason()), "\n");
  }
  return out;
}

// Below the table: which devices are unfit, which hosts could not be asked, and whether there is
// more. Texts of hosts may hold anything: Printable.
std::string DiscoveredTable(const v1::DiscoverDevicesResponse& discovered) {
  Table table({{"HOST"},
               {"NAME"},
               {"SERIAL"},
               {"SIZE", Align::kRight},
               {"ALIGN", Align::kRight},
               {"SAME", Align::kRight},
               {"MARK"}});
  std::string unfit;
  for (const v1::DiscoveredDevice& device : discovered.devices()) {
    std::string mark = device.marked_device();
    if (device.mark() == v1::DiscoveredDevice::OTHER_POOL) {
      mark = absl::StrCat(mark, " of pool ", device.marked_pool());
    }
    table.AddRow({ShortName(device.host()), device.name(), device.serial(),
                  FormatByteSize(device.size_bytes()), FormatByteSize(device.align_bytes()),
                  absl::StrCat(device.group()), mark.empty() ? "-" : mark});
    if (device.unfit_reason().empty()) continue;
    absl::StrAppend(&unfit, Printable(ShortName(device.host())), "/", Printable(device.name()),
                    " is unfit: ", Printable(device.unfit_reason()), "\n");
  }
  std::string out = absl::StrCat(table.ToString(), unfit);
  for (const v1::SilentHost& host : discovered.silent_hosts()) {
    absl::StrAppend(&out, Printable(ShortName(host.host())),
                    " shows nothing: ", Printable(host.reason()), "\n");
  }
  if (discovered.cut_off()) {
    out += "There is more: name one host (`cxlpool device discover --host HOST`).\n";
  }
  return out;
}

// The answer counts all Regions but need not name them all; then the text says how to list them.
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
               {"REGIONS", Align::kRight},
               {"ISOLATION"}});
  for (const v1::Tenant& tenant : tenants.tenants()) {
    table.AddRow({ShortName(tenant.name()), FormatByteSize(tenant.used_bytes()),
                  LimitText(tenant.quota_bytes()), LimitText(tenant.reserved_bytes()),
                  LimitText(tenant.host_cap_bytes()), absl::StrCat(tenant.regions()),
                  tenant.isolation() == v1::FABRIC ? "by fabric" : "any"});
  }
  return table.ToString();
}

std::string RevocationTable(const v1::ListRevocationsResponse& revocations) {
  Table table({{"REVOKED"}, {"WHEN"}, {"BY"}, {"REASON"}});
  for (const v1::Revocation& revocation : revocations.revocations()) {
    table.AddRow({revocation.subject(),
                  TimeText(revocation.has_revoke_time(), revocation.revoke_time()),
                  revocation.revoked_by(), revocation.reason()});
  }
  return table.ToString();
}

std::string RoleBindingTable(const v1::ListRoleBindingsResponse& bindings) {
  Table table({{"IDENTITY"}, {"ROLE"}, {"TENANTS"}, {"UNTIL"}, {"BOUND"}, {"BY"}, {"REASON"}});
  for (const v1::RoleBinding& binding : bindings.role_bindings()) {
    table.AddRow({binding.identity(), absl::AsciiStrToLower(v1::Role_Name(binding.role())),
                  TenantNames(binding), TimeText(binding.has_end_time(), binding.end_time()),
                  TimeText(binding.has_bind_time(), binding.bind_time()), binding.bound_by(),
                  binding.reason()});
  }
  return table.ToString();
}

std::string EventTable(const v1::ListEventsResponse& events) {
  Table table({{"TIME"}, {"WHO"}, {"FROM"}, {"WHAT"}, {"OF"}, {"OUTCOME"}, {"REASON"}});
  for (const v1::Event& event : events.events()) {
    const std::string more = event.more() == 0 ? "" : absl::StrCat(" +", event.more());
    table.AddRow({TimeText(event.has_time(), event.time()), event.who(), event.peer(),
                  event.method(), event.resource() + more,
                  event.refused().empty() ? "done" : event.refused(), event.reason()});
  }
  return table.ToString();
}

// Below the table: what a person has to do something about, host by host; then certificates that
// have ended or end soon.
std::string HostTable(const v1::ListHostsResponse& hosts, absl::Time now) {
  Table table({{"NAME"},
               {"STATE"},
               {"IDENTITY"},
               {"TENANTS"},
               {"SLOTS FREE", Align::kRight},
               {"BRIDGES", Align::kRight},
               {"AGENT"},
               {"KERNEL"},
               {"LAST HEARTBEAT"},
               {"CERTIFICATE ENDS"}});
  for (const v1::Host& host : hosts.hosts()) {
    table.AddRow({ShortName(host.name()), StateWord(host), host.identity(), TenantNames(host),
                  absl::StrCat(FreeSlots(host), "/", host.ports_size()),
                  absl::StrCat(host.bridges_size()), host.agent_version(), host.kernel_release(),
                  TimeText(host.has_last_heartbeat_time(), host.last_heartbeat_time()),
                  TimeText(host.has_certificate_expire_time(), host.certificate_expire_time())});
  }
  std::string out = table.ToString();
  for (const v1::Host& host : hosts.hosts()) {
    if (!host.unfit_reason().empty()) {
      absl::StrAppend(&out, ShortName(host.name()),
                      " takes nothing: ", Printable(host.unfit_reason()), "\n");
    }
    if (!host.fabric_reason().empty()) {
      absl::StrAppend(&out, "the fabric cannot be asked about ", ShortName(host.name()), ": ",
                      Printable(host.fabric_reason()), "\n");
    }
    absl::StrAppend(&out, UnreachedLines(host));
  }
  for (const v1::Host& host : hosts.hosts()) {
    if (!host.has_certificate_expire_time()) continue;
    CertificateFacts facts;
    facts.not_after = absl::FromUnixSeconds(host.certificate_expire_time().seconds());
    if (!facts.ExpiredAt(now) && !facts.EndsSoonAt(now)) continue;
    const std::string name = Printable(ShortName(host.name()));
    absl::StrAppend(&out, "the certificate of ", name, " ", EndText(facts, now),
                    ": `cxlpool pki renew host ", name, "`\n");
  }
  return out;
}

int FreeSlots(const v1::Host& host) {
  return static_cast<int>(
      std::count_if(host.ports().begin(), host.ports().end(),
                    [](const v1::Port& port) { return port.region().empty(); }));
}

// Many free slots are counted and not listed.
std::string HostDetails(const v1::Host& host) {
  Sheet sheet;
  sheet.Add("Host", ShortName(host.name()));
  sheet.Add("State", StateWord(host));
  sheet.Add("Takes nothing", host.unfit_reason());
  sheet.Add("Fabric", host.fabric_reason());
  sheet.Add("Identity", host.identity());
  sheet.Add("Tenants", TenantNames(host));
  sheet.Add("Agent", host.agent_version());
  sheet.Add("Kernel", host.kernel_release());
  sheet.Add("Boot", host.incarnation());
  sheet.Add("Last heartbeat", TimeText(host.has_last_heartbeat_time(), host.last_heartbeat_time()));
  sheet.Add("Memory block",
            host.memory_block_bytes() == 0 ? "" : FormatByteSize(host.memory_block_bytes()));
  std::string out = absl::StrCat(sheet.ToString(), UnreachedLines(host));
  const int free = FreeSlots(host);
  if (free < host.ports_size() || free <= kMaxFreeSlotsListed) {
    if (!host.ports().empty()) absl::StrAppend(&out, "\n", SlotTable(host).ToString(2));
  }
  if (free > kMaxFreeSlotsListed) absl::StrAppend(&out, "\n  ", free, " slots are free\n");
  if (!host.bridges().empty()) absl::StrAppend(&out, "\n", BridgeTable(host).ToString(2));
  return out;
}

// Leaves out Extents on other devices, and the whole table if none is on this one.
std::string DeviceDetails(const v1::Device& device, const v1::ListRegionsResponse& regions) {
  Sheet sheet;
  sheet.Add("Device", ShortName(device.name()));
  sheet.Add("State", v1::Device::State_Name(device.state()));
  sheet.Add("Why", device.state_reason());
  sheet.Add("Serial", device.serial());
  sheet.Add("Capacity", FormatByteSize(device.capacity_bytes()));
  sheet.Add("Free", FormatByteSize(FreeBytes(device)));
  sheet.Add("Allocated", FormatByteSize(device.allocated_bytes()));
  sheet.Add("Scrubbing", FormatByteSize(device.scrubbing_bytes()));
  sheet.Add("Quarantined", FormatByteSize(device.quarantined_bytes()));
  sheet.Add("Largest extent", FormatByteSize(device.largest_free_bytes()));
  sheet.Add("Granule", FormatByteSize(device.granule_bytes()));
  sheet.Add("LDs", LdsText(device));
  sheet.Add("Failure domain", device.failure_domain());
  Table table({{"REGION"}, {"STATE"}, {"DPA", Align::kRight}, {"LENGTH", Align::kRight}});
  bool any = false;
  for (const v1::Region& region : regions.regions()) {
    for (const v1::Extent& extent : region.extents()) {
      if (extent.device() != device.name()) continue;
      any = true;
      table.AddRow({ShortName(region.name()), v1::Region::State_Name(region.state()),
                    Hex(extent.dpa_bytes()), FormatByteSize(extent.length_bytes())});
    }
  }
  return absl::StrCat(sheet.ToString(), any ? "\n" : "", any ? table.ToString(2) : "");
}

std::string FindingsText(const v1::ExplainResponse& explained, absl::Time now) {
  if (explained.findings().empty()) return "nothing is wrong, and nothing waits\n";
  std::string out;
  for (const v1::Finding& finding : explained.findings()) {
    absl::StrAppend(&out, out.empty() ? "" : "\n", FindingText(finding, now));
  }
  if (explained.left_out() > 0) {
    absl::StrAppend(&out, "\n", explained.left_out(), " more are left out\n");
  }
  return out;
}

}  // namespace cxlpool::cli
