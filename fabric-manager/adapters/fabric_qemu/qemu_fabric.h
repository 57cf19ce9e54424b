// A fabric of QEMU's emulated CXL switches: every host is a QEMU with a QMP socket, every pool
// device a file, and a slice of it is bound by plugging a cxl-type3 with that slice as its memory
// into a cxl-downstream port.
//
//   proof of an unbind   the device is not plugged into the same QEMU process any more and no
//                        address space of it maps its memory; or that process' end. Never the
//                        host agent's word, nor DEVICE_DELETED alone: it may be of an earlier LD.
//   fence                SIGKILL to the QEMU, confirmed by its pidfd.
//   read-only            by the memory itself: a host's stores vanish.
//   identity             a device is its pool file: PATH.id beside it holds a UUID, made where it
//   is
//                        missing. A host is one process, which the pool's records name
//                        (fabric_incarnation); no other is taken for it before that one has ended.
//
// Each pool file is locked (flock) as long as this lives, so that no second manager scrubs it.
//
// One thread a host (qemu_host.h), so that a QEMU that hangs keeps no other waiting, and one for
// scrubs. Completions and events come from these.
#ifndef CXLPOOL_FABRIC_MANAGER_ADAPTERS_FABRIC_QEMU_QEMU_FABRIC_H_
#define CXLPOOL_FABRIC_MANAGER_ADAPTERS_FABRIC_QEMU_QEMU_FABRIC_H_

#include <atomic>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "fabric-manager/adapters/fabric_qemu/pool_file.h"
#include "fabric-manager/adapters/fabric_qemu/qemu_config.h"
#include "fabric-manager/adapters/fabric_qemu/qemu_host.h"
#include "fabric-manager/ports/fabric_driver.h"
#include "proto/support/loop.h"

namespace cxlpool::fm {

class QemuFabric : public FabricDriver {
 public:
  // INVALID_ARGUMENT/BAD_CONFIG. FAILED_PRECONDITION: BAD_POOL_FILE (absent, too short, or its
  // identity cannot be read or made), FABRIC_BUSY (another manager has it).
  static absl::StatusOr<std::unique_ptr<QemuFabric>> Open(QemuFabricConfig config);

  // Answers everything that is still waiting with CANCELLED.
  ~QemuFabric() override;

  FabricCapabilities capabilities() const override;
  void Start(KnownFabric known, absl::AnyInvocable<void(FabricEvent)> sink) override;
  void Discover(DoneWith<FabricView> done) override;
  void Bind(BindRequest request, DoneWith<BoundLd> done) override;
  void BeginUnbind(Binding binding, Done done) override;
  void AwaitUnbound(Binding binding, absl::Duration timeout, Done done) override;
  void Fence(std::string host, Done done) override;
  void Scrub(std::string tag, uint32_t extent_index, Slice slice, Done done) override;

 private:
  struct ScrubJob {
    PoolScrub scrub;
    Done done;
  };

  QemuFabric(QemuFabricConfig config, std::vector<PoolFile> files);
  absl::StatusOr<QemuHost*> FindHost(const std::string& id) const;
  // The file of the device that `slice` lies within.
  absl::StatusOr<const PoolFile*> FindFile(const Slice& slice) const;
  void StepScrub(std::list<ScrubJob>::iterator job);

  const QemuFabricConfig config_;
  const std::vector<PoolFile> files_;  // One a device, in the order of config_.devices.
  std::vector<bool> has_bytes_;        // Likewise, as it was at the start.
  const std::shared_ptr<QemuProcesses> processes_ = std::make_shared<QemuProcesses>();
  std::map<std::string, std::unique_ptr<QemuHost>> hosts_;  // Not changed after construction.
  std::atomic<size_t> waiting_scrubs_ = 0;
  std::list<ScrubJob> scrubs_;  // Of the scrub thread.
  Loop scrub_loop_;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_ADAPTERS_FABRIC_QEMU_QEMU_FABRIC_H_
