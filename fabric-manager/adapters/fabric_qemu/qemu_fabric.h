// A fabric of QEMU's emulated CXL switches: every host is a QEMU with a QMP socket, every pool
// device a file, and a slice of it is bound by plugging a cxl-type3 with that slice as its memory
// into a cxl-downstream port.
//
//   proof of an unbind   the device is not plugged into the same QEMU process any more and no
//                        address space of it maps its memory; or that process' end. Never the
//                        host agent's word, nor only DEVICE_DELETED: it may be of an earlier LD.
//   fence                SIGKILL to the QEMU, confirmed by its pidfd.
//   read-only            by the memory itself: a host's stores vanish.
//   claim                a host's QMP socket, which serves one client: qemu_host.h. A pool file is
//                        locked (flock) as long as this lives, so that no other manager scrubs it.
//   identity             a device is its pool file: PATH.id beside it holds a UUID, made where it
//                        is missing. A host is one process, which the pool's records name
//                        (fabric_incarnation); no other is taken for it before that one has ended.
//                        Whether one has, only a manager on its own machine can find out.
//
// Each host has a lane of its own (fabric_backend.h), so that a QEMU that hangs keeps no other
// waiting.
#ifndef CXLPOOL_FABRIC_MANAGER_ADAPTERS_FABRIC_QEMU_QEMU_FABRIC_H_
#define CXLPOOL_FABRIC_MANAGER_ADAPTERS_FABRIC_QEMU_QEMU_FABRIC_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "fabric-manager/adapters/fabric_qemu/pool_file.h"
#include "fabric-manager/adapters/fabric_qemu/qemu_host.h"
#include "fabric-manager/adapters/fabric_qemu/qemu_settings.h"
#include "fabric-manager/ports/fabric_backend.h"
#include "proto/support/mutex.h"

namespace cxlpool::fm {

class QemuFabric : public FabricBackend {
 public:
  // INVALID_ARGUMENT/BAD_CONFIG. FAILED_PRECONDITION: BAD_POOL_FILE (absent, too short, or its
  // identity cannot be read or made), FABRIC_BUSY (another manager has it).
  static absl::StatusOr<std::unique_ptr<FabricDriver>> Open(QemuFabricConfig config);

  FabricCapabilities capabilities() const override;
  std::vector<FabricDevice> devices() const override;
  std::vector<std::string> hosts() const override;
  void Start(const KnownFabric& known, Sink sink) override;
  absl::Status Configure(const FabricParts& parts) override;
  bool HasHost(const HostEntry& host) const override;
  void Forget(const std::string& host) override;
  void Meet(const std::string& host, const std::string& life) override;
  absl::StatusOr<DeviceLook> LookAtDevices(absl::Duration deadline) override;
  absl::StatusOr<uint64_t> Claim(const std::string& host, absl::Duration deadline) override;
  HostLook LookAt(const std::string& host, absl::Duration deadline) override;
  absl::StatusOr<BoundLd> Bind(const BindRequest& request, absl::Duration deadline) override;
  absl::StatusOr<bool> BeginUnbind(const Binding& binding, absl::Duration deadline) override;
  absl::StatusOr<bool> IsUnbound(const Binding& binding, absl::Duration deadline) override;
  absl::StatusOr<bool> Fence(const std::string& host, absl::Duration deadline) override;
  absl::StatusOr<std::unique_ptr<FabricScrub>> BeginScrub(const Slice& slice) override;
  void Interrupt(const std::string& lane) override;
  bool Idle(const std::string& lane, int wake_fd, absl::Duration at_most) override;

 private:
  struct Device {
    QemuDeviceConfig config;  // With the canonical path.
    PoolFile file;
    bool has_bytes = false;  // As it was when it came in.
  };
  using DevicePtr = std::shared_ptr<const Device>;
  using HostPtr = std::shared_ptr<QemuHost>;

  explicit QemuFabric(QemuFabricConfig config) : config_(std::move(config)) {}
  static absl::StatusOr<DevicePtr> OpenDevice(QemuDeviceConfig config);
  // `known` as `wanted` says, which has the same path; the same where nothing differs.
  static absl::StatusOr<DevicePtr> ChangeDevice(const DevicePtr& known,
                                                const QemuDeviceConfig& wanted);
  // The devices that are not there, each with why not.
  std::map<std::string, absl::Status> ConfigureDevices(const std::vector<QemuDeviceConfig>& wanted);
  absl::Status AddHost(const QemuHostConfig& config, const std::string& life);
  // The device that `slice` lies within, if its file is still in its place.
  absl::StatusOr<DevicePtr> FindDevice(const Slice& slice) const;
  // Null where there is none, which the shell does not ask for.
  HostPtr FindHost(const std::string& id) const;

  const QemuFabricConfig config_;  // As it was opened.
  const std::shared_ptr<QemuProcesses> processes_ = std::make_shared<QemuProcesses>();
  const std::shared_ptr<QemuDevices> names_ = std::make_shared<QemuDevices>();
  Sink sink_;  // Not changed after Start.

  mutable Mutex mutex_;
  std::map<std::string, DevicePtr> devices_ ABSL_GUARDED_BY(mutex_);  // By id.
  // Devices that could not be opened, and why.
  std::map<std::string, std::string> missing_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, HostPtr> hosts_ ABSL_GUARDED_BY(mutex_);
  // Host to its life, of releases before the records knew.
  std::map<std::string, std::string> former_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_ADAPTERS_FABRIC_QEMU_QEMU_FABRIC_H_
