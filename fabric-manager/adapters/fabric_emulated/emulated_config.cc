#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "fabric-manager/adapters/fabric_emulated/emulated_fabric.h"
#include "fabric-manager/ports/fabric_shell.h"
#include "proto/support/log.h"
#include "proto/support/mutant.h"
#include "proto/support/names.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

absl::Status CheckParts(const EmulatedFabricConfig& config) {
  std::set<std::string> devices, hosts;
  for (const EmulatedDeviceConfig& device : config.devices) {
    absl::Status status =
        CheckDeviceConfig(device.id, device.capacity_bytes, device.granule_bytes, devices);
    if (!status.ok()) return status;
  }
  for (const EmulatedHostConfig& host : config.hosts) {
    if (absl::Status status = CheckHostConfig(host.id, hosts); !status.ok()) return status;
    if (std::set<uint32_t>(host.slots.begin(), host.slots.end()).size() != host.slots.size()) {
      return BadConfig(absl::StrCat("host ", host.id, " has one slot number twice"), "remove one");
    }
  }
  return absl::OkStatus();
}

// Makes a directory that users other than ours may pass through but not list, if we are root.
absl::Status MakeDirectory(const std::string& path) {
  const mode_t mode = ::geteuid() == 0 ? 0711 : 0700;
  if (::mkdir(path.c_str(), mode) == 0 && ::chmod(path.c_str(), mode) == 0) {
    return absl::OkStatus();
  }
  struct stat info;
  if (errno != EEXIST || ::lstat(path.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot make the directory ", path));
  }
  if (info.st_uid == ::geteuid()) return absl::OkStatus();
  return BadConfig(absl::StrCat(path, " belongs to uid ", info.st_uid),
                   "choose a directory that is the manager's own");
}

// The number of a directory called "slot-N".
std::optional<uint32_t> SlotNumber(absl::string_view name) {
  uint32_t number = 0;
  if (!absl::ConsumePrefix(&name, "slot-") || !absl::SimpleAtoi(name, &number) ||
      name != absl::StrCat(number)) {
    return std::nullopt;
  }
  return number;
}

}  // namespace

void SetParts(EmulatedFabricConfig& config, const TopologyTables& tables) {
  config.devices.clear();
  for (const DeviceEntry& device : tables.devices) {
    config.devices.push_back(
        {device.id, device.serial, device.capacity_bytes, device.granule_bytes});
  }
  config.hosts.clear();
  for (const HostEntry& host : tables.hosts) {
    const auto uid = CXLPOOL_MUTANT("agent-uid-is-lost") ? std::nullopt : host.agent_uid;
    config.hosts.push_back({.id = host.id, .slots = host.slots, .agent_uid = uid});
  }
}

// The target of a symbolic link is its value: made and replaced in one step, and never half
// written. readlink() cuts off what does not fit without a word, so the buffer holds one byte more
// than any value may have, and a value that fills it is refused.
absl::StatusOr<std::string> ReadValue(const std::string& path) {
  std::string value(kMaxValueBytes + 1, '\0');
  const ssize_t size = ::readlink(path.c_str(), value.data(), value.size());
  if (size < 0 && errno == ENOENT) return std::string();
  if (size <= 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", path));
  if (static_cast<size_t>(size) > kMaxValueBytes) {
    return absl::DataLossError(
        absl::StrCat("cannot read ", path, ": it has more than ", kMaxValueBytes, " bytes"));
  }
  value.resize(static_cast<size_t>(size));
  return value;
}

// The new link is made beside the old one and renamed over it: a reader sees one of the two, and
// after a power cut the new one if this was OK.
absl::Status WriteValue(const std::string& path, const std::string& value) {
  const std::string fresh = absl::StrCat(path, ".new");
  if (::unlink(fresh.c_str()) != 0 && errno != ENOENT) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot remove ", fresh));
  }
  if (::symlink(value.c_str(), fresh.c_str()) != 0 || ::rename(fresh.c_str(), path.c_str()) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path));
  }
  const std::string above = std::filesystem::path(path).parent_path().string();
  const UniqueFd directory(::open(above.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory.valid() || ::fsync(directory.get()) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot sync ", above));
  }
  return absl::OkStatus();
}

// Everything that can be wrong is found here, before a call is served: what is configured, whose
// the directories are, and whether another manager has them.
absl::StatusOr<std::unique_ptr<FabricDriver>> EmulatedFabric::Open(EmulatedFabricConfig config) {
  if (!absl::StartsWith(config.root_directory, "/")) {
    return BadConfig(absl::StrCat("root directory \"", config.root_directory, "\" is not absolute"),
                     "give the emulated fabric a path that begins with /");
  }
  if (absl::Status status = CheckParts(config); !status.ok()) return status;
  std::unique_ptr<EmulatedFabric> fabric(new EmulatedFabric(std::move(config)));
  if (absl::Status status = fabric->Prepare(); !status.ok()) return status;
  FabricShell::Options options;
  options.max_waiting = 16384;  // All hosts are on one lane.
  options.recheck = fabric->config_.poll_interval;
  options.idle = fabric->config_.watch_interval;
  options.fence_program = fabric->config_.fence;
  return std::make_unique<FabricShell>(std::move(fabric), options);
}

// The lock comes before anything is read or made that another manager may be using. The identity is
// made once, and names this directory for ever.
absl::Status EmulatedFabric::Prepare() {
  const std::string& root = config_.root_directory;
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(root).parent_path(), error);
  for (const std::string& path :
       {root, absl::StrCat(root, "/hosts"), absl::StrCat(root, "/slices")}) {
    if (absl::Status status = MakeDirectory(path); !status.ok()) return status;
  }
  const std::string lock = absl::StrCat(root, "/lock");
  lock_ = UniqueFd(::open(lock.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!lock_.valid()) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", lock));
  if (!CXLPOOL_MUTANT("emulated-root-unlocked") && ::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "FABRIC_BUSY",
                  absl::StrCat("another manager runs the emulated fabric in ", root),
                  "stop it, or give this one a root directory of its own");
  }
  if (const char* effects = ::getenv("CXLPOOL_FABRIC_EFFECTS"); effects != nullptr) {
    effects_ = UniqueFd(::open(effects, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
    if (!effects_.valid()) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", effects));
  }
  const std::string identity = absl::StrCat(root, "/identity");
  auto value = ReadValue(identity);
  if (value.ok() && value->empty()) {
    value = FormatUuid(RandomUuid());
    if (absl::Status status = WriteValue(identity, *value); !status.ok()) return status;
  }
  if (!value.ok()) return value.status();
  identity_ = *std::move(value);
  auto extents = ExtentFiles::Open(absl::StrCat(root, "/extents"));
  if (!extents.ok()) return extents.status();
  extents_ = std::move(*extents);
  for (const EmulatedHostConfig& host : config_.hosts) {
    if (absl::Status status = PrepareHost(host); !status.ok()) return status;
  }
  return absl::OkStatus();
}

// A host that is new, or is described in another way, is set up as at the start: what its slots'
// files contain is read again. One that cannot be set up is not reachable, with the reason; the
// next Configure tries again.
absl::Status EmulatedFabric::Configure(const FabricParts& parts) {
  EmulatedFabricConfig wanted;
  SetParts(wanted, parts.tables);
  config_.devices = wanted.devices;
  for (const EmulatedHostConfig& config : wanted.hosts) {
    Host& host = hosts_[config.id];
    if (!host.directory.empty() && host.config == config && host.unknown.ok()) continue;
    host.slots.clear();  // A fence that is under way goes on.
    host.unknown = PrepareHost(config);
    if (host.unknown.ok()) continue;
    host.unknown = Refuse(absl::StatusCode::kUnavailable, "HOST_UNREACHABLE",
                          absl::StrCat("host ", config.id, " cannot be set up in ",
                                       config_.root_directory, ": ", host.unknown.message()),
                          "put that right, and add the host once more");
    LogError("fabric-emulated", host.unknown.message());
  }
  return absl::OkStatus();
}

bool EmulatedFabric::HasHost(const HostEntry& entry) const {
  const auto host = hosts_.find(entry.id);
  if (host == hosts_.end() || !host->second.unknown.ok()) return false;
  EmulatedFabricConfig wanted;
  TopologyTables tables;
  tables.hosts = {entry};
  SetParts(wanted, tables);
  return host->second.config == wanted.hosts[0];
}

// A host without a life gets its first one; otherwise it goes on in the one that is written down.
absl::Status EmulatedFabric::PrepareHost(const EmulatedHostConfig& config) {
  Host& host = hosts_[config.id];
  host.config = config;
  host.directory = absl::StrCat(config_.root_directory, "/hosts/", config.id);
  if (absl::Status status = MakeDirectory(host.directory); !status.ok()) return status;
  auto incarnation = ReadValue(absl::StrCat(host.directory, "/incarnation"));
  if (!incarnation.ok()) return incarnation.status();
  host.incarnation = *std::move(incarnation);
  if (host.incarnation.empty()) {
    if (absl::Status status = RenewIncarnation(host); !status.ok()) return status;
  }
  return AddSlots(host);
}

// The configured slots, and those of an earlier configuration: what is bound there stays known.
absl::Status EmulatedFabric::AddSlots(Host& host) {
  std::map<uint32_t, bool> slots;  // Number to whether it is closed.
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(host.directory, error)) {
    if (const auto number = SlotNumber(entry.path().filename().string())) slots[*number] = true;
  }
  if (error) {
    return absl::UnavailableError(
        absl::StrCat("cannot list ", host.directory, ": ", error.message()));
  }
  for (const uint32_t number : host.config.slots) slots[number] = false;
  for (const auto& [number, closed] : slots) {
    SlotFiles files(absl::StrCat(host.directory, "/slot-", number), host.agent_uid());
    if (absl::Status status = files.Prepare(); !status.ok()) return status;
    Slot& slot = host.slots.emplace(number, Slot(std::move(files))).first->second;
    slot.closed = closed;
    // Damage makes the host unreachable, not the fabric.
    if (!Reload(host.config.id, number, slot).ok() || !slot.ld.has_value()) continue;
    const LdKey& key = *slot.ld->key;
    if (absl::Status status = NoteSlice(slot.ld->slice, ExtentFileName(key.tag, key.extent_index));
        !status.ok()) {
      return status;
    }
  }
  return absl::OkStatus();
}

}  // namespace cxlpool::fm
