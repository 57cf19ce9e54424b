#include "fabric-manager/model/pool/topology_entry.h"

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
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

absl::Status CheckPath(const std::string& entry, const std::string& what, const std::string& path) {
  if (absl::StartsWith(path, "/")) return absl::OkStatus();
  return Bad(entry, absl::StrCat("needs ", what, ", an absolute path"),
             absl::StrCat("give it ", what));
}

// What a person may have written wrong of one device: the first thing, with the remedy. A path
// means another thing to each fabric: a pool file, HOST/NAME, or nothing.
absl::Status CheckDevice(const DeviceEntry& device, FabricKind fabric) {
  const std::string entry = absl::StrCat("device ", device.id);
  if (device.serial.empty()) return Bad(entry, "has no serial number", "give it one");
  const uint64_t granule = device.granule_bytes;
  if (granule == 0 || (granule & (granule - 1)) != 0) {
    return Bad(entry, "has a granule that is not a power of two", "use a size like 256MiB");
  }
  if (device.capacity_bytes == 0 || device.capacity_bytes % granule != 0) {
    return Bad(entry, "has a capacity that is not a multiple of its granule",
               absl::StrCat("use a multiple of ", granule, " bytes"));
  }
  if (!device.failure_domain.empty() && !CheckResourceId(device.failure_domain).ok()) {
    return Bad(entry, "has a failure domain that is not well formed",
               "use 1 to 63 of a-z, 0-9 and '-', a letter first");
  }
  if (fabric == FabricKind::kQemu) return CheckPath(entry, "its pool file (path)", device.path);
  if (device.path.empty()) return absl::OkStatus();
  if (fabric == FabricKind::kShared) {
    const size_t slash = device.path.find('/');
    if (slash != std::string::npos && slash + 1 < device.path.size() &&
        device.path.size() <= kMaxSharedPath &&
        CheckResourceId(device.path.substr(0, slash)).ok()) {
      return absl::OkStatus();
    }
    return Bad(entry, "has a path that is not HOST/NAME",
               "name the host that is to mark it and what that host calls it, or leave it out");
  }
  return Bad(entry, "has a path, which this pool's fabric does not use", "leave the path out");
}

// Likewise of one host. Slots are given where neither QEMU nor the agent says them, a QMP socket
// only for QEMU.
absl::Status CheckHost(const HostEntry& host, FabricKind fabric) {
  const std::string entry = absl::StrCat("host ", host.id);
  if (fabric == FabricKind::kQemu) {
    if (!host.slots.empty() || host.agent_uid.has_value()) {
      return Bad(entry, "has slots or a uid, and QEMU itself says which slots there are",
                 "leave them out");
    }
    if (host.qmp_socket.size() > kMaxSocketPath) {
      return Bad(entry, absl::StrCat("has a QMP socket of more than ", kMaxSocketPath, " bytes"),
                 "move the socket to a shorter path");
    }
    return CheckPath(entry, "its QMP socket (qmp)", host.qmp_socket);
  }
  if (!host.qmp_socket.empty()) {
    return Bad(entry, "has a QMP socket, which this pool's fabric does not use",
               "leave the socket out");
  }
  if (fabric == FabricKind::kShared) {
    if (host.slots.empty() && !host.agent_uid.has_value()) return absl::OkStatus();
    return Bad(entry, "has slots or a uid, and on shared devices there are none", "leave them out");
  }
  const std::set<uint32_t> slots(host.slots.begin(), host.slots.end());
  if (slots.empty() || slots.size() != host.slots.size() || slots.size() > kMaxSlotsOfHost ||
      *slots.rbegin() > kMaxSlotNumber) {
    return Bad(entry, "does not have 1 to 256 different slots from 0 to 8191",
               "give its PCIe slot numbers, each once");
  }
  return absl::OkStatus();
}

// The slots of a link are slots of its host. On QEMU the machine says which slots there are.
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

FabricKind KindOf(absl::string_view driver) {
  return driver == "qemu"     ? FabricKind::kQemu
         : driver == "shared" ? FabricKind::kShared
                              : FabricKind::kEmulated;
}

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

// All tables together: each entry by itself, ids and files that only one may have, the slots of
// links, and that the ways between them can be found.
absl::Status CheckTables(const TopologyTables& tables, FabricKind fabric) {
  if (tables.devices.size() > kMaxDeviceEntries || tables.hosts.size() > kMaxHostEntries) {
    return Bad("it", "has more than 4096 devices or hosts", "split the pool in two");
  }
  std::set<std::string> devices, hosts, switches, files;
  for (const DeviceEntry& device : tables.devices) {
    absl::Status status = CheckId("device", device.id, devices);
    if (status.ok()) status = CheckDevice(device, fabric);
    if (!status.ok()) return status;
    if (!device.path.empty() && !files.insert(device.path).second) {
      return Bad(absl::StrCat("device ", device.id), "has the pool file of another device",
                 "give each device a file of its own");
    }
  }
  for (const HostEntry& host : tables.hosts) {
    absl::Status status = CheckId("host", host.id, hosts);
    if (status.ok()) status = CheckHost(host, fabric);
    if (!status.ok()) return status;
    if (!host.qmp_socket.empty() && !files.insert(host.qmp_socket).second) {
      return Bad(absl::StrCat("host ", host.id), "has the QMP socket of another host",
                 "give each host a socket of its own");
    }
  }
  for (const SwitchEntry& node : tables.switches) {
    if (absl::Status status = CheckId("switch", node.id, switches); !status.ok()) return status;
  }
  if (absl::Status status = CheckLinkSlots(tables); !status.ok()) return status;
  return Topology::Create(SpecOf(tables)).status();
}

}  // namespace cxlpool::fm
