// cxlpool-fm: the fabric manager. Picks the adapters, makes the threads, and stops in order.

#ifdef CXLPOOL_TCMALLOC
#include <gperftools/malloc_extension_c.h>
#else
#include <malloc.h>
#endif
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <cstdlib>
#include <future>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "fabric-manager/adapters/store_memory/memory_store.h"
#include "fabric-manager/adapters/store_sqlite/sqlite_store.h"
#include "fabric-manager/config.h"
#include "fabric-manager/fabric_drivers.h"
#include "fabric-manager/fsck/fsck.h"
#include "fabric-manager/rpc/authorize.h"
#include "fabric-manager/rpc/server.h"
#include "fabric-manager/service/agent_tasks.h"
#include "fabric-manager/service/lease_keeper.h"
#include "fabric-manager/service/media_keeper.h"
#include "fabric-manager/service/metered_fabric.h"
#include "fabric-manager/service/metrics.h"
#include "fabric-manager/setup.h"
#include "proto/metrics/metrics_server.h"
#include "proto/support/certificate_keeper.h"
#include "proto/support/daemon.h"
#include "proto/support/grpc_log.h"
#include "proto/support/installed_script.h"
#include "proto/support/log.h"
#include "proto/support/loop.h"

namespace cxlpool::fm {
namespace {

constexpr size_t kStepsInTheLog = 16;
constexpr char kSubject[] = "cxlpool-fm";
constexpr int kBadUsage = 2;  // Of a wrong command line, and of --check-config.
constexpr int kNotEmpty = 1;  // Of --check-empty.

// For calls that are being answered, which takes milliseconds. Streams, and connections whose
// client looks at nothing, end no sooner: every stop takes so long.
constexpr absl::Duration kShutdownGrace = absl::Seconds(1);
constexpr absl::Duration kStopDeadline = absl::Seconds(9);

absl::StatusOr<std::unique_ptr<Store>> MakeStore(const FmConfig& config) {
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

void GiveBackMemory() {
#ifdef CXLPOOL_TCMALLOC
  MallocExtension_ReleaseFreeMemory();
#else
  malloc_trim(0);
#endif
}

// Everything that runs, made in the order it depends on.
class Manager {
 public:
  // `tasks`: what the driver was made with.
  Manager(FmConfig config, std::unique_ptr<Store> store, std::unique_ptr<SessionTasks> tasks,
          std::unique_ptr<FabricDriver> driver, std::shared_ptr<TlsSource> tls)
      : config_(std::move(config)),
        admins_(config_.admins),
        store_(std::move(store)),
        tasks_(std::move(tasks)),
        driver_(std::make_unique<MeteredFabric>(std::move(driver), &clock_, &fabric_times_)),
        tls_(std::move(tls)),
        writer_(WriterOptionsOf(config_, driver_->capabilities()), &loop_, &clock_, store_.get(),
                &views_, &watch_),
        sessions_(SessionOptionsOf(config_), &loop_, &clock_, &writer_),
        reconciler_(ReconcilerOptionsOf(config_), &loop_, &clock_, &writer_, driver_.get(),
                    &sessions_, CrashProbe()),
        leases_(&loop_, &clock_, &writer_),
        media_({}, &loop_, &clock_, &writer_, &sessions_),
        pool_(&loop_, &writer_, &reconciler_, &sessions_) {
    const FabricCapabilities fabric = driver_->capabilities();
    writer_.SetLimits({.extent_granule_bytes = fabric.extent_granule_bytes,
                       .max_lds_per_device = fabric.max_lds_per_device});
    tasks_->Attach(&loop_, &sessions_);
  }

  // `on_fatal` may be called from any thread, once serving.
  absl::Status Start(std::function<void(absl::Status)> on_fatal) {
    std::promise<absl::Status> opened;
    writer_.Open({.on_committed =
                      [this](const auto& changes) {
                        reconciler_.OnCommitted(changes);
                        leases_.OnCommitted(changes);
                      },
                  .on_space =
                      [this](const absl::Status& status) {
                        if (RpcServer* const server = serving_.load()) server->NoteStore(status);
                      },
                  .on_fatal = std::move(on_fatal)},
                 [&](absl::Status status) { opened.set_value(std::move(status)); });
    if (absl::Status status = opened.get_future().get(); !status.ok()) return status;
    if (absl::Status status = TakeInTopology(); !status.ok()) return status;
    GiveBackMemory();  // What reading the store took and needs no more: a million records' worth.
    std::promise<absl::Status> discovered;
    loop_.Post([&] {
      sessions_.Start(
          {.on_segments = [this](
                              const auto& host, const auto& reports,
                              bool complete) { reconciler_.OnSegments(host, reports, complete); },
           .on_events = [this](const auto& host,
                               const auto& events) { media_.OnEvents(host, events); },
           .on_session =
               [this](const auto& host, bool online) {
                 tasks_->OnSession(host, sessions_.LifeOf(host));
                 reconciler_.OnSession(host, online);
                 media_.OnSession(host);
               },
           .on_device_answer = [this](const auto& host,
                                      const auto& answer) { tasks_->OnAnswer(host, answer); }});
      leases_.Start();
      LogAnchor();
      reconciler_.Start([&](absl::Status status) { discovered.set_value(std::move(status)); });
    });
    if (absl::Status status = discovered.get_future().get(); !status.ok()) {
      if (IsFabricBusy(status)) return status;
      LogWarning(kSubject, "the fabric could not be read yet: ", status.message());
    }
    ServerOptions options = ServerOptionsOf(config_, driver_->capabilities(), tls_);
    options.connections = ConnectionLimits::For(RaiseDescriptorLimit());
    options.meters = &writer_.meters();
    auto server =
        RpcServer::Start(options, &loop_, &pool_, &sessions_, store_.get(), &views_, &watch_);
    if (!server.ok()) return server.status();
    server_ = *std::move(server);
    serving_ = server_.get();
    server_->SetServing(true);
    for (size_t i = 0; i < config_.listen.size(); ++i) {
      LogInfo(kSubject, "serving on ", config_.listen[i].address,
              config_.listen[i].insecure ? ", without TLS" : "");
    }
    return ServeMetrics();
  }

  // Takes over what counts without a new start. On the thread that starts and stops it.
  void Reload(const FmConfig& config) {
    SetLogLevel(config.log_level);
    admins_.Set(config.admins);
    server_->SetAdmins(config.admins);
  }

  void Stop() {
    metrics_.reset();
    if (server_ != nullptr) {
      server_->SetServing(false);
      server_->Shutdown(kShutdownGrace);
    }
    tasks_->Stop();  // Nobody answers any more: the driver is not to wait for that.
    loop_.Stop();
    driver_.reset();
    store_.reset();
  }

  // Runs `then` once the writer's thread, and then the one that accepts connections, has come to
  // it: that they do is what the watchdog wants to know.
  void Ping(std::function<void()> then) {
    loop_.Post([this, then = std::move(then)]() mutable { server_->Ping(std::move(then)); });
  }

 private:
  // The configuration's tables become records of a pool that has none. Of every other pool the
  // records are what counts, and where the configuration says something else an operator hears of
  // it.
  absl::Status TakeInTopology() {
    for (bool done = false; !done;) {
      std::promise<absl::Status> taken;
      writer_.Submit(
          Audit{{}, "manager", "take-in-topology", config_.file},
          [&](const PoolState& state, PlanContext& context) -> absl::StatusOr<Proposal> {
            Change change = PlanImport(state, config_.tables, config_.file, context);
            done = change.empty();
            return Proposal{std::move(change), nullptr};
          },
          [&](const absl::StatusOr<Committed>& answer) { taken.set_value(answer.status()); });
      if (absl::Status status = taken.get_future().get(); !status.ok()) return status;
    }
    std::promise<TopologyTables> recorded;
    loop_.Post([&] { recorded.set_value(writer_.DurableTables()); });
    const std::vector<TopologyStep> steps =
        CompareTables(recorded.get_future().get(), config_.tables);
    // A configuration without such tables leaves it all to the records.
    if (steps.empty() || config_.tables == TopologyTables()) return absl::OkStatus();
    std::vector<std::string> words;
    for (const TopologyStep& step : steps) {
      if (words.size() == kStepsInTheLog) break;
      words.push_back(
          absl::StrCat(step.name, step.verb == TopologyStep::Verb::kAdd      ? " (only in the file)"
                                  : step.verb == TopologyStep::Verb::kRemove ? " (only in the pool)"
                                                                             : " (differs)"));
    }
    LogWarning(kSubject, config_.file,
               " is not what the pool consists of, and the pool's records count: ",
               absl::StrJoin(words, ", "), steps.size() > words.size() ? ", ..." : "",
               "; `cxlpool topology apply ", config_.file, "` makes the pool as the file says");
    return absl::OkStatus();
  }

  // Where the audit trail ends, at the start and once an hour: whoever can write to the store
  // cannot write to a journal that is kept elsewhere. On the loop.
  void LogAnchor() {
    const AuditHead head = writer_.trail().Read(1, 0).bounds.head;
    if (head.number != 0) {
      LogInfo("audit", "the trail ends at ", ToText(head));
      writer_.meters().last_anchor_s = absl::ToUnixSeconds(clock_.Now());
    }
    loop_.PostAfter(absl::Hours(1), [this] { LogAnchor(); });
  }

  absl::Status ServeMetrics() {
    auto listener = metrics::ServeMetrics(
        config_.metrics, tls_, [this] { return Metrics(); },
        [this](const CertificateFacts& facts) { return MayReadMetrics(facts); });
    if (!listener.ok()) return listener.status();
    metrics_ = *std::move(listener);
    return absl::OkStatus();
  }
  // Whether an operator's certificate may: any role in the pool will do, as for the calls that look
  // at all of it; the figures are of all tenants. On the listener's thread.
  bool MayReadMetrics(const CertificateFacts& facts) const {
    const std::string& identity = facts.uris[0];
    const auto rules = views_.GetAccessRules();
    if (!CheckRevoked(rules->revocations, identity, facts.serial).ok()) return false;
    if (admins_.Get()->contains(identity)) return true;
    const auto granted =
        RoleOf(rules->bindings, identity, Proof::kOperatorCertificate, clock_.Now());
    return granted.has_value() && !IsForTenants(granted->role);
  }
  // On the listener's thread.
  std::string Metrics() {
    ManagerFacts facts{.now = clock_.Now(),
                       .queued = writer_.queued(),
                       .max_queue = writer_.max_queue(),
                       .watches = server_->watches(),
                       .watch_lag = server_->watch_lag(),
                       .store_bytes = StoreBytes(config_),
                       .fabric = &fabric_times_};
    if (tls_ != nullptr) {
      const auto material = tls_->current();
      facts.certificate = material->leaf.not_after;
      facts.authority = material->authority.not_after;
    }
    return ManagerMetrics(*views_.Get(), writer_.meters(), facts);
  }

  const FmConfig config_;
  FixedAdmins admins_;  // Who may read metrics; the server has its own.
  SystemClock clock_;
  ViewHolder views_;
  WatchHub watch_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<SessionTasks> tasks_;
  FabricTimes fabric_times_;
  std::unique_ptr<FabricDriver> driver_;
  const std::shared_ptr<TlsSource> tls_;  // Null: every address is insecure.
  Loop loop_{"fm-writer"};
  Writer writer_;
  HostSessions sessions_;
  Reconciler reconciler_;
  LeaseKeeper leases_;
  MediaKeeper media_;
  PoolService pool_;
  std::unique_ptr<RpcServer> server_;
  // `server_` once it is there, for the writer's thread.
  std::atomic<RpcServer*> serving_ = nullptr;
  std::unique_ptr<metrics::MetricsListener> metrics_;
};

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

int Run(const std::string& file) {
  const sigset_t signals = BlockSignals();
  RouteGrpcLog();
  // gRPC's locks: Debian's build of Abseil looks for deadlocks whenever one is taken.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  const auto loaded = LoadFmConfig(file, FabricDrivers());
  if (!loaded.ok()) return Fail(loaded.status());
  const FmConfig& config = *loaded;
  SetLogLevel(config.log_level);
  auto tls = LoadTlsOf(config);
  if (!tls.ok()) return Fail(tls.status());
  if (absl::Status status = CheckPaths(config); !status.ok()) return Fail(status);
  auto store = MakeStore(config);
  if (!store.ok()) return Fail(store.status());
  auto tasks = std::make_unique<SessionTasks>();
  auto driver = config.fabric.open(tasks.get());
  if (!driver.ok()) return Fail(driver.status());
  CertificateKeeper certificates(kSubject, *tls);
  Manager manager(config, *std::move(store), std::move(tasks), *std::move(driver), *std::move(tls));
  const absl::Status started = manager.Start([](const absl::Status& status) {
    // What was acknowledged is durable; what was not is answered by nobody. Start afresh.
    _exit(Fail(status));
  });
  if (!started.ok()) {
    manager.Stop();
    return Fail(started);
  }
  NotifyService("READY=1").IgnoreError();
  certificates.Warn();
  AwaitEnd(
      signals,
      [&] {
        certificates.Reload();
        Reload(file, manager);
      },
      [&] {
        certificates.Warn();
        manager.Ping([] { NotifyService("WATCHDOG=1").IgnoreError(); });
      });
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
  if (!status.ok()) {
    std::cerr << kSubject << ": " << status.message() << "\n";
    return kBadUsage;
  }
  if (tls != nullptr) {
    for (const std::string& warning : ExpiryWarnings(*tls->current(), absl::Now())) {
      std::cerr << kSubject << ": warning: " << warning << "\n";
    }
  }
  std::cout << file << ": OK\n";
  return EXIT_SUCCESS;
}

// What `--check-empty` says: whether the pool has a Region, by the records of a manager that is
// stopped. Changes nothing. What cannot be known counts as a Region.
int CheckEmpty(const std::string& file) {
  const auto fail = [](absl::string_view why) {
    std::cerr << kSubject << ": " << why << "\n";
    return kNotEmpty;
  };
  const auto config = LoadFmConfig(file, FabricDrivers());
  if (!config.ok()) return fail(config.status().message());
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
    return fail(absl::StrCat(config->store_path, " is damaged: see `cxlpool fsck ",
                             config->store_path, "`"));
  }
  if (report->regions > 0) {
    return fail(absl::StrCat("the pool has ", report->regions,
                             report->regions == 1 ? " Region" : " Regions",
                             ": see `cxlpool region list`, and release what nobody needs"));
  }
  std::cout << "the pool has no Region\n";
  return EXIT_SUCCESS;
}

}  // namespace
}  // namespace cxlpool::fm

int main(int argc, char** argv) {
  CLI::App app{"cxlpool-fm: allocates CXL pool memory to hosts"};
  std::string file = "/etc/cxlpool/fm.toml";
  bool check = false, check_empty = false;
  app.add_option("--config", file, "Configuration, TOML")->type_name("FILE")->capture_default_str();
  app.add_flag("--check-config", check, "Check the configuration and exit");
  app.add_flag("--check-empty", check_empty,
               "Check that the pool of a stopped manager has no Region, and exit");
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
  return cxlpool::fm::Run(file);
}
