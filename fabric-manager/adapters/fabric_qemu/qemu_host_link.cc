#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "fabric-manager/adapters/fabric_qemu/qemu_host.h"
#include "fabric-manager/adapters/fabric_qemu/qemu_tree.h"
#include "proto/support/log.h"
#include "proto/support/mutant.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

constexpr char kLogSubject[] = "fabric-qemu";

}  // namespace

// Takes up the process that the records know. Only its certain end proves anything: where nobody
// can tell, the host stays unreachable.
void QemuHost::RememberFormer(const std::string& known) {
  const auto former = ParseIncarnation(known);
  if (!former.has_value() || CXLPOOL_MUTANT("any-qemu-will-do")) return;
  if (former->this_boot) {
    auto process = QemuProcess::Open(former->name.pid);
    if (process.ok() && process->name() == former->name) {
      process_ = std::move(*process);
      return;
    }
    if (!process.ok() && !absl::IsNotFound(process.status())) {
      LogError(kLogSubject, "host ", config_.id, ": ", process.status().message());
      return;
    }
  }
  ended_ = known;
  EmitGone();
}

std::string QemuHost::Incarnation() const {
  return process_.has_value() ? FormatIncarnation(process_->name()) : ended_;
}

absl::Status QemuHost::Unreachable() const {
  return Refuse(absl::StatusCode::kUnavailable, "HOST_UNREACHABLE",
                absl::StrCat("host ", config_.id, " cannot be asked through ", config_.qmp_socket,
                             ": ", down_.message()),
                "start its QEMU, or close what else uses its QMP socket");
}

// One attempt. That a host is out of reach is told once, and logged once for each reason.
void QemuHost::Connect() {
  operation_deadline_ = clock_.Elapsed() + timing_.operation;
  absl::Status status = TryConnect();
  if (status.ok()) {
    backoff_ = timing_.reconnect_min;
    reported_unreachable_ = false;
    news_ = true;
    LogInfo(kLogSubject, "host ", config_.id, " is QEMU ", client_->version(), ", process ",
            process_->name().pid);
    Emit(FabricEvent::Kind::kHostReachable);
    return;
  }
  client_.reset();
  next_connect_ = clock_.Elapsed() + backoff_;
  backoff_ = std::min(2 * backoff_, timing_.reconnect_max);
  if (down_ != status) LogWarning(kLogSubject, "host ", config_.id, ": ", status.message());
  down_ = std::move(status);
  if (!std::exchange(reported_unreachable_, true)) Emit(FabricEvent::Kind::kHostUnreachable);
}

// Nothing of this host changes before the QEMU has shown that it is the right one; with a process
// that is new, what was known of the last one is dropped.
absl::Status QemuHost::TryConnect() {
  auto client =
      QmpClient::Connect(config_.qmp_socket, interrupt_.get(), [this](const QmpMessage& event) {
        if (event.name == "DEVICE_DELETED") look_again_ = true;
      });
  if (!client.ok()) return client.status();
  std::optional<QemuProcess> fresh;
  if (absl::Status status = Identify(**client, fresh); !status.ok()) return status;
  const auto call = [&](const std::string& command, const nlohmann::json& arguments) {
    return (*client)->Execute(command, arguments, timing_.command);
  };
  auto ports = ReadPorts(call);
  if (!ports.ok()) return ports.status();
  if (fresh.has_value()) {
    process_ = std::move(fresh);
    ended_.clear();
    known_.clear();
    backends_.clear();
  }
  looked_for_remains_ = false;
  foreign_.clear();
  ports_ = std::move(*ports);
  client_ = std::move(*client);
  return Refresh();
}

// Whether the process behind the socket is this host's QEMU: the one it was, while that runs, and
// nobody else's. `fresh` is set where it is a new one.
absl::Status QemuHost::Identify(QmpClient& client, std::optional<QemuProcess>& fresh) {
  auto process = QemuProcess::Open(client.peer_pid());
  if (!process.ok()) return process.status();
  if (process_.has_value() && process_->HasExited()) OnProcessExit();
  if (process_.has_value() && !(process_->name() == process->name())) {
    return absl::FailedPreconditionError(
        absl::StrCat("process ", client.peer_pid(), " listens on ", config_.qmp_socket,
                     " while the host's QEMU, process ", process_->name().pid, ", still runs"));
  }
  if (absl::Status status = client.Negotiate(timing_.greeting); !status.ok()) return status;
  // Whoever made the socket may have passed it on: a vCPU's thread says who the QEMU is.
  auto cpus = client.Execute("query-cpus-fast", nlohmann::json::object(), timing_.command);
  if (!cpus.ok()) return cpus.status();
  auto thread = ParseCpuThread(*cpus);
  if (!thread.ok()) return thread.status();
  if (!process->HasThread(*thread)) {
    return absl::FailedPreconditionError(
        absl::StrCat("process ", client.peer_pid(), " made the socket ", config_.qmp_socket,
                     " but is not the QEMU that answers there; let QEMU make it itself"));
  }
  if (process_.has_value()) return absl::OkStatus();
  const std::string whose = processes_->Claim(FormatIncarnation(process->name()), config_.id);
  if (whose != config_.id && !CXLPOOL_MUTANT("one-qemu-two-hosts")) {
    return absl::FailedPreconditionError(
        absl::StrCat("process ", client.peer_pid(), ", which answers on ", config_.qmp_socket,
                     ", is host ", whose, "; put the qmp keys of these hosts right"));
  }
  fresh = std::move(*process);
  return absl::OkStatus();
}

// A command whose outcome is unknown ends the connection: after the next one everything is read
// anew.
absl::StatusOr<nlohmann::json> QemuHost::Call(const std::string& command,
                                              const nlohmann::json& arguments) {
  if (client_ == nullptr) return down_;
  const absl::Duration left = operation_deadline_ - clock_.Elapsed();
  auto value = client_->Execute(command, arguments, std::min(left, timing_.command));
  const absl::StatusCode code = value.status().code();
  if (code == absl::StatusCode::kUnavailable || code == absl::StatusCode::kDeadlineExceeded ||
      code == absl::StatusCode::kCancelled) {
    Disconnect(value.status());
  }
  return value;
}

void QemuHost::Disconnect(const absl::Status& why) {
  if (client_ == nullptr) return;
  client_.reset();
  down_ = why;
  next_connect_ = clock_.Elapsed();
  LogWarning(kLogSubject, "host ", config_.id, ": ", why.message());
  if (!std::exchange(reported_unreachable_, true)) Emit(FabricEvent::Kind::kHostUnreachable);
}

// The proof that nothing is bound to the host: its process has ended, by its pidfd.
void QemuHost::OnProcessExit() {
  ended_ = FormatIncarnation(process_->name());
  process_.reset();
  known_.clear();
  backends_.clear();
  look_again_ = false;
  news_ = true;
  client_.reset();
  next_connect_ = clock_.Elapsed();
  down_ = absl::UnavailableError(absl::StrCat("its QEMU, process ", ended_, ", has ended"));
  reported_unreachable_ = true;  // What follows says it, and more.
  LogWarning(kLogSubject, "host ", config_.id, ": ", down_.message());
  EmitGone();
}

// OK only once the process has certainly ended. One that was never learnt of cannot be ended.
absl::Status QemuHost::FenceNow() {
  if (!process_.has_value() && ended_.empty()) Connect();
  if (!process_.has_value() && !ended_.empty()) return absl::OkStatus();
  absl::Status why = process_.has_value()
                         ? process_->Kill(timing_.exit)
                         : absl::FailedPreconditionError(absl::StrCat(
                               "which process is its QEMU was never learnt: ", down_.message()));
  if (!why.ok() && client_ != nullptr) {
    // Another user's process, perhaps: it may end itself where we may not kill it.
    (void)Call("quit", nlohmann::json::object());
    if (process_->AwaitExit(timing_.exit)) why = absl::OkStatus();
  }
  if (why.ok()) {
    OnProcessExit();
    return absl::OkStatus();
  }
  return Refuse(absl::StatusCode::kFailedPrecondition, "FENCE_FAILED",
                absl::StrCat("host ", config_.id, " was not fenced: ", why.message()),
                "end its QEMU by hand");
}

}  // namespace cxlpool::fm
