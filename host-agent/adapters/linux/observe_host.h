// Puts together one HostObservation from sysfs. Changes nothing.
#ifndef CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_OBSERVE_HOST_H_
#define CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_OBSERVE_HOST_H_

#include <vector>

#include "absl/status/statusor.h"
#include "host-agent/adapters/linux/cxl/cxl_snapshot.h"
#include "host-agent/adapters/linux/cxl/pci_slots.h"
#include "host-agent/adapters/linux/machine/host_files.h"
#include "host-agent/adapters/linux/machine/machine.h"
#include "host-agent/model/observation.h"

namespace cxlpool::agent {

// What is not there is left out.
// UNAVAILABLE/HOST_UNREADABLE: what there is cannot be known, as without descriptors or memory.
absl::StatusOr<HostObservation> ObserveHost(Machine& machine);

// The memdevs that sit in hot-plug slots; those soldered in, or without a serial, are not the
// fabric's.
std::vector<ObservedMemdev> ViewMemdevs(const CxlSnapshot& snapshot,
                                        const std::vector<PciSlot>& slots);

// One region with its DAX device (null: none yet).
ObservedHostRegion ViewRegion(const HostFiles& files, const CxlHostRegion& region,
                              const DaxDevice* dax);

// The nodes with processors: Linux puts memory there that the firmware gives no node of its own.
std::vector<int> ReadOwnNodes(const HostFiles& files);

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_OBSERVE_HOST_H_
