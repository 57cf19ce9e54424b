// cxlpool-fm: the fabric manager. Picks the adapters, runs a Manager until it is told to end, and
// does what its options ask for besides.

#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "fabric-manager/adapters/store_etcd/etcd_store.h"
#include "fabric-manager/adapters/store_memory/memory_store.h"
#include "fabric-manager/adapters/store_sqlite/sqlite_store.h"
#include "fabric-manager/adapters/store_sqlite/store_file.h"
#include "fabric-manager/config.h"
#include "fabric-manager/fabric_drivers.h"
#include "fabric-manager/fsck/fsck.h"
#include "fabric-manager/manager.h"
#include "fabric-manager/service/record_codec.h"
#include "fabric-manager/setup.h"
#include "fabric-manager/store_copy.h"
#include "proto/support/certificate_keeper.h"
#include "proto/support/daemon.h"
#include "proto/support/grpc_log.h"
#include "proto/support/installed_script.h"
#include "proto/support/log.h"
#include "proto/support/self_fence.h"

namespace cxlpool::fm {
namespace {

constexpr char kSubject[] = "cxlpool-fm";
constexpr int kBadUsage = 2;  // Of a wrong command line, and of --check-config.
constexpr int kNotEmpty = 1;  // Of --check-empty.

constexpr absl::Duration kStopDeadline = absl::Seconds(9);

// `fence`: of a store that has to be given up in time. `meters`: of one on etcd.
absl::StatusOr<std::unique_ptr<Store>> MakeStore(const FmConfig& config, SelfFence* fence,
                                                 EtcdMeters* meters) {
  if (config.store == FmConfig::StoreKind::kEtcd) {
    EtcdStoreOptions options = EtcdOptionsOf(config);
    options.owned_until = [fence](absl::Duration until) { fence->Arm(until); };
    options.meters = meters;
    return MakeEtcdStore(options);
  }
  if (config.store == FmConfig::StoreKind::kMemory) {
    LogWarning("store", "in memory: everything is forgotten when this process ends");
    return std::make_unique<MemoryStore>(std::make_shared<MemoryDisk>());
  }
  return MakeSqliteStore(StoreOptionsOf(config));
}

int Fail(const absl::Status& status) {
  LogError(kSubject, std::string(status.message()));
  return ExitStatusOf(status);
}

// On SIGHUP. A configuration that will not do changes nothing.
void Reload(const std::string& file, Manager& manager) {
  const auto config = LoadFmConfig(file, FabricDrivers());
  if (!config.ok()) {
    LogError(kSubject, "the configuration stays as it was: ", config.status().message());
    return;
  }
  manager.Reload(*config);
  LogInfo(kSubject, file, " was read again: access.admins and log_level count from now on, ",
          "what else was changed does at the next start");
}

// Before the first use of gRPC.
void PrepareGrpc() {
  RouteGrpcLog();
  // gRPC's locks: Debian's build of Abseil looks for deadlocks whenever one is taken.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
}

// The manager's whole life, and the exit status of it. What is wrong with the configuration or with
// certificates ends it before the store is touched. The service manager hears READY once calls are
// answered, be it by a manager that stands by.
int Run(const std::string& file) {
  const sigset_t signals = BlockSignals();
  PrepareGrpc();
  const auto loaded = LoadFmConfig(file, FabricDrivers());
  if (!loaded.ok()) return Fail(loaded.status());
  const FmConfig& config = *loaded;
  SetLogLevel(config.log_level);
  auto tls = LoadTlsOf(config);
  if (!tls.ok()) return Fail(tls.status());
  if (absl::Status status = CheckPaths(config); !status.ok()) return Fail(status);
  const auto etcd_certificates = EtcdCertificatesOf(config);
  if (!etcd_certificates.ok()) return Fail(etcd_certificates.status());
  auto fence = config.store == FmConfig::StoreKind::kEtcd ? SelfFence::Make() : nullptr;
  if (!fence.ok()) return Fail(fence.status());
  EtcdMeters meters(config.etcd.endpoints.size());
  auto store = MakeStore(config, fence->get(), &meters);
  if (!store.ok()) return Fail(store.status());
  CertificateKeeper certificates(kSubject, *tls, absl::Now, *etcd_certificates);
  Manager manager(config, *std::move(store), *std::move(tls), *etcd_certificates, &meters);
  const auto await = [&] {
    return AwaitEnd(
        signals,
        [&] {
          certificates.Reload();
          Reload(file, manager);
        },
        [&] {
          certificates.Warn();
          manager.Ping([] { NotifyService("WATCHDOG=1").IgnoreError(); });
        });
  };
  absl::Status started;
  std::atomic<bool> opened = false;
  manager.Open(
      [](const absl::Status& status) {
        // What was acknowledged is durable; what was not is answered by nobody. Start afresh.
        _exit(Fail(status));
      },
      [&](absl::Status status) {
        started = std::move(status);
        opened = true;
        CutShort();
      });
  if (config.store == FmConfig::StoreKind::kEtcd && !opened) {
    LogInfo(kSubject, "standing by: another manager may have the pool");
    if (absl::Status status = manager.StandBy(); !status.ok()) {
      manager.Stop();
      return Fail(status);
    }
    NotifyService("READY=1\nSTATUS=standing by").IgnoreError();
  }
  bool end = false;
  // Opened by now or not: with etcd another one may lead for months. SIGTERM ends that, too.
  while (!opened && !end) end = await();
  if (!end) {
    if (started.ok()) started = manager.Serve();
    if (!started.ok()) {
      manager.Stop();
      return Fail(started);
    }
    NotifyService("READY=1\nSTATUS=").IgnoreError();
    certificates.Warn();
    while (!await()) continue;
  }
  NotifyService("STOPPING=1").IgnoreError();
  LogInfo(kSubject, "stopping");
  // Durable state needs no goodbye: if something hangs, go.
  std::thread([] {
    std::this_thread::sleep_for(absl::ToChronoMilliseconds(kStopDeadline));
    LogError(kSubject, "could not stop in time: exiting");
    _exit(EXIT_FAILURE);
  }).detach();
  manager.Stop();
  return EXIT_SUCCESS;
}

// What `--check-config` says: what Run would say of the configuration and of the files it names.
int CheckConfig(const std::string& file) {
  const auto config = LoadFmConfig(file, FabricDrivers());
  absl::Status status = config.status();
  std::shared_ptr<TlsSource> tls;
  if (status.ok()) {
    auto loaded = LoadTlsOf(*config);
    status = loaded.status();
    if (status.ok()) tls = *loaded;
  }
  if (status.ok()) status = CheckPaths(*config);
  std::vector<CertificateEnd> ends;
  if (status.ok()) {
    const auto etcd = EtcdCertificatesOf(*config);
    status = etcd.status();
    if (status.ok()) ends = EndsOf(tls.get(), *etcd);
  }
  if (!status.ok()) {
    std::cerr << kSubject << ": " << status.message() << "\n";
    return kBadUsage;
  }
  for (const std::string& warning : ExpiryWarnings(ends, absl::Now())) {
    std::cerr << kSubject << ": warning: " << warning << "\n";
  }
  std::cout << file << ": OK\n";
  return EXIT_SUCCESS;
}

// How many Regions there are in etcd now.
absl::StatusOr<uint64_t> CountRegions(const EtcdStoreOptions& options) {
  absl::StatusOr<StoreImage> image = ReadEtcdStore(options);
  if (!image.ok()) return image.status();
  PoolMeta meta;
  const absl::StatusOr<Change> records = DecodeAll(std::move(image->rows), meta);
  if (!records.ok()) return records.status();
  return std::count_if(records->begin(), records->end(),
                       [](const Item& item) { return std::holds_alternative<RegionPtr>(item); });
}

// What `--check-empty` says: whether the pool has a Region, by the records of a manager that is
// stopped. Changes nothing. What cannot be known counts as a Region. Of records in etcd it says,
// too, when a manager may go all the same: it does not wait to see whether another one lives.
int CheckEmpty(const std::string& file) {
  const auto fail = [](absl::string_view why) {
    std::cerr << kSubject << ": " << why << "\n";
    return kNotEmpty;
  };
  const auto config = LoadFmConfig(file, FabricDrivers());
  if (!config.ok()) return fail(config.status().message());
  const auto answer = [&](uint64_t regions) {
    if (regions > 0) {
      const char* const shared =
          config->store == FmConfig::StoreKind::kEtcd
              ? "; its records are in etcd, and stay there: where `cxlpool status` shows that "
                "another manager leads, that one keeps the pool, and this machine's package can be "
                "removed with CXLPOOL_REMOVE_ANYWAY=1 set"
              : "";
      return fail(absl::StrCat("the pool has ", regions, regions == 1 ? " Region" : " Regions",
                               ": see `cxlpool region list`, and release what nobody needs",
                               shared));
    }
    std::cout << "the pool has no Region\n";
    return EXIT_SUCCESS;
  };
  if (config->store == FmConfig::StoreKind::kEtcd) {
    // Whoever has the store may go on: nothing is claimed.
    PrepareGrpc();
    if (absl::Status status = CheckEtcdTls(*config); !status.ok()) return fail(status.message());
    const auto regions = CountRegions(EtcdOptionsOf(*config));
    return regions.ok() ? answer(*regions) : fail(regions.status().message());
  }
  if (config->store != FmConfig::StoreKind::kSqlite) {
    return fail(
        "the pool has no records on disk (store.kind): nobody can say whether it has Regions");
  }
  const auto report = RunFsck(config->store_path, /*repair=*/false, absl::Now());
  if (absl::IsNotFound(report.status())) {
    std::cout << config->store_path << " is not there: the pool has no Region\n";
    return EXIT_SUCCESS;
  }
  if (!report.ok()) return fail(report.status().message());
  if (!report->findings.empty()) {
    return fail(
        absl::StrCat(config->store_path, " is damaged: see ", FsckCommand(config->store_path)));
  }
  return answer(report->regions);
}

// What `--copy-store` does: docs/replicated.md.
int CopyStores(const std::vector<std::string>& names) {
  const auto fail = [](const absl::Status& status) {
    std::cerr << kSubject << ": " << status.message() << "\n";
    return EXIT_FAILURE;
  };
  PrepareGrpc();
  const auto from = PlaceOf(names[0], FabricDrivers());
  if (!from.ok()) return fail(from.status());
  const auto to = PlaceOf(names[1], FabricDrivers());
  if (!to.ok()) return fail(to.status());
  const auto copied = CopyStore(*from, *to);
  if (!copied.ok()) return fail(copied.status());
  std::cout << "copied " << copied->records << " records at revision " << copied->revision
            << " from " << NameOf(*from) << " to " << NameOf(*to) << "\n";
  return EXIT_SUCCESS;
}

}  // namespace
}  // namespace cxlpool::fm

// Of several that are asked for, the first in the order below is done. `init` is a script of its
// own, and takes this process's place.
int main(int argc, char** argv) {
  CLI::App app{"cxlpool-fm: allocates CXL pool memory to hosts"};
  std::string file = "/etc/cxlpool/fm.toml";
  bool check = false, check_empty = false;
  app.add_option("--config", file, "Configuration, TOML")->type_name("FILE")->capture_default_str();
  app.add_flag("--check-config", check, "Check the configuration and exit");
  app.add_flag("--check-empty", check_empty,
               "Check that the pool of a stopped manager has no Region, and exit");
  std::vector<std::string> copy;
  app.add_option(
         "--copy-store", copy,
         "Copy the records of a pool whose managers are stopped into a store that is empty, "
         "and exit; each is a configuration (*.toml) or a database")
      ->type_name("FROM TO")
      ->expected(2);
  app.set_version_flag("--version", "cxlpool-fm " CXLPOOL_VERSION);
  CLI::App* init = app.add_subcommand(
      "init", "Set up a manager on this machine: ask, make certificates and configuration, check");
  std::string address, driver;
  std::vector<std::string> hosts, devices;
  init->add_option("--address", address, "Where hosts and operators reach it")
      ->type_name("HOST:PORT");
  init->add_option("--driver", driver, "How memory reaches hosts")
      ->check(CLI::IsMember({"shared", "emulated"}));
  init->add_option("--host", hosts, "A host that is to have memory; again for each")
      ->type_name("NAME")
      ->allow_extra_args(false);
  init->add_option("--device", devices, "Driver emulated: a device; again for each")
      ->type_name("ID=SIZE")
      ->allow_extra_args(false);
  init->footer(
      "Asks for what no option says. May be run again: what is there stays, and files for more\n"
      "hosts are made.");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    std::cerr << "cxlpool-fm: " << error.what() << " (see cxlpool-fm --help)\n";
    return cxlpool::fm::kBadUsage;
  }
  if (init->parsed()) {
    std::vector<std::string> words;
    if (!address.empty()) words.insert(words.end(), {"--address", address});
    if (!driver.empty()) words.insert(words.end(), {"--driver", driver});
    for (const std::string& host : hosts) words.insert(words.end(), {"--host", host});
    for (const std::string& device : devices) words.insert(words.end(), {"--device", device});
    return cxlpool::fm::Fail(cxlpool::BecomeScript("fm-init", std::move(words)));
  }
  if (check) return cxlpool::fm::CheckConfig(file);
  if (check_empty) return cxlpool::fm::CheckEmpty(file);
  if (!copy.empty()) return cxlpool::fm::CopyStores(copy);
  return cxlpool::fm::Run(file);
}
