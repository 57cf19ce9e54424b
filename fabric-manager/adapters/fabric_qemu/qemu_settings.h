// How the QEMU fabric is configured: by its own key of [fabric], with devices that are files and
// hosts that are QMP sockets.
#ifndef CXLPOOL_FABRIC_MANAGER_ADAPTERS_FABRIC_QEMU_QEMU_SETTINGS_H_
#define CXLPOOL_FABRIC_MANAGER_ADAPTERS_FABRIC_QEMU_QEMU_SETTINGS_H_

#include "fabric-manager/adapters/fabric_qemu/qemu_config.h"
#include "fabric-manager/ports/fabric_settings.h"

namespace cxlpool::fm {

// A FabricReader.
FabricSettings ReadQemuFabric(TomlReader& fabric, const FenceProgram& fence);

// What the driver is opened with.
QemuFabricConfig ReadQemuConfig(TomlReader& fabric, const FenceProgram& fence);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_ADAPTERS_FABRIC_QEMU_QEMU_SETTINGS_H_
