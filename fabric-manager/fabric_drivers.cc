#include "fabric-manager/fabric_drivers.h"

#include "fabric-manager/adapters/fabric_emulated/emulated_settings.h"
#include "fabric-manager/adapters/fabric_qemu/qemu_settings.h"
#include "fabric-manager/adapters/fabric_shared/shared_settings.h"

namespace cxlpool::fm {

FabricReaders FabricDrivers() {
  return {{"emulated", ReadEmulatedFabric}, {"qemu", ReadQemuFabric}, {"shared", ReadSharedFabric}};
}

}  // namespace cxlpool::fm
