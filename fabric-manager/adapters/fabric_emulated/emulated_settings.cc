#include "fabric-manager/adapters/fabric_emulated/emulated_fabric.h"
#include "proto/support/toml_reader.h"

namespace cxlpool::fm {
namespace {

std::optional<BadKey> CheckHost(const HostEntry& host) {
  if (!host.slots.empty()) return std::nullopt;
  return BadKey{"slots", "is missing", "give its PCIe slot numbers, as in [1, 2]"};
}

}  // namespace

EmulatedFabricConfig ReadEmulatedConfig(TomlReader& fabric, const FenceProgram& fence) {
  EmulatedFabricConfig config;
  config.root_directory = fabric.AbsolutePath("root");
  config.fence = fence;
  return config;
}

FabricSettings ReadEmulatedFabric(TomlReader& fabric, const FenceProgram& fence) {
  const EmulatedFabricConfig config = ReadEmulatedConfig(fabric, fence);
  return {.rules = {.slots = true, .uid = true, .check_host = CheckHost},
          .claims_hosts = true,
          .directories = {{"root", config.root_directory, /*parents=*/true}},
          .open = [config](AgentTasks*) { return EmulatedFabric::Open(config); }};
}

}  // namespace cxlpool::fm
