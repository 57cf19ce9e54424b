// The tables of a TOML file that say what a pool is made of: [[device]], [[host]], [[switch]] and
// [[link]], in the manager's configuration as in a file for `cxlpool topology apply`.
#ifndef CXLPOOL_FABRIC_MANAGER_TOPOLOGY_FILE_H_
#define CXLPOOL_FABRIC_MANAGER_TOPOLOGY_FILE_H_

#include <string>

#include "absl/status/statusor.h"
#include "cxlpool/v1/inventory_service.pb.h"
#include "fabric-manager/model/pool/topology_entry.h"
#include "proto/support/toml_reader.h"

namespace cxlpool::fm {

// What of the tables makes no sense is an error of `toml`, with its line. A key that the driver of
// these rules does not use is unknown.
TopologyTables ReadTopologyTables(TomlReader& toml, const FabricRules& fabric);

// A file for `cxlpool topology apply`. It may be a whole configuration: what else that has is left
// alone. What only one driver wants is the manager's to judge (kAnyFabric).
// INVALID_ARGUMENT/BAD_CONFIG: "FILE:LINE: KEY: what is wrong (what to write)".
absl::StatusOr<TopologyTables> ParseTopologyFile(const std::string& text, const std::string& file);

// As the API has them: what the manager answers, and what such a file asks of it.
v1::TopologyTables ToProto(const TopologyTables& tables);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_TOPOLOGY_FILE_H_
