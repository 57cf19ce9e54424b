#include "fabric-manager/config.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "fabric-manager/topology_file.h"
#include "proto/support/address.h"
#include "proto/support/refusal.h"
#include "proto/support/toml_reader.h"

namespace cxlpool::fm {
namespace {

// Shorter ones keep the manager busy with itself; longer ones are as good as never.
constexpr absl::Duration kMinHeartbeat = absl::Milliseconds(50), kMaxHeartbeat = absl::Minutes(1);
constexpr absl::Duration kMaxLease = absl::Hours(1);
constexpr absl::Duration kMinAttachTimeout = absl::Seconds(1), kMaxAttachTimeout = absl::Hours(1);
constexpr absl::Duration kMinFence = absl::Seconds(1), kMaxFence = absl::Minutes(10);
constexpr uint64_t kMinAuditRows = 1'000, kMaxAuditRows = 10'000'000;
constexpr uint64_t kMinAuditBytes = 1 << 20, kMaxAuditBytes = 4ull << 30;
// Beyond that etcd takes too long to read at a start, whatever its quota.
constexpr uint64_t kMinStoreBytes = 1ull << 30, kMaxStoreBytes = 16ull << 30;
constexpr absl::Duration kMinDiscover = absl::Milliseconds(100), kMaxDiscover = absl::Hours(1);

// Files are only named here: whether they can be read is LoadTlsOf's to say, by the line that names
// them.
void ReadTls(TomlReader tls, FmConfig& config) {
  config.tls = FmConfig::Tls{tls.AbsolutePath("ca"), tls.AbsolutePath("cert"),
                             tls.AbsolutePath("key"), tls.String("server_name", "fm.cxlpool")};
  for (const char* key : {"ca", "cert", "key"}) {
    config.where[absl::StrCat("tls.", key)] = tls.Where(key);
  }
}

// Who gets in when the bindings in the pool let nobody in any more.
void ReadAccess(TomlReader access, FmConfig& config) {
  config.admins = access.Strings("admins");
  for (const std::string& identity : config.admins) {
    if (absl::StrContains(identity, "://") && !absl::StartsWith(identity, "cxlpool://host/") &&
        !absl::StartsWith(identity, "cxlpool://manager/")) {
      continue;
    }
    access.Fail("admins", absl::StrCat("has \"", identity, "\", which nobody's certificate shows"),
                "write identities such as \"cxlpool://operator/alice\"");
  }
}

// How much of the audit trail is kept; the manager has all of it in memory.
void ReadAudit(TomlReader audit, FmConfig& config) {
  AuditLimits& limits = config.audit;
  limits.max_rows = audit.Number("max_rows", limits.max_rows);
  if (limits.max_rows < kMinAuditRows || limits.max_rows > kMaxAuditRows) {
    audit.Fail("max_rows", "is out of range", "write from 1000 to 10000000");
  }
  limits.max_bytes = audit.Size("max_bytes", limits.max_bytes);
  if (limits.max_bytes < kMinAuditBytes || limits.max_bytes > kMaxAuditBytes) {
    audit.Fail("max_bytes", "is out of range", "write from \"1MiB\" to \"4GiB\"");
  }
}

// A word that is none is an error in `toml`, which Finish answers; what is returned is not used
// then.
Policy ReadPolicy(TomlReader& toml) {
  const std::string word = toml.String("default", "pack");
  std::string known;
  for (const Policy policy :
       {Policy::kPack, Policy::kSpread, Policy::kBandwidth, Policy::kLatency, Policy::kIsolate}) {
    const std::string name = absl::AsciiStrToLower(ToString(policy));
    if (word == name) return policy;
    absl::StrAppend(&known, known.empty() ? "\"" : ", \"", name, "\"");
  }
  toml.Fail("default", "is no placement policy", absl::StrCat("write one of ", known));
  return Policy::kPack;
}

// The driver reads its own keys only, so that those of another are unknown here.
void ReadFabric(TomlReader& fabric, const FabricReaders& drivers, FmConfig& config) {
  const auto driver = drivers.find(fabric.String("driver"));
  if (driver == drivers.end()) {
    std::string known;
    for (const auto& [name, reader] : drivers) {
      absl::StrAppend(&known, known.empty() ? "\"" : ", \"", name, "\"");
    }
    fabric.Fail("driver", "is no fabric driver", absl::StrCat("write one of ", known));
    return;
  }
  config.fence.path = fabric.AbsolutePath("fence_program", "");
  if (!config.fence.path.empty()) {
    config.where["fabric.fence_program"] = fabric.Where("fence_program");
  } else if (fabric.Has("fence_timeout")) {
    // Somebody meant a program to run.
    fabric.Fail("fence_timeout", "has nothing to limit", "give fence_program, or remove it");
  }
  config.fence.timeout =
      fabric.DurationIn("fence_timeout", config.fence.timeout, kMinFence, kMaxFence);
  config.fabric = driver->second(fabric, config.fence);
  for (const FabricSettings::Directory& directory : config.fabric.directories) {
    config.where[absl::StrCat("fabric.", directory.key)] = fabric.Where(directory.key);
  }
}

// Members of etcd that are elsewhere are reached with TLS: whoever can write to them owns the pool.
void ReadEtcd(TomlReader& store, FmConfig& config) {
  FmConfig::Etcd& etcd = config.etcd;
  etcd.endpoints = store.Strings("endpoints");
  const bool tls = store.Has("ca") || store.Has("cert") || store.Has("key");
  if (etcd.endpoints.empty()) {
    store.Fail("endpoints", "is missing", "write HOST:PORT of each member of etcd");
  }
  for (const std::string& endpoint : etcd.endpoints) {
    const auto address = ParseAddress(endpoint);
    if (!address.ok()) {
      const auto refusal = RefusalOf(address.status()).value_or(Refusal{});
      store.Fail("endpoints", absl::StrCat("is wrong: ", refusal.message), refusal.remedy);
    } else if (!tls && !address->is_local()) {
      store.Fail("endpoints", absl::StrCat("has ", endpoint, ", which needs TLS"),
                 "write store.ca, store.cert and store.key");
    }
  }
  etcd.prefix = store.String("prefix", "/cxlpool/");
  if (!absl::StartsWith(etcd.prefix, "/") || !absl::EndsWith(etcd.prefix, "/") ||
      etcd.prefix.size() < 3 || absl::StrContains(etcd.prefix, ' ')) {
    store.Fail("prefix", "is no prefix", "write one like \"/cxlpool/\"");
  }
  for (const auto& [key, path] :
       {std::pair("ca", &etcd.ca), std::pair("cert", &etcd.cert), std::pair("key", &etcd.key)}) {
    if (!tls) continue;
    *path = store.AbsolutePath(key);
    config.where[absl::StrCat("store.", key)] = store.Where(key);
  }
  etcd.advertise = store.AddressText("advertise", /*local=*/false);
  etcd.takeover = store.DurationIn("takeover", absl::Milliseconds(1500), absl::Milliseconds(500),
                                   absl::Minutes(1));
  etcd.max_bytes = store.Size("max_bytes", etcd.max_bytes);
  if (etcd.max_bytes < kMinStoreBytes || etcd.max_bytes > kMaxStoreBytes) {
    store.Fail("max_bytes", "is out of range", "write from \"1GiB\" to \"16GiB\"");
  }
}

}  // namespace

// The first mistake that is met is the one that is named (TomlReader); a key that nobody has asked
// for by the end is a mistake too.
absl::StatusOr<FmConfig> ParseFmConfig(const std::string& text, const std::string& file,
                                       const FabricReaders& drivers) {
  auto toml = TomlReader::Parse(text, file);
  if (!toml.ok()) return toml.status();
  FmConfig config;
  config.file = file;
  config.log_level = toml->Level("log_level");
  for (TomlReader& listen : toml->Tables("listen")) {
    const bool insecure = listen.Bool("insecure", false);
    const bool tokens = listen.Bool("tokens", false);
    config.listen.push_back({listen.AddressText("address", insecure), insecure, tokens});
    if (insecure && tokens) {
      listen.Fail("tokens", "is for addresses with TLS",
                  "leave it out: without TLS calls may show tokens anyway");
    }
    if (!insecure && !toml->Has("tls")) {
      listen.Fail("address", "needs TLS, and there is no [tls]",
                  "add [tls] with ca, cert and key (`cxlpool pki issue manager fm` makes them), or "
                  "insecure = true for "
                  "a Unix socket or a loopback address");
    }
  }
  if (config.listen.empty()) toml->Fail("listen", "is missing", "add a [[listen]] with an address");
  if (toml->Has("tls")) ReadTls(toml->Table("tls"), config);
  config.metrics = metrics::ReadMetricsSettings(*toml, config.tls.has_value());

  if (toml->Has("access")) ReadAccess(toml->Table("access"), config);

  ReadAudit(toml->Table("audit"), config);

  TomlReader store = toml->Table("store");
  const std::string kind = store.String("kind", "sqlite");
  if (kind == "sqlite") {
    config.store_path = store.AbsolutePath("path");
    config.where["store.path"] = store.Where("path");
  } else if (kind == "memory") {
    config.store = FmConfig::StoreKind::kMemory;
  } else if (kind == "etcd") {
    config.store = FmConfig::StoreKind::kEtcd;
    config.where["store.kind"] = store.Where("kind");
    ReadEtcd(store, config);
  } else {
    store.Fail("kind", "is no store", "write \"sqlite\", \"etcd\" or \"memory\"");
  }

  TomlReader fabric = toml->Table("fabric");
  ReadFabric(fabric, drivers, config);
  config.tables = ReadTopologyTables(*toml, config.fabric.rules);
  TomlReader placement = toml->Table("placement");
  config.default_policy = ReadPolicy(placement);

  TomlReader sessions = toml->Table("sessions");
  config.heartbeat =
      sessions.DurationIn("heartbeat", config.heartbeat, kMinHeartbeat, kMaxHeartbeat);
  // One lost heartbeat must not end a session.
  config.lease = sessions.DurationIn("lease", config.lease, 2 * kMinHeartbeat, kMaxLease);
  if (config.lease < 2 * config.heartbeat) {
    sessions.Fail("lease", "is shorter than two heartbeats", "make it longer");
  }
  TomlReader reconciler = toml->Table("reconciler");
  config.attach_timeout = reconciler.DurationIn("attach_timeout", config.attach_timeout,
                                                kMinAttachTimeout, kMaxAttachTimeout);
  config.discover_period =
      reconciler.DurationIn("discover_period", config.discover_period, kMinDiscover, kMaxDiscover);
  if (absl::Status status = toml->Finish(); !status.ok()) return status;
  return config;
}

absl::StatusOr<FmConfig> LoadFmConfig(const std::string& file, const FabricReaders& drivers) {
  auto text = ReadConfigFile(file);
  if (!text.ok()) return text.status();
  return ParseFmConfig(*text, file, drivers);
}

}  // namespace cxlpool::fm
