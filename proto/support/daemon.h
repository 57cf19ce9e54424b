// What both daemons, cxlpool-fm and cxlpool-agent, do as processes: signals, exit statuses,
// messages to the service manager by the sd_notify(3) protocol, and the end that a kill test asks
// for.
#ifndef CXLPOOL_PROTO_SUPPORT_DAEMON_H_
#define CXLPOOL_PROTO_SUPPORT_DAEMON_H_

#include <signal.h>

#include <functional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace cxlpool {

// The exit status of a daemon that ends for this reason: EX_CONFIG for a configuration that only
// its author can correct, and for a store that this release never reads, so that it is not started
// again; 1 for everything that may be different the next time, certificates on the disk included.
int ExitStatusOf(const absl::Status& status);

// Blocks SIGTERM, SIGINT, SIGHUP and SIGUSR1 for this thread and for all threads that it starts
// afterwards, and answers these, for AwaitEnd. SIGPIPE is ignored. Call it before anything else in
// main: a SIGHUP that comes early then waits, and does not end the process.
sigset_t BlockSignals();

// Returns when SIGTERM or SIGINT comes (true), or CutShort is called (false). Meanwhile it calls
// `reload` after each SIGHUP, and `alive` after each signal and as often as the service manager's
// watchdog has to be fed.
bool AwaitEnd(const sigset_t& signals, const std::function<void()>& reload,
              const std::function<void()>& alive);

// Ends an AwaitEnd of this process, or the next one, by SIGUSR1. Any thread.
void CutShort();

// CXLPOOL_CRASH_AT=POINT[:N] ends this process by SIGKILL the Nth time it passes the point
// (CONTRIBUTING.md lists the points): for the kill tests, which restart it and see that it
// converges. Null where the variable is not set.
std::function<void(absl::string_view)> CrashProbe();

// Sends `state` ("READY=1", "WATCHDOG=1", "STOPPING=1", "STATUS=...") to $NOTIFY_SOCKET. Without
// one: OK, nothing to do. Never blocks. Any thread.
absl::Status NotifyService(absl::string_view state);

// How often to send WATCHDOG=1: half of what WATCHDOG_USEC asks of this process (WATCHDOG_PID);
// InfiniteDuration if no watchdog is asked for.
absl::Duration WatchdogInterval();

}  // namespace cxlpool

#endif  // CXLPOOL_PROTO_SUPPORT_DAEMON_H_
