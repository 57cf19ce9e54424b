#include "host-agent/setup.h"

#include <filesystem>
#include <utility>

#include "proto/support/mutant.h"
#include "proto/support/names.h"

namespace cxlpool::agent {
namespace {

// A file that the next agent of this boot finds again.
std::string RunFile(const AgentConfig& config, const char* name) {
  return std::filesystem::path(config.socket).replace_filename(name).string();
}

}  // namespace

// As in all these functions, what is not set here does not come from the configuration.
AgentOptions CoreOptionsOf(const AgentConfig& config, const AgentSelf& self) {
  AgentOptions options;
  options.host = ResourceName("hosts", config.host);
  options.incarnation = self.boot_id;
  options.agent_id = self.agent_id;
  options.agent_version = CXLPOOL_VERSION;
  options.kernel_release = self.kernel_release;
  options.observe_interval = config.observe_interval;
  if (!CXLPOOL_MUTANT("offline-deadline-is-lost")) {
    options.offline_deadline = config.offline_deadline;
  }
  return options;
}

// All managers have certificates of one name: which of them is dialled does not matter.
GrpcLinkOptions LinkOptionsOf(const AgentConfig& config, std::shared_ptr<TlsSource> tls,
                              const std::string& boot_id) {
  GrpcLinkOptions options;
  options.addresses = config.managers;
  if (options.addresses.size() > 1 && !CXLPOOL_MUTANT("agents-miss-a-takeover")) {
    options.backoff_max = kBackoffOfSeveral;
  }
  options.tls = std::move(tls);
  if (config.tls.has_value() && !CXLPOOL_MUTANT("server-name-is-lost")) {
    options.server_name = config.tls->server_name;
  }
  options.epoch_path = RunFile(config, "epoch");
  options.boot_id = boot_id;
  return options;
}

EmulatedOptions EmulatedOptionsOf(const AgentConfig& config) {
  EmulatedOptions options;
  options.root = config.emulated_root;
  options.host = config.host;
  for (const AgentConfig::Bridge& bridge : config.emulated_bridges) {
    options.bridges.push_back({.name = bridge.name,
                               .slots = bridge.slots,
                               .max_regions = bridge.max_regions,
                               .window_bytes = bridge.window_bytes});
  }
  return options;
}

// Poison is looked up by slot, and no two bridges share a slot, so one list serves for all bridges.
EmulatedEventsOptions EmulatedEventsOptionsOf(const AgentConfig& config) {
  EmulatedEventsOptions options;
  options.root = config.emulated_root;
  options.host = config.host;
  for (const AgentConfig::Bridge& bridge : config.emulated_bridges) {
    if (CXLPOOL_MUTANT("events-of-the-last-bridge")) options.slots.clear();
    options.slots.insert(options.slots.end(), bridge.slots.begin(), bridge.slots.end());
  }
  return options;
}

LinuxHostMemoryOptions LinuxOptionsOf(const AgentConfig& config) {
  LinuxHostMemoryOptions options;
  if (!CXLPOOL_MUTANT("regions-are-not-kept")) {
    options.known_regions_file = RunFile(config, "known-regions");
  }
  return options;
}

// Grants hold for one boot: the file is for the next agent of it, and no other takes them up.
SharedHostOptions SharedOptionsOf(const AgentConfig& config, const std::string& boot_id) {
  SharedHostOptions options;
  options.grants_path = RunFile(config, CXLPOOL_MUTANT("grants-are-not-kept") ? "" : "grants");
  options.boot_id = boot_id;
  return options;
}

std::string PiecesFileOf(const AgentConfig& config) { return RunFile(config, "pieces"); }

LocalPolicy PolicyOf(const AgentConfig& config, uint32_t agent_uid) {
  LocalPolicy policy = config.policy;
  if (!CXLPOOL_MUTANT("agents-user-is-root")) policy.agent_uid = agent_uid;
  return policy;
}

LocalServerOptions ServerOptionsOf(const AgentConfig& config) {
  LocalServerOptions options;
  options.path = config.socket;
  options.max_connections = config.max_connections;
  if (!CXLPOOL_MUTANT("places-of-a-user-are-lost")) {
    options.max_connections_per_uid = config.max_connections_per_uid;
  }
  return options;
}

// On a real host where applications look for devices; beside the socket where all is emulated, so
// that many agents can run on a machine.
std::string PathsFolderOf(const AgentConfig& config) {
  return config.is_real_host() ? "/dev/cxlpool" : RunFile(config, "paths");
}

std::string KernelPolicyFileOf(const AgentConfig& config) {
  return RunFile(config, "kernel-policy");
}

// Without [tls] the manager's address is one that needs none: ParseAgentConfig has checked that.
absl::StatusOr<std::shared_ptr<TlsSource>> LoadTlsOf(const AgentConfig& config) {
  if (!config.tls.has_value()) return nullptr;
  const AgentConfig::Tls& tls = *config.tls;
  const TlsFiles files = {.ca = tls.ca, .cert = tls.cert, .key = tls.key};
  auto source = TlsSource::Load(files, CertificateUse::Agent(config.host));
  if (source.ok()) return source;
  return TlsErrorAt(source.status(), files, config.where);
}

}  // namespace cxlpool::agent
