#include "proto/support/daemon.h"

#include <sysexits.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "absl/time/time.h"
#include "proto/support/refusal.h"
#include "proto/support/service_notify.h"

namespace cxlpool {

int ExitStatusOf(const absl::Status& status) {
  const std::string reason = ReasonOf(status);
  return reason == "BAD_CONFIG" || reason == "NO_CONFIG" ? EX_CONFIG : EXIT_FAILURE;
}

sigset_t BlockSignals() {
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGTERM);
  ::sigaddset(&signals, SIGINT);
  ::sigaddset(&signals, SIGHUP);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  return signals;
}

void AwaitEnd(const sigset_t& signals, const std::function<void()>& reload,
              const std::function<void()>& alive) {
  const absl::Duration interval = std::min(WatchdogInterval(), absl::Hours(1));
  while (true) {
    const timespec wait = absl::ToTimespec(interval);
    const int got = ::sigtimedwait(&signals, nullptr, &wait);
    if (got == SIGTERM || got == SIGINT) return;
    if (got == SIGHUP) reload();
    alive();
  }
}

std::function<void(absl::string_view)> CrashProbe() {
  const char* at = std::getenv("CXLPOOL_CRASH_AT");
  if (at == nullptr) return nullptr;
  std::string point = at;
  int count = 1;
  if (const size_t colon = point.rfind(':'); colon != std::string::npos) {
    count = std::atoi(point.c_str() + colon + 1);
    point.resize(colon);
  }
  return [point, count](absl::string_view passed) mutable {
    if (passed == point && --count <= 0) ::kill(::getpid(), SIGKILL);
  };
}

}  // namespace cxlpool
