// Files that people write: fm.toml with each fabric's table, agent.toml, cli.toml and a topology.

#include <string>

#include "absl/strings/match.h"
#include "fabric-manager/config.h"
#include "fabric-manager/fabric_drivers.h"
#include "fabric-manager/topology_file.h"
#include "host-agent/config.h"
#include "test/fuzz/fuzz_target.h"
#include "tools/cli/settings_file.h"

namespace cxlpool::fuzz {
namespace {

// Whatever is wrong, it is the file that is named.
template <typename Config>
void RequireNamed(const absl::StatusOr<Config>& config) {
  Require(config.ok() || absl::StrContains(config.status().message(), "x.toml"));
}

CXLPOOL_FUZZ(configuration) {
  static const auto* const drivers = new fm::FabricReaders(fm::FabricDrivers());
  RequireNamed(fm::ParseFmConfig(bytes, "x.toml", *drivers));
  RequireNamed(agent::ParseAgentConfig(bytes, "x.toml"));
  if (const auto tables = fm::ParseTopologyFile(bytes, "x.toml"); tables.ok()) {
    (void)fm::ToProto(*tables).ByteSizeLong();
  }
  const auto settings = cli::ParseSettings(bytes, "/x.toml");
  RequireNamed(settings);
  if (!settings.ok()) return;
  (void)cli::ContextSettings(*settings, "");
  for (const auto& [name, context] : settings->contexts) {
    const auto edited = cli::WithCurrent(bytes, "/x.toml", name);
    if (!edited.ok()) continue;  // Written in a way that is not for a program to change.
    const auto again = cli::ParseSettings(*edited, "/x.toml");
    Require(again.ok() && again->current == name && again->contexts == settings->contexts &&
            again->top == settings->top);
  }
}

}  // namespace
}  // namespace cxlpool::fuzz
