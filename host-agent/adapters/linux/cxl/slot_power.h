// The first rung of the ladder and the last: power a slot on, power a slot off.
//
// Each call blocks until the kernel's state is what was asked for or the deadline has passed.
#ifndef CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_CXL_SLOT_POWER_H_
#define CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_CXL_SLOT_POWER_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "host-agent/adapters/linux/machine/host_files.h"
#include "host-agent/support/deadline.h"

namespace cxlpool::agent {

// Name (memN) of the memdev with that serial; "" if there is none.
std::string MemdevBySerial(const HostFiles& files, uint64_t serial);

// Waits until the memdev with `serial` is there with its endpoint decoders. Gives it to its driver
// where it has had none for two seconds, and so also where somebody has disabled it by hand.
bool AwaitMemdev(const HostFiles& files, uint64_t serial, const Deadline& deadline);

// Returns once the memdev with `serial` is there, behind that slot, with its endpoint decoders.
// NOT_FOUND/NO_SLOT; FAILED_PRECONDITION/OTHER_MEMDEV: the memdev sits elsewhere;
// INTERNAL/SLOT_POWER: the kernel refuses; DEADLINE_EXCEEDED/MEMDEV_TIMEOUT.
absl::Status PowerSlotOn(const HostFiles& files, uint32_t slot, uint64_t serial,
                         const Deadline& deadline);

// Returns once nothing is in the slot and the fabric was shown so.
// FAILED_PRECONDITION/OTHER_MEMDEV: the slot holds another memdev than `serial`, and stays on.
// INTERNAL/SLOT_POWER, /SLOT_CONTROL.
absl::Status PowerSlotOff(const HostFiles& files, uint32_t slot, uint64_t serial,
                          const Deadline& deadline);

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_CXL_SLOT_POWER_H_
