// A trace of virtual machines: when each came, how long it stayed, how large it was.
//
// A file of lines arrival_s,lifetime_s,vcpus,memory_gib below a line that names them, plain or
// gzipped; arrivals ascend; lifetime_s is empty where the machine outlives the trace.
#ifndef CXLPOOL_TOOLS_BENCHES_PLACEMENT_TRACE_H_
#define CXLPOOL_TOOLS_BENCHES_PLACEMENT_TRACE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace cxlpool::bench {

struct Machine {
  double arrival_s = 0;
  double lifetime_s = -1;  // Below 0: outlives the trace.
  uint32_t vcpus = 0;
  double memory_gib = 0;
};

// NOT_FOUND: `file` cannot be opened. INVALID_ARGUMENT: a line is not as above, and which; or there
// are none, or more than ten millions.
absl::StatusOr<std::vector<Machine>> ReadTrace(const std::string& file);

// Machines coming and going, in order of time; who goes at a moment goes before who comes.
struct TraceEvent {
  uint32_t machine = 0;
  bool arrives = false;
};
std::vector<TraceEvent> EventsOf(const std::vector<Machine>& machines);

}  // namespace cxlpool::bench

#endif  // CXLPOOL_TOOLS_BENCHES_PLACEMENT_TRACE_H_
