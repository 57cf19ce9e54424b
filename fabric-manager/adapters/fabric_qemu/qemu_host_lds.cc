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

// Reads what is plugged. What was known and is plugged no more is gone only when no address space
// maps its memory either (SortOutRemains); what is new is read, and what vanishes while it is being
// read was never there.
absl::Status QemuHost::Refresh() {
  DropNameless();
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

// What was bound of a file that was no device of the pool may have a name now: it is read again.
void QemuHost::DropNameless() {
  const uint64_t version = devices_->version();
  if (std::exchange(devices_version_, version) == version) return;
  const size_t dropped =
      std::erase_if(known_, [](const auto& entry) { return entry.second.slice.device.empty(); });
  if (dropped != 0) looked_for_remains_ = false;
}

// LDs that are unplugged and still mapped: the guest can store to them, so they stay bound, and
// unbinding. The mappings are asked for only where something is missing, and once after connecting.
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
  ld.slice.device = devices_->DeviceAt(memory.path);
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
  news_ = true;
  if (ld.unbinding) return;
  LogWarning(kLogSubject, "host ", config_.id, ": ", device_id, " vanished from slot ", ld.slot);
  Emit(FabricEvent::Kind::kLdLost, &ld);
}

// What is answered was read back from QEMU, and is what was asked for.
absl::StatusOr<BoundLd> QemuHost::Bind(const BindRequest& request, absl::Duration deadline) {
  operation_deadline_ = deadline;
  const auto port = ports_.find(request.slot);
  if (client_ == nullptr || port == ports_.end()) return Unreachable();
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
  if (client_ == nullptr || !Refresh().ok()) {
    // Of a process that has ended nothing is bound.
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

absl::StatusOr<bool> QemuHost::IsUnbound(const LdKey& key, absl::Duration deadline) {
  operation_deadline_ = deadline;
  if (client_ != nullptr) (void)Refresh();
  TakeDeleted();
  if (absl::Status proof = Proof(LdDeviceId(key)); !proof.ok()) return proof;
  return true;
}

// Rests on what Refresh has just read, or on the end of the process. DEVICE_DELETED alone is none:
// it may be of an earlier LD.
absl::Status QemuHost::Proof(const std::string& device_id) const {
  if (!process_.has_value() && !ended_.empty()) return absl::OkStatus();
  if (client_ == nullptr) return Unreachable();
  if (known_.count(device_id) == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(device_id, " is still plugged into host ", config_.id, ", or mapped there"));
}

}  // namespace cxlpool::fm
