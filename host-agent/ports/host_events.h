// What the host's kernel reports of the pool's memdevs: poison, media and memory-module events,
// PCIe errors on the way to them.
//
// Each is reported once, in the kernel's order; poison is reported again with each look
// at a device's poison list, for as long as it is on it. Nothing is promised: a kernel may keep
// silent (no tracefs), and loses events when many come at once. So what is reported is a reason to
// look, and what is not reported proves nothing.
#ifndef CXLPOOL_HOST_AGENT_PORTS_HOST_EVENTS_H_
#define CXLPOOL_HOST_AGENT_PORTS_HOST_EVENTS_H_

#include <vector>

#include "absl/functional/any_invocable.h"
#include "cxlpool/v1/host_service.pb.h"

namespace cxlpool::agent {

class HostEvents {
 public:
  // At most 256 a call, without `sequence`. Serial 0: of the memory at `hpa_bytes`, which may be
  // the pool's or the host's own. An empty list: some were lost, and what they reported can only be
  // seen by looking. From any thread.
  using OnEvents = absl::AnyInvocable<void(std::vector<v1::HostEvent> events)>;

  virtual ~HostEvents() = default;

  // Listens from now on. Where the kernel cannot report events, that is logged once; it is asked
  // again later. Call once.
  virtual void Start(OnEvents on_events) = 0;

  // `on_events` is called no more once this has returned.
  virtual void Stop() = 0;
};

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_PORTS_HOST_EVENTS_H_
