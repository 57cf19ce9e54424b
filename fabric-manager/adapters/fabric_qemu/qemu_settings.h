// How the QEMU fabric is set up. Durations are limits; their defaults suit emulation under load.
#ifndef CXLPOOL_FABRIC_MANAGER_ADAPTERS_FABRIC_QEMU_QEMU_SETTINGS_H_
#define CXLPOOL_FABRIC_MANAGER_ADAPTERS_FABRIC_QEMU_QEMU_SETTINGS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "fabric-manager/ports/fabric_settings.h"
#include "fabric-manager/ports/fabric_shell.h"

namespace cxlpool::fm {

struct QemuDeviceConfig {
  std::string id;
  std::string serial;
  std::string path;  // A file of capacity_bytes or more; made by the operator (truncate -s).
  uint64_t capacity_bytes = 0;
  uint64_t granule_bytes = 256 << 20;  // Divides the capacity. Linux binds no less.
};

struct QemuHostConfig {
  std::string id;
  std::string qmp_socket;  // With no other client: a QMP socket serves one.
};

// Behind the name of a host's QMP socket: that of a second one, by which a manager takes the first
// from a former manager that has it still. Where QEMU has none, that one's end is waited for.
inline constexpr char kEvictSuffix[] = ".evict";

struct QemuFabricConfig;
// The devices and hosts that `tables` name, in place of those of `config`.
void SetParts(QemuFabricConfig& config, const TopologyTables& tables);

struct QemuTiming {
  absl::Duration operation = absl::Seconds(10);  // A Bind or BeginUnbind as a whole.
  absl::Duration patience = absl::Seconds(3);    // Of a Discover, with a QEMU that is slow.
  absl::Duration command = absl::Seconds(5);     // One QMP command.
  absl::Duration greeting = absl::Seconds(2);
  // By itself, unlike the first look, it evicts nobody, and would wait for the greeting.
  absl::Duration first_dial = absl::Milliseconds(100);
  absl::Duration evict = absl::Milliseconds(250);  // Without a greeting, another client is evicted.
  absl::Duration exit = absl::Seconds(5);          // From SIGKILL to the process' end.
  absl::Duration busy_retry = absl::Milliseconds(100);
  absl::Duration recheck = absl::Milliseconds(500);  // Of what somebody awaits.
  absl::Duration reconnect_min = absl::Milliseconds(50);
  absl::Duration reconnect_max = absl::Seconds(2);
};

struct QemuFabricConfig {
  std::vector<QemuDeviceConfig> devices;
  std::vector<QemuHostConfig> hosts;
  // Where earlier managers remembered which process each host was. Read where the pool's records do
  // not know it yet; nothing is written there. Empty: there is none.
  std::string state_directory;
  QemuTiming timing;
  FenceProgram fence = {};
};

// A FabricReader: of the driver's own key of [fabric], devices that are files and hosts that are
// QMP sockets.
FabricSettings ReadQemuFabric(TomlReader& fabric, const FenceProgram& fence);
// What the driver is opened with.
QemuFabricConfig ReadQemuConfig(TomlReader& fabric, const FenceProgram& fence);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_ADAPTERS_FABRIC_QEMU_QEMU_SETTINGS_H_
