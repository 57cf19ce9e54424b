// cxlpool-fm: the fabric manager. Picks the adapters, makes the threads, and stops in order.

#ifdef CXLPOOL_TCMALLOC
#include <gperftools/malloc_extension_c.h>
#else
#include <malloc.h>
#endif
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <future>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "fabric-manager/adapters/store_etcd/etcd_store.h"
#include "fabric-manager/adapters/store_memory/memory_store.h"
#include "fabric-manager/adapters/store_sqlite/sqlite_store.h"
#include "fabric-manager/config.h"
#include "fabric-manager/fabric_drivers.h"
#include "fabric-manager/fsck/fsck.h"
#include "fabric-manager/rpc/authorize.h"
#include "fabric-manager/rpc/server.h"
#include "fabric-manager/rpc/standby_server.h"
#include "fabric-manager/service/agent_tasks.h"
#include "fabric-manager/service/lease_keeper.h"
#include "fabric-manager/service/media_keeper.h"
#include "fabric-manager/service/metered_fabric.h"
#include "fabric-manager/service/metrics.h"
#include "fabric-manager/service/record_codec.h"
#include "fabric-manager/setup.h"
#include "fabric-manager/store_copy.h"
#include "proto/metrics/metrics_server.h"
#include "proto/support/certificate_keeper.h"
#include "proto/support/daemon.h"
#include "proto/support/grpc_log.h"
#include "proto/support/installed_script.h"
#include "proto/support/log.h"
#include "proto/support/loop.h"
#include "proto/support/mutex.h"
#include "proto/support/self_fence.h"

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

// `fence`: of a store that has to be given up in time. `resent` counts for it.
absl::StatusOr<std::unique_ptr<Store>> MakeStore(const FmConfig& config, SelfFence* fence,
                                                 metrics::Counter* resent) {
  if (config.store == FmConfig::StoreKind::kEtcd) {
    EtcdStoreOptions options = EtcdOptionsOf(config);
    options.owned_until = [fence](absl::Duration until) { fence->Arm(until); };
    options.resent = resent;
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

void GiveBackMemory() {
#ifdef CXLPOOL_TCMALLOC
  MallocExtension_ReleaseFreeMemory();
#else
  malloc_trim(0);
#endif
}

// Who has the store, as was last seen. Any thread.
class OwnerSeen {
 public:
  void Set(const StoreOwner& owner) {
    MutexLock lock(mutex_);
    owner_ = owner;
    seen_ = clock_.Elapsed();
  }
  StoreOwner Get() const {
    MutexLock lock(mutex_);
    return owner_;
  }
  absl::Duration age() const {
    MutexLock lock(mutex_);
    return clock_.Elapsed() - seen_;
  }

 private:
  const SystemClock clock_;
  mutable Mutex mutex_;
  StoreOwner owner_ ABSL_GUARDED_BY(mutex_);
  absl::Duration seen_ ABSL_GUARDED_BY(mutex_) = clock_.Elapsed();
};

// What moves memory, made once the store is ours: before that another manager has the fabric.
struct Leader {
  // `tasks`: what the driver was made with.
  Leader(const FmConfig& config, std::unique_ptr<SessionTasks> of_driver,
         std::unique_ptr<FabricDriver> fabric, FabricTimes* times, Loop* loop, Clock* clock,
         Writer* writer)
      : tasks(std::move(of_driver)),
        driver(std::make_unique<MeteredFabric>(std::move(fabric), clock, times)),
        sessions(SessionOptionsOf(config), loop, clock, writer),
        reconciler(ReconcilerOptionsOf(config), loop, clock, writer, driver.get(), &sessions,
                   CrashProbe()),
        leases(loop, clock, writer),
        media({}, loop, clock, writer, &sessions),
        pool(loop, writer, &reconciler, &sessions) {
    tasks->Attach(loop, &sessions);
  }

  std::unique_ptr<SessionTasks> tasks;
  std::unique_ptr<FabricDriver> driver;
  HostSessions sessions;
  Reconciler reconciler;
  LeaseKeeper leases;
  MediaKeeper media;
  PoolService pool;
};

// Everything that runs, made in the order it depends on.
class Manager {
 public:
  // `resent`: as MakeStore. Outlives this.
  Manager(FmConfig config, std::unique_ptr<Store> store, std::shared_ptr<TlsSource> tls,
          const metrics::Counter* resent)
      : config_(std::move(config)),
        resent_(resent),
        admins_(config_.admins),
        store_(std::move(store)),
        tls_(std::move(tls)),
        writer_(WriterOptionsOf(config_), &loop_, &clock_, store_.get(), &views_, &watch_) {}

  // Opens the store, which is at once, or its turn comes once no other manager has it. `on_fatal`
  // may be called from any thread.
  void Open(std::function<void(absl::Status)> on_fatal, Done opened) {
    writer_.Open({.on_committed =
                      [this](const auto& changes) {
                        leader_->reconciler.OnCommitted(changes);
                        leader_->leases.OnCommitted(changes);
                      },
                  .on_space =
                      [this](const absl::Status& status) {
                        if (RpcServer* const server = serving_.load()) server->NoteStore(status);
                      },
                  .on_owner = [this](const StoreOwner& owner) { owner_.Set(owner); },
                  .on_fatal = std::move(on_fatal)},
                 std::move(opened));
  }

  // While another has the store: says to whoever calls who that is.
  absl::Status StandBy() {
    auto server = StandbyServer::Start(ServerOptionsOf(config_, {}, tls_), [this] {
      const StoreOwner owner = owner_.Get();
      // What was taken in, not what the owner is at: reading all of it takes a while.
      return StandbyFacts{
          .leader = owner.address, .epoch = owner.epoch, .revision = views_.Get()->revision};
    });
    if (!server.ok()) return server.status();
    standby_ = *std::move(server);
    return ServeMetrics();
  }

  // Once the store is open.
  absl::Status Serve() {
    if (standby_ != nullptr) standby_->Shutdown(absl::ZeroDuration());
    standby_ = nullptr;
    auto tasks = std::make_unique<SessionTasks>();
    auto driver = OpenFabric(config_.fabric, tasks.get());
    if (!driver.ok()) return driver.status();
    leader_.emplace(config_, std::move(tasks), *std::move(driver), &fabric_times_, &loop_, &clock_,
                    &writer_);
    writer_.SetFabric(leader_->driver->capabilities());
    if (absl::Status status = TakeInTopology(); !status.ok()) return status;
    GiveBackMemory();  // What reading the store took and needs no more: a million records' worth.
    std::promise<absl::Status> discovered;
    // Of a store that one manager has: it may be put back to what it was, epoch and all.
    uint64_t epoch = 0;
    loop_.Post([&] {
      if (config_.store == FmConfig::StoreKind::kEtcd) epoch = writer_.epoch();
      leader_->sessions.SetEpoch(epoch);
      StartSessions();
      leader_->leases.Start();
      LogAnchor();
      leader_->reconciler.Start([&](absl::Status status) { discovered.set_value(status); });
    });
    if (absl::Status status = discovered.get_future().get(); !status.ok()) {
      if (IsFabricBusy(status)) return status;
      LogWarning(kSubject, "the fabric could not be read yet: ", status.message());
    }
    ServerOptions options = ServerOptionsOf(config_, leader_->driver->capabilities(), tls_);
    options.connections = ConnectionLimits::For(RaiseDescriptorLimit());
    options.meters = &writer_.meters();
    options.epoch = epoch_ = epoch;
    auto server = RpcServer::Start(options, &loop_, &leader_->pool, &leader_->sessions,
                                   store_.get(), &views_, &watch_);
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
    if (server_ != nullptr) server_->SetAdmins(config.admins);
  }

  void Stop() {
    metrics_.reset();
    if (standby_ != nullptr) standby_->Shutdown(absl::ZeroDuration());
    if (server_ != nullptr) {
      server_->SetServing(false);
      server_->Shutdown(kShutdownGrace);
    }
    // Nobody answers any more: the driver is not to wait for that.
    if (leader_.has_value()) leader_->tasks->Stop();
    loop_.Stop();
    if (leader_.has_value()) leader_->driver.reset();
    store_.reset();
  }

  // Runs `then` once the writer's thread, and then the one that accepts connections, has come to
  // it: that they do is what the watchdog wants to know.
  void Ping(std::function<void()> then) {
    loop_.Post([this, then = std::move(then)]() mutable {
      if (RpcServer* const server = serving_.load()) return server->Ping(std::move(then));
      then();
    });
  }

 private:
  // On the loop.
  void StartSessions() {
    leader_->sessions.Start(
        {.on_segments =
             [this](const auto& host, const auto& reports, bool complete) {
               leader_->reconciler.OnSegments(host, reports, complete);
             },
         .on_events = [this](const auto& host,
                             const auto& events) { leader_->media.OnEvents(host, events); },
         .on_session =
             [this](const auto& host, bool online) {
               leader_->tasks->OnSession(host, leader_->sessions.LifeOf(host));
               leader_->reconciler.OnSession(host, online);
               leader_->media.OnSession(host);
             },
         .on_device_answer = [this](
                                 const auto& host,
                                 const auto& answer) { leader_->tasks->OnAnswer(host, answer); }});
  }

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

  // Goes on from the standby to the leader that it becomes.
  absl::Status ServeMetrics() {
    if (metrics_ != nullptr) return absl::OkStatus();
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
    // What a standby says it tells every caller; whom the pool believes it does not know.
    if (serving_.load() == nullptr) return true;
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
                       .store_bytes = StoreBytes(config_),
                       .fabric = &fabric_times_};
    if (tls_ != nullptr) {
      const auto material = tls_->current();
      facts.certificate = material->leaf.not_after;
      facts.authority = material->authority.not_after;
    }
    facts.replica.replicated = config_.store == FmConfig::StoreKind::kEtcd;
    facts.replica.epoch = epoch_;
    facts.replica.resent = resent_->value();
    RpcServer* const server = serving_.load();
    if (server == nullptr) {
      const StoreOwner owner = owner_.Get();
      facts.replica.leads = false;
      facts.replica.epoch = owner.epoch;
      facts.replica.revision = owner.revision;
      facts.replica.age = owner_.age();
      return StandbyMetrics(facts);
    }
    facts.watches = server->watches();
    facts.watch_lag = server->watch_lag();
    return ManagerMetrics(*views_.Get(), writer_.meters(), facts);
  }

  const FmConfig config_;
  const metrics::Counter* const resent_;
  FixedAdmins admins_;  // Who may read metrics; the server has its own.
  SystemClock clock_;
  ViewHolder views_;
  WatchHub watch_;
  OwnerSeen owner_;
  std::unique_ptr<Store> store_;
  FabricTimes fabric_times_;
  const std::shared_ptr<TlsSource> tls_;  // Null: every address is insecure.
  Loop loop_{"fm-writer"};
  Writer writer_;
  std::optional<Leader> leader_;
  std::unique_ptr<StandbyServer> standby_;
  std::unique_ptr<RpcServer> server_;
  // `server_` once it is there, for the writer's thread.
  std::atomic<RpcServer*> serving_ = nullptr;
  std::atomic<uint64_t> epoch_ = 0;  // Of a leader whose store others may want.
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

// Before the first use of gRPC.
void PrepareGrpc() {
  RouteGrpcLog();
  // gRPC's locks: Debian's build of Abseil looks for deadlocks whenever one is taken.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
}

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
  auto fence = config.store == FmConfig::StoreKind::kEtcd ? SelfFence::Make() : nullptr;
  if (!fence.ok()) return Fail(fence.status());
  metrics::Counter resent;
  auto store = MakeStore(config, fence->get(), &resent);
  if (!store.ok()) return Fail(store.status());
  CertificateKeeper certificates(kSubject, *tls);
  Manager manager(config, *std::move(store), *std::move(tls), &resent);
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
    if (absl::Status status = manager.StandBy(); !status.ok()) return Fail(status);
    NotifyService("READY=1\nSTATUS=standing by").IgnoreError();
  }
  bool end = false;
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
// stopped. Changes nothing. What cannot be known counts as a Region.
int CheckEmpty(const std::string& file) {
  const auto fail = [](absl::string_view why) {
    std::cerr << kSubject << ": " << why << "\n";
    return kNotEmpty;
  };
  const auto config = LoadFmConfig(file, FabricDrivers());
  if (!config.ok()) return fail(config.status().message());
  const auto answer = [&](uint64_t regions) {
    if (regions > 0) {
      return fail(absl::StrCat("the pool has ", regions, regions == 1 ? " Region" : " Regions",
                               ": see `cxlpool region list`, and release what nobody needs"));
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
    return fail(absl::StrCat(config->store_path, " is damaged: see `cxlpool fsck ",
                             config->store_path, "`"));
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
