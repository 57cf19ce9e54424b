// The configuration of cxlpool-agent: one TOML file, checked whole before anything is done.
//
//   host = "host-a"                   # As enrolled.
//   adapter = "linux"                 # or "shared", or "emulated"
//   observe_interval = "2s"           # How often to look for what changed by itself.
//
//   [manager]
//   address = "10.0.2.100:7443"       # HOST:PORT or unix:PATH; several with commas between them.
//   insecure = false                  # true: without TLS; unix: and loopback addresses only.
//
//   [tls]                             # Unless manager.insecure.
//   ca = "/etc/cxlpool/ca.pem"
//   cert = "/etc/cxlpool/agent.pem"
//   key = "/etc/cxlpool/agent.key"
//   server_name = "fm.cxlpool"        # What the manager's certificate is for.
//
//   [applications]
//   socket = "/run/cxlpool/agent.sock"
//   tenant = "default"                # In whose name users of this host act.
//   allowed_uids = [1000, 1001]       # Absent: every user. Root and the agent's own always.
//   may_open = "own"                  # Whose Regions users open, besides those open to them; or
//   may_release = "own"               # "tenant": every Region of the tenant on this host.
//   max_connections = 256
//   max_connections_per_uid = 64
//   [[applications.user]]             # The first that names a user holds for them.
//   uids = [1000]                     # Or gids: one of them has at least one.
//   gids = [100]
//   tenant = "ml"                     # Absent: applications.tenant.
//   may_allocate = true
//   persistent = false                # May make Regions that outlive the process.
//   max_bytes = "8GiB"                # Of what their processes own. Absent: no limit.
//   max_regions = 4
//   may_open = "tenant"               # Absent: as in [applications].
//   may_release = "own"
//
//   [metrics]
//   listen = "127.0.0.1:9465"         # Loopback: without TLS. Absent: nobody can read them.
//
//   [release]
//   offline_deadline = "10s"          # Of a segment's first try to bring its memory offline.
//   drain_hook = "/usr/sbin/drain"    # Run before memory is taken from its users. Absent: none.
//   drain_timeout = "30s"             # Then it is killed.
//
//   [tiering]                         # While memory of the pool is system-ram. Absent: untouched.
//   demotion = true                   # Pages go to slower memory before they are swapped out.
//   numa_balancing = "tiering"        # Or "off", "on".
//   local_weight = 3                  # Of weighted interleave: nodes with processors,
//   pool_weight = 1                   # and nodes of the pool; 1 to 255.
//
//   [shared]                          # adapter = "shared"; absent: every CXL device of this host.
//   devices = ["region0"]             # Only these, as `cxlpool-agent check` calls them. Or:
//   files = ["/srv/pool/cmm-0"]       # Files in place of CXL devices: no isolation.
//
//   [emulated]                        # adapter = "emulated"
//   root = "/var/lib/cxlpool/fabric"  # The manager's fabric.root.
//   [[emulated.bridge]]
//   name = "ACPI0016:00"
//   slots = [1, 2]                    # Of the manager's [[host]].
//   max_regions = 4
//   window = "64GiB"
//
// Unknown keys are errors.
#ifndef CXLPOOL_HOST_AGENT_CONFIG_H_
#define CXLPOOL_HOST_AGENT_CONFIG_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "host-agent/model/tiering.h"
#include "host-agent/model/user_policy.h"
#include "proto/metrics/metrics_settings.h"

namespace cxlpool::agent {

struct AgentConfig {
  enum class Adapter { kLinux, kShared, kEmulated };
  struct Tls {
    std::string ca, cert, key;
    std::string server_name;
  };
  struct Bridge {
    std::string name;
    std::vector<uint32_t> slots;
    uint32_t max_regions = 4;
    uint64_t window_bytes = uint64_t{64} << 30;
  };

  std::string host;  // Host id, without "hosts/".
  Adapter adapter = Adapter::kLinux;
  absl::Duration observe_interval = absl::Seconds(2);
  LogLevel log_level = LogLevel::kInfo;
  std::vector<std::string> managers;  // The addresses, at least one.
  std::optional<Tls> tls;             // Unset: insecure.
  std::string socket;
  LocalPolicy policy;  // What users are judged by, without agent_uid, which is not configured.
  size_t max_connections = 256;
  size_t max_connections_per_uid = 64;
  absl::Duration offline_deadline = absl::Seconds(10);
  std::string drain_hook;  // Absolute; empty: none. Whether it is safe to run is not looked at.
  absl::Duration drain_timeout = absl::Seconds(30);
  TieringConfig tiering;
  std::vector<std::string> shared_devices;  // Empty: all.
  std::vector<std::string> shared_files;    // Absolute. Empty: CXL devices.
  std::string emulated_root;
  std::vector<Bridge> emulated_bridges;
  // Whether it is this machine's own memory that the pool is made of.
  bool is_real_host() const { return adapter != Adapter::kEmulated && shared_files.empty(); }

  metrics::MetricsSettings metrics;

  // Where keys that name files stand, for messages: "tls.cert" -> "agent.toml:9: tls.cert".
  std::map<std::string, std::string> where;
};

// INVALID_ARGUMENT/BAD_CONFIG: "FILE:LINE: KEY: what is wrong (what to write)".
// NOT_FOUND/NO_CONFIG: the file cannot be read.
absl::StatusOr<AgentConfig> ParseAgentConfig(const std::string& text, const std::string& file);
absl::StatusOr<AgentConfig> LoadAgentConfig(const std::string& file);

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_CONFIG_H_
