// A switch with none of the luxuries: hardware has the serials, nothing keeps a key, the device
// places its LDs wherever it likes, no store can be forbidden, no slice shared. What a new adapter
// has to write, and no more; in memory (World), and under its mutex. FabricShell makes a driver of
// it, which passes the contract (test/contract) and carries the core's lifecycle test.
#ifndef CXLPOOL_TEST_RIGS_BARE_FABRIC_H_
#define CXLPOOL_TEST_RIGS_BARE_FABRIC_H_

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "fabric-manager/ports/fabric_backend.h"
#include "test/rigs/world.h"

namespace cxlpool::fm {

class BareFabric : public FabricBackend {
 public:
  // World::fence says whether it can take one LD away from a host that holds on.
  explicit BareFabric(World* world) : world_(world) {}

  FabricCapabilities capabilities() const override;
  std::vector<FabricDevice> devices() const override { return world_->devices; }
  std::vector<std::string> hosts() const override { return world_->hosts; }
  void Start(const KnownFabric& known, Sink sink) override;
  void Meet(const std::string& host, const std::string& life) override;
  absl::StatusOr<DeviceLook> LookAtDevices(absl::Duration deadline) override;
  HostLook LookAt(const std::string& host, absl::Duration deadline) override;
  absl::Status Carve(const Slice& slice, absl::Duration deadline) override;
  absl::Status Return(const Slice& slice, absl::Duration deadline) override;
  absl::StatusOr<BoundLd> Bind(const BindRequest& request, absl::Duration deadline) override;
  absl::StatusOr<bool> BeginUnbind(const Binding& binding, absl::Duration deadline) override;
  absl::StatusOr<bool> IsUnbound(const Binding& binding, absl::Duration deadline) override;
  absl::StatusOr<bool> FenceBinding(const Binding& binding, absl::Duration deadline) override;
  absl::StatusOr<std::unique_ptr<FabricScrub>> BeginScrub(const Slice& slice) override;
  void Interrupt(const std::string& lane) override;

  // Something happens to the hardware. Not before Start.
  void Emit(FabricEvent event) { sink_(std::move(event)); }

 private:
  bool Answers(MutexLock& lock, const std::string& host);
  World::HostLd* Find(const Binding& binding);

  World* const world_;
  Sink sink_;
  std::set<std::string> strangers_;    // Hosts that live another life than the records know.
  std::set<std::string> interrupted_;  // Lanes.
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_TEST_RIGS_BARE_FABRIC_H_
