// How the fabric of shared devices is configured: by its own keys of [fabric], and with devices
// that say at most which host is to mark which device of its own (HOST/NAME).
#ifndef CXLPOOL_FABRIC_MANAGER_ADAPTERS_FABRIC_SHARED_SHARED_SETTINGS_H_
#define CXLPOOL_FABRIC_MANAGER_ADAPTERS_FABRIC_SHARED_SHARED_SETTINGS_H_

#include "fabric-manager/adapters/fabric_shared/shared_backend.h"
#include "fabric-manager/ports/fabric_settings.h"

namespace cxlpool::fm {

// A FabricReader.
FabricSettings ReadSharedFabric(TomlReader& fabric, const FenceProgram& fence);

// What the driver is opened with.
SharedFabricConfig ReadSharedConfig(TomlReader& fabric, const FenceProgram& fence);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_ADAPTERS_FABRIC_SHARED_SHARED_SETTINGS_H_
