// From the configuration to what each part of the agent is given. main.cc does nothing with a key
// but by these functions, and `cxlpool-agent check` and `--check-config` ask the same ones, so that
// they say what the daemon would say.
#ifndef CXLPOOL_HOST_AGENT_SETUP_H_
#define CXLPOOL_HOST_AGENT_SETUP_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "host-agent/adapters/emulated/emulated_host_events.h"
#include "host-agent/adapters/emulated/emulated_host_memory.h"
#include "host-agent/adapters/linux/linux_host_memory.h"
#include "host-agent/adapters/shared/shared_host.h"
#include "host-agent/config.h"
#include "host-agent/local/local_server.h"
#include "host-agent/model/user_policy.h"
#include "host-agent/rpc/grpc_manager_link.h"
#include "host-agent/service/agent_core.h"
#include "proto/support/tls.h"

namespace cxlpool::agent {

// Who this process is, as it is reported to the manager; not configured.
struct AgentSelf {
  std::string boot_id;
  std::string agent_id;
  std::string kernel_release;
};

AgentOptions CoreOptionsOf(const AgentConfig& config, const AgentSelf& self);
// `tls` as LoadTlsOf answers it.
GrpcLinkOptions LinkOptionsOf(const AgentConfig& config, std::shared_ptr<TlsSource> tls,
                              const std::string& boot_id);
EmulatedOptions EmulatedOptionsOf(const AgentConfig& config);
EmulatedEventsOptions EmulatedEventsOptionsOf(const AgentConfig& config);
LinuxHostMemoryOptions LinuxOptionsOf(const AgentConfig& config);
SharedHostOptions SharedOptionsOf(const AgentConfig& config, const std::string& boot_id);
// Where FileSpace keeps what is made of shared.files.
std::string PiecesFileOf(const AgentConfig& config);
// `agent_uid`: whom the agent runs as.
LocalPolicy PolicyOf(const AgentConfig& config, uint32_t agent_uid);
// max_connections is as configured: FitConnections finds out how many fit.
LocalServerOptions ServerOptionsOf(const AgentConfig& config);
// Where Regions are shown as paths (LinkPaths): in /dev of a real host, beside the socket
// elsewhere.
std::string PathsFolderOf(const AgentConfig& config);
// Where the kernel's settings of before are kept while [tiering] holds.
std::string KernelPolicyFileOf(const AgentConfig& config);

// The agent's certificate, key and authorities. Null without [tls]. Errors as LoadTls, behind the
// file, line and key of the configuration: the certificate has to be this host's.
absl::StatusOr<std::shared_ptr<TlsSource>> LoadTlsOf(const AgentConfig& config);

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_SETUP_H_
