// Every fabric driver that cxlpool-fm has. A new one is one line in fabric_drivers.cc.
#ifndef CXLPOOL_FABRIC_MANAGER_FABRIC_DRIVERS_H_
#define CXLPOOL_FABRIC_MANAGER_FABRIC_DRIVERS_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "fabric-manager/ports/fabric_settings.h"

namespace cxlpool::fm {

FabricReaders FabricDrivers();

// Opens the driver. Where another manager has the fabric (FABRIC_BUSY), it may be one that has lost
// the store and is about to end: that is waited for, for so long. Blocks.
absl::StatusOr<std::unique_ptr<FabricDriver>> OpenFabric(const FabricSettings& settings,
                                                         AgentTasks* tasks,
                                                         absl::Duration wait = absl::Seconds(5));

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_FABRIC_DRIVERS_H_
