// From the configuration to what each part of the manager is given, and whether this machine is as
// the configuration says. main.cc does nothing with a key but by these functions, and
// `--check-config` asks the same ones, so that it says what the manager would say.
#ifndef CXLPOOL_FABRIC_MANAGER_SETUP_H_
#define CXLPOOL_FABRIC_MANAGER_SETUP_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "fabric-manager/adapters/store_etcd/etcd_store.h"
#include "fabric-manager/adapters/store_sqlite/sqlite_store.h"
#include "fabric-manager/config.h"
#include "fabric-manager/rpc/server.h"
#include "fabric-manager/service/host_sessions.h"
#include "fabric-manager/service/reconciler.h"
#include "fabric-manager/service/writer.h"
#include "proto/support/tls.h"

namespace cxlpool::fm {

SqliteStoreOptions StoreOptionsOf(const FmConfig& config);
EtcdStoreOptions EtcdOptionsOf(const FmConfig& config);
Writer::Options WriterOptionsOf(const FmConfig& config);
HostSessions::Options SessionOptionsOf(const FmConfig& config);
Reconciler::Options ReconcilerOptionsOf(const FmConfig& config);
// Raises this process's limit of descriptors: so many connections are let in as that leaves room
// for. `tls` as LoadTlsOf answers it.
ServerOptions ServerOptionsOf(const FmConfig& config, const FabricCapabilities& fabric,
                              std::shared_ptr<TlsSource> tls);

// Takes over from a configuration that was read again what counts without a new start: `admins` and
// the level of the log. The rest of `config` stays. A manager that stands by keeps it for the
// server that it starts once it leads.
void TakeReloaded(const FmConfig& read_again, FmConfig& config);

// What the store's files take; nothing: it has none here.
std::optional<uint64_t> StoreBytes(const FmConfig& config);

// The manager's certificate, key and authorities; null without [tls]. Errors as LoadTls, behind the
// file, line and key of the configuration.
absl::StatusOr<std::shared_ptr<TlsSource>> LoadTlsOf(const FmConfig& config);

// The certificate that this manager shows to etcd, and etcd's authority, by the files that the
// configuration names; none without them. A store reads them once, when it is made. Errors as
// LoadTls, behind the file, line and key of the configuration.
absl::StatusOr<std::vector<CertificateEnd>> EtcdCertificatesOf(const FmConfig& config);

// Whether this manager can show itself to etcd: errors as EtcdCertificatesOf.
absl::Status CheckEtcdTls(const FmConfig& config);

// Whether the directories of the store and of the fabric are there, or can be made, and belong to
// this user; whether the driver keeps former managers away from hosts where several share the
// records; and CheckEtcdTls. Makes nothing. STORE_UNSAFE_PATH, STORE_UNUSABLE, STORE_CORRUPT as
// CheckStorePath; FAILED_PRECONDITION: NO_ACCESS, HOSTS_NOT_CLAIMED, HOOK_UNSAFE (the fence
// program); each behind the file, line and key of the configuration.
absl::Status CheckPaths(const FmConfig& config);

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_SETUP_H_
