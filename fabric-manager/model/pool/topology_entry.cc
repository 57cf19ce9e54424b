#include "fabric-manager/model/pool/topology_entry.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "proto/support/mutant.h"
#include "proto/support/names.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

absl::Status Bad(const std::string& entry, const std::string& what, const std::string& remedy) {
  return Refuse(absl::StatusCode::kInvalidArgument, "BAD_TOPOLOGY",
                absl::StrCat("topology: ", entry, " ", what), remedy, {{"entry", entry}});
}

// An id that nobody else of its kind has.
absl::Status CheckId(const std::string& kind, const std::string& id, std::set<std::string>& seen) {
  if (absl::Status status = CheckResourceId(id); !status.ok()) return status;
  if (seen.insert(id).second) return absl::OkStatus();
  return Bad(absl::StrCat(kind, " ", id), "stands there twice", "give each an id of its own");
}

BadKey NotUsed(const char* key, const char* noun) {
  return {key, "is not used by this pool's fabric", absl::StrCat("leave the ", noun, " out")};
}

// As the manager says it where there is no file, and so no line, to name.
absl::Status Bad(const std::string& entry, const BadKey& bad) {
  return Bad(absl::StrCat(entry, ":"), absl::StrCat(bad.key, " ", bad.what), bad.remedy);
}

// The slots of a link are slots of its host. Where the host's entry has none, the fabric says which
// there are.
absl::Status CheckLinkSlots(const TopologyTables& tables) {
  std::map<std::string, const HostEntry*> hosts;
  for (const HostEntry& host : tables.hosts) hosts[host.id] = &host;
  for (const LinkEntry& link : tables.links) {
    auto host = hosts.find(link.a);
    if (host == hosts.end()) host = hosts.find(link.b);
    if (host == hosts.end() || host->second->slots.empty()) continue;
    const std::vector<uint32_t>& own = host->second->slots;
    for (const uint32_t slot : link.slots) {
      if (std::find(own.begin(), own.end(), slot) != own.end()) continue;
      return Bad(absl::StrCat("link ", link.a, " - ", link.b),
                 absl::StrCat("has slot ", slot, ", which the host does not have"),
                 "use slots of its host");
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::string NameOf(const TopologyEntry& entry) {
  struct Visitor {
    std::string operator()(const DeviceEntry& e) const { return absl::StrCat("device ", e.id); }
    std::string operator()(const HostEntry& e) const { return absl::StrCat("host ", e.id); }
    std::string operator()(const SwitchEntry& e) const { return absl::StrCat("switch ", e.id); }
    std::string operator()(const LinkEntry& e) const {
      return absl::StrCat("link ", e.a, " - ", e.b);
    }
    std::string operator()(const TopologyImport&) const { return "import"; }
  };
  return std::visit(Visitor{}, entry.what);
}

void AddTo(TopologyTables& tables, const TopologyEntry& entry) {
  struct Visitor {
    TopologyTables& tables;
    void operator()(const DeviceEntry& e) const { tables.devices.push_back(e); }
    void operator()(const HostEntry& e) const { tables.hosts.push_back(e); }
    void operator()(const SwitchEntry& e) const { tables.switches.push_back(e); }
    void operator()(const LinkEntry& e) const { tables.links.push_back(e); }
    void operator()(const TopologyImport&) const {}
  };
  std::visit(Visitor{tables}, entry.what);
}

void EraseDevices(TopologyTables& tables, const std::set<std::string>& ids) {
  if (ids.empty()) return;
  std::erase_if(tables.devices, [&](const DeviceEntry& entry) { return ids.contains(entry.id); });
  std::erase_if(tables.links, [&](const LinkEntry& link) {
    return ids.contains(link.a) || ids.contains(link.b);
  });
}

TopologySpec SpecOf(const TopologyTables& tables) {
  TopologySpec spec;
  for (const DeviceEntry& device : tables.devices) {
    spec.devices.push_back({device.id, device.latency_ns, device.bandwidth_mib_per_second,
                            device.heads, device.failure_domain});
  }
  // Without links everybody reaches everything, and there may be more hosts than ways are kept of.
  if (!tables.links.empty()) {
    for (const HostEntry& host : tables.hosts) spec.hosts.push_back(host.id);
  }
  spec.switches = tables.switches;
  spec.links = tables.links;
  return spec;
}

// The driver is asked last, about a device that has a size and no field that the driver does not
// use.
std::optional<BadKey> CheckEntry(const DeviceEntry& device, const FabricRules& fabric) {
  if (device.serial.empty()) return BadKey{"serial", "is empty", "give it one"};
  const uint64_t granule = device.granule_bytes;
  if (granule == 0 || (granule & (granule - 1)) != 0) {
    return BadKey{"granule", "is not a power of two", "write a size like \"256MiB\""};
  }
  if (device.capacity_bytes == 0 || device.capacity_bytes % granule != 0) {
    return BadKey{"capacity", "is not a multiple of the granule",
                  absl::StrCat("use a multiple of ", granule, " bytes")};
  }
  if (!device.failure_domain.empty() && !CheckResourceId(device.failure_domain).ok()) {
    return BadKey{"failure_domain", "is not well formed",
                  "use 1 to 63 of a-z, 0-9 and '-', a letter first"};
  }
  if (!fabric.path && !device.path.empty()) return NotUsed("path", "path");
  if (fabric.check_device == nullptr || CXLPOOL_MUTANT("fabric-check-is-left-out")) return {};
  return fabric.check_device(device);
}

// Limits of slots, user and socket hold on every fabric. That a host has to have one of them is its
// driver's to say.
std::optional<BadKey> CheckEntry(const HostEntry& host, const FabricRules& fabric) {
  if (!fabric.slots && !host.slots.empty()) return NotUsed("slots", "slots");
  if (!fabric.uid && host.agent_uid.has_value()) return NotUsed("uid", "user id");
  if (!fabric.qmp && !host.qmp_socket.empty()) return NotUsed("qmp", "QMP socket");
  const std::set<uint32_t> slots(host.slots.begin(), host.slots.end());
  if (slots.size() != host.slots.size() || slots.size() > kMaxSlotsOfHost ||
      (!slots.empty() && *slots.rbegin() > kMaxSlotNumber)) {
    return BadKey{"slots",
                  absl::StrCat("does not hold at most ", kMaxSlotsOfHost,
                               " different numbers from 0 to ", kMaxSlotNumber),
                  "give its PCIe slot numbers, each once"};
  }
  // The greatest number is nobody's: chown() takes it for "leave the owner as it is".
  if (host.agent_uid == std::numeric_limits<uint32_t>::max()) {
    return BadKey{"uid", "is no user id", "write the agent's numeric user id"};
  }
  if (!host.qmp_socket.empty() && host.qmp_socket[0] != '/') {
    return BadKey{"qmp", "is no absolute path", "write it in full, from the first /"};
  }
  if (host.qmp_socket.size() > kMaxSocketPath) {
    return BadKey{"qmp", absl::StrCat("is longer than ", kMaxSocketPath, " bytes"),
                  "move the socket to a shorter path"};
  }
  return fabric.check_host == nullptr ? std::nullopt : fabric.check_host(host);
}

// All tables together: each entry by itself, ids and files that only one may have, the slots of
// links, and that the ways between them can be found.
absl::Status CheckTables(const TopologyTables& tables, const FabricRules& fabric) {
  if (tables.devices.size() > kMaxDeviceEntries || tables.hosts.size() > kMaxHostEntries) {
    return Bad("it", "has more than 4096 devices or hosts", "split the pool in two");
  }
  std::set<std::string> devices, hosts, switches, files;
  for (const DeviceEntry& device : tables.devices) {
    const std::string entry = absl::StrCat("device ", device.id);
    if (absl::Status status = CheckId("device", device.id, devices); !status.ok()) return status;
    if (const auto bad = CheckEntry(device, fabric)) return Bad(entry, *bad);
    if (!device.path.empty() && !files.insert(device.path).second) {
      return Bad(entry, "has the path of another device", "give each device a path of its own");
    }
  }
  for (const HostEntry& host : tables.hosts) {
    const std::string entry = absl::StrCat("host ", host.id);
    if (absl::Status status = CheckId("host", host.id, hosts); !status.ok()) return status;
    if (const auto bad = CheckEntry(host, fabric)) return Bad(entry, *bad);
    if (!host.qmp_socket.empty() && !files.insert(host.qmp_socket).second) {
      return Bad(entry, "has the QMP socket of another host", "give each host a socket of its own");
    }
  }
  for (const SwitchEntry& node : tables.switches) {
    if (absl::Status status = CheckId("switch", node.id, switches); !status.ok()) return status;
  }
  if (absl::Status status = CheckLinkSlots(tables); !status.ok()) return status;
  return Topology::Create(SpecOf(tables)).status();
}

}  // namespace cxlpool::fm
