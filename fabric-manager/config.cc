#include "fabric-manager/config.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "proto/support/names.h"
#include "proto/support/refusal.h"
#include "proto/support/toml_reader.h"

namespace cxlpool::fm {
namespace {

constexpr size_t kMaxDevices = 4096;
constexpr size_t kMaxHosts = 4096;
constexpr size_t kMaxSlots = 256;
constexpr uint64_t kMaxSlotNumber = 8191;  // PCIe Slot Capabilities, 13 bits.

constexpr uint64_t kMaxFigure = 1'000'000'000;  // Nanoseconds, or MiB a second.
constexpr uint32_t kMaxHeads = 256;
constexpr size_t kMaxSocketPath = 107;  // sockaddr_un.

// Shorter ones keep the manager busy with itself; longer ones are as good as never.
constexpr absl::Duration kMinHeartbeat = absl::Milliseconds(50), kMaxHeartbeat = absl::Minutes(1);
constexpr absl::Duration kMaxLease = absl::Hours(1);
constexpr absl::Duration kMinAttachTimeout = absl::Seconds(1), kMaxAttachTimeout = absl::Hours(1);
constexpr absl::Duration kMinFence = absl::Seconds(1), kMaxFence = absl::Minutes(10);
constexpr absl::Duration kMinDiscover = absl::Milliseconds(100), kMaxDiscover = absl::Hours(1);

std::string ReadId(TomlReader& toml, std::set<std::string>& seen) {
  std::string id = toml.String("id");
  if (!id.empty() && !CheckResourceId(id).ok()) {
    toml.Fail("id", "is not well formed", "use 1 to 63 of a-z, 0-9 and '-', a letter first");
  }
  if (!seen.insert(id).second) toml.Fail("id", "stands twice", "give each its own");
  return id;
}

FmConfig::Device ReadDevice(TomlReader& toml, bool qemu, std::set<std::string>& seen) {
  FmConfig::Device device;
  device.id = ReadId(toml, seen);
  device.serial = toml.String("serial", device.id);
  device.capacity_bytes = toml.Size("capacity");
  device.granule_bytes = toml.Size("granule", device.granule_bytes);
  if (device.granule_bytes == 0 || (device.granule_bytes & (device.granule_bytes - 1)) != 0) {
    toml.Fail("granule", "is not a power of two", "write a size like \"256MiB\"");
  } else if (device.capacity_bytes == 0 || device.capacity_bytes % device.granule_bytes != 0) {
    toml.Fail("capacity", "is not a multiple of the granule",
              absl::StrCat("use a multiple of ", device.granule_bytes, " bytes"));
  }
  if (qemu) device.path = toml.AbsolutePath("path");
  return device;
}

FmConfig::Host ReadHost(TomlReader& toml, bool qemu, std::set<std::string>& seen) {
  FmConfig::Host host;
  host.id = ReadId(toml, seen);
  if (qemu) {
    host.qmp = toml.AbsolutePath("qmp");
    if (host.qmp.size() > kMaxSocketPath) {
      toml.Fail("qmp", absl::StrCat("is longer than ", kMaxSocketPath, " bytes"),
                "move the socket to a shorter path");
    }
    return host;
  }
  std::set<uint64_t> slots;
  for (uint64_t slot : toml.Numbers("slots")) {
    if (slot > kMaxSlotNumber || !slots.insert(slot).second) {
      toml.Fail("slots", absl::StrCat("holds ", slot, " twice, or it is no PCIe slot number"),
                absl::StrCat("use different numbers from 0 to ", kMaxSlotNumber));
    }
    host.slots.push_back(static_cast<uint32_t>(slot));
  }
  if (host.slots.empty() || host.slots.size() > kMaxSlots) {
    toml.Fail("slots", absl::StrCat("needs 1 to ", kMaxSlots, " slots"), "write [1, 2]");
  }
  if (toml.Has("uid")) {
    const uint64_t uid = toml.Number("uid");
    if (uid >= std::numeric_limits<uint32_t>::max()) {
      toml.Fail("uid", "is no user id", "write the agent's numeric user id");
    }
    host.uid = static_cast<uint32_t>(uid);
  }
  return host;
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

TopologySpec::Switch ReadSwitch(TomlReader& toml, std::set<std::string>& seen) {
  TopologySpec::Switch out;
  out.id = ReadId(toml, seen);
  out.latency_ns = NumberIn(toml, "latency_ns", kMaxFigure);
  out.bandwidth_mib_per_second = NumberIn(toml, "bandwidth_mib", kMaxFigure);
  out.failure_domain = ReadDomain(toml);
  return out;
}

// What a [[device]] says of its place.
TopologySpec::Device ReadPlace(TomlReader& toml, const std::string& id) {
  TopologySpec::Device out;
  out.id = id;
  out.latency_ns = NumberIn(toml, "latency_ns", kMaxFigure);
  out.bandwidth_mib_per_second = NumberIn(toml, "bandwidth_mib", kMaxFigure);
  out.heads = NumberIn(toml, "heads", kMaxHeads);
  out.failure_domain = ReadDomain(toml);
  return out;
}

TopologySpec::Link ReadLink(TomlReader& toml, const FmConfig& config) {
  TopologySpec::Link link;
  link.a = toml.String("from");
  link.b = toml.String("to");
  link.latency_ns = NumberIn(toml, "latency_ns", kMaxFigure);
  link.bandwidth_mib_per_second = NumberIn(toml, "bandwidth_mib", kMaxFigure);
  if (!toml.Has("slots")) return link;
  const auto host = std::find_if(
      config.hosts.begin(), config.hosts.end(),
      [&](const FmConfig::Host& each) { return each.id == link.a || each.id == link.b; });
  // On QEMU the machine says which slots there are.
  const bool any = host == config.hosts.end() || host->slots.empty();
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

// How many of the links, from the first, it takes for the topology to be refused.
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

// Switches and links, on top of `spec.devices`.
void ReadTopology(TomlReader& toml, FmConfig& config, TopologySpec spec) {
  std::set<std::string> ids;
  for (TomlReader& each : toml.Tables("switch")) spec.switches.push_back(ReadSwitch(each, ids));
  std::vector<TomlReader> links = toml.Tables("link");
  for (TomlReader& link : links) spec.links.push_back(ReadLink(link, config));
  if (!links.empty()) {
    for (const auto& host : config.hosts) spec.hosts.push_back(host.id);
  }
  auto topology = Topology::Create(spec);
  if (topology.ok()) {
    config.topology = *std::move(topology);
    return;
  }
  const size_t link = LinksToRefusal(spec);
  spec.links.resize(link);
  const auto refusal = RefusalOf(Topology::Create(spec).status()).value_or(Refusal{});
  if (link == 0) {
    toml.Fail("link", absl::StrCat("makes no ", refusal.message), refusal.remedy);
  } else {
    links[link - 1].Fail("to", absl::StrCat("makes no ", refusal.message), refusal.remedy);
  }
}

void ReadTls(TomlReader tls, FmConfig& config) {
  config.tls = FmConfig::Tls{tls.AbsolutePath("ca"), tls.AbsolutePath("cert"),
                             tls.AbsolutePath("key"), tls.String("server_name", "fm.cxlpool")};
  for (const char* key : {"ca", "cert", "key"}) {
    config.where[absl::StrCat("tls.", key)] = tls.Where(key);
  }
}

Policy ReadPolicy(TomlReader& toml) {
  const std::string word = toml.String("default", "pack");
  std::string known;
  for (const Policy policy :
       {Policy::kPack, Policy::kSpread, Policy::kBandwidth, Policy::kLatency, Policy::kIsolate}) {
    const std::string name = absl::AsciiStrToLower(ToString(policy));
    if (word == name) return policy;
    absl::StrAppend(&known, known.empty() ? "\"" : ", \"", name, "\"");
  }
  toml.Fail("default", "is no placement policy", absl::StrCat("write one of ", known));
  return Policy::kPack;
}

}  // namespace

absl::StatusOr<FmConfig> ParseFmConfig(const std::string& text, const std::string& file) {
  auto toml = TomlReader::Parse(text, file);
  if (!toml.ok()) return toml.status();
  FmConfig config;
  for (TomlReader& listen : toml->Tables("listen")) {
    const bool insecure = listen.Bool("insecure", false);
    config.listen.push_back({listen.AddressText("address", insecure), insecure});
    if (!insecure && !toml->Has("tls")) {
      listen.Fail("address", "needs TLS, and there is no [tls]",
                  "add [tls] with ca, cert and key (`cxlpool pki issue manager fm` makes them), or "
                  "insecure = true for "
                  "a Unix socket or a loopback address");
    }
  }
  if (config.listen.empty()) toml->Fail("listen", "is missing", "add a [[listen]] with an address");
  if (toml->Has("tls")) ReadTls(toml->Table("tls"), config);

  TomlReader store = toml->Table("store");
  const std::string kind = store.String("kind", "sqlite");
  if (kind == "sqlite") {
    config.store_path = store.AbsolutePath("path");
    config.where["store.path"] = store.Where("path");
  } else if (kind == "memory") {
    config.store = FmConfig::StoreKind::kMemory;
  } else {
    store.Fail("kind", "is no store", "write \"sqlite\" or \"memory\"");
  }

  TomlReader fabric = toml->Table("fabric");
  const std::string driver = fabric.String("driver");
  if (driver == "emulated") {
    config.emulated_root = fabric.AbsolutePath("root");
    config.where["fabric.root"] = fabric.Where("root");
  } else if (driver == "qemu") {
    config.driver = FmConfig::Driver::kQemu;
    config.qemu_state = fabric.AbsolutePath("state", "");
    config.where["fabric.state"] = fabric.Where("state");
  } else {
    fabric.Fail("driver", "is no fabric driver", "write \"emulated\" or \"qemu\"");
  }
  config.fence_program = fabric.AbsolutePath("fence_program", "");
  if (!config.fence_program.empty()) {
    config.where["fabric.fence_program"] = fabric.Where("fence_program");
  }
  config.fence_timeout =
      fabric.DurationIn("fence_timeout", config.fence_timeout, kMinFence, kMaxFence);
  const bool qemu = config.driver == FmConfig::Driver::kQemu;
  std::set<std::string> ids;
  TopologySpec topology;
  for (TomlReader& device : toml->Tables("device")) {
    config.devices.push_back(ReadDevice(device, qemu, ids));
    topology.devices.push_back(ReadPlace(device, config.devices.back().id));
  }
  if (config.devices.empty() || config.devices.size() > kMaxDevices) {
    toml->Fail("device", absl::StrCat("needs 1 to ", kMaxDevices), "add a [[device]]");
  }
  ids.clear();
  for (TomlReader& host : toml->Tables("host")) {
    config.hosts.push_back(ReadHost(host, qemu, ids));
  }
  if (config.hosts.size() > kMaxHosts) {
    toml->Fail("host", absl::StrCat("stands more than ", kMaxHosts, " times"), "use fewer");
  }
  ReadTopology(*toml, config, std::move(topology));
  TomlReader placement = toml->Table("placement");
  config.default_policy = ReadPolicy(placement);

  TomlReader sessions = toml->Table("sessions");
  config.heartbeat =
      sessions.DurationIn("heartbeat", config.heartbeat, kMinHeartbeat, kMaxHeartbeat);
  config.lease = sessions.DurationIn("lease", config.lease, 2 * kMinHeartbeat, kMaxLease);
  if (config.lease < 2 * config.heartbeat) {
    sessions.Fail("lease", "is shorter than two heartbeats", "make it longer");
  }
  TomlReader reconciler = toml->Table("reconciler");
  config.attach_timeout = reconciler.DurationIn("attach_timeout", config.attach_timeout,
                                                kMinAttachTimeout, kMaxAttachTimeout);
  config.discover_period =
      reconciler.DurationIn("discover_period", config.discover_period, kMinDiscover, kMaxDiscover);
  if (absl::Status status = toml->Finish(); !status.ok()) return status;
  return config;
}

absl::StatusOr<FmConfig> LoadFmConfig(const std::string& file) {
  auto text = ReadConfigFile(file);
  if (!text.ok()) return text.status();
  return ParseFmConfig(*text, file);
}

}  // namespace cxlpool::fm
