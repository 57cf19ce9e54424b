#include "test/crash/local_caller.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace cxlpool::crash {

absl::StatusOr<LocalCaller> LocalCaller::Connect(const std::string& socket, absl::Duration limit) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  strncpy(address.sun_path, socket.c_str(), sizeof(address.sun_path) - 1);
  const absl::Time end = absl::Now() + limit;
  while (true) {
    UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) {
      return LocalCaller(std::move(fd));
    }
    if (absl::Now() > end) {
      return absl::UnavailableError(absl::StrCat(socket, ": ", strerror(errno)));
    }
    absl::SleepFor(absl::Milliseconds(2));
  }
}

absl::Status LocalCaller::Send(const v1::LocalRequest& request) {
  const std::string bytes = request.SerializeAsString();
  if (send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
      static_cast<ssize_t>(bytes.size())) {
    return absl::OkStatus();
  }
  return absl::UnavailableError(absl::StrCat("send: ", strerror(errno)));
}

bool LocalCaller::Answered() const {
  pollfd ready{fd_.get(), POLLIN, 0};
  return poll(&ready, 1, 0) > 0;
}

}  // namespace cxlpool::crash
