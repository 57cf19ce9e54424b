#include "fabric-manager/adapters/fabric_qemu/qmp_client.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"

namespace cxlpool::fm {
namespace {

constexpr size_t kReadBytes = 64 << 10;

// Events taken in between two looks at the owner's other work; more than that is a flood.
constexpr int kMaxEventsPerWait = 10000;

absl::Status Unavailable(absl::string_view what) { return absl::UnavailableError(what); }

}  // namespace

QmpClient::QmpClient(UniqueFd socket, pid_t peer_pid, int interrupt_fd, QmpEventSink sink)
    : socket_(std::move(socket)),
      peer_pid_(peer_pid),
      interrupt_fd_(interrupt_fd),
      sink_(std::move(sink)),
      next_id_(std::random_device()()) {}

// Does not wait: a QMP socket that is served accepts at once. Who listens is asked of the kernel.
absl::StatusOr<std::unique_ptr<QmpClient>> QmpClient::Connect(const std::string& path,
                                                              int interrupt_fd, QmpEventSink sink) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat("QMP socket path ", path, " is longer than ",
                                                   sizeof(address.sun_path) - 1, " bytes"));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  // A Unix socket connects at once or, with a full backlog, fails with EAGAIN.
  if (!socket.valid() ||
      ::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    const int error = errno;
    if (error == EAGAIN) {
      return absl::ResourceExhaustedError(
          absl::StrCat("another client holds QMP socket ", path, ", which serves one only"));
    }
    return Unavailable(
        absl::StrCat("cannot connect to QMP socket ", path, ": ", std::strerror(error)));
  }
  ucred peer = {};
  socklen_t size = sizeof(peer);
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot tell who listens on ", path));
  }
  return std::unique_ptr<QmpClient>(
      new QmpClient(std::move(socket), peer.pid, interrupt_fd, std::move(sink)));
}

// QEMU serves one client a socket: a second one is connected and never greeted.
absl::Status QmpClient::AwaitGreeting(absl::Duration timeout) {
  if (!version_.empty()) return broken_;
  auto greeting = Receive(clock_.Elapsed() + timeout);
  if (absl::IsDeadlineExceeded(greeting.status())) {
    return absl::DeadlineExceededError(
        absl::StrCat("no QMP greeting within ", absl::FormatDuration(timeout),
                     "; another client may hold the socket, which serves one only"));
  }
  if (!greeting.ok()) return greeting.status();
  if (greeting->kind != QmpMessage::Kind::kGreeting) {
    return Break(Unavailable("what listens there does not greet as QMP does"));
  }
  version_ = greeting->name;
  return absl::OkStatus();
}

absl::Status QmpClient::Negotiate(absl::Duration timeout) {
  if (negotiated_) return broken_;
  if (absl::Status status = AwaitGreeting(timeout); !status.ok()) return Break(std::move(status));
  const absl::Status done = Execute("qmp_capabilities", nlohmann::json::object(), timeout).status();
  negotiated_ = done.ok();
  return done;
}

// One command at a time. Without its reply in time the connection is broken: the outcome is not
// known, and the late reply would be taken for that of the next command.
absl::StatusOr<nlohmann::json> QmpClient::Execute(const std::string& command,
                                                  const nlohmann::json& arguments,
                                                  absl::Duration timeout) {
  if (!broken_.ok()) return broken_;
  const uint64_t id = next_id_++;
  auto line = FormatQmpCommand(id, command, arguments);
  if (!line.ok()) return line.status();
  const absl::Duration deadline = clock_.Elapsed() + timeout;
  if (absl::Status status = Send(*line, deadline); !status.ok()) return status;
  auto reply = Receive(deadline);
  if (absl::IsDeadlineExceeded(reply.status())) {
    return Break(absl::DeadlineExceededError(
        absl::StrCat("no reply to ", command, " within ", absl::FormatDuration(timeout))));
  }
  if (!reply.ok()) return reply.status();
  if (reply->kind == QmpMessage::Kind::kGreeting || reply->id != id) {
    return Break(Unavailable(absl::StrCat("a reply to ", command, " that was not asked for")));
  }
  if (reply->kind == QmpMessage::Kind::kReturn) return std::move(reply->value);
  if (reply->name == "DeviceNotFound") return absl::NotFoundError(reply->description);
  return absl::FailedPreconditionError(reply->description);
}

// Hands events to the sink, a bounded number a call. A reply without a command breaks the
// connection.
absl::Status QmpClient::Drain() {
  if (!broken_.ok()) return broken_;
  std::string line;
  for (int events = 0; events < kMaxEventsPerWait; ++events) {
    auto whole = TakeLine(line);
    if (!whole.ok()) return whole.status();
    if (!*whole) {
      pollfd poll{socket_.get(), POLLIN, 0};
      if (::poll(&poll, 1, 0) != 1) return absl::OkStatus();
      if (absl::Status status = ReadSome(); !status.ok()) return status;
      continue;
    }
    auto message = ParseQmpMessage(line);
    if (!message.ok()) return Break(Unavailable(message.status().message()));
    if (message->kind != QmpMessage::Kind::kEvent) {
      return Break(Unavailable("a reply to nothing"));
    }
    sink_(*message);
  }
  return absl::OkStatus();
}

absl::Status QmpClient::Send(const std::string& line, absl::Duration deadline) {
  absl::string_view rest = line;
  while (!rest.empty()) {
    const ssize_t n = ::send(socket_.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
    if (n > 0) {
      rest.remove_prefix(static_cast<size_t>(n));
    } else if (errno == EAGAIN) {
      if (absl::Status status = WaitFor(POLLOUT, deadline); !status.ok()) return Break(status);
    } else if (errno != EINTR) {
      return Break(Unavailable(absl::StrCat("the QMP connection broke: ", std::strerror(errno))));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<QmpMessage> QmpClient::Receive(absl::Duration deadline) {
  if (!broken_.ok()) return broken_;
  std::string line;
  for (int events = 0; events < kMaxEventsPerWait;) {
    auto whole = TakeLine(line);
    if (!whole.ok()) return whole.status();
    if (!*whole) {
      absl::Status status = WaitFor(POLLIN, deadline);
      if (absl::IsDeadlineExceeded(status)) return status;  // The caller adds for what.
      if (!status.ok()) return Break(std::move(status));
      if (status = ReadSome(); !status.ok()) return status;
      continue;
    }
    auto message = ParseQmpMessage(line);
    if (!message.ok()) return Break(Unavailable(message.status().message()));
    if (message->kind != QmpMessage::Kind::kEvent) return message;
    sink_(*message);
    ++events;
  }
  return Break(Unavailable("a flood of QMP events"));
}

// CANCELLED as soon as `interrupt_fd_` is readable: something more urgent waits for this thread.
absl::Status QmpClient::WaitFor(short events, absl::Duration deadline) {
  while (true) {
    const absl::Duration left = deadline - clock_.Elapsed();
    if (left <= absl::ZeroDuration()) return absl::DeadlineExceededError("QMP took too long");
    pollfd polls[] = {{socket_.get(), events, 0}, {interrupt_fd_, POLLIN, 0}};
    const int64_t wait = absl::ToInt64Milliseconds(left + absl::Milliseconds(1));
    const int ready = ::poll(
        polls, 2,
        static_cast<int>(std::min<int64_t>(wait, absl::ToInt64Milliseconds(absl::Hours(1)))));
    if (ready < 0 && errno != EINTR) return absl::ErrnoToStatus(errno, "poll");
    if (ready <= 0) continue;
    if (polls[1].revents != 0) return absl::CancelledError("QMP was interrupted");
    if (polls[0].revents != 0) return absl::OkStatus();
  }
}

absl::Status QmpClient::ReadSome() {
  char bytes[kReadBytes];
  const ssize_t n = ::recv(socket_.get(), bytes, sizeof(bytes), 0);
  if (n > 0) {
    buffer_.append(bytes, static_cast<size_t>(n));
    return absl::OkStatus();
  }
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return absl::OkStatus();
  return Break(Unavailable(n == 0
                               ? std::string("QEMU ended the QMP connection")
                               : absl::StrCat("the QMP connection broke: ", std::strerror(errno))));
}

// False: no whole line is there yet. `searched_` saves looking twice at the bytes of a long line.
absl::StatusOr<bool> QmpClient::TakeLine(std::string& line) {
  const size_t newline = buffer_.find('\n', searched_);
  if (newline == std::string::npos) {
    searched_ = buffer_.size();
    if (buffer_.size() <= kMaxQmpLineBytes) return false;
    return Break(Unavailable("a QMP line without end"));
  }
  line = buffer_.substr(0, newline);
  buffer_.erase(0, newline + 1);
  searched_ = 0;
  return true;
}

// The first cause counts, and every later call answers it.
absl::Status QmpClient::Break(absl::Status why) {
  if (broken_.ok()) broken_ = std::move(why);
  return broken_;
}

}  // namespace cxlpool::fm
