// Which Regions have something left to do: each of them is stepped by every tick of the Reconciler
// until a step finds it settled, and whatever learns something new of a Region puts it here.
//
// Runs wholly on the executor.
#ifndef CXLPOOL_FABRIC_MANAGER_SERVICE_ACTIVE_REGIONS_H_
#define CXLPOOL_FABRIC_MANAGER_SERVICE_ACTIVE_REGIONS_H_

#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "fabric-manager/service/writer.h"

namespace cxlpool::fm {

// As people call the Region: "regions/kv". For the log.
std::string NameOf(const PoolState& state, Key region);

class ActiveRegions {
 public:
  // `step` carries out what is to be done next for one Region.
  ActiveRegions(Executor* executor, const Writer* writer, std::function<void(Key)> step)
      : executor_(executor), writer_(writer), step_(std::move(step)) {}

  void Touch(Key region) { active_.insert(region); }
  // Every Region that the host has.
  void TouchHost(const std::string& host);
  void Erase(Key region) { active_.erase(region); }

  bool Contains(Key region) const { return active_.contains(region); }
  bool empty() const { return active_.empty(); }

  // Steps this one now, after it was touched.
  void Step(Key region);
  // Steps all that are active now.
  void StepAll();
  // Does StepAll soon, once for all that ask for it meanwhile.
  void PostStepAll();

 private:
  Executor* const executor_;
  const Writer* const writer_;
  const std::function<void(Key)> step_;
  std::set<Key> active_;
  std::vector<Key> stepped_;  // In StepAll only: steps change active_.
  bool step_posted_ = false;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_SERVICE_ACTIVE_REGIONS_H_
