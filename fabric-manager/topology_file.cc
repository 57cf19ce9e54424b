#include "fabric-manager/topology_file.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/support/names.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

constexpr uint64_t kMaxFigure = 1'000'000'000;  // Nanoseconds, or MiB a second.
constexpr uint32_t kMaxHeads = 256;

// An id that no other table of its kind has; `seen` has those read before.
std::string ReadId(TomlReader& toml, std::set<std::string>& seen) {
  std::string id = toml.String("id");
  if (!id.empty() && !CheckResourceId(id).ok()) {
    toml.Fail("id", "is not well formed", "use 1 to 63 of a-z, 0-9 and '-', a letter first");
  }
  if (!seen.insert(id).second) toml.Fail("id", "stands twice", "give each its own");
  return id;
}

// 0 where it is left out.
uint32_t NumberIn(TomlReader& toml, const std::string& key, uint64_t max) {
  const uint64_t value = toml.Number(key, 0);
  if (value > max) toml.Fail(key, "is too large", absl::StrCat("use at most ", max));
  return static_cast<uint32_t>(value);
}

std::string ReadDomain(TomlReader& toml) {
  std::string domain = toml.String("failure_domain", "");
  if (!domain.empty() && !CheckResourceId(domain).ok()) {
    toml.Fail("failure_domain", "is not well formed",
              "use 1 to 63 of a-z, 0-9 and '-', a letter first");
  }
  return domain;
}

// The same mistakes as an operator's call may make, with the line.
template <typename Entry>
void CheckRead(TomlReader& toml, const Entry& entry, const FabricRules& fabric) {
  if (const auto bad = CheckEntry(entry, fabric)) toml.Fail(bad->key, bad->what, bad->remedy);
}

// A serial number that is left out is the id. A key that the driver does not use is not asked for,
// so that it is reported as unknown; of hosts likewise.
DeviceEntry ReadDevice(TomlReader& toml, const FabricRules& fabric, std::set<std::string>& seen) {
  DeviceEntry device;
  device.id = ReadId(toml, seen);
  device.serial = toml.String("serial", device.id);
  device.capacity_bytes = toml.Size("capacity");
  device.granule_bytes = toml.Size("granule", device.granule_bytes);
  if (fabric.path) device.path = toml.String("path", "");
  device.latency_ns = NumberIn(toml, "latency_ns", kMaxFigure);
  device.bandwidth_mib_per_second = NumberIn(toml, "bandwidth_mib", kMaxFigure);
  device.heads = NumberIn(toml, "heads", kMaxHeads);
  device.failure_domain = toml.String("failure_domain", "");
  CheckRead(toml, device, fabric);
  return device;
}

// A number that is too large stays one that CheckEntry refuses.
uint32_t Narrow(uint64_t value) {
  return static_cast<uint32_t>(std::min<uint64_t>(value, std::numeric_limits<uint32_t>::max()));
}

HostEntry ReadHost(TomlReader& toml, const FabricRules& fabric, std::set<std::string>& seen) {
  HostEntry host;
  host.id = ReadId(toml, seen);
  if (fabric.slots) {
    for (const uint64_t slot : toml.Numbers("slots")) host.slots.push_back(Narrow(slot));
  }
  if (fabric.uid && toml.Has("uid")) host.agent_uid = Narrow(toml.Number("uid"));
  if (fabric.qmp) host.qmp_socket = toml.String("qmp", "");
  CheckRead(toml, host, fabric);
  return host;
}

SwitchEntry ReadSwitch(TomlReader& toml, std::set<std::string>& seen) {
  SwitchEntry out;
  out.id = ReadId(toml, seen);
  out.latency_ns = NumberIn(toml, "latency_ns", kMaxFigure);
  out.bandwidth_mib_per_second = NumberIn(toml, "bandwidth_mib", kMaxFigure);
  out.failure_domain = ReadDomain(toml);
  return out;
}

// `hosts`: all of the file. A slot that the link's host does not have is found here, where its line
// is known. Whether the ends are nodes at all is for CheckTopology.
LinkEntry ReadLink(TomlReader& toml, const std::vector<HostEntry>& hosts) {
  LinkEntry link;
  link.a = toml.String("from");
  link.b = toml.String("to");
  link.latency_ns = NumberIn(toml, "latency_ns", kMaxFigure);
  link.bandwidth_mib_per_second = NumberIn(toml, "bandwidth_mib", kMaxFigure);
  if (!toml.Has("slots")) return link;
  const auto host = std::find_if(hosts.begin(), hosts.end(), [&](const HostEntry& each) {
    return each.id == link.a || each.id == link.b;
  });
  // Where the entry has no slots, the fabric says which there are.
  const bool any = host == hosts.end() || host->slots.empty();
  for (const uint64_t slot : toml.Numbers("slots")) {
    if (slot > kMaxSlotNumber ||
        (!any && std::find(host->slots.begin(), host->slots.end(), slot) == host->slots.end())) {
      toml.Fail("slots", absl::StrCat("holds ", slot, ", which the host does not have"),
                "use slots of its [[host]]");
    }
    link.slots.push_back(static_cast<uint32_t>(slot));
  }
  return link;
}

// How many of the links, from the first, it takes for the topology to be refused. It is refused
// with all of them. One more link never makes good what is wrong without it, so the number is found
// by halving.
size_t LinksToRefusal(TopologySpec spec) {
  const std::vector<TopologySpec::Link> links = std::move(spec.links);
  const auto refused = [&](size_t count) {
    spec.links.assign(links.begin(), links.begin() + static_cast<ptrdiff_t>(count));
    return !Topology::Create(spec).ok();
  };
  size_t good = 0;
  size_t bad = links.size();
  if (refused(0)) return 0;
  while (bad - good > 1) {
    const size_t middle = good + (bad - good) / 2;
    (refused(middle) ? bad : good) = middle;
  }
  return bad;
}

// What of the whole makes no topology is the fault of the first link with which it does not; where
// it does not even without links, the nodes are at fault, and the error is of `link` as a whole.
void CheckTopology(TomlReader& toml, std::vector<TomlReader>& links, const TopologyTables& tables) {
  TopologySpec spec = SpecOf(tables);
  if (Topology::Create(spec).ok()) return;
  const size_t link = LinksToRefusal(spec);
  spec.links.resize(link);
  const auto refusal = RefusalOf(Topology::Create(spec).status()).value_or(Refusal{});
  if (link == 0) {
    toml.Fail("link", absl::StrCat("makes no ", refusal.message), refusal.remedy);
  } else {
    links[link - 1].Fail("to", absl::StrCat("makes no ", refusal.message), refusal.remedy);
  }
}

}  // namespace

// Hosts come before links, whose slots are held against theirs. The whole is judged last.
TopologyTables ReadTopologyTables(TomlReader& toml, const FabricRules& fabric) {
  TopologyTables tables;
  std::set<std::string> ids;
  for (TomlReader& device : toml.Tables("device")) {
    tables.devices.push_back(ReadDevice(device, fabric, ids));
  }
  if (tables.devices.size() > kMaxDeviceEntries) {
    toml.Fail("device", absl::StrCat("stands more than ", kMaxDeviceEntries, " times"),
              "use fewer");
  }
  ids.clear();
  for (TomlReader& host : toml.Tables("host")) tables.hosts.push_back(ReadHost(host, fabric, ids));
  if (tables.hosts.size() > kMaxHostEntries) {
    toml.Fail("host", absl::StrCat("stands more than ", kMaxHostEntries, " times"), "use fewer");
  }
  ids.clear();
  for (TomlReader& each : toml.Tables("switch")) tables.switches.push_back(ReadSwitch(each, ids));
  std::vector<TomlReader> links = toml.Tables("link");
  for (TomlReader& link : links) tables.links.push_back(ReadLink(link, tables.hosts));
  CheckTopology(toml, links, tables);
  return tables;
}

absl::StatusOr<TopologyTables> ParseTopologyFile(const std::string& text, const std::string& file) {
  auto toml = TomlReader::Parse(text, file);
  if (!toml.ok()) return toml.status();
  TopologyTables tables = ReadTopologyTables(*toml, kAnyFabric);
  // What else the manager's configuration may have (config.cc); test/docs_test.py holds the two
  // together.
  for (const char* others : {"log_level", "listen", "tls", "access", "metrics", "store", "fabric",
                             "audit", "placement", "sessions", "reconciler"}) {
    toml->LeaveAlone(others);
  }
  if (absl::Status status = toml->Finish(); !status.ok()) return status;
  return tables;
}

// An agent_uid that is not given stays away: 0 would be root.
v1::TopologyTables ToProto(const TopologyTables& tables) {
  v1::TopologyTables out;
  for (const DeviceEntry& in : tables.devices) {
    v1::TopologyTables::DeviceEntry& device = *out.add_devices();
    device.set_name(ResourceName("devices", in.id));
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
  for (const HostEntry& in : tables.hosts) {
    v1::TopologyTables::HostEntry& host = *out.add_hosts();
    host.set_name(ResourceName("hosts", in.id));
    v1::HostSettings& settings = *host.mutable_settings();
    settings.mutable_slots()->Add(in.slots.begin(), in.slots.end());
    if (in.agent_uid.has_value()) settings.set_agent_uid(*in.agent_uid);
    settings.set_qmp_socket(in.qmp_socket);
  }
  for (const SwitchEntry& in : tables.switches) {
    v1::TopologyTables::SwitchEntry& node = *out.add_switches();
    node.set_id(in.id);
    node.set_latency_ns(in.latency_ns);
    node.set_bandwidth_mib_per_second(in.bandwidth_mib_per_second);
    node.set_failure_domain(in.failure_domain);
  }
  for (const LinkEntry& in : tables.links) {
    v1::TopologyTables::LinkEntry& link = *out.add_links();
    link.set_from(in.a);
    link.set_to(in.b);
    link.set_latency_ns(in.latency_ns);
    link.set_bandwidth_mib_per_second(in.bandwidth_mib_per_second);
    link.mutable_slots()->Add(in.slots.begin(), in.slots.end());
  }
  return out;
}

}  // namespace cxlpool::fm
