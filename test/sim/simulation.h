// One simulation: a rack, its hosts and agents, a manager or two and their clients, in one thread,
// from a script and its seed. The same script gives the same run, byte for byte.
//
// When the script is over everything is made well again: faults end, hosts come back, Regions are
// released. Then the pool must become empty within a minute, every byte free and zero: what is
// stuck is as wrong as what is lost.
#ifndef CXLPOOL_TEST_SIM_SIMULATION_H_
#define CXLPOOL_TEST_SIM_SIMULATION_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "test/sim/coverage.h"
#include "test/sim/script.h"

namespace cxlpool::sim {

struct SimulationOptions {
  // Hears of everything that happens, a line at a time.
  std::function<void(const std::string& line)> trace = nullptr;
  bool digest = false;  // Also without a trace.
};

struct SimulationResult {
  std::string violation;  // What must never happen, and when; empty: all held.
  Coverage coverage;
  uint64_t digest =
      0;  // Of all that happened, where asked for: two runs of a script have the same.
};

SimulationResult RunSimulation(const Script& script, const SimulationOptions& options = {});

}  // namespace cxlpool::sim

#endif  // CXLPOOL_TEST_SIM_SIMULATION_H_
