// The FabricDriver of one life of the manager, on the simulated rack.
//
// Each call takes effect on the rack after one seeded delay and answers after another. The effect
// takes place even if the manager died meanwhile; the answer does not. Faults that wait in
// FabricFaults are used up by the next calls of their kind; which are legal: rack.h.
#ifndef CXLPOOL_TEST_SIM_SIM_FABRIC_H_
#define CXLPOOL_TEST_SIM_SIM_FABRIC_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <string>

#include "fabric-manager/ports/fabric_driver.h"
#include "test/sim/rack.h"
#include "test/sim/scheduler.h"

namespace cxlpool::sim {

enum class FabricCall { kDiscover, kBind, kBeginUnbind, kAwaitUnbound, kFence, kScrub };

// How the next call of a kind goes wrong.
struct FabricFault {
  enum class Kind {
    kFails,        // UNAVAILABLE; nothing was done (a scrub: a part was).
    kUnknownDone,  // Done; answers UNKNOWN. Never of AwaitUnbound and Fence.
    kUnknownNot,   // Not done; answers DEADLINE_EXCEEDED.
    kSlow,         // Takes ten times as long, up to the driver's deadline.
    kLies,         // Bind alone: done, and answers UNAVAILABLE as if it were not.
  };
  FabricCall call;
  Kind kind;
};

// Outlives the managers: what is about to go wrong, and what did.
struct FabricFaults {
  std::deque<FabricFault> next;
  bool can_fence = true;  // False: Fence answers FENCE_FAILED.
  std::function<void(const char* kind)> on_fault = [](const char*) {};  // For coverage.
};

class SimFabric : public fm::FabricDriver {
 public:
  // All outlive this. `life`: of the manager. Delays: a few hundred microseconds to some
  // milliseconds; `random` is this driver's own.
  SimFabric(Scheduler* scheduler, LifeId life, Rack* rack, FabricFaults* faults, Random random);

  fm::FabricCapabilities capabilities() const override;
  void Start(absl::AnyInvocable<void(fm::FabricEvent)> sink) override;
  void Discover(DoneWith<fm::FabricView> done) override;
  void Bind(fm::BindRequest request, DoneWith<fm::BoundLd> done) override;
  void BeginUnbind(fm::LdKey key, Done done) override;
  void AwaitUnbound(fm::LdKey key, absl::Duration timeout, Done done) override;
  void Fence(std::string host, Done done) override;
  void Scrub(std::string tag, uint32_t extent_index, fm::Slice slice, Done done) override;

  // Tells the manager, as an event of its life, after a delay.
  void Emit(fm::FabricEvent event);

 private:
  Scheduler* const scheduler_;
  const LifeId life_;
  Rack* const rack_;
  FabricFaults* const faults_;
  Random random_;
  absl::AnyInvocable<void(fm::FabricEvent)> sink_;
};

}  // namespace cxlpool::sim

#endif  // CXLPOOL_TEST_SIM_SIM_FABRIC_H_
