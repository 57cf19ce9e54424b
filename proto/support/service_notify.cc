#include "proto/support/service_notify.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "proto/support/unique_fd.h"

namespace cxlpool {

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
