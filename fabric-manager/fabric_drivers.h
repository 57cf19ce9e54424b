// Every fabric driver that cxlpool-fm has. A new one is one line in fabric_drivers.cc.
#ifndef CXLPOOL_FABRIC_MANAGER_FABRIC_DRIVERS_H_
#define CXLPOOL_FABRIC_MANAGER_FABRIC_DRIVERS_H_

#include "fabric-manager/ports/fabric_settings.h"

namespace cxlpool::fm {

FabricReaders FabricDrivers();

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_FABRIC_DRIVERS_H_
