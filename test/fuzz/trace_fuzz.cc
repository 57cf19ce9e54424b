// A line of tracefs, which says what a device says.

#include <string>

#include "host-agent/adapters/linux/events/trace_event.h"
#include "test/fuzz/fuzz_target.h"

namespace cxlpool::fuzz {
namespace {

// protobuf ends the process where a string that it is to send is not UTF-8.
CXLPOOL_FUZZ(trace) {
  const agent::TraceLine line = agent::ParseTraceLine(bytes);
  if (line.kind != agent::TraceLine::Kind::kEvent) return;
  std::string sent;
  Require(line.event.SerializeToString(&sent));
  v1::HostEvent heard;
  Require(heard.ParseFromString(sent));
}

}  // namespace
}  // namespace cxlpool::fuzz
