// What each rung of the online plan is to bring about: read back from the kernel after it.
//
// Pure functions, any thread.
#ifndef CXLPOOL_HOST_AGENT_MODEL_STEP_EFFECT_H_
#define CXLPOOL_HOST_AGENT_MODEL_STEP_EFFECT_H_

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

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_MODEL_STEP_EFFECT_H_
