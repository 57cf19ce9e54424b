// Where a test may cut the agent's life short.
//
// The core calls the Probe with "before-RUNG" when it is about to ask HostMemory for a rung, and
// with "after-RUNG" when the rung has succeeded and nobody knows of it yet; RUNG is the
// name of the HostMemory call: PowerOn, CreateHostRegion, BindDax, OnlineBlocks, OfflineBlocks,
// UnbindDax, DestroyHostRegion, PowerOff. "before-Report" comes before a report is sent.
#ifndef CXLPOOL_HOST_AGENT_SERVICE_PROBE_H_
#define CXLPOOL_HOST_AGENT_SERVICE_PROBE_H_

#include <functional>

#include "absl/strings/string_view.h"

namespace cxlpool::agent {

using Probe = std::function<void(absl::string_view point)>;

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_SERVICE_PROBE_H_
