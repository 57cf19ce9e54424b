#include "fabric-manager/adapters/fabric_qemu/qemu_fabric.h"

#include <algorithm>
#include <cstdlib>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "fabric-manager/ports/fabric_shell.h"
#include "proto/support/names.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

constexpr uint64_t kScrubStepBytes = 64 << 20;

absl::Status BadConfig(std::string message, std::string remedy) {
  return Refuse(absl::StatusCode::kInvalidArgument, "BAD_CONFIG", std::move(message),
                std::move(remedy));
}

absl::Status CheckDevice(const QemuDeviceConfig& device) {
  if (absl::Status status = CheckResourceId(device.id); !status.ok()) return status;
  if (device.granule_bytes == 0 || device.capacity_bytes == 0 ||
      device.capacity_bytes % device.granule_bytes != 0) {
    return BadConfig(absl::StrCat("device ", device.id, " has ", device.capacity_bytes,
                                  " bytes in granules of ", device.granule_bytes),
                     "make the capacity a multiple of a granule that is not 0");
  }
  return absl::OkStatus();
}

// Checks what is configured, and puts the canonical path into each device.
absl::StatusOr<std::vector<PoolFile>> PrepareConfig(QemuFabricConfig& config) {
  std::vector<PoolFile> files;
  std::set<std::string> devices, hosts, paths, sockets;
  for (QemuDeviceConfig& device : config.devices) {
    if (absl::Status status = CheckDevice(device); !status.ok()) return status;
    char* canonical = ::realpath(device.path.c_str(), nullptr);
    if (canonical != nullptr) device.path = canonical;
    ::free(canonical);
    if (!devices.insert(device.id).second || !paths.insert(device.path).second) {
      return BadConfig(
          absl::StrCat("device ", device.id, " or its file ", device.path, " is configured twice"),
          "give each device an id and a file of its own");
    }
    auto file = PoolFile::Open(device.path, device.capacity_bytes);
    if (!file.ok()) return file.status();
    files.push_back(*std::move(file));
  }
  for (const QemuHostConfig& host : config.hosts) {
    if (absl::Status status = CheckResourceId(host.id); !status.ok()) return status;
    if (!hosts.insert(host.id).second || !sockets.insert(host.qmp_socket).second) {
      return BadConfig(absl::StrCat("host ", host.id, " or its QMP socket ", host.qmp_socket,
                                    " is configured twice"),
                       "give each host an id and a socket of its own");
    }
  }
  return files;
}

}  // namespace

// Takes the pool files' locks, and looks once whether they hold bytes: what the records do not know
// is somebody's then.
absl::StatusOr<std::unique_ptr<FabricDriver>> QemuFabric::Open(QemuFabricConfig config) {
  auto files = PrepareConfig(config);
  if (!files.ok()) return files.status();
  std::unique_ptr<QemuFabric> fabric(new QemuFabric(std::move(config), *std::move(files)));
  for (const PoolFile& file : fabric->files_) {
    auto has_bytes = file.HasBytes();
    if (!has_bytes.ok()) return has_bytes.status();
    fabric->has_bytes_.push_back(*has_bytes);
  }
  for (const auto& [id, host] : fabric->hosts_) {
    if (host->valid()) continue;
    return absl::ResourceExhaustedError(absl::StrCat("no file descriptors left for host ", id));
  }
  FabricShell::Options options;
  options.operation = fabric->config_.timing.operation;
  options.patience = fabric->config_.timing.patience;
  options.busy_retry = fabric->config_.timing.busy_retry;
  options.recheck = fabric->config_.timing.recheck;
  options.fence_program = fabric->config_.fence;
  return std::make_unique<FabricShell>(std::move(fabric), options);
}

QemuFabric::QemuFabric(QemuFabricConfig config, std::vector<PoolFile> files)
    : config_(std::move(config)), files_(std::move(files)) {
  for (const QemuHostConfig& host : config_.hosts) {
    hosts_[host.id] = std::make_unique<QemuHost>(host, config_.devices, config_.timing, processes_);
  }
}

FabricCapabilities QemuFabric::capabilities() const {
  return FabricCapabilities{.driver = "qemu",
                            .chooses_serial = true,
                            .keeps_keys = true,
                            .enforces_read_only = true,
                            .hardware_coherent = true,
                            .fence = FenceScope::kHost};
}

std::vector<FabricDevice> QemuFabric::devices() const {
  std::vector<FabricDevice> devices;
  for (size_t i = 0; i < config_.devices.size(); ++i) {
    const QemuDeviceConfig& device = config_.devices[i];
    devices.push_back({.id = device.id,
                       .serial = device.serial,
                       .capacity_bytes = device.capacity_bytes,
                       .granule_bytes = device.granule_bytes,
                       .identity = files_[i].identity(),
                       .has_bytes = has_bytes_.at(i)});
  }
  return devices;
}

// A device whose file was moved or replaced under its name is left out: nobody can say whose bytes
// are behind the name now.
absl::StatusOr<std::vector<FabricDevice>> QemuFabric::LookAtDevices(absl::Duration) {
  const std::vector<FabricDevice> all = devices();
  std::vector<FabricDevice> in_place;
  for (size_t i = 0; i < all.size(); ++i) {
    if (files_[i].CheckInPlace().ok()) in_place.push_back(all[i]);
  }
  return in_place;
}

std::vector<std::string> QemuFabric::hosts() const {
  std::vector<std::string> ids;
  for (const auto& [id, host] : hosts_) ids.push_back(id);
  return ids;
}

// Where the records know no life of a host yet, what an earlier release wrote down stands in. All
// processes are claimed before any host connects, so that none is taken for another host's.
void QemuFabric::Start(const KnownFabric& known, Sink sink) {
  KnownFabric all = known;
  for (const auto& [id, host] : hosts_) {
    std::string& life = all.hosts[id];
    if (life.empty() && !config_.state_directory.empty()) {
      life = ReadFormerIncarnation(absl::StrCat(config_.state_directory, "/", id, ".qemu"));
      former_[id] = life;
    }
    host->Start(sink);
  }
  // Also of hosts that are not configured any more: their processes are nobody else's.
  for (const auto& [id, life] : all.hosts) {
    if (!life.empty()) processes_->Claim(life, id);
  }
}

void QemuFabric::Meet(const std::string& host, const std::string& life) {
  const auto former = former_.find(host);
  hosts_.at(host)->Meet(life.empty() && former != former_.end() ? former->second : life);
}

HostLook QemuFabric::LookAt(const std::string& host, absl::Duration deadline) {
  return hosts_.at(host)->Look(deadline);
}

// The shell has checked that the slice lies within a device; the file may have been replaced since.
absl::StatusOr<const PoolFile*> QemuFabric::FindFile(const Slice& slice) const {
  const auto device = std::find_if(config_.devices.begin(), config_.devices.end(),
                                   [&](const QemuDeviceConfig& d) { return d.id == slice.device; });
  if (device == config_.devices.end()) return absl::NotFoundError(slice.device);
  const PoolFile& file = files_[static_cast<size_t>(device - config_.devices.begin())];
  if (absl::Status status = file.CheckInPlace(); !status.ok()) return status;
  return &file;
}

absl::StatusOr<BoundLd> QemuFabric::Bind(const BindRequest& request, absl::Duration deadline) {
  if (auto file = FindFile(request.slice); !file.ok()) return file.status();
  return hosts_.at(request.key.host)->Bind(request, deadline);
}

absl::StatusOr<bool> QemuFabric::BeginUnbind(const Binding& binding, absl::Duration deadline) {
  return hosts_.at(binding.key.host)->BeginUnbind(binding.key, deadline);
}

absl::StatusOr<bool> QemuFabric::IsUnbound(const Binding& binding, absl::Duration deadline) {
  return hosts_.at(binding.key.host)->IsUnbound(binding.key, deadline);
}

absl::StatusOr<bool> QemuFabric::Fence(const std::string& host, absl::Duration) {
  if (absl::Status status = hosts_.at(host)->Fence(); !status.ok()) return status;
  return true;
}

absl::StatusOr<std::unique_ptr<FabricScrub>> QemuFabric::BeginScrub(const Slice& slice) {
  class Scrub : public FabricScrub {
   public:
    Scrub(const PoolFile& file, const Slice& own) : scrub_(file, own.dpa_bytes, own.length_bytes) {}
    absl::StatusOr<bool> Step(absl::Duration) override { return scrub_.Step(kScrubStepBytes); }
    uint64_t done_bytes() const override { return scrub_.checked_bytes(); }

   private:
    PoolScrub scrub_;
  };
  auto file = FindFile(slice);
  if (!file.ok()) return file.status();
  return std::make_unique<Scrub>(**file, slice);
}

void QemuFabric::Interrupt(const std::string& lane) {
  if (const auto host = hosts_.find(lane); host != hosts_.end()) host->second->Interrupt();
}

bool QemuFabric::Idle(const std::string& lane, int wake_fd, absl::Duration at_most) {
  const auto host = hosts_.find(lane);
  if (host != hosts_.end()) return host->second->Idle(wake_fd, at_most);
  return FabricBackend::Idle(lane, wake_fd, at_most);
}

}  // namespace cxlpool::fm
