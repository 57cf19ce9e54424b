// The two programs, each as the agent's main.cc and manager.cc put them together, for one life
// under the simulator.
//
// Deadlines are shorter than in production, so that a few simulated seconds meet them all.
#ifndef CXLPOOL_TEST_SIM_PROCESSES_H_
#define CXLPOOL_TEST_SIM_PROCESSES_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "fabric-manager/service/lease_keeper.h"
#include "fabric-manager/service/media_keeper.h"
#include "fabric-manager/service/pool_service.h"
#include "host-agent/service/agent_core.h"
#include "host-agent/service/local_service.h"
#include "test/sim/reference.h"
#include "test/sim/sessions.h"
#include "test/sim/sim_fabric.h"
#include "test/sim/sim_host_memory.h"
#include "test/sim/sim_replicated_store.h"
#include "test/sim/sim_store.h"

namespace cxlpool::sim {

// What outlives a manager.
struct ManagerWorld {
  Scheduler* scheduler;
  Rack* rack;
  FabricFaults* fabric_faults;
  std::shared_ptr<fm::MemoryDisk> disk;
  SimEtcd* etcd;  // Null: the disk is this manager's own.
  RecordShelf* shelf;
  StoreFaults* store_faults;
  StoreMet* store_met;
  Reference* reference;
  ManagerDoor* door;
  std::function<Uuid()> make_tag;
};

// Where another manager has the store it stands by and follows, and has no part of a leader.
class ManagerProcess {
 public:
  // `on_fatal`: the process would end now. `on_serving`: clients may call.
  ManagerProcess(const ManagerWorld& world, LifeId life, Random random, int64_t wall_skew_us,
                 fm::Probe probe, std::function<void(absl::Status)> on_fatal,
                 std::function<void()> on_serving);
  // After Scheduler::End of its life.
  ~ManagerProcess();

  bool leads() const { return leader_.has_value(); }
  bool serving() const { return serving_; }
  // It serves, and what it says is so: no other manager can have taken over by now.
  bool MayAnswer() const {
    return serving_ && !world_.scheduler->IsPaused(life_) &&
           (replicated_ == nullptr || replicated_->IsOurs());
  }

  // Of one of two: nothing of it reaches the store any more.
  void CutOffStore() { replicated_->CutOff(); }

  // Of one that leads.
  fm::PoolService& pool() { return leader_->pool; }
  SimFabric& fabric() { return leader_->fabric; }

  fm::Writer& writer() { return writer_; }
  fm::ViewHolder& views() { return views_; }
  fm::WatchHub& watch() { return watch_; }
  SimExecutor& executor() { return executor_; }
  LifeId life() const { return life_; }

 private:
  // What moves memory, made once the store is ours.
  struct Leader {
    Leader(const ManagerWorld& world, LifeId life, Random random, SimExecutor* executor,
           fm::Writer* writer, fm::Probe probe);

    SimFabric fabric;
    fm::HostSessions sessions;
    fm::Reconciler reconciler;
    fm::LeaseKeeper leases;
    fm::MediaKeeper media;
    fm::PoolService pool;
  };

  std::unique_ptr<fm::Store> MakeStore(Random random, const std::function<void(absl::Status)>& end);
  void Serve();

  const ManagerWorld world_;
  const LifeId life_;
  const std::function<void()> on_serving_;
  bool serving_ = false;
  SimExecutor executor_;
  SimReplicatedStore* replicated_ = nullptr;  // The store, if others may have it.
  const std::unique_ptr<fm::Store> store_;
  const Random fabric_random_;
  fm::Probe probe_;
  fm::ViewHolder views_;
  fm::WatchHub watch_;
  fm::Writer writer_;
  std::optional<Leader> leader_;
};

class AgentProcess {
 public:
  AgentProcess(SimLink::World world, Rack* rack, HostFaults* faults, LifeId life, int host,
               const std::string& agent_id, Random random, agent::Probe probe);

  SimLink& link() { return link_; }
  agent::LocalService& local() { return local_; }
  agent::AgentCore& core() { return core_; }
  LifeId life() const { return life_; }

 private:
  const LifeId life_;
  SimExecutor executor_;
  SimHostMemory memory_;
  SimLink link_;
  agent::AgentCore core_;
  agent::LocalService local_;
};

// "host-a", and its number.
std::string HostName(int host);
int HostNumber(const std::string& name);

}  // namespace cxlpool::sim

#endif  // CXLPOOL_TEST_SIM_PROCESSES_H_
