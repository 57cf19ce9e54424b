#include "fabric-manager/adapters/fabric_shared/shared_backend.h"
#include "proto/support/names.h"
#include "proto/support/toml_reader.h"

namespace cxlpool::fm {
namespace {

constexpr size_t kMaxPath = 320;  // HOST/NAME.

// A device without a path has its mark already.
std::optional<BadKey> CheckDevice(const DeviceEntry& device) {
  const size_t slash = device.path.find('/');
  if (device.path.empty() ||
      (slash != std::string::npos && slash + 1 < device.path.size() &&
       device.path.size() <= kMaxPath && CheckResourceId(device.path.substr(0, slash)).ok())) {
    return std::nullopt;
  }
  return BadKey{"path", "is not HOST/NAME",
                "name the host that is to mark it and what that host calls it, or leave it out"};
}

}  // namespace

SharedFabricConfig ReadSharedConfig(TomlReader& fabric, const FenceProgram& fence) {
  SharedFabricConfig config;
  config.state_directory = fabric.AbsolutePath("state");
  config.coherent = fabric.Bool("coherent", false);
  config.fence = fence;
  return config;
}

FabricSettings ReadSharedFabric(TomlReader& fabric, const FenceProgram& fence) {
  const SharedFabricConfig config = ReadSharedConfig(fabric, fence);
  return {.rules = {.path = true, .check_device = CheckDevice},
          .claims_hosts = true,
          .directories = {{"state", config.state_directory}},
          .open = [config](AgentTasks* tasks) { return SharedBackend::Open(config, tasks); }};
}

}  // namespace cxlpool::fm
