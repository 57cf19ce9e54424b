#include "libpool/src/connection.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>

#include "libpool/src/local_codec.h"
#include "libpool/src/status.h"
#include "libpool/src/text.h"
#include "proto/support/mutant.h"

namespace cxlpool::libpool {
namespace {

constexpr char kDefaultSocket[] = "/run/cxlpool/agent.sock";
constexpr char kSocketVariable[] = "CXLPOOL_SOCKET";
constexpr int kMaxPollMs = 60'000;
constexpr int kAcceptRetryMs = 5;

Status ConnectError(const std::string& path, int error) {
  switch (error) {
    case ENOENT:
    case ECONNREFUSED:
    case ENOTDIR:
      return ErrnoError(Code::kUnavailable, "AGENT_NOT_RUNNING",
                        Concat("no host agent listens on ", path),
                        "start cxlpool-agent or set CXLPOOL_SOCKET", error);
    case EACCES:
    case EPERM:
      // The agent lets every user connect to the socket itself.
      return ErrnoError(Code::kPermissionDenied, "SOCKET_DENIED",
                        Concat("this user may not connect to ", path),
                        Concat("let this user into each folder on the way there: `namei -l ", path,
                               "` shows which one is shut"),
                        error);
    case EPROTOTYPE:
    case ENOTSOCK:
      return ErrnoError(Code::kInvalidArgument, "BAD_SOCKET",
                        Concat(path, " is not a host agent's socket"),
                        "set CXLPOOL_SOCKET to the agent's local socket", error);
    default:
      return ErrnoError(Code::kUnavailable, "AGENT_NOT_RUNNING", Concat("cannot connect to ", path),
                        "see that cxlpool-agent runs", error);
  }
}

Status TimedOut(const std::string& path) {
  return Refuse(Code::kDeadlineExceeded, "AGENT_TIMEOUT",
                Concat("the host agent on ", path, " did not answer in time"),
                "look at the log of cxlpool-agent, or allow more time");
}

// Takes over every descriptor of a packet, so that none leaks whatever else is wrong with it.
std::vector<UniqueFd> TakeDescriptors(msghdr& header) {
  std::vector<UniqueFd> descriptors;
  for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof fd);
      descriptors.emplace_back(fd);
    }
  }
  return descriptors;
}

}  // namespace

// An agent whose backlog is full is waited for; one that is not there is an error at once.
StatusOr<Connection> Connection::Connect(const std::string& path, Deadline deadline) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path) {
    return Refuse(Code::kInvalidArgument, "BAD_SOCKET",
                  Concat("the socket's path has ", path.size(), " characters, and 1 to ",
                         sizeof address.sun_path - 1, " are possible"),
                  "set CXLPOOL_SOCKET to a shorter path");
  }
  std::memcpy(address.sun_path, path.data(), path.size());

  UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) {
    return ErrnoError(Code::kResourceExhausted, "DESCRIPTORS_LOST", "cannot make a socket",
                      "raise the limit of open files (ulimit -n)", errno);
  }
  // A full backlog is EAGAIN, and there is nothing to poll for.
  while (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) !=
         0) {
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return ConnectError(path, errno);
    const int left_ms = RemainingMs(deadline, kAcceptRetryMs);
    if (left_ms == 0) return TimedOut(path);
    ::poll(nullptr, 0, left_ms);
  }
  return Connection(std::move(socket), path);
}

Status Connection::Lost(int error) const {
  const std::string message = Concat("the host agent on ", path_, " went away");
  const std::string remedy = "see that cxlpool-agent runs, then try again";
  if (error == 0) {
    return Refuse(Code::kUnavailable, "AGENT_LOST", message, remedy);
  }
  return ErrnoError(Code::kUnavailable, "AGENT_LOST", message, remedy, error);
}

Status Connection::Wait(short events, Deadline deadline) const {
  while (true) {
    pollfd poll_fd = {socket_.get(), events, 0};
    const int left_ms = RemainingMs(deadline, kMaxPollMs);
    if (::poll(&poll_fd, 1, left_ms) > 0) return Status();
    if (left_ms == 0) return TimedOut(path_);
  }
}

// The packet is sent whole or not at all: SOCK_SEQPACKET has no partial writes.
Status Connection::Send(const LocalRequest& request, Deadline deadline, int descriptor) {
  std::string packet = Encode(request);
  if (packet.size() > kMaxPacketBytes) {
    return BadArgument(Concat("the request has ", packet.size(), " bytes, at most ",
                              kMaxPacketBytes, " are possible"),
                       "use a shorter name");
  }
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof descriptor)] = {};
  iovec part = {packet.data(), packet.size()};
  msghdr header = {};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (descriptor >= 0) {
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    cmsghdr* const rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof descriptor);
    std::memcpy(CMSG_DATA(rights), &descriptor, sizeof descriptor);
  }
  while (::sendmsg(socket_.get(), &header, MSG_NOSIGNAL) < 0) {
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return Lost(errno);
    if (Status status = Wait(POLLOUT, deadline); !status.ok()) return status;
  }
  return Status();
}

void Connection::Interrupt() const { ::shutdown(socket_.get(), SHUT_RDWR); }

Status Connection::KeepThroughExec() const {
  if (CXLPOOL_MUTANT("exec-ends-the-hold") || ::fcntl(socket_.get(), F_SETFD, 0) == 0) {
    return Status();
  }
  return ErrnoError(Code::kInternal, "UNEXPECTED", "cannot leave the socket open across exec",
                    "report this as a defect of libcxlpool", errno);
}

bool Connection::HungUp() const {
  pollfd poll_fd = {socket_.get(), 0, 0};
  return ::poll(&poll_fd, 1, 0) > 0 && (poll_fd.revents & (POLLHUP | POLLERR)) != 0;
}

bool Connection::HasReply() const {
  pollfd poll_fd = {socket_.get(), POLLIN, 0};
  return ::poll(&poll_fd, 1, 0) > 0 && (poll_fd.revents & POLLIN) != 0;
}

// Descriptors that came are owned before anything is judged, so that none leaks with an error.
// After an error the connection is of no use: which request a later reply belongs to is not known.
StatusOr<Reply> Connection::Receive(Deadline deadline) {
  std::vector<char> packet(kMaxPacketBytes);
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxDescriptors)];
  iovec part = {packet.data(), packet.size()};
  msghdr header = {};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  ssize_t received = -1;
  bool again = false;
  bool reset = false;
  do {
    if (Status status = Wait(POLLIN, deadline); !status.ok()) return status;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    received = ::recvmsg(socket_.get(), &header, MSG_CMSG_CLOEXEC);
    again = received < 0 && (errno == EINTR || errno == EAGAIN);
    // First comes the kernel's error, that the agent hung up on a request that it had not read.
    // What the agent sent before lies behind that.
    if (received < 0 && errno == ECONNRESET && !std::exchange(reset, true)) again = true;
  } while (again);
  if (received < 0) return Lost(errno);

  Reply reply;
  reply.descriptors = TakeDescriptors(header);
  if (received == 0) return Lost(0);
  const std::string bad = Concat("the host agent on ", path_, " sent ");
  const std::string remedy = "install the same version of cxlpool-agent and of libpool";
  if ((header.msg_flags & MSG_TRUNC) != 0) {
    return Refuse(Code::kInternal, "BAD_REPLY",
                  Concat(bad, "a packet of more than ", kMaxPacketBytes, " bytes"), remedy);
  }
  if ((header.msg_flags & MSG_CTRUNC) != 0) {
    return Refuse(Code::kResourceExhausted, "DESCRIPTORS_LOST",
                  Concat(bad, "descriptors that did not all arrive: this process is at its ",
                         "limit of open files, or there were more than ", kMaxDescriptors),
                  "raise the limit of open files (ulimit -n)");
  }
  std::optional<LocalResponse> message =
      DecodeResponse({packet.data(), static_cast<size_t>(received)});
  if (!message.has_value()) {
    return Refuse(Code::kInternal, "BAD_REPLY",
                  Concat(bad, received, " bytes that are no LocalResponse"), remedy);
  }
  reply.message = *std::move(message);
  return reply;
}

// A program that has more rights than who starts it (set-user-id, capabilities) does not read its
// environment here: what it keeps in pool memory would be in memory of that user's.
std::string SocketPath(const char* given) {
  if (given != nullptr && *given != '\0') return given;
  const char* const path = CXLPOOL_MUTANT("environment-chooses-the-agent")
                               ? std::getenv(kSocketVariable)
                               : ::secure_getenv(kSocketVariable);
  return path != nullptr && *path != '\0' ? path : kDefaultSocket;
}

}  // namespace cxlpool::libpool
