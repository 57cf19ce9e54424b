#include "proto/support/daemon.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <sysexits.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "proto/support/refusal.h"
#include "proto/support/unique_fd.h"

namespace cxlpool {

int ExitStatusOf(const absl::Status& status) {
  const std::string reason = ReasonOf(status);
  // No later start of this program with this configuration reads such a store: somebody has to put
  // another one there, or install the release that wrote it.
  const bool store =
      reason == "STORE_TOO_NEW" || reason == "STORE_FOREIGN" || reason == "BAD_RECORD";
  return store || reason == "BAD_CONFIG" || reason == "NO_CONFIG" ? EX_CONFIG : EXIT_FAILURE;
}

sigset_t BlockSignals() {
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGTERM);
  ::sigaddset(&signals, SIGINT);
  ::sigaddset(&signals, SIGHUP);
  ::sigaddset(&signals, SIGUSR1);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  return signals;
}

// It waits no longer than the watchdog allows, and at most an hour: `alive` also warns of what ends
// with time.
bool AwaitEnd(const sigset_t& signals, const std::function<void()>& reload,
              const std::function<void()>& alive) {
  const absl::Duration interval = std::min(WatchdogInterval(), absl::Hours(1));
  while (true) {
    const timespec wait = absl::ToTimespec(interval);
    const int got = ::sigtimedwait(&signals, nullptr, &wait);
    if (got == SIGTERM || got == SIGINT) return true;
    if (got == SIGUSR1) return false;
    if (got == SIGHUP) reload();
    alive();
  }
}

void CutShort() { ::kill(::getpid(), SIGUSR1); }

// SIGKILL to itself, not _exit: nothing of the process may get a last word.
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

// A datagram that does not fit into the socket's queue is lost, and that is an error: to wait for
// the service manager would let it stop the daemon. "@" is how a path in the abstract name space is
// written; there it is a null byte.
absl::Status NotifyService(absl::string_view state) {
  const char* path = std::getenv("NOTIFY_SOCKET");
  if (path == nullptr || *path == '\0') return absl::OkStatus();
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const size_t length = std::strlen(path);
  if (length >= sizeof(address.sun_path) || (path[0] != '/' && path[0] != '@')) {
    return absl::InvalidArgumentError(
        absl::StrCat("NOTIFY_SOCKET \"", path, "\" is no socket path"));
  }
  std::memcpy(address.sun_path, path, length);
  if (path[0] == '@') address.sun_path[0] = '\0';
  const UniqueFd fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid() || sendto(fd.get(), state.data(), state.size(), MSG_NOSIGNAL,
                            reinterpret_cast<const sockaddr*>(&address),
                            static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + length)) < 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot notify the service manager at ", path, ": ", std::strerror(errno)));
  }
  return absl::OkStatus();
}

// WATCHDOG_PID: a child inherits the variables, and is not meant.
absl::Duration WatchdogInterval() {
  const char* usec = std::getenv("WATCHDOG_USEC");
  const char* pid = std::getenv("WATCHDOG_PID");
  int64_t interval_us = 0;
  int64_t for_pid = 0;
  if (usec == nullptr || !absl::SimpleAtoi(usec, &interval_us) || interval_us <= 0) {
    return absl::InfiniteDuration();
  }
  if (pid != nullptr && (!absl::SimpleAtoi(pid, &for_pid) || for_pid != getpid())) {
    return absl::InfiniteDuration();
  }
  return absl::Microseconds(interval_us) / 2;
}

}  // namespace cxlpool
