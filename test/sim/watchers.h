// Who watches the Regions for long: each begins with a list, follows the changes from its revision
// in goes of a few, slowly or quickly, and goes on from where it was when there is a new manager.
//
// Whenever a watcher has all that there is to be had, what it put together is the list at that
// revision. Where changes are no longer to be had it hears so (REVISION_COMPACTED), and begins
// again with a list: what it did not hear of, and is no longer in the list it has, is a breach.
#ifndef CXLPOOL_TEST_SIM_WATCHERS_H_
#define CXLPOOL_TEST_SIM_WATCHERS_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "test/sim/processes.h"
#include "test/sim/script.h"

namespace cxlpool::sim {

class Watchers {
 public:
  struct World {
    Scheduler* scheduler;
    Reference* reference;
    Coverage* coverage;
    std::function<ManagerProcess*()> manager;  // Null, or not serving: nobody answers.
    std::function<void(const std::string& what)> violate;
  };

  // `random` is theirs alone: the rest of a simulation is as it is without them.
  Watchers(World world, Random random) : world_(std::move(world)), random_(random) {}

  void Begin(const Step& step);
  // In the end: everybody hears of everything that there is.
  void CatchUp();

 private:
  struct Watcher {
    int64_t every_us = 0;
    size_t limit = 1;
    LifeId life = kWorld;  // Of the manager that it watches; kWorld: it has no list yet.
    uint64_t revision = 0;
    absl::flat_hash_map<fm::Key, fm::RegionPtr> regions;
  };

  void ComeBack(Watcher& watcher);
  // Takes a few changes. False: there is nothing more to be had now.
  bool Look(Watcher& watcher);
  void List(Watcher& watcher, ManagerProcess& manager);
  void Compare(const Watcher& watcher);

  const World world_;
  Random random_;
  std::deque<Watcher> watchers_;
};

}  // namespace cxlpool::sim

#endif  // CXLPOOL_TEST_SIM_WATCHERS_H_
