#include "fabric-manager/config.h"

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/names.h"
#include "proto/support/refusal.h"
#include "proto/support/toml_reader.h"

namespace cxlpool::fm {
namespace {

constexpr size_t kMaxDevices = 4096;
constexpr size_t kMaxHosts = 4096;
constexpr size_t kMaxSlots = 256;
constexpr uint64_t kMaxSlotNumber = 8191;  // PCIe Slot Capabilities, 13 bits.

std::string ReadId(TomlReader& toml, std::set<std::string>& seen) {
  std::string id = toml.String("id");
  if (!id.empty() && !CheckResourceId(id).ok()) {
    toml.Fail("id", "is not well formed", "use 1 to 63 of a-z, 0-9 and '-', a letter first");
  }
  if (!seen.insert(id).second) toml.Fail("id", "stands twice", "give each its own");
  return id;
}

FmConfig::Device ReadDevice(TomlReader& toml, bool qemu, std::set<std::string>& seen) {
  FmConfig::Device device;
  device.id = ReadId(toml, seen);
  device.serial = toml.String("serial", device.id);
  device.capacity_bytes = toml.Size("capacity");
  device.granule_bytes = toml.Size("granule", device.granule_bytes);
  if (device.granule_bytes == 0 || (device.granule_bytes & (device.granule_bytes - 1)) != 0) {
    toml.Fail("granule", "is not a power of two", "write a size like \"256MiB\"");
  } else if (device.capacity_bytes == 0 || device.capacity_bytes % device.granule_bytes != 0) {
    toml.Fail("capacity", "is not a multiple of the granule",
              absl::StrCat("use a multiple of ", device.granule_bytes, " bytes"));
  }
  if (qemu) device.path = toml.String("path");
  return device;
}

FmConfig::Host ReadHost(TomlReader& toml, bool qemu, std::set<std::string>& seen) {
  FmConfig::Host host;
  host.id = ReadId(toml, seen);
  if (qemu) {
    host.qmp = toml.String("qmp");
    return host;
  }
  std::set<uint64_t> slots;
  for (uint64_t slot : toml.Numbers("slots")) {
    if (slot > kMaxSlotNumber || !slots.insert(slot).second) {
      toml.Fail("slots", absl::StrCat("holds ", slot, " twice, or it is no PCIe slot number"),
                absl::StrCat("use different numbers from 0 to ", kMaxSlotNumber));
    }
    host.slots.push_back(static_cast<uint32_t>(slot));
  }
  if (host.slots.empty() || host.slots.size() > kMaxSlots) {
    toml.Fail("slots", absl::StrCat("needs 1 to ", kMaxSlots, " slots"), "write [1, 2]");
  }
  if (toml.Has("uid")) host.uid = static_cast<uint32_t>(toml.Number("uid"));
  return host;
}

}  // namespace

absl::StatusOr<FmConfig> ParseFmConfig(const std::string& text, const std::string& file) {
  auto toml = TomlReader::Parse(text, file);
  if (!toml.ok()) return toml.status();
  FmConfig config;
  for (TomlReader& listen : toml->Tables("listen")) {
    config.listen.push_back({listen.String("address"), listen.Bool("insecure", false)});
  }
  if (config.listen.empty()) toml->Fail("listen", "is missing", "add a [[listen]] with an address");
  if (toml->Has("tls")) {
    TomlReader tls = toml->Table("tls");
    config.tls = FmConfig::Tls{tls.String("ca"), tls.String("cert"), tls.String("key")};
  }

  TomlReader store = toml->Table("store");
  const std::string kind = store.String("kind", "sqlite");
  if (kind == "sqlite") {
    config.store_path = store.String("path");
  } else if (kind == "memory") {
    config.store = FmConfig::StoreKind::kMemory;
  } else {
    store.Fail("kind", "is no store", "write \"sqlite\" or \"memory\"");
  }

  TomlReader fabric = toml->Table("fabric");
  const std::string driver = fabric.String("driver");
  if (driver == "emulated") {
    config.emulated_root = fabric.String("root");
  } else if (driver == "qemu") {
    config.driver = FmConfig::Driver::kQemu;
    config.qemu_state = fabric.String("state", "");
  } else {
    fabric.Fail("driver", "is no fabric driver", "write \"emulated\" or \"qemu\"");
  }
  const bool qemu = config.driver == FmConfig::Driver::kQemu;
  std::set<std::string> ids;
  for (TomlReader& device : toml->Tables("device")) {
    config.devices.push_back(ReadDevice(device, qemu, ids));
  }
  if (config.devices.empty() || config.devices.size() > kMaxDevices) {
    toml->Fail("device", absl::StrCat("needs 1 to ", kMaxDevices), "add a [[device]]");
  }
  ids.clear();
  for (TomlReader& host : toml->Tables("host")) {
    config.hosts.push_back(ReadHost(host, qemu, ids));
  }
  if (config.hosts.size() > kMaxHosts) {
    toml->Fail("host", absl::StrCat("stands more than ", kMaxHosts, " times"), "use fewer");
  }

  TomlReader sessions = toml->Table("sessions");
  config.heartbeat = sessions.Duration("heartbeat", config.heartbeat);
  config.lease = sessions.Duration("lease", config.lease);
  if (config.lease < 2 * config.heartbeat) {
    sessions.Fail("lease", "is shorter than two heartbeats", "make it longer");
  }
  TomlReader reconciler = toml->Table("reconciler");
  config.attach_timeout = reconciler.Duration("attach_timeout", config.attach_timeout);
  config.discover_period = reconciler.Duration("discover_period", config.discover_period);
  if (absl::Status status = toml->Finish(); !status.ok()) return status;
  return config;
}

absl::StatusOr<FmConfig> LoadFmConfig(const std::string& file) {
  auto text = ReadConfigFile(file);
  if (!text.ok()) return text.status();
  return ParseFmConfig(*text, file);
}

}  // namespace cxlpool::fm
