// The clients: each step that is an operation becomes a call over the simulated network, is tried
// again under its request_id until there is an answer, and is written down for the checks.
//
// A call is an operator's or a host's, may rest on an etag, and may be rehearsed: then its answer
// is held against what the dry run answered.
#ifndef CXLPOOL_TEST_SIM_CLIENTS_H_
#define CXLPOOL_TEST_SIM_CLIENTS_H_

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "test/sim/calls.h"
#include "test/sim/processes.h"
#include "test/sim/script.h"

namespace cxlpool::sim {

class Clients {
 public:
  struct World {
    Scheduler* scheduler;
    Network* network;
    Reference* reference;
    Coverage* coverage;
    fm::MemoryDisk* disk;
    std::function<void(const std::string& what)> violate;
    std::function<ManagerProcess*()> manager;  // Null, or not serving: nobody answers.
    // Whether an operator can vouch that no host reaches the Region: its hosts have no power.
    std::function<bool(const fm::Region&)> may_vouch;
  };

  explicit Clients(World world) : world_(std::move(world)) {}

  void SetTrace(std::function<void(const std::string& line)> trace) { trace_ = std::move(trace); }

  // Begins it.
  void Do(const Step& step);

  // An operator's call that is made right at the manager, with no network between: for setting up
  // and for clearing away.
  void Enrol(int host);
  void ReleaseAll();

  // Calls that have not been answered or given up.
  size_t under_way() const { return under_way_; }

  // Every call that had to do with a Region, as far as it is over; the others as not answered.
  // Once, in the end.
  std::vector<ClientOp> TakeHistory();

 private:
  struct Call;
  using CallPtr = Call*;  // There to the end.
  struct Grounds;         // What an answer rests on.

  // Of calls with no network between.
  CallPtr BeginAtOnce(const fm::Region& region, ClientOp::Kind kind);
  std::function<void(const absl::StatusOr<fm::Committed>&)> EndAtOnce(ManagerProcess& manager,
                                                                      CallPtr call);

  void Send(CallPtr call);
  void Arrive(CallPtr call);
  void Serve(ManagerProcess& manager, CallPtr call);
  // Asks first what would be; what is asked in earnest right after that must get the same answer.
  void Rehearse(ManagerProcess& manager, CallPtr call);
  void InEarnest(ManagerProcess& manager, CallPtr call, const Grounds& grounds,
                 const absl::StatusOr<fm::Committed>& rehearsed);
  using AnswerFn = std::function<void(const absl::StatusOr<fm::Committed>&)>;
  void Ask(ManagerProcess& manager, CallPtr call, bool dry, const AnswerFn& answered);
  std::string EtagFor(const Step& step) const;
  // The manager's answer, on its way back. `committed`: how an OK is held against the disk.
  void Answer(LifeId manager, CallPtr call, const absl::StatusOr<fm::Committed>& answer,
              const std::shared_ptr<const fm::Outcomes>& items = nullptr);
  void Reply(CallPtr call, const absl::StatusOr<fm::Committed>& answer,
             const std::shared_ptr<const fm::Outcomes>& items);
  void AnswerAll(LifeId manager, CallPtr call, const fm::Outcomes& outcomes);
  bool MaySwear(ManagerProcess& manager, const std::string& id) const;
  // `items`: of a batch that was answered.
  void Finish(CallPtr call, const absl::StatusOr<fm::Committed>& answer, const fm::Outcomes* items);

  const World world_;
  std::function<void(const std::string& line)> trace_;
  uint64_t requests_ = 0;
  // By name of a Region: the newest etag that was answered, and the one before.
  absl::flat_hash_map<std::string, std::array<std::string, 2>> etags_;
  std::deque<std::shared_ptr<Call>> calls_;
  size_t under_way_ = 0;
};

}  // namespace cxlpool::sim

#endif  // CXLPOOL_TEST_SIM_CLIENTS_H_
