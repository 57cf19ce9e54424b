// One line of a tracefs trace_pipe as a HostEvent.
//
// The events are the kernel's own: events/cxl/* (drivers/cxl/core/trace.h) and
// events/ras (aer_event, memory_failure_event). Kernels add fields from release to release, so each
// field is found by its name; tested with lines of Linux 6.12 and 7.2. Sizes and addresses are in
// bytes.
//
// Pure functions, any thread.
#ifndef CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_EVENTS_TRACE_EVENT_H_
#define CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_EVENTS_TRACE_EVENT_H_

#include <string>

#include "absl/strings/string_view.h"
#include "cxlpool/v1/host_service.pb.h"

namespace cxlpool::agent {

inline constexpr size_t kMaxTraceLineBytes = 4096;
inline constexpr size_t kMaxEventTextBytes = 256;

struct TraceLine {
  enum class Kind {
    kNone,   // Nothing for us.
    kEvent,  // `event`, of the memdev with its serial; or, serial 0, of all behind `pci_function`;
             // or, where that is empty too, of the memory at the event's host address.
    kLost,   // The kernel, or a device, had to throw events away.
  };
  Kind kind = Kind::kNone;
  v1::HostEvent event;
  std::string pci_function;  // "0000:0f:00.0"
};

// Whatever the bytes are: what is not understood is kNone.
TraceLine ParseTraceLine(absl::string_view line);

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_EVENTS_TRACE_EVENT_H_
