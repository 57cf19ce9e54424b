#include "host-agent/local/local_server.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "host-agent/local/packet.h"
#include "host-agent/local/processes.h"
#include "host-agent/service/holder_reports.h"
#include "host-agent/service/usage_source.h"
#include "proto/support/log.h"
#include "proto/support/mutant.h"
#include "proto/support/refusal.h"

namespace cxlpool::agent {
namespace {

constexpr char kSubject[] = "local";
constexpr absl::Duration kJustNow = absl::Seconds(1);
// Descriptors besides those of connections: the manager's link, devices, processes that are watched
// (one a Region), what is passed on, and pages of counters.
constexpr size_t kOtherDescriptors = 1536 + HolderReports::kMaxPages;

absl::Status PathError(const std::string& path, absl::string_view what) {
  return Refuse(absl::StatusCode::kFailedPrecondition, "SOCKET_PATH",
                absl::StrCat(path, ": ", what),
                "set applications.socket to a path in a directory that the agent can write");
}

absl::StatusOr<sockaddr_un> AddressOf(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    return PathError(path, "a socket path has 1 to 107 bytes");
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

UniqueFd NewSocket() {
  return UniqueFd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

// Takes a socket away that an agent left when it died.
absl::Status RemoveStale(const std::string& path, const sockaddr_un& address) {
  struct stat left;
  if (::lstat(path.c_str(), &left) != 0) return absl::OkStatus();
  if (!S_ISSOCK(left.st_mode)) return PathError(path, "is there and no socket");
  const UniqueFd probe = NewSocket();
  if (::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 ||
      errno == EAGAIN) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "SOCKET_BUSY",
                  absl::StrCat("another agent serves ", path), "stop it first");
  }
  if (::unlink(path.c_str()) != 0) return PathError(path, std::strerror(errno));
  return absl::OkStatus();
}

}  // namespace

size_t FitConnections(size_t wanted) {
  rlimit limit = {};
  const rlim_t needed = wanted + LocalServer::kPlacesForRoot + kOtherDescriptors;
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return wanted;
  if (limit.rlim_cur < needed && limit.rlim_cur < limit.rlim_max) {
    limit.rlim_cur = std::min(needed, limit.rlim_max);
    ::setrlimit(RLIMIT_NOFILE, &limit);
    ::getrlimit(RLIMIT_NOFILE, &limit);
  }
  if (limit.rlim_cur >= needed) return wanted;
  // What there is, is shared: half of it for connections.
  const size_t fit = std::min<size_t>(wanted, std::max<size_t>(limit.rlim_cur / 2, 1));
  if (fit == wanted) return wanted;
  LogWarning(kSubject, "applications.max_connections is ", wanted, ", and this process may open ",
             limit.rlim_cur, " files: ", fit, " connections are served (raise LimitNOFILE to ",
             needed, ")");
  return fit;
}

LocalServer::LocalServer(LocalServerOptions options, LocalService* service, Executor* executor)
    : options_(std::move(options)), service_(service), executor_(executor) {}

LocalServer::~LocalServer() { Stop(); }

absl::Status LocalServer::Bind() {
  absl::StatusOr<sockaddr_un> address = AddressOf(options_.path);
  if (!address.ok()) return address.status();
  if (absl::Status s = RemoveStale(options_.path, *address); !s.ok()) return s;
  listener_ = NewSocket();
  if (::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof(*address)) !=
          0 ||
      ::chmod(options_.path.c_str(), 0666) != 0 || ::listen(listener_.get(), SOMAXCONN) != 0) {
    return PathError(options_.path, std::strerror(errno));
  }
  return absl::OkStatus();
}

absl::Status LocalServer::Start() {
  if (absl::Status s = Bind(); !s.ok()) return s;
  spare_ = UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  epoll_ = UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
  mailbox_->wake = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  for (const auto& [fd, id] :
       {std::pair(listener_.get(), kListener), std::pair(mailbox_->wake.get(), kMailbox)}) {
    epoll_event event = {.events = EPOLLIN, .data = {.u64 = id}};
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
      return absl::InternalError(absl::StrCat("epoll: ", std::strerror(errno)));
    }
  }
  thread_ = std::thread([this] { Run(); });
  return absl::OkStatus();
}

void LocalServer::Stop() {
  if (!thread_.joinable()) return;
  {
    MutexLock lock(mailbox_->mutex);
    mailbox_->stopping = true;
  }
  ::eventfd_write(mailbox_->wake.get(), 1);
  thread_.join();
}

// --- The I/O thread.

// Until Stop: takes connections, requests and the core's answers. All sockets are this thread's.
void LocalServer::Run() {
  breaker_.emplace();
  std::array<epoll_event, 64> events;
  for (;;) {
    const int count = ::epoll_wait(epoll_.get(), events.data(), events.size(), WaitMs());
    for (int i = 0; i < count; ++i) {
      const uint64_t id = events[i].data.u64;
      if (id == kListener) {
        Accept();
      } else if (id == kMailbox) {
        eventfd_t ignored;
        ::eventfd_read(mailbox_->wake.get(), &ignored);
      } else if (const auto it = connections_.find(id); it != connections_.end()) {
        // A hang-up ends it even if requests are unread: no peer is there for the answers.
        if ((events[i].events & (EPOLLHUP | EPOLLERR)) != 0) {
          End(id);
        } else if ((events[i].events & EPOLLOUT) != 0) {
          Flush(it->second);
        } else {
          OnReadable(it->second);
        }
      }
    }
    TakeAnswers();
    EndOverdue();
    MutexLock lock(mailbox_->mutex);
    if (mailbox_->stopping) break;
  }
  while (!connections_.empty()) End(connections_.begin()->first);
  ::unlink(options_.path.c_str());
  HangUp(std::move(listener_));  // And on those that it has not accepted.
  breaker_.reset();
}

void LocalServer::HangUp(UniqueFd socket) {
  const WaitBreaker::Guard guard(*breaker_);
  socket.Reset();
}

int LocalServer::WaitMs() const {
  absl::Duration next = absl::InfiniteDuration();
  for (const auto& [id, connection] : connections_) {
    next = std::min(next, connection.send_deadline);
    if (connection.idle()) next = std::min(next, connection.asked_at + options_.idle_timeout);
  }
  if (next == absl::InfiniteDuration()) return -1;
  const absl::Duration left = std::max(next - clock_.Elapsed(), absl::ZeroDuration());
  return static_cast<int>(absl::ToInt64Milliseconds(left)) + 1;
}

// Whether there is a place for one more; makes it, if a connection that does nothing has one. What
// made room for another while the core did not keep up may be more than there are places; that
// takes none of root's.
absl::Status LocalServer::FindPlace(const Connection& newcomer) {
  size_t users = 0;
  size_t of_uid = 0;
  size_t of_root = 0;
  const auto count = [&](uint32_t uid, bool privileged) {
    ++(privileged ? of_root : users);
    if (!privileged && uid == newcomer.peer.uid) ++of_uid;
  };
  for (const auto& [id, connection] : connections_) {
    count(connection.peer.uid, connection.privileged);
  }
  for (const auto& [id, place] : ending_) {
    if (!CXLPOOL_MUTANT("ended-gives-its-place-at-once")) count(place.uid, place.privileged);
  }
  const size_t all_places = options_.max_connections + kPlacesForRoot;
  const bool too_many = !newcomer.privileged && of_uid >= options_.max_connections_per_uid;
  const bool full = newcomer.privileged
                        ? of_root + std::min(users, options_.max_connections) >= all_places
                        : users >= options_.max_connections;
  if (!too_many && (!full || EndIdlest())) return absl::OkStatus();
  return Refuse(absl::StatusCode::kResourceExhausted, "TOO_MANY_CONNECTIONS",
                absl::StrCat("the agent serves at most ", options_.max_connections,
                             " connections, ", options_.max_connections_per_uid, " a user"),
                "close some, or raise the limits of the agent");
}

// Ends the connection that has been idle for longest. False: none is idle.
bool LocalServer::EndIdlest() {
  const absl::Duration now = clock_.Elapsed();
  auto idlest = connections_.end();
  for (auto it = connections_.begin(); it != connections_.end(); ++it) {
    const Connection& connection = it->second;
    // What has just come, or was just answered, is about to ask something.
    if (!connection.idle() || connection.privileged || now - connection.asked_at < kJustNow) {
      continue;
    }
    if (idlest == connections_.end() || connection.asked_at < idlest->second.asked_at) idlest = it;
  }
  if (idlest == connections_.end()) return false;
  End(idlest->first);
  return true;
}

// Takes one connection, if its user may use the agent and there is a place for it.
void LocalServer::Accept() {
  UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket.valid()) {
    if (errno != EMFILE && errno != ENFILE) return;
    // Out of descriptors: hang up on the caller instead of being woken for it for ever.
    spare_.Reset();
    HangUp(UniqueFd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)));
    spare_ = UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    return;
  }
  if (!Take(socket)) HangUp(std::move(socket));
}

// Gives it a place and watches it, or says why not.
bool LocalServer::Take(UniqueFd& socket) {
  ucred credentials;
  socklen_t size = sizeof(credentials);
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) return false;
  const uint64_t id = ++last_connection_;
  Connection connection;
  connection.peer = {.connection = id,
                     .uid = credentials.uid,
                     .pid = credentials.pid,
                     .start_ticks = PeerStartTicks(socket.get(), credentials.pid),
                     .gids = PeerGroups(socket.get(), credentials.gid),
                     .program = ProgramOf(credentials.pid)};
  if (CXLPOOL_MUTANT("groups-not-handed-on")) connection.peer.gids.clear();
  connection.privileged = service_->IsPrivileged(connection.peer);
  absl::Status refused = service_->CheckPeer(connection.peer);
  if (CXLPOOL_MUTANT("anybody-takes-a-place")) refused = absl::OkStatus();
  if (refused.ok()) refused = FindPlace(connection);
  if (!refused.ok()) {
    // It is sent the reason, if its socket takes that at once, and is never waited for.
    SendPacket(socket.get(), RefusedReply(refused).response.SerializeAsString(), {}).IgnoreError();
    return false;
  }
  epoll_event event = {.events = EPOLLIN, .data = {.u64 = id}};
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket.get(), &event) != 0) return false;
  connection.socket = std::move(socket);
  connection.asked_at = clock_.Elapsed();
  connections_.emplace(id, std::move(connection));
  return true;
}

// Reads one packet and posts its request to the core. Until that is answered nothing more is read
// from the connection (Watch).
void LocalServer::OnReadable(Connection& connection) {
  GivenDescriptors given;
  const auto receive = [&] {
    const WaitBreaker::Guard guard(*breaker_);
    return ReceivePacket(connection.socket.get(), bin_.HasRoom() ? &given : nullptr);
  };
  const absl::StatusOr<std::string> packet = receive();
  UniqueFd page;
  if (given.first.valid() && !given.had_others && IsUsagePage(given.first.get())) {
    page = std::move(given.first);
  }
  bin_.Drop(std::move(given.first));
  if (absl::IsUnavailable(packet.status())) return;
  if (!packet.ok()) return End(connection.peer.connection);
  v1::LocalRequest request;
  if (!request.ParseFromString(*packet)) {
    connection.closing = true;
    return Reply(connection,
                 RefusedReply(Refuse(absl::StatusCode::kInvalidArgument, "BAD_PACKET",
                                     "the packet is no LocalRequest; the connection ends",
                                     "use a libpool of the agent's release")));
  }
  connection.busy = true;
  connection.served = true;
  Watch(connection);
  executor_->Post([service = service_, mailbox = mailbox_, peer = connection.peer,
                   request = std::move(request), page = std::move(page)]() mutable {
    auto answer = [mailbox, id = peer.connection](LocalReply reply) {
      MutexLock lock(mailbox->mutex);
      mailbox->answers.push_back({.connection = id, .reply = std::move(reply)});
      ::eventfd_write(mailbox->wake.get(), 1);
    };
    service->Handle(peer, std::move(request), std::move(answer), std::move(page));
  });
}

void LocalServer::TakeAnswers() {
  std::deque<Answer> answers;
  std::vector<uint64_t> ended;
  {
    MutexLock lock(mailbox_->mutex);
    answers.swap(mailbox_->answers);
    ended.swap(mailbox_->ended);
  }
  for (const uint64_t id : ended) ending_.erase(id);
  for (Answer& answer : answers) {
    const auto it = connections_.find(answer.connection);
    if (it == connections_.end()) continue;  // Its descriptors close with it.
    it->second.busy = false;
    it->second.holds = answer.reply.holds;
    it->second.asked_at = clock_.Elapsed();
    Reply(it->second, std::move(answer.reply));
  }
}

void LocalServer::Reply(Connection& connection, LocalReply reply) {
  std::string bytes = reply.response.SerializeAsString();
  if (bytes.size() > kMaxPacketBytes) {
    reply = RefusedReply(
        Refuse(absl::StatusCode::kResourceExhausted, "ANSWER_TOO_LARGE",
               absl::StrCat("the answer has ", bytes.size(), " bytes; a packet holds 64 KiB"),
               "ask the manager instead"));
    bytes = reply.response.SerializeAsString();
  }
  connection.unsent = std::move(bytes);
  connection.unsent_descriptors = std::move(reply.descriptors);
  connection.send_deadline = clock_.Elapsed() + options_.send_timeout;
  Flush(connection);
}

void LocalServer::Flush(Connection& connection) {
  const absl::Status sent =
      SendPacket(connection.socket.get(), connection.unsent, connection.unsent_descriptors);
  if (!sent.ok() && !absl::IsUnavailable(sent)) return End(connection.peer.connection);
  if (sent.ok()) {
    connection.unsent.clear();
    connection.unsent_descriptors.clear();
    connection.send_deadline = absl::InfiniteDuration();
    if (connection.closing) return End(connection.peer.connection);
  }
  Watch(connection);
}

// Reads only what can be served now; a hang-up is always noticed.
void LocalServer::Watch(const Connection& connection) {
  epoll_event event = {.events = 0, .data = {.u64 = connection.peer.connection}};
  if (!connection.unsent.empty()) {
    event.events = EPOLLOUT;
  } else if (!connection.busy) {
    event.events = EPOLLIN;
  }
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, connection.socket.get(), &event);
}

void LocalServer::EndOverdue() {
  const absl::Duration now = clock_.Elapsed();
  for (auto it = connections_.begin(); it != connections_.end();) {
    const auto next = std::next(it);
    if (it->second.send_deadline <= now) {
      LogWarning(kSubject, "process ", it->second.peer.pid, " does not read its answer: hung up");
      End(it->first);
    } else if (it->second.idle() && it->second.asked_at + options_.idle_timeout <= now) {
      End(it->first);
    }
    it = next;
  }
}

// Closes the socket now. Of a connection that was served the request may still wait for the core,
// with all that came along, and so does its end: the place is free when the core has seen both.
void LocalServer::End(uint64_t id) {
  const auto it = connections_.find(id);
  const Place place = {.uid = it->second.peer.uid, .privileged = it->second.privileged};
  const bool served = it->second.served;
  HangUp(std::move(it->second.socket));
  connections_.erase(it);
  if (!served) return;
  ending_.emplace(id, place);
  executor_->Post([service = service_, mailbox = mailbox_, id] {
    service->ConnectionEnded(id);
    MutexLock lock(mailbox->mutex);
    mailbox->ended.push_back(id);
    ::eventfd_write(mailbox->wake.get(), 1);
  });
}

}  // namespace cxlpool::agent
