#include "host-agent/config.h"

#include <limits>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "host-agent/adapters/emulated/emulated_host_memory.h"
#include "proto/support/names.h"
#include "proto/support/toml_reader.h"

namespace cxlpool::agent {
namespace {

constexpr size_t kMaxBridges = 64;
constexpr size_t kMaxSlots = 256;
constexpr size_t kMaxDevices = 64;
constexpr size_t kMaxUids = 1024;
constexpr uint64_t kMaxSlotNumber = 8191;  // PCIe Slot Capabilities, 13 bits.
constexpr uint64_t kMaxDecoders = 32;      // CXL 3.1, 8.2.4.20.1.
constexpr size_t kMaxSocketPath = 107;
constexpr uint64_t kMaxConnections = 4096;
constexpr size_t kMaxUserRules = 256;
constexpr uint64_t kMaxUserRegions = 1024;
constexpr uint64_t kMaxWeight = 255;  // Linux, Documentation/ABI/.../weighted_interleave.

// Also answers a value that is out of range: `toml` keeps the error, and Finish then refuses the
// whole file.
uint64_t NumberIn(TomlReader& toml, const std::string& key, uint64_t otherwise, uint64_t min,
                  uint64_t max) {
  const uint64_t value = toml.Number(key, otherwise);
  if (value < min || value > max) {
    toml.Fail(key, "is out of range", absl::StrCat("write a number from ", min, " to ", max));
  }
  return value;
}

// `names` and `slots` are those of the bridges before: none may come twice.
AgentConfig::Bridge ReadBridge(TomlReader& toml, std::set<std::string>& names,
                               std::set<uint64_t>& slots) {
  AgentConfig::Bridge bridge;
  bridge.name = toml.String("name");
  if (bridge.name.empty() || !names.insert(bridge.name).second) {
    toml.Fail("name", bridge.name.empty() ? "is empty" : "stands twice",
              "give each host bridge its own");
  }
  const std::vector<uint64_t> numbers = toml.Numbers("slots");
  if (numbers.empty() || numbers.size() > kMaxSlots) {
    toml.Fail("slots", absl::StrCat("needs 1 to ", kMaxSlots, " slots"), "write [1, 2]");
  }
  for (uint64_t slot : numbers) {
    if (slot > kMaxSlotNumber || !slots.insert(slot).second) {
      toml.Fail("slots", absl::StrCat("holds ", slot, ", which stands twice or is no PCIe slot"),
                absl::StrCat("use different numbers from 0 to ", kMaxSlotNumber));
    }
    bridge.slots.push_back(static_cast<uint32_t>(slot));
  }
  bridge.max_regions =
      static_cast<uint32_t>(NumberIn(toml, "max_regions", bridge.max_regions, 1, kMaxDecoders));
  bridge.window_bytes = toml.Size("window", bridge.window_bytes);
  if (bridge.window_bytes < kEmulatedGranuleBytes ||
      bridge.window_bytes > kEmulatedMaxWindowBytes) {
    toml.Fail("window", "is out of range", "write a size from \"2MiB\" to \"1024GiB\"");
  }
  return bridge;
}

// No two bridges may have the same name or slot, so both sets are handed from one bridge to the
// next.
void ReadEmulated(TomlReader toml, AgentConfig& config) {
  config.emulated_root = toml.AbsolutePath("root");
  std::set<std::string> names;
  std::set<uint64_t> slots;
  for (TomlReader& bridge : toml.Tables("bridge")) {
    config.emulated_bridges.push_back(ReadBridge(bridge, names, slots));
  }
  if (config.emulated_bridges.empty() || config.emulated_bridges.size() > kMaxBridges) {
    toml.Fail("bridge", absl::StrCat("needs 1 to ", kMaxBridges), "add an [[emulated.bridge]]");
  }
}

// Which of the two lists is given decides whether this is a real host (is_real_host), so both at
// once are refused.
void ReadShared(TomlReader toml, AgentConfig& config) {
  config.shared_devices = toml.Strings("devices");
  config.shared_files = toml.Strings("files");
  if (!config.shared_devices.empty() && !config.shared_files.empty()) {
    toml.Fail("files", "contradicts devices", "remove one of them");
  }
  if (config.shared_devices.size() > kMaxDevices || config.shared_files.size() > kMaxDevices) {
    toml.Fail("devices", absl::StrCat("names more than ", kMaxDevices), "name fewer");
  }
  for (const std::string& file : config.shared_files) {
    if (!absl::StartsWith(file, "/")) {
      toml.Fail("files", absl::StrCat("holds ", file, ", which is not absolute"),
                "write paths in full");
    }
  }
}

// tenants/{tenant}
std::string ReadTenant(TomlReader& toml, const std::string& otherwise) {
  const std::string tenant = toml.String("tenant", otherwise);
  if (!CheckResourceId(tenant).ok()) {
    toml.Fail("tenant", "is not well formed", "use 1 to 63 of a-z, 0-9 and '-', a letter first");
  }
  return ResourceName("tenants", tenant);
}

// Numeric ids of users or groups. `without`: what to do where there are to be none.
std::vector<uint32_t> ReadIds(TomlReader& toml, const std::string& key, absl::string_view kind,
                              const std::string& without) {
  std::vector<uint32_t> ids;
  const std::vector<uint64_t> numbers = toml.Numbers(key);
  if (numbers.empty() || numbers.size() > kMaxUids) {
    toml.Fail(key, absl::StrCat("needs 1 to ", kMaxUids, " ", kind, " ids"), without);
  }
  for (uint64_t id : numbers) {
    if (id >= std::numeric_limits<uint32_t>::max()) {
      toml.Fail(key, absl::StrCat("holds ", id, ", which is no ", kind, " id"),
                absl::StrCat("write numeric ", kind, " ids"));
    }
    ids.push_back(static_cast<uint32_t>(id));
  }
  return ids;
}

// `otherwise` is the answer where the key is absent: for a [[applications.user]], what
// [applications] says.
Reach ReadReach(TomlReader& toml, const std::string& key, Reach otherwise) {
  if (!toml.Has(key)) return otherwise;
  const std::string text = toml.String(key);
  if (text != "own" && text != "tenant") {
    toml.Fail(key, "is neither own nor tenant",
              "write \"own\", or \"tenant\" for all Regions of the tenant on this host");
  }
  return text == "tenant" ? Reach::kTenant : Reach::kOwn;
}

// What a rule does not set is as for everybody.
UserRule ReadUser(TomlReader& toml, const std::string& tenant, const LocalPolicy& general) {
  UserRule rule;
  rule.may_open = ReadReach(toml, "may_open", general.may_open);
  rule.may_release = ReadReach(toml, "may_release", general.may_release);
  if (toml.Has("uids")) {
    rule.uids = ReadIds(toml, "uids", "user", "leave the key out and use gids");
  }
  if (toml.Has("gids")) {
    rule.gids = ReadIds(toml, "gids", "group", "leave the key out and use uids");
  }
  if (rule.uids.empty() && rule.gids.empty()) {
    toml.Fail("uids", "is missing, and gids as well", "say for whom the table is");
  }
  rule.tenant = ReadTenant(toml, tenant);
  rule.may_allocate = toml.Bool("may_allocate", rule.may_allocate);
  rule.persistent = toml.Bool("persistent", rule.persistent);
  if (toml.Has("max_bytes")) {
    rule.max_bytes = toml.Size("max_bytes");
    if (*rule.max_bytes == 0) {
      toml.Fail("max_bytes", "is 0", "write may_allocate = false to give nothing");
    }
  }
  if (toml.Has("max_regions")) {
    rule.max_regions = NumberIn(toml, "max_regions", 1, 1, kMaxUserRegions);
  }
  if (rule.persistent && (rule.max_bytes.has_value() || rule.max_regions.has_value())) {
    toml.Fail("persistent",
              "contradicts max_bytes and max_regions: what has no owner is not counted",
              "remove it or the limits; a tenant's quota bounds both");
  }
  return rule;
}

// Reads the general keys first: the tables of users fall back on them.
void ReadApplications(TomlReader toml, AgentConfig& config) {
  config.socket = toml.String("socket", "/run/cxlpool/agent.sock");
  if (config.socket.empty() || config.socket[0] != '/' || config.socket.size() > kMaxSocketPath) {
    toml.Fail("socket", "is no absolute path of at most 107 bytes", "write a shorter path in full");
  }
  config.policy.tenant = ReadTenant(toml, "default");
  if (toml.Has("allowed_uids")) {
    config.policy.allowed_uids =
        ReadIds(toml, "allowed_uids", "user", "leave the key out to let every user in");
  }
  config.max_connections =
      NumberIn(toml, "max_connections", config.max_connections, 1, kMaxConnections);
  config.max_connections_per_uid =
      NumberIn(toml, "max_connections_per_uid", config.max_connections_per_uid, 1, kMaxConnections);
  // The id without "tenants/", which ReadTenant adds.
  const std::string tenant = toml.String("tenant", "default");
  config.policy.may_open = ReadReach(toml, "may_open", config.policy.may_open);
  config.policy.may_release = ReadReach(toml, "may_release", config.policy.may_release);
  for (TomlReader& user : toml.Tables("user")) {
    config.policy.users.push_back(ReadUser(user, tenant, config.policy));
  }
  if (config.policy.users.size() > kMaxUserRules) {
    toml.Fail("user", absl::StrCat("stands more than ", kMaxUserRules, " times"),
              "name more users or groups in one");
  }
}

// A drain_timeout without a drain_hook is refused: somebody meant a hook to run. Whether the hook
// is safe to run is checked later (CheckDrainProgram), because that depends on the machine.
void ReadRelease(TomlReader toml, AgentConfig& config) {
  config.offline_deadline = toml.Duration("offline_deadline", config.offline_deadline);
  // Short, because no other rung of the host is taken while memory goes offline.
  if (config.offline_deadline < absl::Seconds(1) || config.offline_deadline > absl::Minutes(1)) {
    toml.Fail("offline_deadline", "is out of range", "write from \"1s\" to \"1m\"");
  }
  if (toml.Has("drain_hook")) {
    config.drain_hook = toml.String("drain_hook");
    if (!absl::StartsWith(config.drain_hook, "/")) {
      toml.Fail("drain_hook", "is no absolute path", "write it in full");
    }
  } else if (toml.Has("drain_timeout")) {
    toml.Fail("drain_timeout", "has nothing to limit", "give drain_hook, or remove it");
  }
  config.drain_timeout = toml.Duration("drain_timeout", config.drain_timeout);
  if (config.drain_timeout < absl::Seconds(1) || config.drain_timeout > absl::Minutes(10)) {
    toml.Fail("drain_timeout", "is out of range", "write from \"1s\" to \"10m\"");
  }
}

// There are no defaults: a key that is absent leaves the kernel's setting as the host has it.
void ReadTiering(TomlReader toml, TieringConfig& tiering) {
  if (toml.Has("demotion")) tiering.demotion = toml.Bool("demotion");
  if (toml.Has("numa_balancing")) {
    using Balancing = TieringConfig::NumaBalancing;
    const std::string text = toml.String("numa_balancing");
    if (text != "off" && text != "on" && text != "tiering") {
      toml.Fail("numa_balancing", "is no mode", "write \"off\", \"on\" or \"tiering\"");
    }
    tiering.numa_balancing = text == "tiering" ? Balancing::kTiering
                             : text == "on"    ? Balancing::kOn
                                               : Balancing::kOff;
  }
  if (toml.Has("local_weight")) {
    tiering.local_weight = static_cast<uint32_t>(NumberIn(toml, "local_weight", 1, 1, kMaxWeight));
  }
  if (toml.Has("pool_weight")) {
    tiering.pool_weight = static_cast<uint32_t>(NumberIn(toml, "pool_weight", 1, 1, kMaxWeight));
  }
}

}  // namespace

// Every key is read before it answers: a key that was not read then is a mistake, too. The first
// mistake is reported, with its line (TomlReader::Finish).
absl::StatusOr<AgentConfig> ParseAgentConfig(const std::string& text, const std::string& file) {
  auto toml = TomlReader::Parse(text, file);
  if (!toml.ok()) return toml.status();
  AgentConfig config;
  config.host = toml->String("host");
  if (!CheckResourceId(config.host).ok()) {
    toml->Fail("host", "is not well formed", "write the id it is enrolled under, as host-a");
  }
  // The table of another adapter is not read, and Finish then reports it as an unknown key.
  const std::string adapter = toml->String("adapter");
  if (adapter == "emulated") {
    config.adapter = AgentConfig::Adapter::kEmulated;
    ReadEmulated(toml->Table("emulated"), config);
  } else if (adapter == "shared") {
    config.adapter = AgentConfig::Adapter::kShared;
    if (toml->Has("shared")) ReadShared(toml->Table("shared"), config);
  } else if (adapter != "linux") {
    toml->Fail("adapter", "is no host memory adapter",
               "write \"linux\", \"shared\" or \"emulated\"");
  }
  config.observe_interval = toml->Duration("observe_interval", config.observe_interval);
  if (config.observe_interval < absl::Milliseconds(50) ||
      config.observe_interval > absl::Minutes(1)) {
    toml->Fail("observe_interval", "is out of range", "write from \"50ms\" to \"1m\"");
  }

  config.log_level = toml->Level("log_level");
  TomlReader manager = toml->Table("manager");
  const bool insecure = manager.Bool("insecure", false);
  // Exactly one of the two has to be there.
  if (insecure == toml->Has("tls")) {
    toml->Fail("tls", insecure ? "contradicts manager.insecure" : "is missing",
               insecure ? "remove one of them"
                        : "add [tls], or manager.insecure = true for a unix: or loopback address");
  }
  config.managers = manager.AddressList("address", insecure);
  if (toml->Has("tls")) {
    TomlReader tls = toml->Table("tls");
    config.tls = AgentConfig::Tls{tls.AbsolutePath("ca"), tls.AbsolutePath("cert"),
                                  tls.AbsolutePath("key"), tls.String("server_name", "fm.cxlpool")};
    for (const char* key : {"ca", "cert", "key"}) {
      config.where[absl::StrCat("tls.", key)] = tls.Where(key);
    }
  }
  config.metrics = metrics::ReadMetricsSettings(*toml, config.tls.has_value());
  ReadApplications(toml->Table("applications"), config);
  ReadRelease(toml->Table("release"), config);
  if (toml->Has("tiering") && !config.is_real_host()) {
    toml->Fail("tiering", "is for the memory of a real host, and this one's is emulated",
               "remove the table");
  }
  ReadTiering(toml->Table("tiering"), config.tiering);
  if (absl::Status status = toml->Finish(); !status.ok()) return status;
  return config;
}

absl::StatusOr<AgentConfig> LoadAgentConfig(const std::string& file) {
  auto text = ReadConfigFile(file);
  if (!text.ok()) return text.status();
  return ParseAgentConfig(*text, file);
}

}  // namespace cxlpool::agent
