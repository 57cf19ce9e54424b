// cxlpool-dra: the kubelet's plugin for Regions of the pool (docs/kubernetes.md). One runs on each
// node, beside cxlpool-agent, as root.
//
// SIGTERM or SIGINT: stops within seconds. What is prepared stays; the next one takes it over.

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "proto/support/daemon.h"
#include "proto/support/grpc_log.h"
#include "proto/support/log.h"
#include "proto/support/unique_fd.h"
#include "tools/dra/claim.h"
#include "tools/dra/claim_keeper.h"
#include "tools/dra/kubelet_server.h"

namespace cxlpool::dra {
namespace {

constexpr char kSubject[] = "cxlpool-dra";
constexpr absl::Duration kLongestWait = absl::Minutes(10);
constexpr int kRefreshSeconds = 5;

struct Settings {
  std::string registrar_folder = "/var/lib/kubelet/plugins_registry";
  std::string plugin_folder = absl::StrCat("/var/lib/kubelet/plugins/", kDriver);
  std::string cdi_folder = "/var/run/cdi";
  std::string agent_socket;
  std::string wait = "40s";
};

// Without a slash at its end.
absl::Status CheckFolder(absl::string_view option, std::string& folder) {
  while (folder.size() > 1 && absl::EndsWith(folder, "/")) folder.pop_back();
  if (absl::StartsWith(folder, "/")) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(option, " is no absolute path: \"", folder, "\" (give one from / on)"));
}

absl::Status MakeFolder(const std::string& folder, mode_t mode) {
  std::error_code error;
  if (std::filesystem::is_directory(folder, error)) return absl::OkStatus();
  std::filesystem::create_directories(folder, error);
  if (!error && ::chmod(folder.c_str(), mode) == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("cannot make ", folder, ": ",
                                                    error ? error.message() : std::strerror(errno),
                                                    " (run it as root)"));
}

// Two of them would close each other's Regions. The lock goes with the process.
absl::Status TakeLock(const std::string& folder) {
  const std::string path = absl::StrCat(folder, "/lock");
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR));
  if (!fd.valid()) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot open ", path, ": ", std::strerror(errno), " (run it as root)"));
  }
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("another cxlpool-dra holds ", path, " (end it: `fuser ", path, "` names it)"));
  }
  fd.Release();
  return absl::OkStatus();
}

// Serves until a signal to end. The kubelet finds no socket before what the process before has
// prepared is taken over, and never two processes that do so.
absl::Status Run(Settings settings, const sigset_t& signals) {
  for (auto [option, folder] : {std::pair("--registrar-dir", &settings.registrar_folder),
                                std::pair("--plugin-dir", &settings.plugin_folder),
                                std::pair("--cdi-dir", &settings.cdi_folder)}) {
    if (absl::Status s = CheckFolder(option, *folder); !s.ok()) return s;
  }
  absl::Duration wait;
  if (!absl::ParseDuration(settings.wait, &wait) || wait < absl::ZeroDuration() ||
      wait > kLongestWait) {
    return absl::InvalidArgumentError(
        absl::StrCat("--wait is no time: \"", settings.wait, "\" (give 0 to 10m, as in 40s)"));
  }
  if (std::error_code error; !std::filesystem::is_directory(settings.registrar_folder, error)) {
    return absl::FailedPreconditionError(
        absl::StrCat(settings.registrar_folder,
                     " is not there: no kubelet has run on this host "
                     "(start it first, or give its folder by --registrar-dir)"));
  }
  if (absl::Status s = MakeFolder(settings.plugin_folder, 0750); !s.ok()) return s;
  if (absl::Status s = MakeFolder(settings.cdi_folder, 0755); !s.ok()) return s;
  if (absl::Status s = TakeLock(settings.plugin_folder); !s.ok()) return s;
  ClaimKeeper keeper(settings.cdi_folder, settings.agent_socket);
  if (absl::Status s = keeper.Start(); !s.ok()) return s;
  const auto server = ServeKubelet(
      {.registration_socket = absl::StrCat(settings.registrar_folder, "/", kDriver, "-reg.sock"),
       .plugin_socket = absl::StrCat(settings.plugin_folder, "/dra.sock"),
       .wait = wait},
      &keeper);
  if (!server.ok()) return server.status();
  NotifyService("READY=1").IgnoreError();
  const timespec pause = {.tv_sec = kRefreshSeconds, .tv_nsec = 0};
  while (true) {
    const int got = ::sigtimedwait(&signals, nullptr, &pause);
    if (got == SIGTERM || got == SIGINT) break;
    keeper.Refresh();
  }
  NotifyService("STOPPING=1").IgnoreError();
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  const sigset_t signals = BlockSignals();
  Settings settings;
  CLI::App app{"The kubelet's plugin for claims of pool memory: docs/kubernetes.md"};
  app.set_version_flag("--version", CXLPOOL_VERSION);
  app.add_option("--registrar-dir", settings.registrar_folder,
                 "Where the kubelet looks for plugins")
      ->capture_default_str();
  app.add_option("--plugin-dir", settings.plugin_folder, "For the plugin's own socket")
      ->capture_default_str();
  app.add_option("--cdi-dir", settings.cdi_folder, "Where container runtimes look for CDI files")
      ->capture_default_str();
  app.add_option("--socket", settings.agent_socket,
                 "The host agent's socket (default: CXLPOOL_SOCKET, or /run/cxlpool/agent.sock)");
  app.add_option("--wait", settings.wait,
                 "How long a Region may take to come; the kubelet waits for 45s")
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  ::umask(S_IRWXG | S_IRWXO);  // The sockets are root's.
  RouteGrpcLog();
  const absl::Status status = Run(settings, signals);
  if (status.ok()) return 0;
  LogError(kSubject, status.message());
  return ExitStatusOf(status);
}

}  // namespace
}  // namespace cxlpool::dra

int main(int argc, char** argv) { return cxlpool::dra::Main(argc, argv); }
