#include "fabric-manager/adapters/fabric_qemu/qemu_tree.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "fabric-manager/adapters/fabric_qemu/qmp_message.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

constexpr char kPeripheral[] = "/machine/peripheral";

std::string PathOf(const std::string& id) { return absl::StrCat(kPeripheral, "/", id); }

absl::StatusOr<nlohmann::json> Get(QmpCall call, const std::string& path,
                                   const std::string& property) {
  return call("qom-get", {{"path", path}, {"property", property}});
}

absl::StatusOr<std::string> GetString(QmpCall call, const std::string& path,
                                      const std::string& property) {
  auto value = Get(call, path, property);
  if (!value.ok()) return value.status();
  return ParseQomString(*value);
}

absl::StatusOr<uint64_t> GetUint(QmpCall call, const std::string& path,
                                 const std::string& property) {
  auto value = Get(call, path, property);
  if (!value.ok()) return value.status();
  return ParseQomUint(*value);
}

absl::StatusOr<bool> GetBool(QmpCall call, const std::string& path, const std::string& property) {
  auto value = Get(call, path, property);
  if (!value.ok()) return value.status();
  return ParseQomBool(*value);
}

// Fills in what the memory backend has: its file, place and size, and whether it is read-only. The
// first property that cannot be read is the answer: half of it would be compared with records.
absl::Status ReadBackend(QmpCall call, const std::string& backend, QemuMemory& memory) {
  auto path = GetString(call, backend, "mem-path");
  auto offset = path.ok() ? GetUint(call, backend, "offset") : path.status();
  auto size = offset.ok() ? GetUint(call, backend, "size") : offset.status();
  auto read_only = size.ok() ? GetBool(call, backend, "readonly") : size.status();
  if (!read_only.ok()) return read_only.status();
  memory.backend = backend.substr(backend.rfind('/') + 1);
  memory.path = *path;
  memory.offset_bytes = *offset;
  memory.length_bytes = *size;
  memory.read_only = *read_only;
  return absl::OkStatus();
}

}  // namespace

// Ids of the devices of one QOM type among those that were added by id. More than kMaxPeripherals
// is an error: a QEMU that answers so is not one that this manager drives, and each costs calls.
absl::StatusOr<std::vector<std::string>> ListPeripherals(QmpCall call, const std::string& type) {
  auto value = call("qom-list", {{"path", kPeripheral}});
  if (!value.ok()) return value.status();
  auto properties = ParseQomList(*value);
  if (!properties.ok()) return properties.status();
  if (properties->size() > kMaxPeripherals) {
    return absl::ResourceExhaustedError(
        absl::StrCat("QEMU has more than ", kMaxPeripherals, " devices"));
  }
  const std::string wanted = absl::StrCat("child<", type, ">");
  std::vector<std::string> ids;
  for (QomProperty& property : *properties) {
    if (property.type == wanted) ids.push_back(std::move(property.name));
  }
  return ids;
}

// The ports where memory can be plugged in, by slot number. Agent and driver meet at the slot's
// number, so two ports with one number are refused: a bind might go to one and be awaited at the
// other.
absl::StatusOr<std::map<uint32_t, std::string>> ReadPorts(QmpCall call) {
  auto ids = ListPeripherals(call, "cxl-downstream");
  if (!ids.ok()) return ids.status();
  std::map<uint32_t, std::string> ports;
  for (const std::string& id : *ids) {
    auto slot = GetUint(call, PathOf(id), "slot");
    if (!slot.ok()) return slot.status();
    if (*slot > UINT16_MAX) return absl::InvalidArgumentError("QMP: a slot that is no slot number");
    const auto [at, fresh] = ports.emplace(static_cast<uint32_t>(*slot), id);
    if (fresh) continue;
    return Refuse(absl::StatusCode::kFailedPrecondition, "SLOT_NOT_UNIQUE",
                  absl::StrCat("ports ", at->second, " and ", id, " both have slot number ", *slot),
                  "give every cxl-downstream of a host a slot= of its own");
  }
  return ports;
}

// Id of the port that the device is plugged into.
absl::StatusOr<std::string> ReadPortOf(QmpCall call, const std::string& device_id) {
  auto bus = GetString(call, PathOf(device_id), "parent_bus");
  if (!bus.ok()) return bus.status();
  // /machine/peripheral/PORT/BUS
  const std::vector<std::string> parts = absl::StrSplit(*bus, '/');
  if (parts.size() < 2) return absl::InvalidArgumentError("QMP: a parent_bus that is no path");
  return parts[parts.size() - 2];
}

// A CXL memory device with the backend that its bytes come from.
absl::StatusOr<QemuMemory> ReadMemory(QmpCall call, const std::string& device_id) {
  const std::string device = PathOf(device_id);
  QemuMemory memory;
  auto port = ReadPortOf(call, device_id);
  auto backend = port.ok() ? GetString(call, device, "volatile-memdev") : port.status();
  auto serial = backend.ok() ? GetUint(call, device, "sn") : backend.status();
  if (!serial.ok()) return serial.status();
  memory.port = *port;
  memory.serial = *serial;
  if (absl::Status status = ReadBackend(call, *backend, memory); !status.ok()) return status;
  return memory;
}

// A backend by itself. It outlives its device for a while after an unplug, and may then still be
// mapped.
absl::StatusOr<QemuMemory> ReadBackendMemory(QmpCall call, const std::string& backend_id) {
  QemuMemory memory;
  absl::Status status = ReadBackend(call, absl::StrCat("/objects/", backend_id), memory);
  if (!status.ok()) return status;
  return memory;
}

// Backends of ours that the guest's address space maps: whether a host can reach bytes is proven by
// this list, so a text that cannot be understood is an error and never an empty list. It is read
// from a monitor command for people, because QMP shows the tree of devices and not the memory map.
absl::StatusOr<std::set<std::string>> ListMappedBackends(QmpCall call) {
  auto value = call("human-monitor-command", {{"command-line", "info mtree -f"}});
  if (!value.ok()) return value.status();
  auto text = ParseQomString(*value);
  if (!text.ok()) return text.status();
  // Another text than we know must not be taken for one that maps nothing.
  if (!absl::StrContains(*text, "FlatView")) {
    return absl::FailedPreconditionError("QEMU's `info mtree -f` shows no FlatView");
  }
  // ...(prio 0, ram): be-TAG-INDEX-GENERATION-NONCE[ @OFFSET]
  constexpr absl::string_view kBefore = ": be-";
  std::set<std::string> backends;
  for (size_t at = text->find(kBefore.data()); at != std::string::npos;
       at = text->find(kBefore.data(), at + 1)) {
    const size_t from = at + 2;
    const size_t end = text->find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-", from);
    backends.insert(text->substr(from, end == std::string::npos ? end : end - from));
  }
  return backends;
}

}  // namespace cxlpool::fm
