// What each rung of the online plan is to bring about: read back from the kernel after it, and
// played through beforehand, so that the whole way can be shown as a list.
//
// Pure functions, any thread.
#ifndef CXLPOOL_HOST_AGENT_MODEL_STEP_EFFECT_H_
#define CXLPOOL_HOST_AGENT_MODEL_STEP_EFFECT_H_

#include <vector>

#include "host-agent/model/observation.h"
#include "host-agent/model/online_plan.h"

namespace cxlpool::agent {

// Whether `host` shows what the rung `step` was to bring about. Where it does not, the rung took no
// effect, even if it reported success. An empty slot does not show
// whether it is powered off; there it holds.
bool PostconditionHolds(const Step& step, const DesiredSegment& desired,
                        const HostObservation& host);

// The postcondition for people, to go after "the kernel does not show".
const char* PostconditionText(Step::Kind kind);

// Makes `host` as the kernel would show it after the rung, had that full effect and nothing else
// happened meanwhile. Names and addresses are made up. `desired` learns what an agent would
// remember: that the slot was powered off.
void ApplyStep(const Step& step, DesiredSegment& desired, HostObservation& host);

// One rung a target up and down, and one each for whatever has to be taken down first.
inline constexpr size_t kMaxPlannedSteps = 64;

// The steps from `host` to what is wanted, if each takes full effect. All are rungs except the last
// one, which is Done, Wait or Refuse.
std::vector<Step> PlanSteps(DesiredSegment desired, HostObservation host, bool earlier_pending);

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_MODEL_STEP_EFFECT_H_
