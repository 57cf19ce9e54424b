// Makes a script that fails shorter, until a person can read it: takes steps away, chunk by chunk,
// as long as it still fails.
#ifndef CXLPOOL_TEST_SIM_SHRINK_H_
#define CXLPOOL_TEST_SIM_SHRINK_H_

#include <functional>

#include "test/sim/script.h"

namespace cxlpool::sim {

// `fails`: runs a script. At most `max_runs` of it. The answer fails, if `script` does.
Script Shrink(const Script& script, const std::function<bool(const Script&)>& fails, int max_runs);

}  // namespace cxlpool::sim

#endif  // CXLPOOL_TEST_SIM_SHRINK_H_
