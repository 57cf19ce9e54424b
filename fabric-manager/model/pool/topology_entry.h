// What the pool is made of, as an operator laid it down: devices, hosts, switches and links, with
// what the fabric driver has to know to find them. Each is a record of the pool, which only plans
// change (PlanTopology, ADR 30). The driver is given all of them (FabricDriver::Configure).
//
// An entry says where something is to be found. What the pool keeps about it is elsewhere: Device
// (model/pool/device.h) is made when the fabric shows the device for the first time, Host
// (model/pool/host.h) when the host is enrolled.
#ifndef CXLPOOL_FABRIC_MANAGER_MODEL_POOL_TOPOLOGY_ENTRY_H_
#define CXLPOOL_FABRIC_MANAGER_MODEL_POOL_TOPOLOGY_ENTRY_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "fabric-manager/model/pool/region.h"
#include "fabric-manager/model/pool/topology.h"

namespace cxlpool::fm {

struct DeviceEntry {
  std::string id;
  std::string serial;
  uint64_t capacity_bytes = 0;
  uint64_t granule_bytes = 256ull << 20;
  // Where the fabric finds it, in words of the driver's own (a file, HOST/NAME); may be empty.
  std::string path = {};
  // Its place: see TopologySpec::Device.
  uint32_t latency_ns = 0;
  uint32_t bandwidth_mib_per_second = 0;
  uint32_t heads = 0;
  std::string failure_domain = {};
  friend bool operator==(const DeviceEntry&, const DeviceEntry&) = default;
};

struct HostEntry {
  std::string id;
  // PCIe slots, in the order given. Empty where the fabric itself says which there are.
  std::vector<uint32_t> slots = {};
  std::optional<uint32_t> agent_uid = {};  // Its agent's user, who owns the fabric's files of it.
  std::string qmp_socket = {};             // Where the QEMU that is this host answers.
  friend bool operator==(const HostEntry&, const HostEntry&) = default;
};

using SwitchEntry = TopologySpec::Switch;
using LinkEntry = TopologySpec::Link;

// That the configuration's tables were taken in, so that they are not taken in again.
struct TopologyImport {
  std::string source;  // For people: the file.
  friend bool operator==(const TopologyImport&, const TopologyImport&) = default;
};

// One record. Durable.
struct TopologyEntry {
  Key key = 0;
  std::variant<DeviceEntry, HostEntry, SwitchEntry, LinkEntry, TopologyImport> what;
  friend bool operator==(const TopologyEntry&, const TopologyEntry&) = default;
};

// "device cmm-0", "link host-a - sw0", ...: for people. Links may have the name of another link.
std::string NameOf(const TopologyEntry& entry);

// All of it, as the tables of a file have it.
struct TopologyTables {
  std::vector<DeviceEntry> devices;
  std::vector<HostEntry> hosts;
  std::vector<SwitchEntry> switches;
  std::vector<LinkEntry> links;
  friend bool operator==(const TopologyTables&, const TopologyTables&) = default;
};

void AddTo(TopologyTables& tables, const TopologyEntry& entry);  // An import is no part of them.
// Takes these devices out, and the links to them.
void EraseDevices(TopologyTables& tables, const std::set<std::string>& ids);

// For Topology::Create.
TopologySpec SpecOf(const TopologyTables& tables);

// Limits of docs/configuration.md.
inline constexpr size_t kMaxSlotsOfHost = 256;
inline constexpr uint32_t kMaxSlotNumber = 8191;  // PCIe Slot Capabilities, 13 bits.
inline constexpr size_t kMaxSocketPath = 107;     // sockaddr_un.
inline constexpr size_t kMaxDeviceEntries = 4096;
inline constexpr size_t kMaxHostEntries = 4096;

// What is wrong with one key of an entry. `key` is its name in a file ("granule", "qmp"), and
// `what` is said of it ("is not a power of two").
struct BadKey {
  std::string key;
  std::string what;
  std::string remedy;
};

// What one fabric driver wants of the entries. The driver itself says so when it has read its
// configuration (ports/fabric_settings.h), and the model knows no driver by name.
struct FabricRules {
  // Whether it uses DeviceEntry::path, and slots, agent_uid and qmp_socket of HostEntry. What it
  // does not use has to be left out.
  bool path = false;
  bool slots = false;
  bool uid = false;
  bool qmp = false;
  // What else it finds wrong with an entry that has nothing but what it uses. Null: nothing.
  std::optional<BadKey> (*check_device)(const DeviceEntry& device) = nullptr;
  std::optional<BadKey> (*check_host)(const HostEntry& host) = nullptr;
};

// For a file whose pool may have any driver: each field may be there. The manager that is given
// the file judges it by the rules of its own driver.
inline constexpr FabricRules kAnyFabric = {.path = true, .slots = true, .uid = true, .qmp = true};

// The first thing that is wrong with an entry by itself, but for its id: what no fabric could use,
// and what this one cannot.
std::optional<BadKey> CheckEntry(const DeviceEntry& device, const FabricRules& fabric);
std::optional<BadKey> CheckEntry(const HostEntry& host, const FabricRules& fabric);

// Whether the driver can find everything by what the tables say, and whether they go together.
// INVALID_ARGUMENT/BAD_TOPOLOGY (metadata entry: the one at fault), as Topology::Create.
absl::Status CheckTables(const TopologyTables& tables, const FabricRules& fabric);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_MODEL_POOL_TOPOLOGY_ENTRY_H_
