// How simulation.h is run: everything that one simulation is made of, and what its steps do to it.
//
//   simulation.cc         programs that begin and end; steps; the run from beginning to end
//   simulation_faults.cc  what each fault does
//   simulation_end.cc     all made well: what must settle, and what must be empty in the end
#ifndef CXLPOOL_TEST_SIM_SIMULATION_RUN_H_
#define CXLPOOL_TEST_SIM_SIMULATION_RUN_H_

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "test/sim/clients.h"
#include "test/sim/processes.h"
#include "test/sim/simulation.h"
#include "test/sim/watchers.h"

namespace cxlpool::sim {

inline constexpr int64_t kSecond_us = 1'000'000;
inline constexpr uint64_t kConnections = 3;  // Of applications, on each host.

class SimulationRun {
 public:
  SimulationRun(const Script& script, const SimulationOptions& options);
  SimulationResult Run();

 private:
  struct Host {
    std::unique_ptr<AgentProcess> agent;
    HostFaults faults;
    Lies lies;
    v1::Hello last_hello;
    uint64_t agent_starts = 0;
    int crash_in_probes = 0;  // > 0: the agent dies at that many-th rung from now.
    int64_t crash_for_us = 0;
  };

  // simulation.cc: lives.
  void StartManager(size_t which);
  void KillManager(size_t which, int64_t restart_us);
  void ManagerServes(size_t which);
  // Its machine stands still.
  void PauseManager(size_t which, int64_t for_us);
  void StartAgent(int host);
  void KillAgent(int host, int64_t restart_us, bool machine_is_gone);
  // The one that served last; null: it is gone.
  ManagerProcess* manager() const { return managers_[leader_].get(); }
  // Of it, what clients reach; null: nobody.
  ManagerProcess* Answering();
  size_t manager_count() const { return script_.standby ? 2 : 1; }
  // Tells each that has the fabric.
  void Emit(const fm::FabricEvent& event);

  // Faults.
  void Strike(const Step& step);
  void StrikeFabric(const Step& step);
  void StrikeHost(const Step& step);
  void GoesDark(int host);
  // The kernel of `host` tells its agent of what is on the poison lists: after `delay_us`.
  void TellPoison(int host, int64_t delay_us);
  void PollPoison();
  void RunStep(const Step& step);
  void Application(const Step& step);

  // The end.
  void MakeWell();
  bool Serves() const { return manager() != nullptr && manager()->serving(); }
  bool NobodyReaches(const fm::Region& region) const;
  // Why the records and the rack do not rest yet, and are not the same; empty: they are.
  std::string WhyNotSettled() const;
  std::string WhyNotThere(const fm::Region& region, const fm::Attachment& attachment) const;
  void Settle();
  void BringBack();
  bool Empty() const;
  // Whether the host has to keep it. Where it lost a part, it clears the rest away as well.
  bool Stays(const std::string& host, uint64_t serial) const;
  std::string WhyNotEmpty() const;
  void CheckEmpty();
  void CheckHistory();
  void CountMeetings();

  void Violate(const std::string& what) {
    if (!result_.violation.empty()) return;
    result_.violation = absl::StrCat("at ", scheduler_.now_us(), " us: ", what);
    Trace("VIOLATION ", what);
  }
  template <typename... Args>
  void Trace(const Args&... args) {
    if (!tracing_) return;
    const std::string line = absl::StrCat(args...);
    for (const char c : line) digest_ = (digest_ ^ static_cast<uint8_t>(c)) * 0x100000001b3;
    if (options_.trace) options_.trace(absl::StrCat(scheduler_.now_us(), " ", line));
  }
  RackHost& rack_host(int host) { return rack_.hosts.at(HostName(host)); }

  const Script& script_;
  const SimulationOptions& options_;
  const bool tracing_;
  SimulationResult result_;
  uint64_t digest_ = 0xcbf29ce484222325;

  Random random_;
  Scheduler scheduler_;
  Reference reference_;
  Rack rack_;
  FabricFaults fabric_faults_;
  StoreFaults store_faults_;
  const std::shared_ptr<fm::MemoryDisk> disk_ = std::make_shared<fm::MemoryDisk>();
  RecordShelf shelf_;
  Network network_;
  ManagerDoor door_;
  SimEtcd etcd_{&scheduler_, disk_};  // Of two managers.
  StoreMet store_met_;
  Clients clients_;
  Watchers watchers_;
  std::array<std::unique_ptr<ManagerProcess>, 2> managers_;
  size_t leader_ = 0;  // Of them: the one that served last.
  int manager_crash_in_probes_ = 0;
  int64_t manager_crash_for_us_ = 0;
  int manager_pause_in_calls_ = 0;  // > 0: its machine stops at that many-th bind or scrub.
  int64_t manager_pause_for_us_ = 0;
  int64_t wall_skew_us_ = 0;
  int64_t dark_for_us_ = 500'000;  // The next host that loses its power.
  std::array<Host, kHosts> hosts_;
  // By itself, so that the rest of a simulation is as it is without.
  Random poison_random_;
  bool polls_poison_ = false;
  std::function<void(int host, uint64_t serial)> on_events_seen_;
  uint64_t connections_ = 0;
  uint64_t tags_ = 0;
  bool ending_ = false;
};

}  // namespace cxlpool::sim

#endif  // CXLPOOL_TEST_SIM_SIMULATION_RUN_H_
