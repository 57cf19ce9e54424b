#include "fabric-manager/fabric_drivers.h"

#include <chrono>
#include <thread>

#include "fabric-manager/adapters/fabric_emulated/emulated_fabric.h"
#include "fabric-manager/adapters/fabric_qemu/qemu_settings.h"
#include "fabric-manager/adapters/fabric_shared/shared_backend.h"
#include "proto/support/loop.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {

FabricReaders FabricDrivers() {
  return {{"emulated", ReadEmulatedFabric}, {"qemu", ReadQemuFabric}, {"shared", ReadSharedFabric}};
}

absl::StatusOr<std::unique_ptr<FabricDriver>> OpenFabric(const FabricSettings& settings,
                                                         AgentTasks* tasks, absl::Duration wait) {
  constexpr std::chrono::milliseconds kRetry(20);
  const SystemClock clock;
  const absl::Duration end = clock.Elapsed() + wait;
  while (true) {
    auto driver = settings.open(tasks);
    const bool busy = ReasonOf(driver.status()) == "FABRIC_BUSY";
    if (!busy || clock.Elapsed() >= end) return driver;
    std::this_thread::sleep_for(kRetry);
  }
}

}  // namespace cxlpool::fm
