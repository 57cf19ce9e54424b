// How the emulated fabric is configured: by its own key of [fabric], and with hosts that have
// slots.
#ifndef CXLPOOL_FABRIC_MANAGER_ADAPTERS_FABRIC_EMULATED_EMULATED_SETTINGS_H_
#define CXLPOOL_FABRIC_MANAGER_ADAPTERS_FABRIC_EMULATED_EMULATED_SETTINGS_H_

#include "fabric-manager/adapters/fabric_emulated/emulated_fabric.h"
#include "fabric-manager/ports/fabric_settings.h"

namespace cxlpool::fm {

// A FabricReader.
FabricSettings ReadEmulatedFabric(TomlReader& fabric, const FenceProgram& fence);

// What the driver is opened with.
EmulatedFabricConfig ReadEmulatedConfig(TomlReader& fabric, const FenceProgram& fence);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_ADAPTERS_FABRIC_EMULATED_EMULATED_SETTINGS_H_
