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
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "fabric-manager/model/pool/region.h"
#include "fabric-manager/model/pool/topology.h"

namespace cxlpool::fm {

struct DeviceEntry {
  std::string id;
  std::string serial;
  uint64_t capacity_bytes = 0;
  uint64_t granule_bytes = 256ull << 20;
  // Driver qemu: the pool file. Driver shared: HOST/NAME, which host is to mark which device of its
  // own as this one, where nobody shows its mark; may be empty.
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
  std::vector<uint32_t> slots = {};        // Driver emulated: PCIe slots, in the order given.
  std::optional<uint32_t> agent_uid = {};  // Driver emulated.
  std::string qmp_socket = {};             // Driver qemu.
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

// For Topology::Create.
TopologySpec SpecOf(const TopologyTables& tables);

// What the drivers want to know of an entry. Limits are those of docs/configuration.md.
enum class FabricKind { kEmulated, kQemu, kShared };
FabricKind KindOf(absl::string_view driver);  // As FabricCapabilities::driver; emulated: any other.

inline constexpr size_t kMaxSlotsOfHost = 256;
inline constexpr uint32_t kMaxSlotNumber = 8191;  // PCIe Slot Capabilities, 13 bits.
inline constexpr size_t kMaxSocketPath = 107;     // sockaddr_un.
inline constexpr size_t kMaxSharedPath = 320;     // HOST/NAME.
inline constexpr size_t kMaxDeviceEntries = 4096;
inline constexpr size_t kMaxHostEntries = 4096;

// Whether the driver can find everything by what the tables say, and whether they go together.
// INVALID_ARGUMENT/BAD_TOPOLOGY (metadata entry: the one at fault), as Topology::Create.
absl::Status CheckTables(const TopologyTables& tables, FabricKind fabric);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_MODEL_POOL_TOPOLOGY_ENTRY_H_
