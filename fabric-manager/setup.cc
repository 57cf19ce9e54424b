#include "fabric-manager/setup.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "fabric-manager/adapters/store_sqlite/new_database.h"
#include "fabric-manager/adapters/store_sqlite/store_file.h"
#include "proto/support/mutant.h"
#include "proto/support/operator_program.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

// `status` behind where `key` stands in the configuration.
absl::Status At(const FmConfig& config, const std::string& key, const absl::Status& status) {
  const auto where = config.where.find(key);
  std::optional<Refusal> refusal = RefusalOf(status);
  if (status.ok() || !refusal.has_value() || where == config.where.end()) return status;
  refusal->message = absl::StrCat(where->second, ": ", refusal->message);
  return refusal->ToStatus();
}

absl::Status NoAccess(const std::string& message, const std::string& remedy) {
  return Refuse(absl::StatusCode::kFailedPrecondition, "NO_ACCESS", message, remedy);
}

// Whether `path` is a directory of ours, or one that can be made: with `parents`, those above it
// are made as well.
absl::Status CheckDirectory(const std::string& path, bool parents) {
  struct stat found;
  if (::lstat(path.c_str(), &found) == 0) {
    if (!S_ISDIR(found.st_mode)) {
      return NoAccess(absl::StrCat(path, " is not a directory"), "name a directory");
    }
    if (found.st_uid == ::geteuid()) return absl::OkStatus();
    return NoAccess(absl::StrCat(path, " belongs to user ", found.st_uid, ", the manager runs as ",
                                 ::geteuid()),
                    absl::StrCat("chown it, or run the manager as its owner"));
  }
  std::filesystem::path above = std::filesystem::path(path).parent_path();
  std::error_code error;
  while (parents && above.has_relative_path() && !std::filesystem::exists(above, error)) {
    above = above.parent_path();
  }
  if (std::filesystem::is_directory(above, error) && ::access(above.c_str(), W_OK | X_OK) == 0) {
    return absl::OkStatus();
  }
  return NoAccess(absl::StrCat(path, " is not there and cannot be made in ", above.string(), ": ",
                               std::strerror(errno)),
                  absl::StrCat("make it, owned by the manager's user: install -d -m 0700 ", path));
}

absl::Status CheckStore(const FmConfig& config) {
  if (config.store != FmConfig::StoreKind::kSqlite) return absl::OkStatus();
  const std::string directory = std::filesystem::path(config.store_path).parent_path().string();
  struct stat found;
  // Where the directory is there, CheckStorePath makes nothing.
  if (::lstat(directory.c_str(), &found) == 0) return CheckStorePath(config.store_path).status();
  return CheckDirectory(directory, /*parents=*/false);
}

// A manager that lost the records on etcd may be there still, with a command in its hand.
absl::Status CheckClaims(const FmConfig& config) {
  if (config.store != FmConfig::StoreKind::kEtcd || config.fabric.claims_hosts) {
    return absl::OkStatus();
  }
  if (CXLPOOL_MUTANT("shared-records-without-claims")) return absl::OkStatus();
  return Refuse(absl::StatusCode::kFailedPrecondition, "HOSTS_NOT_CLAIMED",
                "records on etcd pass from one manager to the next while the former one may still "
                "run, and this fabric driver cannot keep its commands away from hosts",
                "write store.kind = \"sqlite\", and start another manager only once an operator "
                "has seen that the former one has ended, or has taken its power away");
}

}  // namespace

SqliteStoreOptions StoreOptionsOf(const FmConfig& config) {
  SqliteStoreOptions options;
  options.path = config.store_path;
  return options;
}

// All but what main.cc adds: the callback for each sign of life, and the counter of requests that
// were sent again.
EtcdStoreOptions EtcdOptionsOf(const FmConfig& config) {
  EtcdStoreOptions options;
  options.etcd.endpoints = config.etcd.endpoints;
  options.etcd.ca = config.etcd.ca;
  options.etcd.cert = config.etcd.cert;
  options.etcd.key = config.etcd.key;
  options.prefix = config.etcd.prefix;
  options.address = config.etcd.advertise;
  options.takeover = config.etcd.takeover;
  if (!CXLPOOL_MUTANT("store-room-is-lost")) options.max_bytes = config.etcd.max_bytes;
  options.write_backup = WriteNewDatabase;
  return options;
}

Writer::Options WriterOptionsOf(const FmConfig& config) {
  Writer::Options options;
  if (!CXLPOOL_MUTANT("fabric-rules-are-lost")) options.fabric = config.fabric.rules;
  if (!CXLPOOL_MUTANT("default-policy-is-lost")) options.default_policy = config.default_policy;
  if (!CXLPOOL_MUTANT("audit-limits-are-lost")) options.audit = config.audit;
  return options;
}

HostSessions::Options SessionOptionsOf(const FmConfig& config) {
  HostSessions::Options options;
  options.heartbeat = config.heartbeat;
  if (!CXLPOOL_MUTANT("lease-is-lost")) options.lease = config.lease;
  return options;
}

Reconciler::Options ReconcilerOptionsOf(const FmConfig& config) {
  Reconciler::Options options;
  options.attach_timeout = config.attach_timeout;
  if (!CXLPOOL_MUTANT("discover-period-is-lost")) options.discover_period = config.discover_period;
  return options;
}

// For the server of a manager that leads and for that of a standby: connections must not take the
// descriptors that either needs for its store.
ServerOptions ServerOptionsOf(const FmConfig& config, const FabricCapabilities& fabric,
                              std::shared_ptr<TlsSource> tls) {
  ServerOptions options;
  if (!CXLPOOL_MUTANT("descriptors-are-not-counted")) {
    options.connections = ConnectionLimits::For(RaiseDescriptorLimit());
  }
  for (const FmConfig::Listen& listen : config.listen) {
    options.listen.push_back({listen.address, listen.insecure, listen.tokens});
  }
  options.tls = std::move(tls);
  options.fabric = fabric;
  if (!CXLPOOL_MUTANT("configured-admins-are-lost")) options.admins = config.admins;
  if (config.store == FmConfig::StoreKind::kSqlite) {
    options.database = config.store_path;
    options.store_directory = std::filesystem::path(config.store_path).parent_path().string();
  } else if (config.store == FmConfig::StoreKind::kEtcd) {
    // What the unit's StateDirectory= gives this manager alone: what earlier ones left there goes.
    const char* state = ::getenv("STATE_DIRECTORY");
    options.store_directory = state != nullptr ? state : "/var/lib/cxlpool";
  }
  return options;
}

void TakeReloaded(const FmConfig& read_again, FmConfig& config) {
  config.log_level = read_again.log_level;
  if (!CXLPOOL_MUTANT("reload-keeps-admins")) config.admins = read_again.admins;
}

// Files that are not there take nothing: the log is gone after an orderly end.
std::optional<uint64_t> StoreBytes(const FmConfig& config) {
  if (config.store != FmConfig::StoreKind::kSqlite) return std::nullopt;
  uint64_t bytes = 0;
  for (const char* file : {"", "-wal"}) {
    struct stat found;
    if (::stat(absl::StrCat(config.store_path, file).c_str(), &found) == 0) {
      bytes += static_cast<uint64_t>(found.st_size);
    }
  }
  return bytes;
}

absl::StatusOr<std::shared_ptr<TlsSource>> LoadTlsOf(const FmConfig& config) {
  if (!config.tls.has_value()) return nullptr;
  const FmConfig::Tls& tls = *config.tls;
  const TlsFiles files = {.ca = tls.ca, .cert = tls.cert, .key = tls.key};
  auto source = TlsSource::Load(files, CertificateUse::Manager(tls.server_name));
  if (source.ok()) return source;
  return TlsErrorAt(source.status(), files, config.where);
}

// TlsErrorAt names files as keys of [tls]; these are keys of [store].
absl::StatusOr<std::vector<CertificateEnd>> EtcdCertificatesOf(const FmConfig& config) {
  const FmConfig::Etcd& etcd = config.etcd;
  std::vector<CertificateEnd> ends;
  if (config.store != FmConfig::StoreKind::kEtcd || etcd.ca.empty()) return ends;
  const TlsFiles files = {.ca = etcd.ca, .cert = etcd.cert, .key = etcd.key};
  const absl::StatusOr<TlsMaterial> material = LoadTls(files);
  if (material.ok()) {
    ends.push_back({absl::StrCat("the certificate for etcd in ", etcd.cert), material->leaf,
                    "issue a new one where etcd's authority is kept (`cxlpool pki renew operator "
                    "NAME`), put it in its place and restart the manager, a standby first"});
    ends.push_back({absl::StrCat("the authority of etcd in ", etcd.ca), material->authority,
                    "make a new one and issue every certificate of etcd's again "
                    "(docs/replicated.md, Set up etcd)"});
    return ends;
  }
  std::map<std::string, std::string> where;
  for (const std::string key : {"ca", "cert", "key"}) {
    const auto found = config.where.find("store." + key);
    if (found != config.where.end()) where["tls." + key] = found->second;
  }
  return TlsErrorAt(material.status(), files, where);
}

absl::Status CheckEtcdTls(const FmConfig& config) { return EtcdCertificatesOf(config).status(); }

absl::Status CheckPaths(const FmConfig& config) {
  if (absl::Status status = CheckEtcdTls(config); !status.ok()) return status;
  if (absl::Status status = At(config, "store.kind", CheckClaims(config)); !status.ok()) {
    return status;
  }
  if (absl::Status status = At(config, "store.path", CheckStore(config)); !status.ok()) {
    return status;
  }
  if (!config.fence.path.empty()) {
    const auto safe = CheckProgram("the fence program", config.fence.path);
    if (!safe.ok()) return At(config, "fabric.fence_program", safe.status());
  }
  for (const auto& [key, path, parents] : config.fabric.directories) {
    const absl::Status status = CheckDirectory(path, parents);
    if (!status.ok()) return At(config, absl::StrCat("fabric.", key), status);
  }
  return absl::OkStatus();
}

}  // namespace cxlpool::fm
