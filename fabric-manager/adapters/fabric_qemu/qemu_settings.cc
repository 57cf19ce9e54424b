#include "fabric-manager/adapters/fabric_qemu/qemu_settings.h"

#include "fabric-manager/adapters/fabric_qemu/qemu_fabric.h"
#include "proto/support/toml_reader.h"

namespace cxlpool::fm {
namespace {

std::optional<BadKey> CheckDevice(const DeviceEntry& device) {
  if (device.path.empty()) return BadKey{"path", "is missing", "name the device's pool file"};
  if (device.path[0] == '/') return std::nullopt;
  return BadKey{"path", "is no absolute path", "write it in full, from the first /"};
}

std::optional<BadKey> CheckHost(const HostEntry& host) {
  if (!host.qmp_socket.empty()) return std::nullopt;
  return BadKey{"qmp", "is missing", "name the host's QMP socket"};
}

}  // namespace

QemuFabricConfig ReadQemuConfig(TomlReader& fabric, const FenceProgram& fence) {
  QemuFabricConfig config;
  config.state_directory = fabric.AbsolutePath("state", "");
  config.fence = fence;
  return config;
}

FabricSettings ReadQemuFabric(TomlReader& fabric, const FenceProgram& fence) {
  const QemuFabricConfig config = ReadQemuConfig(fabric, fence);
  std::vector<FabricSettings::Directory> directories;
  if (!config.state_directory.empty()) directories.push_back({"state", config.state_directory});
  return {
      .rules = {.path = true, .qmp = true, .check_device = CheckDevice, .check_host = CheckHost},
      .claims_hosts = true,
      .directories = directories,
      .open = [config](AgentTasks*) { return QemuFabric::Open(config); }};
}

}  // namespace cxlpool::fm
