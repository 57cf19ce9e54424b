// cxlpool-agent: the host agent. Picks the adapters, makes the threads, and stops in order.
//
// SIGTERM or SIGINT: stops within 10 s and leaves memory as it is; a second one exits at once.
//
// `cxlpool-agent check` examines the machine instead (check.h).

#include <signal.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <future>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "host-agent/adapters/emulated/emulated_host_events.h"
#include "host-agent/adapters/emulated/emulated_host_memory.h"
#include "host-agent/adapters/linux/events/linux_host_events.h"
#include "host-agent/adapters/linux/linux_host_memory.h"
#include "host-agent/adapters/linux/linux_space.h"
#include "host-agent/adapters/linux/machine/host_policy.h"
#include "host-agent/adapters/shared/file_space.h"
#include "host-agent/adapters/shared/grant_table.h"
#include "host-agent/adapters/shared/shared_host.h"
#include "host-agent/check.h"
#include "host-agent/config.h"
#include "host-agent/local/drain_program.h"
#include "host-agent/local/link_paths.h"
#include "host-agent/local/local_server.h"
#include "host-agent/local/pidfd_watch.h"
#include "host-agent/rpc/grpc_manager_link.h"
#include "host-agent/service/owners.h"
#include "host-agent/service/readiness.h"
#include "host-agent/service/tiering_keeper.h"
#include "host-agent/setup.h"
#include "host-agent/support/run_file.h"
#include "proto/metrics/metrics_server.h"
#include "proto/support/certificate_keeper.h"
#include "proto/support/daemon.h"
#include "proto/support/grpc_log.h"
#include "proto/support/installed_script.h"
#include "proto/support/log.h"
#include "proto/support/loop.h"
#include "proto/support/names.h"

namespace cxlpool::agent {
namespace {

constexpr char kSubject[] = "cxlpool-agent";
constexpr int kBadUsage = 2;  // Of a wrong command line, and of --check-config.
constexpr int kNotEmpty = 1;  // Of --check-empty.
constexpr absl::Duration kStopDeadline = absl::Seconds(9);
constexpr absl::Duration kMetricsWait = absl::Seconds(3);
constexpr absl::Duration kLookTimeout = absl::Seconds(30);  // Of `--check-empty`, for the kernel.
constexpr absl::Duration kAskTimeout = absl::Seconds(3);    // Of `check`, for the manager's answer.

int Fail(const absl::Status& status) {
  LogError(kSubject, status.message());
  return ExitStatusOf(status);
}

absl::StatusOr<std::string> BootId() {
  std::string id;
  if (std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), id) && !id.empty()) return id;
  return absl::FailedPreconditionError(
      "/proc/sys/kernel/random/boot_id cannot be read: mount /proc");
}

absl::StatusOr<AgentOptions> OptionsOf(const AgentConfig& config) {
  absl::StatusOr<std::string> boot_id = BootId();
  if (!boot_id.ok()) return boot_id.status();
  utsname kernel = {};
  ::uname(&kernel);
  return CoreOptionsOf(config, {.boot_id = *std::move(boot_id),
                                .agent_id = FormatUuid(RandomUuid()),
                                .kernel_release = kernel.release});
}

absl::StatusOr<std::unique_ptr<HostMemory>> MakeMemory(const AgentConfig& config, Loop* loop,
                                                       Clock* clock) {
  if (config.adapter == AgentConfig::Adapter::kLinux) {
    return MakeLinuxHostMemory(LinuxOptionsOf(config));
  }
  return std::make_unique<EmulatedHostMemory>(EmulatedOptionsOf(config), loop, clock);
}

std::unique_ptr<DaxSpace> MakeSpace(const AgentConfig& config, const SharedHostOptions& shared) {
  if (!config.shared_files.empty()) {
    return std::make_unique<FileSpace>(config.shared_files, PiecesFileOf(config), shared.boot_id);
  }
  return MakeLinuxSpace({.devices = config.shared_devices});
}

// What the agent before this one has noted can be read, or there is nothing.
absl::Status CheckNotes(const AgentConfig& config, const SharedHostOptions& shared) {
  absl::Status status = CheckRunFile(shared.grants_path, kGrantsText, shared.boot_id);
  status.Update(CheckRunFile(PiecesFileOf(config), kPiecesText, shared.boot_id));
  return status;
}

std::unique_ptr<HostEvents> MakeEvents(const AgentConfig& config, Loop* loop) {
  if (config.is_real_host()) {
    return MakeLinuxHostEvents({.every_memdev = config.adapter == AgentConfig::Adapter::kShared});
  }
  return std::make_unique<EmulatedHostEvents>(EmulatedEventsOptionsOf(config), loop);
}

// OK where there is none.
absl::Status CheckDrainHook(const AgentConfig& config) {
  if (config.drain_hook.empty()) return absl::OkStatus();
  return CheckDrainProgram(config.drain_hook).status();
}

// Everything that runs, made in the order it depends on.
class Agent {
 public:
  // All parts, of which none is started: what cannot be made ends the agent before it says anything
  // to its manager or to an application.
  static absl::StatusOr<std::unique_ptr<Agent>> Make(const AgentConfig& config,
                                                     std::shared_ptr<TlsSource> tls) {
    auto agent = std::unique_ptr<Agent>(new Agent);
    agent->tls_ = tls;
    absl::StatusOr<AgentOptions> options = OptionsOf(config);
    if (!options.ok()) return options.status();
    auto link = MakeGrpcManagerLink(LinkOptionsOf(config, std::move(tls), options->incarnation));
    if (!link.ok()) return link.status();
    agent->link_ = *std::move(link);
    if (config.adapter == AgentConfig::Adapter::kShared) {
      SharedHostOptions shared = SharedOptionsOf(config, options->incarnation);
      shared.probe = CrashProbe();
      // Before the grants are read: two agents would each overwrite what the other has noted.
      absl::Status status = HoldRunFile(shared.grants_path);
      if (status.ok()) status = CheckNotes(config, shared);
      if (!status.ok()) return status;
      auto memory = MakeSharedHost(MakeSpace(config, shared), shared);
      agent->shared_ = memory.get();
      agent->memory_ = std::move(memory);
    } else {
      auto memory = MakeMemory(config, &agent->memory_loop_, &agent->clock_);
      if (!memory.ok()) return memory.status();
      agent->memory_ = *std::move(memory);
    }
    agent->events_ = MakeEvents(config, &agent->memory_loop_);
    agent->core_ =
        std::make_unique<AgentCore>(*std::move(options), &agent->loop_, &agent->clock_,
                                    agent->memory_.get(), agent->link_.get(), CrashProbe());
    agent->core_->SetDeviceWork(agent->shared_);
    if (config.is_real_host()) agent->FollowTiering(config);
    agent->drain_hook_ = std::make_unique<DrainProgram>(config.drain_hook, config.drain_timeout);
    if (!config.drain_hook.empty()) agent->core_->SetDrainHook(agent->drain_hook_.get());
    agent->core_->SetProcessWatch(&agent->processes_);
    agent->owners_ = std::make_unique<Owners>(agent->core_.get(), &agent->loop_, &agent->clock_,
                                              &agent->processes_, agent->link_.get());
    agent->readiness_ = std::make_unique<Readiness>(
        agent->core_.get(), absl::StrJoin(config.managers, ", "), &agent->loop_, &agent->clock_,
        [](absl::string_view text) { NotifyService(text).IgnoreError(); });
    agent->paths_ = std::make_unique<LinkPaths>(PathsFolderOf(config));
    // Where Regions are parts of files there is none, so that nothing is allocated to be one.
    LinkPaths* const paths = config.shared_files.empty() ? agent->paths_.get() : nullptr;
    agent->service_ = std::make_unique<LocalService>(
        PolicyOf(config, ::geteuid()), agent->core_.get(), &agent->loop_, &agent->clock_,
        agent->memory_.get(), agent->link_.get(), paths);
    LocalServerOptions local = ServerOptionsOf(config);
    local.max_connections = FitConnections(local.max_connections);
    agent->server_ =
        std::make_unique<LocalServer>(std::move(local), agent->service_.get(), &agent->loop_);
    agent->metrics_settings_ = config.metrics;
    return agent;
  }

  // Returns once applications are served. The service manager is notified when the host is as the
  // manager wants it (Readiness).
  absl::Status Start() {
    if (absl::Status status = processes_.Start(); !status.ok()) return status;
    if (absl::Status status = server_->Start(); !status.ok()) return status;
    loop_.Post([this] {
      service_->Start();
      core_->Start([](absl::Status) {});  // The core logs what is wrong, and goes on trying.
      readiness_->Start();
    });
    events_->Start([this](std::vector<v1::HostEvent> events) {
      if (shared_ != nullptr) shared_->Place(events);
      loop_.Post(
          [this, events = std::move(events)]() mutable { core_->TakeEvents(std::move(events)); });
    });
    return ServeMetrics();
  }

  void Stop() {
    metrics_.reset();
    loop_.Post([this] { core_->Stop(); });
    if (tiering_ != nullptr) tiering_->Stop();
    events_->Stop();
    server_->Stop();
    processes_.Stop();
    drain_hook_->Stop();
    link_->Stop();
    memory_loop_.Stop();
    loop_.Stop();
  }

  // Takes over what counts without a new start.
  void Reload(const AgentConfig& config) {
    SetLogLevel(config.log_level);
    drain_hook_->Set(config.drain_hook, config.drain_timeout);
    loop_.Post([this, none = config.drain_hook.empty()] {
      core_->SetDrainHook(none ? nullptr : drain_hook_.get());
    });
  }

  // Posts a task that the core's thread runs: that it does is what the watchdog wants to know.
  void Ping(Task then) { loop_.Post(std::move(then)); }

 private:
  Agent() = default;

  void FollowTiering(const AgentConfig& config) {
    policy_ = std::make_unique<LinuxHostPolicy>(HostFiles(), KernelPolicyFileOf(config));
    tiering_ = std::make_unique<TieringKeeper>(config.tiering, &memory_loop_, policy_.get());
    core_->AddOnChange([this] {
      if (core_->progress().observed) tiering_->Update(TieringNodesOf(core_->observation()));
    });
  }

  absl::Status ServeMetrics() {
    auto listener = metrics::ServeMetrics(metrics_settings_, tls_, [this] { return Metrics(); });
    if (!listener.ok()) return listener.status();
    metrics_ = *std::move(listener);
    return absl::OkStatus();
  }
  // On the listener's thread, which ends before the core's does. A core that is stuck leaves only
  // what the process says of itself.
  std::string Metrics() {
    std::optional<CertificateEnds> ends;
    if (tls_ != nullptr) {
      const auto material = tls_->current();
      ends = {material->leaf.not_after, material->authority.not_after};
    }
    const auto made = std::make_shared<std::promise<std::string>>();
    std::future<std::string> text = made->get_future();
    loop_.Post([this, made, ends] { made->set_value(AgentMetrics(*core_, ends)); });
    if (text.wait_for(absl::ToChronoMilliseconds(kMetricsWait)) == std::future_status::ready) {
      return text.get();
    }
    metrics::MetricsText alone;
    metrics::AddProcess(alone);
    return alone.text();
  }

  SystemClock clock_;
  std::shared_ptr<TlsSource> tls_;  // Null: it has none.
  metrics::MetricsSettings metrics_settings_;
  Loop loop_{"agent-core"};
  Loop memory_loop_{"host-memory"};
  PidfdWatch processes_;
  std::unique_ptr<ManagerLink> link_;
  std::unique_ptr<HostMemory> memory_;
  SharedHostMemory* shared_ = nullptr;  // The same, where devices are shared.
  std::unique_ptr<HostEvents> events_;
  std::unique_ptr<HostPolicy> policy_;
  std::unique_ptr<TieringKeeper> tiering_;    // None: the adapter is emulated.
  std::unique_ptr<DrainProgram> drain_hook_;  // The core has it where one is configured.
  std::unique_ptr<AgentCore> core_;
  std::unique_ptr<Owners> owners_;
  std::unique_ptr<Readiness> readiness_;
  std::unique_ptr<LinkPaths> paths_;
  std::unique_ptr<LocalService> service_;
  std::unique_ptr<LocalServer> server_;
  std::unique_ptr<metrics::MetricsListener> metrics_;
};

// Ends the process if it cannot stop in time, or is asked to stop again. What is online needs no
// goodbye.
void ExitWhenOverdue(const sigset_t& signals) {
  const SystemClock clock;
  const absl::Duration deadline = clock.Elapsed() + kStopDeadline;
  int got = SIGHUP;
  while (got == SIGHUP) {  // There is nothing to reload any more.
    const timespec wait =
        absl::ToTimespec(std::max(deadline - clock.Elapsed(), absl::ZeroDuration()));
    got = ::sigtimedwait(&signals, nullptr, &wait);
  }
  if (got < 0) LogError(kSubject, "could not stop in time: exiting");
  ::_exit(EXIT_FAILURE);
}

// What the configuration says and names, as it has to be before anything is done.
struct Checked {
  AgentConfig config;
  std::shared_ptr<TlsSource> tls;
};

absl::StatusOr<Checked> LoadChecked(const std::string& file) {
  absl::StatusOr<AgentConfig> config = LoadAgentConfig(file);
  if (!config.ok()) return config.status();
  if (absl::Status status = CheckDrainHook(*config); !status.ok()) return status;
  auto tls = LoadTlsOf(*config);
  if (!tls.ok()) return tls.status();
  return Checked{*std::move(config), *std::move(tls)};
}

// On SIGHUP. A configuration that will not do, or that names files that will not, changes nothing.
void Reload(const std::string& file, Agent& agent) {
  const absl::StatusOr<Checked> checked = LoadChecked(file);
  if (!checked.ok()) {
    LogError(kSubject, "the configuration stays as it was: ", checked.status().message());
    return;
  }
  agent.Reload(checked->config);
  LogInfo(kSubject, file, " was read again: release.drain_hook, release.drain_timeout and ",
          "log_level count from now on, what else was changed does at the next start");
}

// The daemon: from its configuration to SIGTERM. What is attached stays attached when it ends.
int Run(const std::string& file) {
  const sigset_t signals = BlockSignals();
  const absl::StatusOr<Checked> checked = LoadChecked(file);
  if (!checked.ok()) return Fail(checked.status());
  const AgentConfig& config = checked->config;
  SetLogLevel(config.log_level);
  CertificateKeeper certificates(kSubject, checked->tls);
  certificates.Warn();
  auto agent = Agent::Make(config, checked->tls);
  if (!agent.ok()) return Fail(agent.status());
  if (absl::Status status = (*agent)->Start(); !status.ok()) {
    Fail(status);
    (*agent)->Stop();
    return EXIT_FAILURE;
  }
  LogInfo(kSubject, "serving applications on ", config.socket, ", manager at ",
          absl::StrJoin(config.managers, ", "));
  AwaitEnd(
      signals,
      [&] {
        certificates.Reload();
        Reload(file, **agent);
      },
      [&] {
        certificates.Warn();
        (*agent)->Ping([] { NotifyService("WATCHDOG=1").IgnoreError(); });
      });
  NotifyService("STOPPING=1").IgnoreError();
  LogInfo(kSubject, "stopping; memory stays as it is");
  std::thread([signals] { ExitWhenOverdue(signals); }).detach();
  (*agent)->Stop();
  agent->reset();
  return EXIT_SUCCESS;
}

// Whether the emulated fabric is there, and has this host's slots: what the agent looks at first.
absl::Status CheckEmulatedFabric(const AgentConfig& config) {
  SystemClock clock;
  Loop loop("check");
  EmulatedHostMemory memory(EmulatedOptionsOf(config), &loop, &clock);
  std::promise<absl::Status> looked;
  memory.Prepare([&](const absl::Status& prepared) {
    if (!prepared.ok()) return looked.set_value(prepared);
    memory.Observe(
        [&](const absl::StatusOr<HostObservation>& seen) { looked.set_value(seen.status()); });
  });
  absl::Status status = looked.get_future().get();
  loop.Stop();
  return status;
}

// A Hello of this host, without what it holds: for a question.
absl::StatusOr<v1::Hello> QuestionOf(const AgentConfig& config) {
  absl::StatusOr<AgentOptions> options = OptionsOf(config);
  if (!options.ok()) return options.status();
  v1::Hello hello;
  hello.set_protocol_version(kProtocolVersion);
  hello.set_host(options->host);
  hello.set_incarnation(options->incarnation);
  hello.set_agent_id(options->agent_id);
  hello.set_agent_version(options->agent_version);
  hello.set_kernel_release(options->kernel_release);
  return hello;
}

// 0: fit; 1: something is missing.
int Check(const std::string& config_file, bool json, bool offline) {
  CheckQuestions questions;
  questions.credentials = [](const AgentConfig& config) { return LoadTlsOf(config).status(); };
  questions.expiry = [](const AgentConfig& config) {
    const auto tls = LoadTlsOf(config);
    return tls.ok() && *tls != nullptr ? ExpiryWarnings(*(*tls)->current(), absl::Now())
                                       : std::vector<std::string>();
  };
  questions.drain_hook = CheckDrainHook;
  questions.emulated_fabric = CheckEmulatedFabric;
  if (!offline) {
    questions.manager = [](const AgentConfig& config) -> absl::StatusOr<std::string> {
      auto tls = LoadTlsOf(config);
      if (!tls.ok()) return tls.status();
      const absl::StatusOr<v1::Hello> hello = QuestionOf(config);
      if (!hello.ok()) return hello.status();
      return AskManager(LinkOptionsOf(config, *std::move(tls), hello->incarnation()), *hello,
                        kAskTimeout);
    };
  }
  const std::vector<Finding> findings = CheckAgent(HostFiles(), config_file, questions);
  std::cout << (json ? CheckJson(findings) : CheckTable(findings)) << std::flush;
  return IsFit(findings) && std::cout.good() ? 0 : 1;
}

// What `--check-config` says: what Run would say of the configuration and of the files it names.
int CheckConfig(const std::string& file) {
  const absl::StatusOr<Checked> checked = LoadChecked(file);
  if (!checked.ok()) {
    std::cerr << kSubject << ": " << checked.status().message() << "\n";
    return kBadUsage;
  }
  std::vector<std::string> warnings;
  if (checked->tls != nullptr) warnings = ExpiryWarnings(*checked->tls->current(), absl::Now());
  // The agent would start, find the host unfit, and wait until it is not.
  if (checked->config.adapter == AgentConfig::Adapter::kEmulated) {
    const absl::Status fabric = CheckEmulatedFabric(checked->config);
    if (!fabric.ok()) warnings.emplace_back(fabric.message());
  }
  for (const std::string& warning : warnings) {
    std::cerr << kSubject << ": warning: " << warning << "\n";
  }
  std::cout << file << ": OK\n";
  return EXIT_SUCCESS;
}

// What this host has of the pool, without the agent. Changes nothing.
absl::StatusOr<HostObservation> LookAtHost(const AgentConfig& config) {
  SystemClock clock;
  Loop loop("check");
  absl::StatusOr<std::unique_ptr<HostMemory>> memory;
  if (config.adapter == AgentConfig::Adapter::kShared) {
    const absl::StatusOr<AgentOptions> options = OptionsOf(config);
    if (!options.ok()) return options.status();
    SharedHostOptions shared = SharedOptionsOf(config, options->incarnation);
    if (absl::Status status = CheckNotes(config, shared); !status.ok()) return status;
    memory = MakeSharedHost(MakeSpace(config, shared), shared);
  } else {
    memory = MakeMemory(config, &loop, &clock);
  }
  if (!memory.ok()) return memory.status();
  std::promise<absl::StatusOr<HostObservation>> looked;
  auto future = looked.get_future();
  (*memory)->Observe(
      [&](absl::StatusOr<HostObservation> seen) { looked.set_value(std::move(seen)); });
  if (future.wait_for(absl::ToChronoSeconds(kLookTimeout)) != std::future_status::ready) {
    // A thread waits for the kernel, and nothing ends that.
    std::cerr << kSubject << ": the kernel has not said in " << kLookTimeout
              << " what memory it has\n";
    _exit(kNotEmpty);
  }
  auto seen = future.get();
  loop.Stop();
  return seen;
}

// What `--check-empty` says: whether this host can reach memory of the pool. What cannot be known
// counts as memory.
int CheckEmpty(const std::string& file) {
  const auto fail = [](absl::string_view why) {
    std::cerr << kSubject << ": " << why << "\n";
    return kNotEmpty;
  };
  const absl::StatusOr<AgentConfig> config = LoadAgentConfig(file);
  if (!config.ok()) return fail(config.status().message());
  const absl::StatusOr<HostObservation> seen = LookAtHost(*config);
  if (!seen.ok()) return fail(seen.status().message());
  uint64_t bytes = 0;
  for (const ObservedMemdev& memdev : seen->memdevs) bytes += memdev.size_bytes;
  if (!seen->memdevs.empty()) {
    return fail(absl::StrCat("this host has ", bytes, " bytes of the pool: see `cxlpool host show ",
                             config->host, "`, and release or detach its Regions"));
  }
  std::cout << "this host has no memory of the pool\n";
  return EXIT_SUCCESS;
}

}  // namespace
}  // namespace cxlpool::agent

// Of several that are asked for, the first in the order below is done. `init` is a script of its
// own, and takes this process's place.
int main(int argc, char** argv) {
  CLI::App app{"cxlpool-agent: turns what the CXL fabric shows to this host into memory"};
  std::string file = "/etc/cxlpool/agent.toml";
  bool only_config = false, only_empty = false;
  app.add_option("--config", file, "Configuration, TOML")->type_name("FILE")->capture_default_str();
  app.add_flag("--check-config", only_config, "Check the configuration and exit");
  app.add_flag("--check-empty", only_empty,
               "Check that this host has no memory of the pool, and exit");
  app.set_version_flag("--version", "cxlpool-agent " CXLPOOL_VERSION);
  CLI::App* check = app.add_subcommand(
      "check", "Examine this machine: what is missing, and how to fix it. Exits 0 if it is fit");
  std::string output = "table";
  bool offline = false;
  check->add_option("-o,--output", output, "For people or for programs")
      ->check(CLI::IsMember({"table", "json"}))
      ->capture_default_str();
  check->add_flag("--offline", offline, "Do not ask the fabric manager");
  check->fallthrough();  // --config may stand behind it.
  CLI::App* init = app.add_subcommand(
      "init", "Set up this host: take the file that `cxlpool-fm init` made for it, and check");
  std::string from;
  std::vector<std::string> files;
  init->add_option("FILE", from, "On the manager's machine /etc/cxlpool/hosts/HOST.tar");
  init->add_option("--file", files, "A file in the place of a shared device; again for each")
      ->type_name("PATH")
      ->allow_extra_args(false);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    std::cerr << "cxlpool-agent: " << error.what() << " (see cxlpool-agent --help)\n";
    return cxlpool::agent::kBadUsage;
  }
  if (init->parsed()) {
    std::vector<std::string> words;
    for (const std::string& path : files) words.insert(words.end(), {"--file", path});
    if (!from.empty()) words.push_back(from);
    return cxlpool::agent::Fail(cxlpool::BecomeScript("agent-init", std::move(words)));
  }
  cxlpool::RouteGrpcLog();
  if (check->parsed()) return cxlpool::agent::Check(file, output == "json", offline);
  if (only_empty) return cxlpool::agent::CheckEmpty(file);
  if (only_config) return cxlpool::agent::CheckConfig(file);
  return cxlpool::agent::Run(file);
}
