#include "fabric-manager/adapters/fabric_qemu/qemu_fabric.h"

#include <algorithm>
#include <cstdlib>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "fabric-manager/ports/fabric_shell.h"
#include "proto/support/log.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

constexpr uint64_t kScrubStepBytes = 64 << 20;

// As QEMU is given it; the path itself where nothing is there.
std::string Canonical(const std::string& path) {
  char* canonical = ::realpath(path.c_str(), nullptr);
  std::string out = canonical == nullptr ? path : canonical;
  ::free(canonical);
  return out;
}

// What can be wrong in the configuration itself: ids, sizes, and two devices with one file, which
// would give the same bytes to two Regions.
absl::Status CheckConfig(const QemuFabricConfig& config) {
  std::set<std::string> devices, hosts, paths, sockets;
  for (const QemuDeviceConfig& device : config.devices) {
    absl::Status status =
        CheckDeviceConfig(device.id, device.capacity_bytes, device.granule_bytes, devices);
    if (!status.ok()) return status;
    if (!paths.insert(Canonical(device.path)).second) {
      return BadConfig(
          absl::StrCat("the file ", device.path, " of device ", device.id, " is another's too"),
          "give each device a file of its own");
    }
  }
  for (const QemuHostConfig& host : config.hosts) {
    if (absl::Status status = CheckHostConfig(host.id, hosts); !status.ok()) return status;
    if (!sockets.insert(host.qmp_socket).second) {
      return BadConfig(absl::StrCat("the QMP socket ", host.qmp_socket, " of host ", host.id,
                                    " is another's too"),
                       "give each host a socket of its own");
    }
  }
  return absl::OkStatus();
}

}  // namespace

void SetParts(QemuFabricConfig& config, const TopologyTables& tables) {
  config.devices.clear();
  for (const DeviceEntry& device : tables.devices) {
    config.devices.push_back({.id = device.id,
                              .serial = device.serial,
                              .path = device.path,
                              .capacity_bytes = device.capacity_bytes,
                              .granule_bytes = device.granule_bytes});
  }
  config.hosts.clear();
  for (const HostEntry& host : tables.hosts) {
    config.hosts.push_back({.id = host.id, .qmp_socket = host.qmp_socket});
  }
}

// A driver for these devices and hosts. Each device's file is open and locked after OK; hosts need
// not be there.
absl::StatusOr<std::unique_ptr<FabricDriver>> QemuFabric::Open(QemuFabricConfig config) {
  if (absl::Status status = CheckConfig(config); !status.ok()) return status;
  FabricShell::Options options;
  options.operation = config.timing.operation;
  options.patience = config.timing.patience;
  options.busy_retry = config.timing.busy_retry;
  options.recheck = config.timing.recheck;
  options.fence_program = config.fence;
  std::unique_ptr<QemuFabric> fabric(new QemuFabric(std::move(config)));
  const auto missing = fabric->ConfigureDevices(fabric->config_.devices);
  if (!missing.empty()) return missing.begin()->second;
  for (const QemuHostConfig& host : fabric->config_.hosts) {
    if (absl::Status status = fabric->AddHost(host, ""); !status.ok()) return status;
  }
  return std::make_unique<FabricShell>(std::move(fabric), options);
}

// A device that was not known before: its file, locked, and read once for bytes that are not zero.
// Where there are some and no record explains them, they may be anyone's, and the core does not
// give them out.
absl::StatusOr<QemuFabric::DevicePtr> QemuFabric::OpenDevice(QemuDeviceConfig config) {
  auto file = PoolFile::Open(config.path, config.capacity_bytes);
  if (!file.ok()) return file.status();
  const auto has_bytes = file->HasBytes();
  if (!has_bytes.ok()) return has_bytes.status();
  config.path = file->path();
  return std::make_shared<const Device>(Device{std::move(config), *std::move(file), *has_bytes});
}

// A known device by its new description. One that is larger now is read for bytes only where it has
// grown: the rest may hold Regions by now. One whose file is too short for its new capacity, or
// cannot be read there, stays as it is, with an error in the log: what it holds goes on to be used.
absl::StatusOr<QemuFabric::DevicePtr> QemuFabric::ChangeDevice(const DevicePtr& known,
                                                               const QemuDeviceConfig& wanted) {
  const QemuDeviceConfig& was = known->config;
  if (was.capacity_bytes == wanted.capacity_bytes && was.granule_bytes == wanted.granule_bytes &&
      was.serial == wanted.serial) {
    return known;
  }
  const auto stays = [&](const absl::Status& why) {
    LogError(kQemuLogSubject, "device ", wanted.id, " does not grow: ", why.message());
    return known;
  };
  auto file = known->file.Grown(wanted.capacity_bytes);
  if (!file.ok()) return stays(file.status());
  bool has_bytes = known->has_bytes;
  if (was.capacity_bytes < wanted.capacity_bytes) {
    const auto grown = file->HasBytes(was.capacity_bytes);
    if (!grown.ok()) return stays(grown.status());
    has_bytes = *grown;
  }
  QemuDeviceConfig config = wanted;
  config.path = was.path;
  return std::make_shared<const Device>(Device{std::move(config), *std::move(file), has_bytes});
}

// Makes the devices those that are wanted, and answers which of them are missing and why. A device
// that was there before stays open and locked throughout: without the lock another manager could
// take its file in between. Where two name the same file, the second is missing.
std::map<std::string, absl::Status> QemuFabric::ConfigureDevices(
    const std::vector<QemuDeviceConfig>& wanted) {
  std::map<std::string, DevicePtr> before, now;
  {
    MutexLock lock(mutex_);
    before = devices_;
  }
  std::map<std::string, absl::Status> missing;
  std::map<std::string, std::string> paths;   // By device.
  std::map<std::string, std::string> owners;  // By path.
  for (const QemuDeviceConfig& config : wanted) {
    const std::string path = Canonical(config.path);
    if (const auto owner = owners.emplace(path, config.id).first; owner->second != config.id) {
      missing[config.id] = absl::FailedPreconditionError(
          absl::StrCat("its file ", path, " is that of device ", owner->second));
      continue;
    }
    paths[config.id] = path;
    const auto known = before.find(config.id);
    const bool same = known != before.end() && known->second->config.path == path;
    absl::StatusOr<DevicePtr> device =
        same ? ChangeDevice(known->second, config) : OpenDevice(config);
    if (device.ok()) {
      now[config.id] = *std::move(device);
    } else {
      missing[config.id] = device.status();
    }
  }
  names_->Set(std::move(paths));
  MutexLock lock(mutex_);
  devices_ = std::move(now);
  missing_.clear();
  for (const auto& [id, why] : missing) missing_[id] = std::string(why.message());
  return missing;
}

// Adds a host, or puts another connection in its place. `life`: the one that the records know it
// by. Where they know none yet, the one that an earlier release wrote into its state directory is
// used.
absl::Status QemuFabric::AddHost(const QemuHostConfig& config, const std::string& life) {
  auto host = std::make_shared<QemuHost>(config, names_, config_.timing, processes_);
  if (!host->valid()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no file descriptors left for host ", config.id));
  }
  std::string former;
  if (life.empty() && !config_.state_directory.empty()) {
    former = ReadFormerIncarnation(absl::StrCat(config_.state_directory, "/", config.id, ".qemu"));
  }
  host->Start(sink_);
  MutexLock lock(mutex_);
  if (!former.empty()) former_[config.id] = former;
  hosts_[config.id] = std::move(host);
  return absl::OkStatus();
}

FabricCapabilities QemuFabric::capabilities() const {
  return FabricCapabilities{.driver = "qemu",
                            .chooses_serial = true,
                            .keeps_keys = true,
                            .isolates = true,
                            .enforces_read_only = true,
                            .shares_slices = true,
                            .hardware_coherent = true,
                            .fence = FenceScope::kHost,
                            .claims_hosts = true,
                            .add_device = {"cxlpool device add DEVICE --capacity SIZE "
                                           "--path FILE"}};
}

std::vector<FabricDevice> QemuFabric::devices() const {
  std::vector<FabricDevice> devices;
  MutexLock lock(mutex_);
  for (const auto& [id, device] : devices_) {
    devices.push_back({.id = id,
                       .serial = device->config.serial,
                       .capacity_bytes = device->config.capacity_bytes,
                       .granule_bytes = device->config.granule_bytes,
                       .identity = device->file.identity(),
                       .has_bytes = device->has_bytes});
  }
  return devices;
}

// A device whose file was moved or replaced under its name is missing: whose bytes are behind the
// name now cannot be known.
absl::StatusOr<DeviceLook> QemuFabric::LookAtDevices(absl::Duration) {
  DeviceLook look;
  std::map<std::string, DevicePtr> all;
  {
    MutexLock lock(mutex_);
    look.missing = missing_;
    all = devices_;
  }
  for (FabricDevice& device : devices()) {
    const auto found = all.find(device.id);
    if (found == all.end()) continue;
    if (absl::Status status = found->second->file.CheckInPlace(); !status.ok()) {
      look.missing[device.id] = std::string(status.message());
    } else {
      look.devices.push_back(std::move(device));
    }
  }
  return look;
}

std::vector<std::string> QemuFabric::hosts() const {
  std::vector<std::string> ids;
  MutexLock lock(mutex_);
  for (const auto& [id, host] : hosts_) ids.push_back(id);
  return ids;
}

QemuFabric::HostPtr QemuFabric::FindHost(const std::string& id) const {
  MutexLock lock(mutex_);
  const auto host = hosts_.find(id);
  return host == hosts_.end() ? nullptr : host->second;
}

// Connects the hosts. All processes that the records know are claimed before any host connects, so
// that none is taken for another host's when two sockets were exchanged.
void QemuFabric::Start(const KnownFabric& known, Sink sink) {
  sink_ = sink;
  KnownFabric all = known;
  for (const std::string& id : hosts()) {
    // What Open could not know yet.
    std::string& life = all.hosts[id];
    MutexLock lock(mutex_);
    hosts_.at(id)->Start(sink);
    if (life.empty()) life = former_[id];
  }
  // Also for hosts that are not listed any more: no other host may claim their processes.
  for (const auto& [id, life] : all.hosts) {
    if (!life.empty()) processes_->Claim(CurrentForm(life), id);
  }
}

// Goes by what devices and hosts there are now. FABRIC_BUSY: another manager has a device's file,
// and the shell asks again later; whatever else is wrong with a device shows in LookAtDevices. A
// host with another socket is another QemuHost; the shell has closed the lane of the former one.
absl::Status QemuFabric::Configure(const FabricParts& parts) {
  QemuFabricConfig wanted;
  SetParts(wanted, parts.tables);
  absl::Status busy;
  for (const auto& [id, why] : ConfigureDevices(wanted.devices)) {
    if (ReasonOf(why) == "FABRIC_BUSY") busy = why;
  }
  for (const auto& [id, life] : parts.known.hosts) {
    if (!life.empty()) processes_->Claim(CurrentForm(life), id);
  }
  for (const QemuHostConfig& host : wanted.hosts) {
    const HostPtr before = FindHost(host.id);
    if (before != nullptr && before->config().qmp_socket == host.qmp_socket) continue;
    const auto life = parts.known.hosts.find(host.id);
    const absl::Status added = AddHost(host, life == parts.known.hosts.end() ? "" : life->second);
    if (!added.ok()) LogError(kQemuLogSubject, added.message());
  }
  return busy;
}

bool QemuFabric::HasHost(const HostEntry& entry) const {
  const HostPtr host = FindHost(entry.id);
  return host != nullptr && host->config().qmp_socket == entry.qmp_socket;
}

void QemuFabric::Forget(const std::string& host) {
  processes_->Forget(host);
  MutexLock lock(mutex_);
  hosts_.erase(host);
  former_.erase(host);
}

void QemuFabric::Meet(const std::string& host, const std::string& life) {
  std::string former;
  {
    MutexLock lock(mutex_);
    if (const auto found = former_.find(host); found != former_.end()) former = found->second;
  }
  FindHost(host)->Meet(life.empty() ? former : life);
}

absl::StatusOr<uint64_t> QemuFabric::Claim(const std::string& host, absl::Duration deadline) {
  return FindHost(host)->Claim(deadline);
}

HostLook QemuFabric::LookAt(const std::string& host, absl::Duration deadline) {
  return FindHost(host)->Look(deadline);
}

// The device of a slice, for a call that is about to use its file. The shell has checked that the
// slice lies within a device; but the device may have gone and the file been replaced since.
absl::StatusOr<QemuFabric::DevicePtr> QemuFabric::FindDevice(const Slice& slice) const {
  DevicePtr device;
  {
    MutexLock lock(mutex_);
    if (const auto found = devices_.find(slice.device); found != devices_.end()) {
      device = found->second;
    }
  }
  if (device == nullptr) {
    return Refuse(absl::StatusCode::kNotFound, "UNKNOWN_DEVICE",
                  absl::StrCat("the QEMU fabric has no device ", slice.device, " any more"),
                  "wait until the fabric was read again");
  }
  if (absl::Status status = device->file.CheckInPlace(); !status.ok()) return status;
  return device;
}

absl::StatusOr<BoundLd> QemuFabric::Bind(const BindRequest& request, absl::Duration deadline) {
  if (auto device = FindDevice(request.slice); !device.ok()) return device.status();
  return FindHost(request.key.host)->Bind(request, deadline);
}

absl::StatusOr<bool> QemuFabric::BeginUnbind(const Binding& binding, absl::Duration deadline) {
  return FindHost(binding.key.host)->BeginUnbind(binding.key, deadline);
}

absl::StatusOr<bool> QemuFabric::IsUnbound(const Binding& binding, absl::Duration deadline) {
  return FindHost(binding.key.host)->IsUnbound(binding.key, deadline);
}

absl::StatusOr<bool> QemuFabric::Fence(const std::string& host, absl::Duration) {
  if (absl::Status status = FindHost(host)->Fence(); !status.ok()) return status;
  return true;
}

absl::StatusOr<std::unique_ptr<FabricScrub>> QemuFabric::BeginScrub(const Slice& slice) {
  class Scrub : public FabricScrub {
   public:
    Scrub(DevicePtr device, const Slice& own)
        : device_(std::move(device)), scrub_(device_->file, own.dpa_bytes, own.length_bytes) {}
    absl::StatusOr<bool> Step(absl::Duration) override { return scrub_.Step(kScrubStepBytes); }
    uint64_t done_bytes() const override { return scrub_.checked_bytes(); }

   private:
    const DevicePtr device_;  // Whose file stays open, also where the device is let go meanwhile.
    PoolScrub scrub_;
  };
  auto device = FindDevice(slice);
  if (!device.ok()) return device.status();
  return std::make_unique<Scrub>(*std::move(device), slice);
}

void QemuFabric::Interrupt(const std::string& lane) {
  if (const HostPtr host = FindHost(lane); host != nullptr) host->Interrupt();
}

bool QemuFabric::Idle(const std::string& lane, int wake_fd, absl::Duration at_most) {
  if (const HostPtr host = FindHost(lane); host != nullptr) return host->Idle(wake_fd, at_most);
  return FabricBackend::Idle(lane, wake_fd, at_most);
}

}  // namespace cxlpool::fm
