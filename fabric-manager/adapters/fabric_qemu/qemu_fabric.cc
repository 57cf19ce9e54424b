#include "fabric-manager/adapters/fabric_qemu/qemu_fabric.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/mutex.h"
#include "proto/support/names.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

constexpr uint64_t kScrubStepBytes = 64 << 20;
constexpr size_t kMaxScrubs = 4096;

absl::Status Refuse(absl::StatusCode code, absl::string_view reason, std::string message,
                    std::string remedy) {
  return Refusal{.code = code,
                 .reason = std::string(reason),
                 .message = std::move(message),
                 .remedy = std::move(remedy),
                 .metadata = {}}
      .ToStatus();
}

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

absl::StatusOr<std::unique_ptr<QemuFabric>> QemuFabric::Open(QemuFabricConfig config) {
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
  return fabric;
}

QemuFabric::QemuFabric(QemuFabricConfig config, std::vector<PoolFile> files)
    : config_(std::move(config)), files_(std::move(files)), scrub_loop_("qemu-scrub") {
  for (const QemuHostConfig& host : config_.hosts) {
    hosts_[host.id] = std::make_unique<QemuHost>(host, config_.devices, config_.timing, processes_);
  }
}

QemuFabric::~QemuFabric() {
  scrub_loop_.Stop();
  for (ScrubJob& job : scrubs_) {
    std::move(job.done)(absl::CancelledError("the QEMU fabric is stopping; scrub again"));
  }
}

FabricCapabilities QemuFabric::capabilities() const {
  uint64_t granule = 0;
  for (const QemuDeviceConfig& device : config_.devices) {
    granule = granule == 0 ? device.granule_bytes : std::min(granule, device.granule_bytes);
  }
  return FabricCapabilities{.driver = "qemu",
                            .extent_granule_bytes = granule,
                            .max_lds_per_device = 0,
                            .chooses_serial = true,
                            .keeps_keys = true,
                            .enforces_read_only = true,
                            .hardware_coherent = true,
                            .can_fence = true};
}

void QemuFabric::Start(KnownFabric known, absl::AnyInvocable<void(FabricEvent)> sink) {
  struct Shared {
    Mutex mutex;
    absl::AnyInvocable<void(FabricEvent)> sink ABSL_GUARDED_BY(mutex);
  };
  auto shared = std::make_shared<Shared>();
  {
    MutexLock lock(shared->mutex);
    shared->sink = std::move(sink);
  }
  for (const auto& [id, host] : hosts_) {
    std::string& incarnation = known.hosts[id];
    if (incarnation.empty() && !config_.state_directory.empty()) {
      incarnation = ReadFormerIncarnation(absl::StrCat(config_.state_directory, "/", id, ".qemu"));
    }
  }
  // Also of hosts that are not configured any more: their processes are nobody else's.
  for (const auto& [id, incarnation] : known.hosts) {
    if (!incarnation.empty()) processes_->Claim(incarnation, id);
  }
  for (auto& [id, host] : hosts_) {
    host->Start(known.hosts[id], [shared](FabricEvent event) {
      MutexLock lock(shared->mutex);
      shared->sink(std::move(event));
    });
  }
}

void QemuFabric::Discover(DoneWith<FabricView> done) {
  // Gathers what each host's thread says; the last one answers.
  struct Gathering {
    Mutex mutex;
    size_t missing ABSL_GUARDED_BY(mutex) = 0;
    std::map<std::string, QemuHost::Report> reports ABSL_GUARDED_BY(mutex);
    absl::Status status ABSL_GUARDED_BY(mutex);
    DoneWith<FabricView> done;
    FabricView view;  // Devices at first.
  };
  auto all = std::make_shared<Gathering>();
  all->done = std::move(done);
  for (size_t i = 0; i < config_.devices.size(); ++i) {
    const QemuDeviceConfig& device = config_.devices[i];
    if (!files_[i].CheckInPlace().ok()) continue;
    all->view.devices.push_back({.id = device.id,
                                 .serial = device.serial,
                                 .capacity_bytes = device.capacity_bytes,
                                 .granule_bytes = device.granule_bytes,
                                 .identity = files_[i].identity(),
                                 .has_bytes = has_bytes_[i]});
  }
  if (hosts_.empty()) {
    std::move(all->done)(std::move(all->view));
    return;
  }
  {
    MutexLock lock(all->mutex);
    all->missing = hosts_.size();
  }
  for (auto& [id, host] : hosts_) {
    host->Discover([all, id = id](absl::StatusOr<QemuHost::Report> report) {
      absl::Status status;
      {
        MutexLock lock(all->mutex);
        if (report.ok()) {
          all->reports[id] = std::move(*report);
        } else {
          all->status = report.status();
        }
        if (--all->missing != 0) return;
        status = all->status;
        for (auto& [name, part] : all->reports) {
          all->view.hosts.push_back(std::move(part.host));
          for (BoundLd& ld : part.bound) all->view.bound.push_back(std::move(ld));
        }
      }
      if (status.ok()) {
        std::move(all->done)(std::move(all->view));
      } else {
        std::move(all->done)(status);
      }
    });
  }
}

absl::StatusOr<QemuHost*> QemuFabric::FindHost(const std::string& id) const {
  const auto host = hosts_.find(id);
  if (host != hosts_.end()) return host->second.get();
  return Refuse(absl::StatusCode::kNotFound, "UNKNOWN_HOST",
                absl::StrCat("the QEMU fabric has no host ", id),
                "list it, with its QMP socket, in the manager's configuration");
}

absl::StatusOr<const PoolFile*> QemuFabric::FindFile(const Slice& slice) const {
  const auto device = std::find_if(config_.devices.begin(), config_.devices.end(),
                                   [&](const QemuDeviceConfig& d) { return d.id == slice.device; });
  if (device == config_.devices.end()) {
    return Refuse(absl::StatusCode::kNotFound, "UNKNOWN_DEVICE",
                  absl::StrCat("the QEMU fabric has no device ", slice.device),
                  "list it in the manager's configuration");
  }
  const bool inside = slice.length_bytes != 0 && slice.dpa_bytes <= device->capacity_bytes &&
                      slice.length_bytes <= device->capacity_bytes - slice.dpa_bytes;
  if (!inside || slice.dpa_bytes % device->granule_bytes != 0 ||
      slice.length_bytes % device->granule_bytes != 0) {
    return Refuse(absl::StatusCode::kInvalidArgument, "BAD_SLICE",
                  absl::StrCat("slice of ", slice.length_bytes, " bytes at ", slice.dpa_bytes,
                               " does not fit device ", device->id, " of ", device->capacity_bytes,
                               " bytes in granules of ", device->granule_bytes),
                  "use whole granules within the device");
  }
  const PoolFile& file = files_[static_cast<size_t>(device - config_.devices.begin())];
  if (absl::Status status = file.CheckInPlace(); !status.ok()) return status;
  return &file;
}

void QemuFabric::Bind(BindRequest request, DoneWith<BoundLd> done) {
  auto host = FindHost(request.key.host);
  auto file = FindFile(request.slice);
  const auto tag = ParseUuid(request.key.tag);
  absl::Status refused = !host.ok() ? host.status() : file.status();
  if (refused.ok() && (!tag.ok() || FormatUuid(*tag) != request.key.tag)) {
    refused = Refuse(absl::StatusCode::kInvalidArgument, "BAD_UUID",
                     "the LD's tag is not a UUID in lower case", "use the Region's UUID");
  }
  if (refused.ok() && request.serial == 0) {
    refused = Refuse(absl::StatusCode::kInvalidArgument, "BAD_SERIAL", "the LD's serial is 0",
                     "count serials from 1");
  }
  if (refused.ok()) {
    (*host)->Bind(std::move(request), std::move(done));
  } else {
    std::move(done)(std::move(refused));
  }
}

void QemuFabric::BeginUnbind(Binding binding, Done done) {
  auto host = FindHost(binding.key.host);
  if (host.ok()) {
    (*host)->BeginUnbind(std::move(binding.key), std::move(done));
  } else {
    std::move(done)(std::move(host).status());
  }
}

void QemuFabric::AwaitUnbound(Binding binding, absl::Duration timeout, Done done) {
  auto host = FindHost(binding.key.host);
  if (host.ok()) {
    (*host)->AwaitUnbound(std::move(binding.key), timeout, std::move(done));
  } else {
    std::move(done)(std::move(host).status());
  }
}

void QemuFabric::Fence(std::string host_id, Done done) {
  auto host = FindHost(host_id);
  if (host.ok()) {
    (*host)->Fence(std::move(done));
  } else {
    std::move(done)(std::move(host).status());
  }
}

void QemuFabric::Scrub(std::string, uint32_t, Slice slice, Done done) {
  if (auto file = FindFile(slice); !file.ok()) {
    std::move(done)(std::move(file).status());
  } else if (waiting_scrubs_.fetch_add(1) >= kMaxScrubs) {
    waiting_scrubs_.fetch_sub(1);
    std::move(done)(Refuse(absl::StatusCode::kResourceExhausted, "FABRIC_OVERLOADED",
                           absl::StrCat(kMaxScrubs, " scrubs are waiting"), "try again later"));
  } else {
    scrub_loop_.Post([this, file = *file, slice = std::move(slice),
                      done = std::move(done)]() mutable {
      scrubs_.push_back({PoolScrub(*file, slice.dpa_bytes, slice.length_bytes), std::move(done)});
      StepScrub(std::prev(scrubs_.end()));
    });
  }
}

void QemuFabric::StepScrub(std::list<ScrubJob>::iterator job) {
  auto finished = job->scrub.Step(kScrubStepBytes);
  if (finished.ok() && !*finished) {
    // In turns, so that a large slice keeps no small one waiting, and stopping is quick.
    scrub_loop_.Post([this, job] { StepScrub(job); });
    return;
  }
  waiting_scrubs_.fetch_sub(1);
  Done done = std::move(job->done);
  scrubs_.erase(job);
  std::move(done)(std::move(finished).status());
}

}  // namespace cxlpool::fm
