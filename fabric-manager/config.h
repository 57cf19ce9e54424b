// The configuration of cxlpool-fm: one TOML file, checked whole before anything is done.
//
// docs/configuration.md and packaging/fm.toml show every key. Unknown keys are errors.
#ifndef CXLPOOL_FABRIC_MANAGER_CONFIG_H_
#define CXLPOOL_FABRIC_MANAGER_CONFIG_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "fabric-manager/model/audit/audit_chain.h"
#include "fabric-manager/model/pool/region.h"
#include "fabric-manager/model/pool/topology_entry.h"
#include "fabric-manager/ports/fabric_settings.h"
#include "proto/metrics/metrics_settings.h"

namespace cxlpool::fm {

struct FmConfig {
  struct Listen {
    std::string address;
    bool insecure = false;
    bool tokens = false;  // With TLS: who has no certificate may connect, and show a token.
  };
  struct Tls {
    std::string ca, cert, key;
    std::string server_name;  // That clients look for in the certificate.
  };
  enum class StoreKind { kSqlite, kMemory, kEtcd };
  struct Etcd {
    std::vector<std::string> endpoints;  // Of each member.
    std::string prefix;
    std::string ca, cert, key;  // All empty: without TLS, which is for loopback addresses.
    std::string advertise;      // Where agents and operators reach this manager.
    absl::Duration takeover;
    uint64_t max_bytes = uint64_t{3} << 30;  // Of the records, where etcd has room for more.
  };

  std::vector<Listen> listen;
  std::optional<Tls> tls;
  metrics::MetricsSettings metrics;
  StoreKind store = StoreKind::kSqlite;
  std::string store_path;  // kSqlite.
  Etcd etcd;               // kEtcd.
  FenceProgram fence;
  FabricSettings fabric;            // As the driver itself has read it.
  std::vector<std::string> admins;  // Identities that are admins whatever the pool's bindings say.
  AuditLimits audit;
  TopologyTables tables;  // Taken into the pool's records once: TakeInTopology.
  std::string file;       // This configuration.
  LogLevel log_level = LogLevel::kInfo;
  Policy default_policy = Policy::kPack;
  absl::Duration heartbeat = absl::Seconds(2);
  absl::Duration lease = absl::Seconds(10);
  absl::Duration attach_timeout = absl::Seconds(60);
  absl::Duration discover_period = absl::Seconds(10);
  // Where keys that name files stand, for messages: "tls.cert" -> "fm.toml:9: tls.cert".
  std::map<std::string, std::string> where;
};

// `drivers`: those that the file may name, as FabricDrivers() answers them.
// INVALID_ARGUMENT/BAD_CONFIG: "FILE:LINE: KEY: what is wrong (what to write)".
// NOT_FOUND/NO_CONFIG: the file cannot be read.
absl::StatusOr<FmConfig> ParseFmConfig(const std::string& text, const std::string& file,
                                       const FabricReaders& drivers);
absl::StatusOr<FmConfig> LoadFmConfig(const std::string& file, const FabricReaders& drivers);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_CONFIG_H_
