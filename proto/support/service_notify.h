// Tells a service manager how we are, by the sd_notify(3) protocol.
#ifndef CXLPOOL_PROTO_SUPPORT_SERVICE_NOTIFY_H_
#define CXLPOOL_PROTO_SUPPORT_SERVICE_NOTIFY_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace cxlpool {

// Sends `state` ("READY=1", "WATCHDOG=1", "STOPPING=1", "STATUS=...") to $NOTIFY_SOCKET. Without
// one: OK, nothing to do. Never blocks. Any thread.
absl::Status NotifyService(absl::string_view state);

// How often to send WATCHDOG=1: half of what WATCHDOG_USEC asks of this process (WATCHDOG_PID);
// InfiniteDuration if no watchdog is asked for.
absl::Duration WatchdogInterval();

}  // namespace cxlpool

#endif  // CXLPOOL_PROTO_SUPPORT_SERVICE_NOTIFY_H_
