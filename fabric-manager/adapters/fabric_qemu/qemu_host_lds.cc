#include <algorithm>
#include <random>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "fabric-manager/adapters/fabric_qemu/ld_name.h"
#include "fabric-manager/adapters/fabric_qemu/qemu_host.h"
#include "fabric-manager/adapters/fabric_qemu/qemu_tree.h"
#include "proto/support/log.h"
#include "proto/support/mutant.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

constexpr char kLogSubject[] = "fabric-qemu";

absl::Status Refuse(absl::StatusCode code, absl::string_view reason, std::string message,
                    std::string remedy) {
  return Refusal{.code = code,
                 .reason = std::string(reason),
                 .message = std::move(message),
                 .remedy = std::move(remedy),
                 .metadata = {}}
      .ToStatus();
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

absl::Status QemuHost::Refresh() {
  const auto call = [this](const std::string& command, const nlohmann::json& arguments) {
    return Call(command, arguments);
  };
  auto listed = ListPeripherals(call, "cxl-type3");
  if (!listed.ok()) return listed.status();
  const std::set<std::string> ids(listed->begin(), listed->end());
  if (absl::Status status = SortOutRemains(ids); !status.ok()) return status;
  std::erase_if(foreign_, [&](const auto& entry) { return ids.count(entry.first) == 0; });
  for (const std::string& id : ids) {
    if (known_.count(id) != 0 || foreign_.count(id) != 0) continue;
    absl::Status status = ReadNew(id);
    if (!status.ok() && !absl::IsNotFound(status)) return status;
  }
  return absl::OkStatus();
}

absl::Status QemuHost::SortOutRemains(const std::set<std::string>& plugged) {
  std::vector<std::string> missing;
  for (const auto& [id, ld] : known_) {
    if (plugged.count(id) == 0) missing.push_back(id);
  }
  if (missing.empty() && looked_for_remains_) return absl::OkStatus();
  auto mapped =
      ListMappedBackends([this](const std::string& command, const nlohmann::json& arguments) {
        return Call(command, arguments);
      });
  if (!mapped.ok()) return mapped.status();
  for (const std::string& id : missing) {
    if (mapped->count(backends_[id]) == 0) {
      Gone(id);
    } else if (BoundLd& ld = known_.at(id); !std::exchange(ld.unbinding, true)) {
      LogWarning(kLogSubject, "host ", config_.id, ": ", id, " was pulled from slot ", ld.slot,
                 ", and its memory is still mapped");
      Emit(FabricEvent::Kind::kLdLost, &ld);
    }
  }
  for (const std::string& backend : *mapped) {
    const auto key = ParseLdBackendId(backend, config_.id);
    if (!key.has_value()) continue;
    const std::string id = LdDeviceId(*key);
    if (plugged.count(id) != 0 || known_.count(id) != 0) continue;
    if (absl::Status status = ReadRemains(id, *key, backend); !status.ok()) return status;
  }
  looked_for_remains_ = true;
  return absl::OkStatus();
}

// Pulled while no manager watched. Its slot and its serial nobody knows any more, so that it is
// taken neither for the LD of a record nor for its absence.
absl::Status QemuHost::ReadRemains(const std::string& device_id, const LdKey& key,
                                   const std::string& backend) {
  auto memory = ReadBackendMemory(
      [this](const std::string& command, const nlohmann::json& arguments) {
        return Call(command, arguments);
      },
      backend);
  if (!memory.ok()) return memory.status();
  LogWarning(kLogSubject, "host ", config_.id, ": ", device_id,
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
  for (const QemuDeviceConfig& device : devices_) {
    if (device.path == memory.path) ld.slice.device = device.id;
  }
  if (ld.slice.device.empty()) {
    LogError(kLogSubject, "host ", config_.id, ": ", LdDeviceId(key), " shows ", memory.path,
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
  if (ld.unbinding) return;
  LogWarning(kLogSubject, "host ", config_.id, ": ", device_id, " vanished from slot ", ld.slot);
  Emit(FabricEvent::Kind::kLdLost, &ld);
}

QemuHost::Report QemuHost::ReportNow() {
  const bool reachable = client_ != nullptr && Refresh().ok();
  TakeDeleted();
  Report report{.host = {.id = config_.id,
                         .reachable = reachable,
                         .fabric_incarnation = Incarnation(),
                         .slots = {},
                         .closed_slots = {},
                         .unreachable_reason = {}},
                .bound = {}};
  for (const auto& [slot, port] : ports_) report.host.slots.push_back(slot);
  if (!reachable) {
    report.host.unreachable_reason = std::string(Unreachable().message());
    return report;
  }
  for (const auto& [id, ld] : known_) report.bound.push_back(ld);
  return report;
}

absl::StatusOr<BoundLd> QemuHost::BindNow(const BindRequest& request) {
  // Also where reading fails half-way: nothing has been done yet.
  if (client_ == nullptr || !Refresh().ok()) return Unreachable();
  TakeDeleted();
  if (request.incarnation != Incarnation() && !CXLPOOL_MUTANT("bind-in-any-life")) {
    return Refuse(absl::StatusCode::kUnavailable, "HOST_UNREACHABLE",
                  absl::StrCat("host ", config_.id, " is process ", Incarnation(),
                               " now, and the records know it as ", request.incarnation),
                  "read the fabric and try again");
  }
  const auto port = ports_.find(request.slot);
  if (port == ports_.end()) {
    return Refuse(
        absl::StatusCode::kNotFound, "UNKNOWN_SLOT",
        absl::StrCat("host ", config_.id, " has no CXL port with slot number ", request.slot),
        "use a slot of a cxl-downstream port of that host");
  }
  if (const auto same = known_.find(LdDeviceId(request.key)); same != known_.end()) {
    const BoundLd& ld = same->second;
    if (ld.slot == request.slot && ld.slice == request.slice && ld.read_only == request.read_only &&
        ld.serial == request.serial) {
      return ld;
    }
    return Refuse(absl::StatusCode::kAlreadyExists, "LD_CONFLICT",
                  absl::StrCat(same->first, " is bound to host ", config_.id, " slot ", ld.slot,
                               " with other arguments"),
                  "unbind it first");
  }
  std::string occupant;
  for (const auto& [id, ld] : known_) {
    if (ld.slot == request.slot) occupant = id;
  }
  for (const auto& [id, where] : foreign_) {
    if (where == port->second) occupant = id;
  }
  if (!occupant.empty()) {
    return Refuse(absl::StatusCode::kResourceExhausted, "NO_FREE_PORT",
                  absl::StrCat("slot ", request.slot, " of host ", config_.id, " holds ", occupant),
                  "choose a free slot, or unbind what it holds");
  }
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

absl::Status QemuHost::Plug(const BindRequest& request, const std::string& port) {
  const auto device =
      std::find_if(devices_.begin(), devices_.end(),
                   [&](const QemuDeviceConfig& d) { return d.id == request.slice.device; });
  std::random_device random;
  const std::string backend =
      LdBackendId(request.key, (uint64_t{random()} << 32) | uint64_t{random()});
  // readonly=on with rom left alone: QEMU then makes the memory read-only to the guest, too.
  auto added = Call("object-add", {{"qom-type", "memory-backend-file"},
                                   {"id", backend},
                                   {"mem-path", device->path},
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

void QemuHost::BeginUnbindNow(LdKey key, Done done) {
  const std::string device_id = LdDeviceId(key);
  if (!process_.has_value() && !ended_.empty()) {
    std::move(done)(absl::OkStatus());
    return;
  }
  if (client_ == nullptr || !Refresh().ok()) {
    std::move(done)(process_.has_value() || ended_.empty() ? Unreachable() : absl::OkStatus());
    return;
  }
  TakeDeleted();
  if (known_.count(device_id) == 0) {
    std::move(done)(absl::OkStatus());
    return;
  }
  if (auto answer = TryUnplug(device_id); answer.has_value()) {
    std::move(done)(*std::move(answer));
    return;
  }
  const absl::Duration now = clock_.Elapsed();
  unbinds_.push_back(
      {std::move(key), device_id, operation_deadline_, now + timing_.busy_retry, std::move(done)});
}

void QemuHost::RetryUnbinds() {
  for (auto unbind = unbinds_.begin(); unbind != unbinds_.end();) {
    const absl::Duration now = clock_.Elapsed();
    std::optional<absl::Status> answer;
    if (const absl::Status proof = Proof(unbind->device_id); proof.ok()) {
      answer = proof;
    } else if (absl::IsUnavailable(proof)) {
      answer = Unreachable();
    } else if (now >= unbind->deadline) {
      answer = Refuse(absl::StatusCode::kDeadlineExceeded, "GUEST_BUSY",
                      absl::StrCat("host ", config_.id, " was busy with an earlier plugging for ",
                                   absl::FormatDuration(timing_.operation)),
                      "try again, or fence the host");
    } else if (now >= unbind->next_try) {
      answer = TryUnplug(unbind->device_id);
      unbind->next_try = clock_.Elapsed() + timing_.busy_retry;
    }
    if (!answer.has_value()) {
      ++unbind;
      continue;
    }
    Done done = std::move(unbind->done);
    unbind = unbinds_.erase(unbind);
    std::move(done)(*std::move(answer));
  }
}

absl::Status QemuHost::Proof(const std::string& device_id) const {
  if (!process_.has_value() && !ended_.empty()) return absl::OkStatus();
  if (client_ == nullptr) return Unreachable();
  if (known_.count(device_id) == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(device_id, " is still plugged into host ", config_.id, ", or mapped there"));
}

void QemuHost::AwaitUnbound(LdKey key, absl::Duration timeout, Done done) {
  const absl::Duration deadline = clock_.Elapsed() + timeout;
  Enqueue(absl::InfiniteDuration(), [this, deadline, id = LdDeviceId(key),
                                     done = std::move(done)](absl::Status status) mutable {
    if (!status.ok()) {
      std::move(done)(std::move(status));
      return;
    }
    waiters_.push_back({std::move(id), deadline, std::move(done)});
    next_recheck_ = clock_.Elapsed();
  });
}

void QemuHost::CheckWaiters() {
  if (waiters_.empty()) return;
  if (clock_.Elapsed() >= next_recheck_) {
    if (client_ != nullptr) (void)Refresh();
    TakeDeleted();
    next_recheck_ = clock_.Elapsed() + timing_.recheck;
  }
  for (auto waiter = waiters_.begin(); waiter != waiters_.end();) {
    absl::Status proof = Proof(waiter->device_id);
    if (!proof.ok() && clock_.Elapsed() < waiter->deadline) {
      ++waiter;
      continue;
    }
    if (!proof.ok()) {
      proof = Refuse(absl::StatusCode::kDeadlineExceeded, "UNBIND_NOT_PROVEN",
                     absl::StrCat("host ", config_.id, " has not let go: ", proof.message()),
                     "wait for its agent to power the slot off, or fence the host");
    }
    Done done = std::move(waiter->done);
    waiter = waiters_.erase(waiter);
    std::move(done)(std::move(proof));
  }
}

}  // namespace cxlpool::fm
