// What a host bridge can still take, judged from its decoders, its window and its slots. Pure.
//
// HDM decoders are a stack (proto/support/cxl_host.h), on each port of the way by itself. The rule
// spans windows: a live decoder that lies above the bridge's own window blocks the bridge too.
#ifndef CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_CXL_BRIDGE_VIEW_H_
#define CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_CXL_BRIDGE_VIEW_H_

#include <string>
#include <vector>

#include "host-agent/adapters/linux/cxl/cxl_snapshot.h"
#include "host-agent/adapters/linux/cxl/pci_slots.h"
#include "host-agent/model/observation.h"

namespace cxlpool::agent {

// The volatile window whose targets are exactly `bridges` in this order; the one with the largest
// free run where there are several; null where there is none.
const CxlWindow* WindowOf(const CxlSnapshot& snapshot, const std::vector<std::string>& bridges);

// The CXL host bridges by ACPI name, with the slots behind each. max_regions is 1, and
// depth_unknown, as long as the kernel has not enumerated a bridge's decoders (Linux 7, before its
// first memdev).
std::vector<ObservedBridge> ViewBridges(const CxlSnapshot& snapshot,
                                        const std::vector<PciSlot>& slots);

// The name that Observe gives a host bridge; "" if `pci_name` is none.
std::string AcpiNameOf(const CxlSnapshot& snapshot, const std::string& pci_name);

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_CXL_BRIDGE_VIEW_H_
