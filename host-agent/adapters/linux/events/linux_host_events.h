// HostEvents of a real Linux host: trace events (trace_instance.h), and the devices' poison lists.
//
// Poison is silent until somebody reads a device's list (memN/trigger_poison_list), which the
// kernel then reports as trace events: that is done every `poison_interval`, and at once after a
// media event. Only events of a pool's memdevs are reported: their serials say so.
//
// A thread of its own, which the kernel may keep waiting for as long as a mailbox command takes.
#ifndef CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_EVENTS_LINUX_HOST_EVENTS_H_
#define CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_EVENTS_LINUX_HOST_EVENTS_H_

#include <memory>
#include <string>

#include "absl/time/time.h"
#include "host-agent/ports/host_events.h"

namespace cxlpool::agent {

struct LinuxHostEventsOptions {
  std::string root = "/";  // Of sysfs; a test has another.
  absl::Duration poison_interval = absl::Seconds(2);
  bool every_memdev = false;  // Also of those with serials of the hardware's own.
};

std::unique_ptr<HostEvents> MakeLinuxHostEvents(LinuxHostEventsOptions options = {});

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_EVENTS_LINUX_HOST_EVENTS_H_
