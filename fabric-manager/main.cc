// cxlpool-fm: the fabric manager. Picks the adapters, makes the threads, and stops in order.

#ifdef CXLPOOL_TCMALLOC
#include <gperftools/malloc_extension_c.h>
#else
#include <malloc.h>
#endif
#include <signal.h>
#include <sys/signalfd.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <iostream>
#include <memory>
#include <string>
#include <thread>

#include "fabric-manager/adapters/fabric_emulated/emulated_fabric.h"
#include "fabric-manager/adapters/fabric_qemu/qemu_fabric.h"
#include "fabric-manager/adapters/store_memory/memory_store.h"
#include "fabric-manager/adapters/store_sqlite/sqlite_store.h"
#include "fabric-manager/config.h"
#include "fabric-manager/rpc/server.h"
#include "fabric-manager/service/lease_keeper.h"
#include "proto/support/log.h"
#include "proto/support/loop.h"
#include "proto/support/service_notify.h"

namespace cxlpool::fm {
namespace {

// For calls that are being answered, which takes milliseconds. Streams, and connections whose
// client looks at nothing, end no sooner: every stop takes so long.
constexpr absl::Duration kShutdownGrace = absl::Seconds(1);
constexpr absl::Duration kStopDeadline = absl::Seconds(9);

absl::StatusOr<std::unique_ptr<FabricDriver>> MakeDriver(const FmConfig& config) {
  if (config.driver == FmConfig::Driver::kEmulated) {
    EmulatedFabricConfig emulated;
    emulated.root_directory = config.emulated_root;
    for (const auto& device : config.devices) {
      emulated.devices.push_back(
          {device.id, device.serial, device.capacity_bytes, device.granule_bytes});
    }
    for (const auto& host : config.hosts) {
      EmulatedHostConfig to;
      to.id = host.id;
      to.slots = host.slots;
      to.agent_uid = host.uid;
      emulated.hosts.push_back(std::move(to));
    }
    return EmulatedFabric::Open(std::move(emulated));
  }
  QemuFabricConfig qemu;
  qemu.state_directory = config.qemu_state;
  for (const auto& device : config.devices) {
    qemu.devices.push_back({.id = device.id,
                            .serial = device.serial,
                            .path = device.path,
                            .capacity_bytes = device.capacity_bytes,
                            .granule_bytes = device.granule_bytes});
  }
  for (const auto& host : config.hosts)
    qemu.hosts.push_back({.id = host.id, .qmp_socket = host.qmp});
  return QemuFabric::Open(std::move(qemu));
}

absl::StatusOr<std::unique_ptr<Store>> MakeStore(const FmConfig& config) {
  if (config.store == FmConfig::StoreKind::kMemory) {
    LogWarning("store", "in memory: everything is forgotten when this process ends");
    return std::make_unique<MemoryStore>(std::make_shared<MemoryDisk>());
  }
  SqliteStoreOptions options;
  options.path = config.store_path;
  return MakeSqliteStore(options);
}

// Absolute; empty where the store is in memory.
std::string StoreDirectory(const FmConfig& config) {
  if (config.store == FmConfig::StoreKind::kMemory) return "";
  std::error_code error;
  return std::filesystem::absolute(config.store_path, error).parent_path().string();
}

// CXLPOOL_CRASH_AT=RUNG[:N] ends this process by SIGKILL the Nth time it passes the rung: for the
// kill tests, which restart it and see that it converges.
Probe CrashProbe() {
  const char* at = std::getenv("CXLPOOL_CRASH_AT");
  if (at == nullptr) return nullptr;
  std::string rung = at;
  int count = 1;
  if (const size_t colon = rung.rfind(':'); colon != std::string::npos) {
    count = std::atoi(rung.c_str() + colon + 1);
    rung.resize(colon);
  }
  return [rung, count](absl::string_view passed) mutable {
    if (passed == rung && --count <= 0) kill(getpid(), SIGKILL);
  };
}

int Fail(const absl::Status& status) {
  LogError("cxlpool-fm", std::string(status.message()));
  return EXIT_FAILURE;
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
  Manager(FmConfig config, std::unique_ptr<Store> store, std::unique_ptr<FabricDriver> driver)
      : config_(std::move(config)),
        store_(std::move(store)),
        driver_(std::move(driver)),
        coherent_(driver_->capabilities().hardware_coherent),
        writer_({.hardware_coherent = coherent_, .default_policy = config_.default_policy}, &loop_,
                &clock_, store_.get(), &views_, &watch_),
        sessions_({.heartbeat = config_.heartbeat, .lease = config_.lease}, &loop_, &clock_,
                  &writer_),
        reconciler_(
            {.attach_timeout = config_.attach_timeout, .discover_period = config_.discover_period},
            &loop_, &clock_, &writer_, driver_.get(), &sessions_, CrashProbe()),
        leases_(&loop_, &clock_, &writer_),
        pool_(&loop_, &writer_, &reconciler_, &sessions_) {
    const FabricCapabilities fabric = driver_->capabilities();
    writer_.SetTopology(config_.topology);
    writer_.SetLimits({.extent_granule_bytes = fabric.extent_granule_bytes,
                       .max_lds_per_device = fabric.max_lds_per_device});
  }

  // `on_fatal` may be called from any thread, once serving.
  absl::Status Start(std::function<void(absl::Status)> on_fatal) {
    std::promise<absl::Status> opened;
    writer_.Open({.on_committed =
                      [this](const auto& changes) {
                        reconciler_.OnCommitted(changes);
                        leases_.OnCommitted(changes);
                      },
                  .on_fatal = std::move(on_fatal)},
                 [&](absl::Status status) { opened.set_value(std::move(status)); });
    if (absl::Status status = opened.get_future().get(); !status.ok()) return status;
    GiveBackMemory();  // What reading the store took and needs no more: a million records' worth.
    std::promise<absl::Status> discovered;
    loop_.Post([&] {
      sessions_.Start(
          {.on_segments = [this](
                              const auto& host, const auto& reports,
                              bool complete) { reconciler_.OnSegments(host, reports, complete); },
           .on_events = [this](const auto& host,
                               const auto& events) { reconciler_.OnEvents(host, events); },
           .on_session = [this](const auto& host,
                                bool online) { reconciler_.OnSession(host, online); }});
      leases_.Start();
      reconciler_.Start([&](absl::Status status) { discovered.set_value(std::move(status)); });
    });
    if (absl::Status status = discovered.get_future().get(); !status.ok()) {
      LogWarning("cxlpool-fm", "the fabric could not be read yet: ", status.message());
    }
    ServerOptions options{.listen = {},
                          .tls = std::nullopt,
                          .fabric = driver_->capabilities().driver,
                          .hardware_coherent = coherent_,
                          .store_directory = StoreDirectory(config_)};
    for (const auto& listen : config_.listen) {
      options.listen.push_back({listen.address, listen.insecure});
    }
    if (config_.tls.has_value()) {
      options.tls = TlsFiles{config_.tls->ca, config_.tls->cert, config_.tls->key};
    }
    auto server =
        RpcServer::Start(options, &loop_, &pool_, &sessions_, store_.get(), &views_, &watch_);
    if (!server.ok()) return server.status();
    server_ = *std::move(server);
    server_->SetServing(true);
    for (size_t i = 0; i < config_.listen.size(); ++i) {
      LogInfo("cxlpool-fm", "serving on ", config_.listen[i].address,
              server_->ports()[i] > 0 ? absl::StrCat(" (port ", server_->ports()[i], ")") : "");
    }
    return absl::OkStatus();
  }

  void Stop() {
    if (server_ != nullptr) {
      server_->SetServing(false);
      server_->Shutdown(kShutdownGrace);
    }
    loop_.Stop();
    driver_.reset();
    store_.reset();
  }

  // Posts a task that the writer runs: that it does is what the watchdog wants to know.
  void Ping(std::function<void()> then) { loop_.Post(std::move(then)); }

 private:
  const FmConfig config_;
  SystemClock clock_;
  ViewHolder views_;
  WatchHub watch_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<FabricDriver> driver_;
  const bool coherent_;
  Loop loop_{"fm-writer"};
  Writer writer_;
  HostSessions sessions_;
  Reconciler reconciler_;
  LeaseKeeper leases_;
  PoolService pool_;
  std::unique_ptr<RpcServer> server_;
};

// Waits for SIGTERM or SIGINT, feeding the watchdog meanwhile.
void WaitForSignal(Manager& manager, const sigset_t& signals) {
  const absl::Duration interval = std::min(WatchdogInterval(), absl::Hours(1));
  while (true) {
    const timespec wait = absl::ToTimespec(interval);
    const int got = sigtimedwait(&signals, nullptr, &wait);
    if (got == SIGTERM || got == SIGINT) return;
    manager.Ping([] { NotifyService("WATCHDOG=1").IgnoreError(); });
  }
}

int Run(const FmConfig& config) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);

  auto store = MakeStore(config);
  if (!store.ok()) return Fail(store.status());
  auto driver = MakeDriver(config);
  if (!driver.ok()) return Fail(driver.status());
  Manager manager(config, *std::move(store), *std::move(driver));
  const absl::Status started = manager.Start([](const absl::Status& status) {
    // What was acknowledged is durable; what was not is answered by nobody. Start afresh.
    Fail(status);
    _exit(EXIT_FAILURE);
  });
  if (!started.ok()) {
    Fail(started);
    manager.Stop();
    return EXIT_FAILURE;
  }
  NotifyService("READY=1").IgnoreError();
  WaitForSignal(manager, signals);
  NotifyService("STOPPING=1").IgnoreError();
  LogInfo("cxlpool-fm", "stopping");
  // Durable state needs no goodbye: if something hangs, go.
  std::thread([] {
    std::this_thread::sleep_for(absl::ToChronoMilliseconds(kStopDeadline));
    LogError("cxlpool-fm", "could not stop in time: exiting");
    _exit(EXIT_FAILURE);
  }).detach();
  manager.Stop();
  return EXIT_SUCCESS;
}

}  // namespace
}  // namespace cxlpool::fm

int main(int argc, char** argv) {
  CLI::App app{"cxlpool-fm: allocates CXL pool memory to hosts"};
  std::string file = "/etc/cxlpool/fm.toml";
  bool check = false;
  app.add_option("--config", file, "Configuration, TOML")->capture_default_str();
  app.add_flag("--check-config", check, "Check the configuration and exit");
  app.set_version_flag("--version", "cxlpool-fm " CXLPOOL_VERSION);
  CLI11_PARSE(app, argc, argv);
  const auto config = cxlpool::fm::LoadFmConfig(file);
  if (!config.ok()) {
    std::cerr << "cxlpool-fm: " << config.status().message() << "\n";
    return 2;
  }
  if (check) {
    std::cout << file << ": OK\n";
    return 0;
  }
  return cxlpool::fm::Run(*config);
}
