#include "fabric-manager/adapters/fabric_qemu/qemu_host.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <random>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "fabric-manager/adapters/fabric_qemu/ld_name.h"
#include "fabric-manager/adapters/fabric_qemu/qemu_tree.h"
#include "proto/support/log.h"
#include "proto/support/mutant.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

void Clear(const UniqueFd& event) {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t n = ::read(event.get(), &count, sizeof(count));
}

// Whether the command may have been done although no reply came.
bool OutcomeUnknown(const absl::Status& status) {
  return absl::IsDeadlineExceeded(status) || absl::IsCancelled(status) ||
         absl::IsUnavailable(status);
}

// Unknown outcomes go up as the port names them; everything else is QEMU's refusal.
absl::Status Failed(const std::string& what, const absl::Status& status) {
  if (absl::IsDeadlineExceeded(status)) return status;
  if (OutcomeUnknown(status)) {
    return Refuse(
        absl::StatusCode::kUnknown, "OUTCOME_UNKNOWN",
        absl::StrCat("the connection to QEMU ended during ", what, ": ", status.message()),
        "read back what is bound");
  }
  return Refuse(absl::StatusCode::kInternal, "QEMU_REFUSED",
                absl::StrCat("QEMU refused ", what, ": ", status.message()),
                "look into the QEMU host's configuration and log");
}

}  // namespace

QemuHost::QemuHost(QemuHostConfig config, std::shared_ptr<const QemuDevices> devices,
                   QemuTiming timing, std::shared_ptr<QemuProcesses> processes)
    : config_(std::move(config)),
      devices_(std::move(devices)),
      timing_(timing),
      processes_(std::move(processes)),
      interrupt_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      backoff_(timing.reconnect_min) {}

void QemuHost::Meet(const std::string& life) {
  RememberFormer(life);
  met_ = true;
  next_connect_ = clock_.Elapsed() + timing_.first_dial;
}

// Twice, for the greeting may go to a client that came before us, and is gone, or is about to be.
// The number is not counted here: a host whose qmp key was changed is another QemuHost, and what
// was decided under a claim of the former one must not go over the connection of this one.
absl::StatusOr<uint64_t> QemuHost::Claim(absl::Duration deadline) {
  for (int i = 0; i < 2 && met_ && client_ == nullptr && clock_.Elapsed() < deadline; ++i) {
    Connect(/*evict=*/true);
  }
  if (client_ == nullptr) return Unreachable();
  if (!std::exchange(claimed_, true)) {
    claim_ = CXLPOOL_MUTANT("claims-begin-anew") ? claim_ + 1 : processes_->NextClaim(config_.id);
    news_ = true;  // What is awaited can be asked for again.
  }
  return claim_;
}

// Slots are shown also where QEMU does not answer: they are what was last read.
HostLook QemuHost::Look(absl::Duration deadline) {
  operation_deadline_ = deadline;
  const bool reachable = IsClaimed() && Refresh().ok();
  TakeDeleted();
  HostLook look;
  look.host.id = config_.id;
  look.host.reachable = reachable;
  look.host.fabric_incarnation = Incarnation();
  for (const auto& [slot, port] : ports_) {
    look.host.slots.push_back(slot);
    for (const auto& [id, where] : foreign_) {
      if (where == port) look.foreign[slot] = id;
    }
  }
  if (!reachable) {
    look.host.unreachable_reason = std::string(Unreachable().message());
    return look;
  }
  for (const auto& [id, ld] : known_) look.bound.push_back(ld);
  return look;
}

// The interrupt that made way for the fence must not break off the fence's own commands.
absl::Status QemuHost::Fence() {
  Clear(interrupt_);
  return FenceNow();
}

void QemuHost::Interrupt() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = ::write(interrupt_.get(), &one, sizeof(one));
}

// Connects where there is no connection, and waits: for devices that QEMU reports as gone, for the
// end of the connection and of the process.
bool QemuHost::Idle(int wake_fd, absl::Duration at_most) {
  if (met_ && client_ == nullptr && clock_.Elapsed() >= next_connect_) Connect(/*evict=*/false);
  operation_deadline_ = clock_.Elapsed() + timing_.operation;
  TakeDeleted();
  // Negative descriptors are left out by poll.
  pollfd polls[] = {{wake_fd, POLLIN, 0},
                    {client_ != nullptr ? client_->fd() : -1, POLLIN, 0},
                    {process_.has_value() ? process_->pidfd() : -1, POLLIN, 0}};
  absl::Duration wait = std::min(at_most, NextMoment() - clock_.Elapsed());
  if (news_ || wait < absl::ZeroDuration()) wait = absl::ZeroDuration();
  // Rounded up, or the last millisecond would be spent spinning.
  ::poll(polls, std::size(polls),
         static_cast<int>(absl::ToInt64Milliseconds(absl::Ceil(wait, absl::Milliseconds(1)))));
  operation_deadline_ = clock_.Elapsed() + timing_.operation;
  if (client_ != nullptr && polls[1].revents != 0) {
    if (absl::Status status = client_->Drain(); !status.ok()) Disconnect(status);
    TakeDeleted();
  }
  if (process_.has_value() && process_->HasExited()) OnProcessExit();
  return std::exchange(news_, false);
}

absl::Duration QemuHost::NextMoment() const {
  if (client_ == nullptr) return met_ ? next_connect_ : absl::InfiniteDuration();
  return look_again_ ? clock_.Elapsed() : absl::InfiniteDuration();
}

void QemuHost::Emit(FabricEvent::Kind kind, const BoundLd* lost) {
  FabricEvent event{.kind = kind, .host = config_.id};
  if (lost != nullptr) {
    event.key = lost->key;
    event.slot = lost->slot;
  }
  sink_(std::move(event));
}

void QemuHost::EmitGone() {
  sink_({.kind = FabricEvent::Kind::kHostGone, .host = config_.id, .incarnation = ended_});
}

// Takes up the process that the records know. Only its certain end proves anything: where that
// cannot be found out, the host stays unreachable. On another machine than that of the process it
// cannot: that machine may run, and the process in it.
void QemuHost::RememberFormer(const std::string& known) {
  const auto former = ParseIncarnation(known);
  if (!former.has_value() || CXLPOOL_MUTANT("any-qemu-will-do")) return;
  if (former->this_boot) {
    auto process = QemuProcess::Open(former->name.pid);
    if (process.ok() && process->name() == former->name) {
      process_ = std::move(*process);
      life_ = known;
      return;
    }
    if (!process.ok() && !absl::IsNotFound(process.status())) {
      LogError(kQemuLogSubject, "host ", config_.id, ": ", process.status().message());
      return;
    }
  } else if (!former->ended) {
    elsewhere_ = known;
    return;
  }
  ended_ = known;
  EmitGone();
}

std::string QemuHost::Incarnation() const {
  if (!elsewhere_.empty()) return elsewhere_;
  return process_.has_value() ? life_ : ended_;
}

absl::Status QemuHost::Unreachable() const {
  if (!elsewhere_.empty()) {
    return Refuse(
        absl::StatusCode::kUnavailable, "HOST_UNREACHABLE",
        absl::StrCat("host ", config_.id, " cannot be asked from here: ", down_.message()),
        absl::StrCat("have the manager on the machine of that QEMU lead; or, once that QEMU has "
                     "ended for certain, release with --force what the host has, `cxlpool host "
                     "retire ",
                     config_.id, "`, `cxlpool host enrol ", config_.id,
                     "`, and restart the manager"));
  }
  return Refuse(absl::StatusCode::kUnavailable, "HOST_UNREACHABLE",
                absl::StrCat("host ", config_.id, " cannot be asked through ", config_.qmp_socket,
                             ": ", down_.message()),
                "start its QEMU, or close what else uses its QMP socket");
}

// One attempt. That a host is out of reach is reported once, and logged once for each reason.
void QemuHost::Connect(bool evict) {
  operation_deadline_ = clock_.Elapsed() + timing_.operation;
  absl::Status status = TryConnect(evict);
  if (status.ok()) {
    backoff_ = timing_.reconnect_min;
    reported_unreachable_ = false;
    news_ = true;
    LogInfo(kQemuLogSubject, "host ", config_.id, " is QEMU ", client_->version(), ", process ",
            process_->name().pid);
    Emit(FabricEvent::Kind::kHostReachable);
    return;
  }
  client_.reset();
  next_connect_ = clock_.Elapsed() + backoff_;
  backoff_ = std::min(2 * backoff_, timing_.reconnect_max);
  if (down_ != status) LogWarning(kQemuLogSubject, "host ", config_.id, ": ", status.message());
  down_ = std::move(status);
  if (!std::exchange(reported_unreachable_, true)) Emit(FabricEvent::Kind::kHostUnreachable);
}

// Nothing of this host changes before the QEMU has shown that it is the right one; with a process
// that is new, what was known of the last one is dropped.
absl::Status QemuHost::TryConnect(bool evict) {
  if (!elsewhere_.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("its QEMU, process ", elsewhere_,
                     ", was started on another machine, or nobody knows on which, and may still "
                     "run there"));
  }
  std::unique_ptr<QmpClient> client;
  if (auto dialled = Dial(config_.qmp_socket); dialled.ok()) {
    client = *std::move(dialled);
  } else if (!evict || !absl::IsResourceExhausted(dialled.status())) {
    return dialled.status();
  } else if (absl::Status status = Evict(client); !status.ok()) {
    return status;
  }
  std::optional<QemuProcess> fresh;
  if (absl::Status status = Identify(client, evict, fresh); !status.ok()) return status;
  const auto call = [&](const std::string& command, const nlohmann::json& arguments) {
    return client->Execute(command, arguments, timing_.command);
  };
  auto ports = ReadPorts(call);
  if (!ports.ok()) return ports.status();
  if (fresh.has_value()) {
    process_ = std::move(fresh);
    life_ = FormatIncarnation(process_->name());
    ended_.clear();
    known_.clear();
    backends_.clear();
  }
  looked_for_mapped_ = false;
  foreign_.clear();
  ports_ = std::move(*ports);
  client_ = std::move(client);
  claimed_ = false;
  return Refresh();
}

absl::StatusOr<std::unique_ptr<QmpClient>> QemuHost::Dial(const std::string& path) {
  return QmpClient::Connect(path, interrupt_.get(), [this](const QmpMessage& event) {
    if (event.name == "DEVICE_DELETED") look_again_ = true;
  });
}

// Ends the connection of another client, where that is why there is no greeting. `client` is then
// the next in QEMU's queue, behind those that have hung up. The other socket's greeting comes from
// the same QEMU: one that is only slow has greeted us by then.
absl::Status QemuHost::Evict(std::unique_ptr<QmpClient>& client) {
  if (client != nullptr) {
    const absl::Status greeted = client->AwaitGreeting(timing_.evict);
    if (!absl::IsDeadlineExceeded(greeted)) return greeted;
  }
  const std::string path = absl::StrCat(config_.qmp_socket, kEvictSuffix);
  auto other = Dial(path);
  if (!other.ok()) {
    // There is no such socket: the greeting is waited for.
    if (client != nullptr) return absl::OkStatus();
    return absl::UnavailableError(
        absl::StrCat("another client holds QMP socket ", config_.qmp_socket,
                     ", which serves one only, and there is no ", path, " to evict it by"));
  }
  if (client != nullptr && (*other)->peer_pid() != client->peer_pid()) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is not of the process that made ", config_.qmp_socket));
  }
  if (absl::Status status = (*other)->Negotiate(timing_.greeting); !status.ok()) return status;
  auto listed = (*other)->Execute("query-chardev", nlohmann::json::object(), timing_.command);
  if (!listed.ok()) return listed.status();
  auto label = ParseChardev(*listed, config_.qmp_socket);
  if (!label.ok()) return label.status();
  if (client != nullptr) {
    const absl::Status greeted = client->AwaitGreeting(absl::Milliseconds(20));
    if (!absl::IsDeadlineExceeded(greeted)) return greeted;
  }
  absl::Status yanked;
  if (!CXLPOOL_MUTANT("no-claim-before-discover")) {
    yanked = (*other)
                 ->Execute("yank", {{"instances", {{{"type", "chardev"}, {"id", *label}}}}},
                           timing_.command)
                 .status();
    LogWarning(kQemuLogSubject, "host ", config_.id, ": another client had ", config_.qmp_socket,
               ", and was evicted");
  }
  if (CXLPOOL_MUTANT("no-claim-before-discover")) client = *std::move(other);
  if (CXLPOOL_MUTANT("evicts-without-greeting")) client = *std::move(other);
  const absl::Duration end = clock_.Elapsed() + timing_.greeting;
  while (yanked.ok() && client == nullptr) {
    auto dialled = Dial(config_.qmp_socket);
    if (dialled.ok()) client = *std::move(dialled);
    if (dialled.ok()) break;
    if (!absl::IsResourceExhausted(dialled.status()) || clock_.Elapsed() >= end) {
      return dialled.status();
    }
    pollfd stop{interrupt_.get(), POLLIN, 0};
    if (::poll(&stop, 1, 5) == 1) return absl::CancelledError("QMP was interrupted");
  }
  return yanked;
}

// Whether the process behind the socket is this host's QEMU: the one it was, while that runs, and
// not another host's. `fresh` is set where it is a new one.
absl::Status QemuHost::Identify(std::unique_ptr<QmpClient>& dialled, bool evict,
                                std::optional<QemuProcess>& fresh) {
  auto process = QemuProcess::Open(dialled->peer_pid());
  if (!process.ok()) return process.status();
  if (process_.has_value() && process_->HasExited()) OnProcessExit();
  if (process_.has_value() && !(process_->name() == process->name())) {
    return absl::FailedPreconditionError(
        absl::StrCat("process ", dialled->peer_pid(), " listens on ", config_.qmp_socket,
                     " while the host's QEMU, process ", process_->name().pid, ", still runs"));
  }
  if (absl::Status status = evict ? Evict(dialled) : absl::OkStatus(); !status.ok()) return status;
  QmpClient& client = *dialled;
  if (absl::Status status = client.Negotiate(timing_.greeting); !status.ok()) return status;
  // The process that made the socket may have passed it on: a vCPU's thread shows which process is
  // QEMU.
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

// A command whose outcome is unknown ends the connection: after the next connect everything is read
// again.
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
  LogWarning(kQemuLogSubject, "host ", config_.id, ": ", why.message());
  if (!std::exchange(reported_unreachable_, true)) Emit(FabricEvent::Kind::kHostUnreachable);
}

// The proof that nothing is bound to the host: its process has ended, by its pidfd.
void QemuHost::OnProcessExit() {
  ended_ = life_;
  process_.reset();
  known_.clear();
  backends_.clear();
  look_again_ = false;
  news_ = true;
  client_.reset();
  next_connect_ = clock_.Elapsed();
  down_ = absl::UnavailableError(absl::StrCat("its QEMU, process ", ended_, ", has ended"));
  reported_unreachable_ = true;  // kHostGone, which follows, reports that and more.
  LogWarning(kQemuLogSubject, "host ", config_.id, ": ", down_.message());
  EmitGone();
}

// OK only once the process has certainly ended. One that was never learnt of cannot be ended.
absl::Status QemuHost::FenceNow() {
  if (!process_.has_value() && ended_.empty()) Connect(/*evict=*/false);
  if (!process_.has_value() && !ended_.empty()) return absl::OkStatus();
  absl::Status why =
      process_.has_value()
          ? process_->Kill(timing_.exit)
          : absl::FailedPreconditionError(absl::StrCat(
                elsewhere_.empty() ? "which process is its QEMU was never learnt: " : "",
                down_.message()));
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

// Reads what is plugged. What was known and is plugged no more is gone only when no address space
// maps its memory either (FindUnpluggedButMapped); what is new is read, and what vanishes while it
// is being read was never there.
absl::Status QemuHost::Refresh() {
  ForgetLdsOfNoDevice();
  const auto call = [this](const std::string& command, const nlohmann::json& arguments) {
    return Call(command, arguments);
  };
  auto listed = ListPeripherals(call, "cxl-type3");
  if (!listed.ok()) return listed.status();
  const std::set<std::string> ids(listed->begin(), listed->end());
  if (absl::Status status = FindUnpluggedButMapped(ids); !status.ok()) return status;
  std::erase_if(foreign_, [&](const auto& entry) { return ids.count(entry.first) == 0; });
  for (const std::string& id : ids) {
    if (known_.count(id) != 0 || foreign_.count(id) != 0) continue;
    absl::Status status = ReadNew(id);
    if (!status.ok() && !absl::IsNotFound(status)) return status;
  }
  return absl::OkStatus();
}

// What was bound of a file that was no device of the pool may belong to one now: it is read again.
void QemuHost::ForgetLdsOfNoDevice() {
  const uint64_t version = devices_->version();
  if (std::exchange(devices_version_, version) == version) return;
  const size_t dropped =
      std::erase_if(known_, [](const auto& entry) { return entry.second.slice.device.empty(); });
  if (dropped != 0) looked_for_mapped_ = false;
}

// LDs that are unplugged and still mapped: the guest can store to them, so they stay bound, and
// unbinding. The mappings are asked for only where something is missing, and once after connecting.
absl::Status QemuHost::FindUnpluggedButMapped(const std::set<std::string>& plugged) {
  std::vector<std::string> missing;
  for (const auto& [id, ld] : known_) {
    if (plugged.count(id) == 0) missing.push_back(id);
  }
  if (missing.empty() && looked_for_mapped_) return absl::OkStatus();
  auto mapped =
      ListMappedBackends([this](const std::string& command, const nlohmann::json& arguments) {
        return Call(command, arguments);
      });
  if (!mapped.ok()) return mapped.status();
  for (const std::string& id : missing) {
    if (mapped->count(backends_[id]) == 0) {
      Gone(id);
    } else if (BoundLd& ld = known_.at(id); !std::exchange(ld.unbinding, true)) {
      LogWarning(kQemuLogSubject, "host ", config_.id, ": ", id, " was pulled from slot ", ld.slot,
                 ", and its memory is still mapped");
      Emit(FabricEvent::Kind::kLdLost, &ld);
    }
  }
  for (const std::string& backend : *mapped) {
    const auto key = ParseLdBackendId(backend, config_.id);
    if (!key.has_value()) continue;
    const std::string id = LdDeviceId(*key);
    if (plugged.count(id) != 0 || known_.count(id) != 0) continue;
    if (absl::Status status = AdoptUnpluggedButMapped(id, *key, backend); !status.ok())
      return status;
  }
  looked_for_mapped_ = true;
  return absl::OkStatus();
}

// Takes in an LD that was pulled while no manager watched. Its slot and its serial are not known
// any more, so that it is taken neither for the LD of a record nor for its absence.
absl::Status QemuHost::AdoptUnpluggedButMapped(const std::string& device_id, const LdKey& key,
                                               const std::string& backend) {
  auto memory = ReadBackendMemory(
      [this](const std::string& command, const nlohmann::json& arguments) {
        return Call(command, arguments);
      },
      backend);
  if (!memory.ok()) return memory.status();
  LogWarning(kQemuLogSubject, "host ", config_.id, ": ", device_id,
             " was pulled, and its memory is still mapped");
  known_[device_id] = MakeLd(key, *memory);
  known_[device_id].unbinding = true;
  backends_[device_id] = backend;
  return absl::OkStatus();
}

BoundLd QemuHost::MakeLd(const LdKey& key, const QemuMemory& memory) const {
  BoundLd ld{.host = config_.id,
             .slot = 0,
             .slice = {.device = "",
                       .dpa_bytes = memory.offset_bytes,
                       .length_bytes = memory.length_bytes},
             .read_only = memory.read_only,
             .serial = memory.serial,
             .unbinding = false,
             .key = key};
  for (const auto& [slot, port] : ports_) {
    if (port == memory.port) ld.slot = slot;
  }
  ld.slice.device = devices_->DeviceAt(memory.path);
  if (ld.slice.device.empty()) {
    LogError(kQemuLogSubject, "host ", config_.id, ": ", LdDeviceId(key), " shows ", memory.path,
             ", which is no pool device");
  }
  return ld;
}

absl::Status QemuHost::ReadNew(const std::string& device_id) {
  const auto call = [this](const std::string& command, const nlohmann::json& arguments) {
    return Call(command, arguments);
  };
  auto key = ParseLdDeviceId(device_id, config_.id);
  if (!key.has_value()) {
    auto port = ReadPortOf(call, device_id);
    if (!port.ok()) return port.status();
    foreign_[device_id] = *port;
    return absl::OkStatus();
  }
  auto memory = ReadMemory(call, device_id);
  if (!memory.ok()) return memory.status();
  known_[device_id] = MakeLd(*key, *memory);
  backends_[device_id] = memory->backend;
  return absl::OkStatus();
}

void QemuHost::TakeDeleted() {
  // Another can come while we look; what is then left is taken up by the next turn of the thread.
  for (int i = 0; i < 3 && std::exchange(look_again_, false); ++i) {
    if (client_ != nullptr) (void)Refresh();
  }
}

void QemuHost::Gone(const std::string& device_id) {
  const auto found = known_.find(device_id);
  if (found == known_.end()) return;
  const BoundLd ld = std::move(found->second);
  known_.erase(found);
  backends_.erase(device_id);
  news_ = true;
  if (ld.unbinding) return;
  LogWarning(kQemuLogSubject, "host ", config_.id, ": ", device_id, " vanished from slot ",
             ld.slot);
  Emit(FabricEvent::Kind::kLdLost, &ld);
}

// What is answered was read back from QEMU, and is what was asked for.
absl::StatusOr<BoundLd> QemuHost::Bind(const BindRequest& request, absl::Duration deadline) {
  operation_deadline_ = deadline;
  const auto port = ports_.find(request.slot);
  if (!IsClaimed() || port == ports_.end()) return Unreachable();
  if (absl::Status status = Plug(request, port->second); !status.ok()) return status;
  const std::string device_id = LdDeviceId(request.key);
  if (absl::Status status = ReadNew(device_id); !status.ok()) {
    return Failed("the reading back of a bind", status);
  }
  const BoundLd& ld = known_.at(device_id);
  if (ld.slot == request.slot && ld.slice == request.slice && ld.read_only == request.read_only &&
      ld.serial == request.serial) {
    return ld;
  }
  return absl::InternalError(
      absl::StrCat("host ", config_.id, ": ", device_id, " is not what was asked for"));
}

// The memory first, under an id that is never used again, so that a late command of another manager
// cannot meet this one's.
absl::Status QemuHost::Plug(const BindRequest& request, const std::string& port) {
  std::random_device random;
  const std::string backend =
      LdBackendId(request.key, (uint64_t{random()} << 32) | uint64_t{random()});
  // readonly=on with rom left alone: QEMU then makes the memory read-only to the guest, too.
  auto added = Call("object-add", {{"qom-type", "memory-backend-file"},
                                   {"id", backend},
                                   {"mem-path", devices_->PathOf(request.slice.device)},
                                   {"share", true},
                                   {"offset", request.slice.dpa_bytes},
                                   {"size", request.slice.length_bytes},
                                   {"readonly", request.read_only}});
  if (!added.ok()) return Failed("the memory of a bind", added.status());
  auto plugged = Call("device_add", {{"driver", "cxl-type3"},
                                     {"bus", port},
                                     {"id", LdDeviceId(request.key)},
                                     {"volatile-memdev", backend},
                                     {"sn", request.serial}});
  if (plugged.ok()) return absl::OkStatus();
  const absl::Status why = plugged.status();
  // Best effort: an unused backend is one mapping more, and no harm.
  if (!OutcomeUnknown(why)) (void)Call("object-del", {{"id", backend}});
  if (absl::StrContains(why.message(), "already occupied")) {
    return Refuse(
        absl::StatusCode::kResourceExhausted, "NO_FREE_PORT",
        absl::StrCat("slot ", request.slot, " of host ", config_.id, " is taken: ", why.message()),
        "choose a free slot");
  }
  return Failed("the device of a bind", why);
}

// Nothing: the guest is busy with an earlier plugging, and is to be asked again.
std::optional<absl::Status> QemuHost::TryUnplug(const std::string& device_id) {
  auto reply = Call("device_del", {{"id", device_id}});
  TakeDeleted();
  const auto ld = known_.find(device_id);
  if (absl::IsNotFound(reply.status()) || ld == known_.end()) return absl::OkStatus();
  const bool refused = absl::IsFailedPrecondition(reply.status());
  const absl::string_view message = reply.status().message();
  if (reply.ok() || (refused && absl::StrContains(message, "already in the process of unplug"))) {
    ld->second.unbinding = true;
    return absl::OkStatus();
  }
  // "guest is busy (power indicator blinking)": it is dealing with an earlier request. If that
  // was ours, the unbind has begun.
  if (refused && absl::StrContains(message, "busy")) {
    if (ld->second.unbinding) return absl::OkStatus();
    return std::nullopt;
  }
  return Failed("an unbind", reply.status());
}

absl::StatusOr<bool> QemuHost::BeginUnbind(const LdKey& key, absl::Duration deadline) {
  operation_deadline_ = deadline;
  const std::string device_id = LdDeviceId(key);
  if (!IsClaimed() || !Refresh().ok()) {
    // Nothing is bound to a process that has ended.
    if (process_.has_value() || ended_.empty()) return Unreachable();
    return true;
  }
  TakeDeleted();
  if (known_.count(device_id) == 0) return true;
  const std::optional<absl::Status> answer = TryUnplug(device_id);
  if (!answer.has_value()) return false;
  if (!answer->ok()) return *answer;
  return true;
}

// A look that has not gone through may have left out the very LD. Where that is because the
// connection was lost, only the end of the process is proof.
absl::StatusOr<bool> QemuHost::IsUnbound(const LdKey& key, absl::Duration deadline) {
  operation_deadline_ = deadline;
  const absl::Status seen = IsClaimed() ? Refresh() : absl::OkStatus();
  if (!seen.ok() && IsClaimed() && !CXLPOOL_MUTANT("failed-look-is-proof")) return seen;
  TakeDeleted();
  if (absl::Status proof = Proof(LdDeviceId(key)); !proof.ok()) return proof;
  return true;
}

// Rests on what Refresh has just read, or on the end of the process. DEVICE_DELETED by itself is no
// proof: it may be of an earlier LD.
absl::Status QemuHost::Proof(const std::string& device_id) const {
  if (!process_.has_value() && !ended_.empty()) return absl::OkStatus();
  if (!IsClaimed()) return Unreachable();
  if (known_.count(device_id) == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(device_id, " is still plugged into host ", config_.id, ", or mapped there"));
}

}  // namespace cxlpool::fm
