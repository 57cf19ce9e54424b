// What a fabric driver makes of its table of the configuration, [fabric], before it is opened.
//
// Each adapter has one function that reads that table (FabricReader), and
// fabric-manager/fabric_drivers.cc lists them by the driver's name. Nothing else in the manager
// knows a driver by its name.
#ifndef CXLPOOL_FABRIC_MANAGER_PORTS_FABRIC_SETTINGS_H_
#define CXLPOOL_FABRIC_MANAGER_PORTS_FABRIC_SETTINGS_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "fabric-manager/model/pool/topology_entry.h"
#include "fabric-manager/ports/fabric_shell.h"

namespace cxlpool {
class TomlReader;
}

namespace cxlpool::fm {

class AgentTasks;

struct FabricSettings {
  // A directory that the driver keeps files in, and makes where it is missing.
  struct Directory {
    std::string key;       // Of [fabric], which names it.
    std::string path;      // Absolute.
    bool parents = false;  // Those above it are made as well.
  };

  FabricRules rules;
  bool claims_hosts = false;  // As FabricCapabilities::claims_hosts says it later.
  std::vector<Directory> directories;
  // Makes the driver, without devices and hosts: Configure gives it those of the pool's records.
  // `tasks` outlives the driver. Errors as of the driver's own Open. Again only after an error.
  std::function<absl::StatusOr<std::unique_ptr<FabricDriver>>(AgentTasks* tasks)> open;
};

// Reads the driver's own keys of `fabric`, the table [fabric]. What is wrong with them is an error
// of `fabric`, with its line; a key that it does not ask for is called unknown. `fence` is what the
// keys say that every driver has.
using FabricReader = std::function<FabricSettings(TomlReader& fabric, const FenceProgram& fence)>;

// By the word that operators write in fabric.driver, which is FabricCapabilities::driver.
using FabricReaders = std::map<std::string, FabricReader>;

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_PORTS_FABRIC_SETTINGS_H_
