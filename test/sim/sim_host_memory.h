// The HostMemory of one agent's life, on the simulated rack.
//
// Each rung takes effect on the host's kernel after a seeded delay, even if the agent died
// meanwhile, and answers after it. While the host is paused nothing happens; a rung that finds the
// host restarted has no effect. Faults befall rungs alone, not Prepare, Observe and FindHolders.
//
// It is a judge as well: two rungs at a time, a host region made before Prepare (the kernel would
// have taken its DAX device by itself) and a DAX device unbound that FindHolders did not show to be
// free are breaches.
#ifndef CXLPOOL_TEST_SIM_SIM_HOST_MEMORY_H_
#define CXLPOOL_TEST_SIM_SIM_HOST_MEMORY_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "host-agent/ports/host_memory.h"
#include "test/sim/rack.h"
#include "test/sim/scheduler.h"

namespace cxlpool::sim {

// How the next rung goes wrong; outlives the agents.
struct HostFault {
  enum class Kind {
    kFails,      // An error; nothing was done.
    kFailsDone,  // Done; answers an error all the same.
    kTimesOut,   // Takes long, answers DEADLINE_EXCEEDED, and takes effect later still.
    kNoEffect,   // Answers OK; nothing was done. Exit codes lie.
    kPermanent,  // CreateHostRegion alone: UNIMPLEMENTED. It will never work.
  };
  static constexpr int kKinds = 5;
  Kind kind;
};
// "rung-times-out": what on_fault is called with.
const char* NameOf(HostFault::Kind kind);

struct HostFaults {
  std::deque<HostFault> next;   // kPermanent waits for a CreateHostRegion; the others pass it.
  int64_t paused_until_us = 0;  // The machine stands still.
  std::function<void(const char* kind)> on_fault = [](const char*) {};  // For coverage.
};

class SimHostMemory : public agent::HostMemory {
 public:
  // `life`: of the agent. `host` is the rack's id of it, which it has.
  SimHostMemory(Scheduler* scheduler, LifeId life, Rack* rack, const std::string& host,
                HostFaults* faults, Random random);

  void Prepare(Done done) override;
  void Observe(DoneWith<agent::HostObservation> done) override;
  void PowerOn(uint32_t slot, uint64_t serial, Done done) override;
  void CreateHostRegion(agent::HostRegionSpec spec, Done done) override;
  void BindDax(uint64_t serial, agent::DaxDriver driver, Done done) override;
  void OnlineBlocks(uint64_t serial, agent::MemoryZone zone, Done done) override;
  void OfflineBlocks(uint64_t serial, absl::Duration patience, Done done) override;
  void UnbindDax(uint64_t serial, Done done) override;
  void DestroyHostRegion(uint64_t serial, Done done) override;
  void PowerOff(uint32_t slot, uint64_t serial, Done done) override;
  void FindHolders(uint64_t serial, DoneWith<std::vector<agent::ProcessId>> done) override;
  absl::StatusOr<agent::OpenedDax> OpenDax(uint64_t serial, bool read_only) override;

 private:
  using Effect = absl::AnyInvocable<absl::Status(Rack&, RackHost&)>;
  struct Rung;

  static void TakeEffect(Rung rung);
  // `failed`: the answer of kFails and kFailsDone. `creates`: first serial of the host region that
  // it makes. `patience_us`: as long as DEADLINE_EXCEEDED may be tried again.
  void Take(Effect effect, absl::Status (*failed)(), Done done, uint64_t creates = 0,
            int64_t patience_us = 0);
  std::optional<HostFault::Kind> NextFault(bool creates);
  const agent::ObservedHostRegion* Find(uint64_t serial) const;

  Scheduler* const scheduler_;
  const LifeId life_;
  Rack* const rack_;
  RackHost* const host_;
  HostFaults* const faults_;
  Random random_;
  bool rung_under_way_ = false;  // Two at a time are a breach.
  uint64_t shown_free_ = 0;      // By FindHolders, since the last UnbindDax.
};

}  // namespace cxlpool::sim

#endif  // CXLPOOL_TEST_SIM_SIM_HOST_MEMORY_H_
