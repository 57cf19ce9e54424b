#include "fabric-manager/rpc/listener.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <set>
#include <utility>

#include "absl/hash/hash.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "proto/support/address.h"
#include "proto/support/grpc_log.h"
#include "proto/support/log.h"
#include "proto/support/mutant.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

constexpr absl::Duration kSweepTick = absl::Milliseconds(100);
constexpr absl::Duration kIdleTick = absl::Seconds(1);
// Established connections are looked through so often, to forget those that are gone.
constexpr absl::Duration kSweep = absl::Seconds(2);
constexpr int kBacklog = 4096;  // The kernel's own limit (somaxconn) may be lower.
constexpr int kAtOnce = 64;     // Connections of one socket, before others are looked at.
constexpr size_t kTlsHeader = 5;
constexpr size_t kMaxTlsRecord = 16384;
constexpr uint64_t kMostDescriptors = 1 << 20;

constexpr char kNoTls[] = "it does not begin with a TLS handshake";
constexpr char kNoHttp2[] = "it does not begin with HTTP/2";
constexpr char kSilent[] = "it sent nothing";
constexpr char kNoCall[] = "no call on it was let in in time";
constexpr char kEnded[] = "it ended before a call on it was let in";
constexpr char kCrowd[] = "too many others were beginning, and it was the oldest of them";
constexpr char kFull[] = "as many connections as may be are established";
constexpr char kFullOfOne[] = "as many connections of one address as may be are established";
constexpr char kEmptyCalls[] = "too many calls were taken back before their request was there";
constexpr char kNoDescriptors[] = "the manager has no descriptors left (LimitNOFILE)";

absl::Status CannotListen(const std::string& address, const std::string& why) {
  return Refuse(absl::StatusCode::kUnavailable, "CANNOT_LISTEN",
                absl::StrCat("cannot listen on ", address, ": ", why),
                "see whether another process has the address (ss -ltnp)");
}

// ParseAddress, which takes no port 0; tests listen on any free port.
absl::StatusOr<Address> ParseListenAddress(const std::string& text) {
  const bool any_port = absl::EndsWith(text, ":0") && !absl::StartsWith(text, "unix:");
  auto address = ParseAddress(any_port ? text.substr(0, text.size() - 1) + "1" : text);
  if (address.ok() && any_port) address->port = 0;
  return address;
}

// A Unix socket that nobody listens on any more is replaced; who may connect is its owner only,
// from the moment that it is there.
absl::StatusOr<UniqueFd> ListenOnPath(const std::string& text, const std::string& path) {
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return CannotListen(text, "the path is too long");
  path.copy(address.sun_path, path.size());
  struct stat found;
  if (lstat(path.c_str(), &found) == 0 && S_ISSOCK(found.st_mode)) unlink(path.c_str());
  const mode_t mask = umask(0177);
  const bool bound =
      fd.valid() && bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  const int error = errno;
  umask(mask);
  if (!bound) return CannotListen(text, strerror(error));
  if (listen(fd.get(), kBacklog) != 0) return CannotListen(text, strerror(errno));
  return fd;
}

absl::StatusOr<UniqueFd> ListenOn(const std::string& text, const sockaddr* address,
                                  socklen_t size) {
  UniqueFd fd(socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return CannotListen(text, strerror(errno));
  const int on = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (address->sa_family == AF_INET6) {
    // "[::]" is every address of the machine, of IPv4 too.
    const int off = 0;
    setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  }
  if (bind(fd.get(), address, size) != 0 || listen(fd.get(), kBacklog) != 0) {
    return CannotListen(text, strerror(errno));
  }
  return fd;
}

int PortOf(int fd) {
  sockaddr_storage bound{};
  socklen_t size = sizeof(bound);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &size) != 0) return 0;
  if (bound.ss_family == AF_INET) return ntohs(reinterpret_cast<sockaddr_in&>(bound).sin_port);
  if (bound.ss_family == AF_INET6) return ntohs(reinterpret_cast<sockaddr_in6&>(bound).sin6_port);
  return 0;
}

void SetPort(sockaddr* address, int port) {
  const auto wire = htons(static_cast<uint16_t>(port));
  if (address->sa_family == AF_INET) reinterpret_cast<sockaddr_in*>(address)->sin_port = wire;
  if (address->sa_family == AF_INET6) reinterpret_cast<sockaddr_in6*>(address)->sin6_port = wire;
}

void AddToEpoll(int epoll, int fd, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
}

}  // namespace

ConnectionLimits ConnectionLimits::For(uint64_t descriptors) {
  ConnectionLimits limits;
  const uint64_t reserve = std::clamp<uint64_t>(descriptors / 8, 32, 2048);
  const uint64_t ours = descriptors > reserve + 64 ? descriptors - reserve : 64;
  limits.waiting = std::min<uint64_t>(limits.waiting, ours / 8);
  limits.handshaking = std::min<uint64_t>(limits.handshaking, ours / 8);
  limits.established =
      std::min<uint64_t>(limits.established, ours - limits.waiting - limits.handshaking);
  limits.of_one_address = std::max<size_t>(limits.established / 2, 16);
  return limits;
}

uint64_t RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1024;
  if (limit.rlim_cur < limit.rlim_max) {
    rlimit raised = limit;
    raised.rlim_cur = std::min<rlim_t>(limit.rlim_max, kMostDescriptors);
    if (setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  }
  return std::min<uint64_t>(limit.rlim_cur, kMostDescriptors);
}

size_t Listener::KeyHash::operator()(const PeerKey& key) const { return absl::HashOf(key); }

bool Listener::Peer::empty() const {
  return std::all_of(by_phase.begin(), by_phase.end(), [](const auto& of) { return of.empty(); });
}

Listener::Listener(const ConnectionLimits& limits, RefusedPeers* refused)
    : limits_(limits),
      refused_(refused),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      spare_(open("/dev/null", O_RDONLY | O_CLOEXEC)) {
  AddToEpoll(epoll_.get(), wake_.get(), EPOLLIN);
}

// Answers the port, which the system chooses where the address says 0; of a path 0. Nothing is
// accepted before Start.
absl::StatusOr<int> Listener::Listen(const std::string& text, bool tls, HandOver hand_over,
                                     bool tokens) {
  auto address = ParseListenAddress(text);
  if (!address.ok()) return address.status();
  if (address->is_unix()) {
    auto fd = ListenOnPath(text, address->path);
    if (!fd.ok()) return fd.status();
    sockets_.push_back({*std::move(fd), tls, std::move(hand_over), address->path, false});
    return 0;
  }
  addrinfo hints{};
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int failed = getaddrinfo(address->host.c_str(), "0", &hints, &found);
  if (failed != 0) return CannotListen(text, gai_strerror(failed));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> all(found, freeaddrinfo);
  // A name may have several addresses: all have the one port.
  int port = address->port;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    SetPort(one->ai_addr, port);
    auto fd = ListenOn(text, one->ai_addr, one->ai_addrlen);
    if (!fd.ok()) return fd.status();
    port = PortOf(fd->get());
    sockets_.push_back({*std::move(fd), tls, hand_over, "", tls && !tokens});
  }
  return port;
}

void Listener::Start() {
  for (const Socket& socket : sockets_) AddToEpoll(epoll_.get(), socket.fd.get(), EPOLLIN);
  LogInfo("listener", "takes ", limits_.established, " connections (", limits_.of_one_address,
          " of one address), ", limits_.handshaking, " in a handshake and ", limits_.waiting,
          " that have sent nothing yet");
  thread_ = std::thread([this] { Run(); });
}

// Closes what gRPC has not been given yet: the connections that it has are its own to end.
void Listener::Stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  eventfd_write(wake_.get(), 1);
  if (thread_.joinable()) thread_.join();
  for (const Socket& socket : sockets_) {
    if (!socket.path.empty()) unlink(socket.path.c_str());
  }
  sockets_.clear();
  MutexLock lock(mutex_);
  for (const auto& [fd, connection] : by_fd_) {
    if (connection->phase == Phase::kWaiting) close(fd);
  }
  by_fd_.clear();
  by_key_.clear();
  of_identity_.clear();
  peers_.clear();
  counts_ = {};
  tasks_.clear();
}

void Listener::Ping(Task task) {
  {
    MutexLock lock(mutex_);
    if (stopping_) return;
    tasks_.push_back(std::move(task));
  }
  eventfd_write(wake_.get(), 1);
}

Listener::Counts Listener::counts() const {
  MutexLock lock(mutex_);
  return {counts_[0], counts_[1], counts_[2]};
}

// Sleeps until something happens, or until a deadline may have passed.
void Listener::Run() {
  pthread_setname_np(pthread_self(), "fm-listener");
  std::array<epoll_event, 256> events;
  absl::Duration ticked = clock_.Elapsed();
  while (true) {
    bool beginning;
    std::vector<Task> tasks;
    {
      MutexLock lock(mutex_);
      if (stopping_) return;
      tasks.swap(tasks_);
      beginning = Count(Phase::kWaiting) + Count(Phase::kHandshaking) > 0;
    }
    for (Task& task : tasks) std::move(task)();
    const absl::Duration pause = beginning ? kSweepTick : kIdleTick;
    const int count = epoll_wait(epoll_.get(), events.data(), events.size(),
                                 static_cast<int>(absl::ToInt64Milliseconds(pause)));
    for (int i = 0; i < count; ++i) {
      const int fd = events[static_cast<size_t>(i)].data.fd;
      const auto socket = std::find_if(sockets_.begin(), sockets_.end(),
                                       [&](const Socket& s) { return s.fd.get() == fd; });
      if (fd == wake_.get()) {
        eventfd_t value;
        eventfd_read(fd, &value);
      } else if (socket != sockets_.end()) {
        Accept(static_cast<size_t>(socket - sockets_.begin()));
      } else {
        LookAtFirstBytes(fd);
      }
    }
    const absl::Duration now = clock_.Elapsed();
    if (now - ticked < kSweepTick) continue;
    ticked = now;
    Tick(now);
  }
}

void Listener::Accept(size_t index) {
  const Socket& socket = sockets_[index];
  for (int i = 0; i < kAtOnce; ++i) {
    UniqueFd fd(accept4(socket.fd.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd.valid()) {
      Add(index, std::move(fd));
      continue;
    }
    switch (errno) {
      case EAGAIN:
        return;
      case EMFILE:
      case ENFILE:
        return AcceptWithoutDescriptors(socket);
      case ENOBUFS:
      case ENOMEM:
        // The kernel is out of memory: what listens stays ready, so do not turn in circles.
        absl::SleepFor(absl::Milliseconds(10));
        return;
      default:
        continue;  // That one connection is gone already.
    }
  }
}

// Answers with a hang-up what cannot be taken, by the descriptor that is kept for that. Peers learn
// at once, and nothing stays in the kernel's queue.
void Listener::AcceptWithoutDescriptors(const Socket& socket) {
  if (CXLPOOL_MUTANT("no-spare-descriptor")) {
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, socket.fd.get(), nullptr);
    return;
  }
  spare_.Reset();
  uint64_t closed = 0;
  for (; closed < kBacklog; ++closed) {
    const UniqueFd fd(accept4(socket.fd.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd.valid()) break;
  }
  spare_.Reset(open("/dev/null", O_RDONLY | O_CLOEXEC));
  refused_->Note(closed == 1 ? "a connection" : "connections", "anywhere", kNoDescriptors);
  // Somebody else took the descriptor meanwhile.
  if (closed == 0) absl::SleepFor(absl::Milliseconds(10));
}

bool Listener::KeyOf(absl::string_view peer, PeerKey& key) {
  key.fill(0);
  const bool v4 = absl::ConsumePrefix(&peer, "ipv4:");
  if (!v4 && !absl::ConsumePrefix(&peer, "ipv6:")) return false;
  const size_t colon = peer.rfind(':');
  uint32_t port = 0;
  if (colon == absl::string_view::npos || !absl::SimpleAtoi(peer.substr(colon + 1), &port)) {
    return false;
  }
  key[16] = static_cast<uint8_t>(port >> 8);
  key[17] = static_cast<uint8_t>(port & 0xff);
  peer = peer.substr(0, colon);
  if (v4) {
    key[10] = key[11] = 0xff;
    return inet_pton(AF_INET, std::string(peer).c_str(), &key[12]) == 1;
  }
  // "[fe80::1%eth0]", with some of that written as %XX, depending on gRPC's version.
  if (!absl::ConsumePrefix(&peer, "%5B")) absl::ConsumePrefix(&peer, "[");
  if (!absl::ConsumeSuffix(&peer, "%5D")) absl::ConsumeSuffix(&peer, "]");
  return inet_pton(AF_INET6, std::string(peer.substr(0, peer.find('%'))).c_str(), key.data()) == 1;
}

// Takes a connection that was accepted, or closes it where its address, or all together, have as
// many as they may. It waits until its first bytes come: until then it costs a descriptor and this
// record, and no thread or memory of gRPC's.
void Listener::Add(size_t index, UniqueFd fd) {
  auto connection = std::make_unique<Connection>();
  connection->fd = fd.get();
  connection->phase = Phase::kWaiting;
  connection->since = clock_.Elapsed();
  connection->socket = index;
  connection->needs_certificate = sockets_[index].needs_certificate;
  struct stat found;
  connection->inode = fstat(fd.get(), &found) == 0 ? found.st_ino : 0;
  connection->has_key = sockets_[index].path.empty();
  connection->address = "a Unix socket";
  if (connection->has_key) {
    sockaddr_storage peer{};
    socklen_t size = sizeof(peer);
    std::array<char, INET6_ADDRSTRLEN> text{};
    if (getpeername(fd.get(), reinterpret_cast<sockaddr*>(&peer), &size) != 0) return;  // Gone.
    uint16_t port = 0;
    PeerKey& key = connection->key;
    key.fill(0);
    if (peer.ss_family == AF_INET) {
      const auto& v4 = reinterpret_cast<const sockaddr_in&>(peer);
      key[10] = key[11] = 0xff;
      memcpy(&key[12], &v4.sin_addr, 4);
      port = ntohs(v4.sin_port);
    } else {
      const auto& v6 = reinterpret_cast<const sockaddr_in6&>(peer);
      memcpy(key.data(), &v6.sin6_addr, 16);
      port = ntohs(v6.sin6_port);
    }
    in6_addr address;
    memcpy(&address, key.data(), 16);
    if (IN6_IS_ADDR_V4MAPPED(&address)) {
      inet_ntop(AF_INET, &key[12], text.data(), text.size());
      connection->address = text.data();
    } else if (IN6_IS_ADDR_LOOPBACK(&address) || IN6_IS_ADDR_LINKLOCAL(&address)) {
      inet_ntop(AF_INET6, &address, text.data(), text.size());
      connection->address = text.data();
    } else {
      // A machine has as many addresses of its network as it likes: they count as one.
      memset(&address.s6_addr[8], 0, 8);
      inet_ntop(AF_INET6, &address, text.data(), text.size());
      connection->address = absl::StrCat(text.data(), "/64");
    }
    key[16] = static_cast<uint8_t>(port >> 8);
    key[17] = static_cast<uint8_t>(port & 0xff);
    const int on = 1;
    setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  }
  MutexLock lock(mutex_);
  // The descriptor was free: the connection that had it before is gone.
  if (const auto before = by_fd_.find(fd.get()); before != by_fd_.end()) Forget(before->second);
  if (Count(Phase::kEstablished) >= limits_.established) SweepEstablished();
  if (Count(Phase::kEstablished) >= limits_.established) {
    refused_->Note("a connection", connection->address, kFull);
    return;
  }
  if (IsBanned(*connection)) {
    refused_->Note("a connection", connection->address, kEmptyCalls);
    return;
  }
  const auto peer = peers_.find(connection->address);
  if (peer != peers_.end() && connection->has_key) {
    const auto& established = peer->second.by_phase[static_cast<size_t>(Phase::kEstablished)];
    if (established.size() >= limits_.of_one_address) SweepEstablished();
    if (peers_.contains(connection->address) &&
        peers_[connection->address].by_phase[static_cast<size_t>(Phase::kEstablished)].size() >=
            limits_.of_one_address) {
      refused_->Note("a connection", connection->address, kFullOfOne);
      return;
    }
  }
  if (Count(Phase::kWaiting) >= limits_.waiting) MakeRoom(Phase::kWaiting);
  Connection* const added = connection.get();
  Connections& line = peers_[added->address].by_phase[static_cast<size_t>(Phase::kWaiting)];
  added->place = line.insert(line.end(), std::move(connection));
  ++Count(Phase::kWaiting);
  by_fd_[added->fd] = added;
  if (added->has_key) by_key_.emplace(added->key, added);
  AddToEpoll(epoll_.get(), fd.Release(), EPOLLIN | EPOLLRDHUP | EPOLLET);
}

// Hands the connection over once the whole first record of a TLS handshake is there, or what HTTP/2
// begins with.
void Listener::LookAtFirstBytes(int fd) {
  size_t socket;
  {
    MutexLock lock(mutex_);
    const auto found = by_fd_.find(fd);
    if (found == by_fd_.end() || found->second->phase != Phase::kWaiting) return;
    Connection* const connection = found->second;
    socket = connection->socket;
    std::array<uint8_t, kTlsHeader> head{};
    const ssize_t got = recv(fd, head.data(), head.size(), MSG_PEEK);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) {
      refused_->Note("a connection", connection->address, kEnded);
      return HangUp(connection, "");
    }
    if (sockets_[socket].tls) {
      const bool tls = head[0] == 0x16 && (got < 2 || head[1] == 3);
      const size_t length = static_cast<size_t>(head[3]) << 8 | head[4];
      if (!tls || length > kMaxTlsRecord) return HangUp(connection, kNoTls);
      int there = 0;
      if (static_cast<size_t>(got) < kTlsHeader || ioctl(fd, FIONREAD, &there) != 0 ||
          static_cast<size_t>(there) < kTlsHeader + length) {
        return;
      }
    } else if (head[0] != 'P') {
      return HangUp(connection, kNoHttp2);
    }
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
    if (Count(Phase::kHandshaking) >= limits_.handshaking) Sweep(Phase::kHandshaking);
    if (Count(Phase::kHandshaking) >= limits_.handshaking) MakeRoom(Phase::kHandshaking);
    // Who may reach a Unix socket is the operator.
    MoveTo(connection, connection->has_key ? Phase::kHandshaking : Phase::kEstablished);
  }
  sockets_[socket].hand_over(fd);
}

absl::Status Listener::Prove(const std::string& peer, const std::string& identity, bool is_host) {
  PeerKey key;
  if (!KeyOf(peer, key)) return absl::OkStatus();
  const size_t limit = is_host ? limits_.of_one_host : limits_.of_one_operator;
  MutexLock lock(mutex_);
  // Before anything is looked up: connections that are gone leave all tables.
  const auto counted = of_identity_.find(identity);
  if (counted != of_identity_.end() && counted->second >= limit) SweepEstablished();
  const auto [begin, end] = by_key_.equal_range(key);
  for (auto it = begin; it != end; ++it) {
    Connection* const connection = it->second;
    if (connection->phase != Phase::kHandshaking) continue;
    if (!identity.empty()) {
      size_t& own = of_identity_[identity];
      if (own >= limit) {
        return Refuse(absl::StatusCode::kResourceExhausted, "TOO_MANY_CONNECTIONS",
                      absl::StrCat(identity, " has ", own, " connections, as many as it may"),
                      "use the connections that are open already", {{"max", absl::StrCat(limit)}});
      }
      ++own;
      connection->identity = identity;
    }
    MoveTo(connection, Phase::kEstablished);
  }
  return absl::OkStatus();
}

Listener::EmptyKey Listener::EmptyKeyOf(const Connection& connection) {
  return {connection.address,
          connection.needs_certificate && !CXLPOOL_MUTANT("strangers-keep-agents-away")};
}

bool Listener::CountEmpty(const Connection& connection) {
  const absl::Duration now = clock_.Elapsed();
  const auto most = static_cast<double>(limits_.empty_calls);
  Empty& empty =
      empty_.try_emplace(EmptyKeyOf(connection), Empty{most, now, limits_.first_ban}).first->second;
  empty.left = std::min(most, empty.left + absl::ToDoubleSeconds(now - empty.counted)) - 1;
  empty.counted = now;
  if (empty.left >= 0) return false;
  // Calls that were given up while this process stood still look the same: that costs seconds.
  empty.left = -absl::ToDoubleSeconds(empty.next_ban);
  empty.next_ban = std::min(empty.next_ban * 2, limits_.longest_ban);
  return true;
}

// Not only the connection ends on which it was one too many, but all that the same identity has:
// each could have thousands of such calls in the kernel's buffers. A peer may have connections to
// several sockets from one port, and which of them it was is not known: it is counted for each on
// which it can have been.
void Listener::NoteEmptyCall(const std::string& peer, bool has_certificate) {
  PeerKey key;
  if (!KeyOf(peer, key) || CXLPOOL_MUTANT("empty-calls-without-end")) return;
  MutexLock lock(mutex_);
  std::set<Connection*> theirs;
  const auto [begin, end] = by_key_.equal_range(key);
  for (auto it = begin; it != end; ++it) {
    Connection* const connection = it->second;
    if (!has_certificate && EmptyKeyOf(*connection).second) continue;
    if (!CountEmpty(*connection)) continue;
    theirs.insert(connection);
    for (const auto& [fd, other] : by_fd_) {
      if (!other->identity.empty() && other->identity == connection->identity) theirs.insert(other);
    }
  }
  for (Connection* one : theirs) HangUp(one, kEmptyCalls);
}

bool Listener::IsBanned(const Connection& connection) {
  const auto empty = empty_.find(EmptyKeyOf(connection));
  if (empty == empty_.end()) return false;
  const double left =
      empty->second.left + absl::ToDoubleSeconds(clock_.Elapsed() - empty->second.counted);
  return left < 0;
}

void Listener::Tick(absl::Duration now) {
  refused_->Tick();
  MutexLock lock(mutex_);
  Sweep(Phase::kHandshaking);
  if (!CXLPOOL_MUTANT("no-handshake-deadline")) {
    HangUpOlderThan(Phase::kWaiting, limits_.first_bytes, kSilent);
    HangUpOlderThan(Phase::kHandshaking, limits_.first_call, kNoCall);
  }
  if (now - swept_ >= kSweep) SweepEstablished();
}

// Not more often than every tick: it looks at each of them.
void Listener::SweepEstablished() {
  const absl::Duration now = clock_.Elapsed();
  if (now - swept_ < kSweepTick) return;
  swept_ = now;
  Sweep(Phase::kEstablished);
  absl::erase_if(empty_, [&](const auto& of) {
    const double more = absl::ToDoubleSeconds(now - of.second.counted);
    return of.second.left + more >= static_cast<double>(limits_.empty_calls);
  });
}

bool Listener::IsStill(const Connection& connection, int fd) {
  struct stat found;
  return fstat(fd, &found) == 0 && S_ISSOCK(found.st_mode) && found.st_ino == connection.inode;
}

void Listener::Forget(Connection* connection) {
  --Count(connection->phase);
  by_fd_.erase(connection->fd);
  if (connection->has_key) {
    const auto [begin, end] = by_key_.equal_range(connection->key);
    by_key_.erase(
        std::find_if(begin, end, [&](const auto& of) { return of.second == connection; }));
  }
  if (!connection->identity.empty() && --of_identity_[connection->identity] == 0) {
    of_identity_.erase(connection->identity);
  }
  const auto peer = peers_.find(connection->address);
  peer->second.by_phase[static_cast<size_t>(connection->phase)].erase(connection->place);
  if (peer->second.empty()) peers_.erase(peer);
}

void Listener::HangUp(Connection* connection, absl::string_view why) {
  if (!why.empty()) refused_->Note("a connection", connection->address, why);
  if (connection->phase == Phase::kWaiting) {
    close(connection->fd);
  } else {
    // The descriptor is gRPC's, which may close it at any moment: a copy is what it is. Once it is
    // shut down, gRPC sees its end.
    UniqueFd copy(fcntl(connection->fd, F_DUPFD_CLOEXEC, 0));
    if (!copy.valid() && errno == EMFILE) {
      spare_.Reset();
      copy.Reset(fcntl(connection->fd, F_DUPFD_CLOEXEC, 0));
    }
    if (copy.valid() && IsStill(*connection, copy.get())) shutdown(copy.get(), SHUT_RDWR);
    copy.Reset();
    if (!spare_.valid()) spare_.Reset(open("/dev/null", O_RDONLY | O_CLOEXEC));
  }
  Forget(connection);
}

void Listener::MoveTo(Connection* connection, Phase phase) {
  Peer& peer = peers_[connection->address];
  Connections& to = peer.by_phase[static_cast<size_t>(phase)];
  to.splice(to.end(), peer.by_phase[static_cast<size_t>(connection->phase)], connection->place);
  --Count(connection->phase);
  ++Count(phase);
  connection->phase = phase;
}

void Listener::MakeRoom(Phase phase) {
  if (CXLPOOL_MUTANT("no-cap-on-beginners")) return;
  const auto index = static_cast<size_t>(phase);
  // Where several have as many, the one that is waiting longest: somebody who means it has only
  // just come.
  const auto less = [&](const auto& a, const auto& b) {
    const Connections& ours = a.second.by_phase[index];
    const Connections& theirs = b.second.by_phase[index];
    if (ours.size() != theirs.size() || ours.empty()) return ours.size() < theirs.size();
    return ours.front()->since > theirs.front()->since;
  };
  const auto most = std::max_element(peers_.begin(), peers_.end(), less);
  if (most == peers_.end() || most->second.by_phase[index].empty()) return;
  HangUp(most->second.by_phase[index].front().get(), kCrowd);
}

void Listener::Sweep(Phase phase) {
  if (CXLPOOL_MUTANT("ended-connections-count") && phase == Phase::kEstablished) return;
  std::vector<Connection*> gone;
  for (const auto& [address, peer] : peers_) {
    for (const auto& connection : peer.by_phase[static_cast<size_t>(phase)]) {
      if (!IsStill(*connection, connection->fd)) gone.push_back(connection.get());
    }
  }
  for (Connection* connection : gone) {
    if (phase == Phase::kHandshaking) {
      refused_->Note("a connection", connection->address, kEnded, LastHandshakeError());
    }
    Forget(connection);
  }
}

void Listener::HangUpOlderThan(Phase phase, absl::Duration limit, absl::string_view why) {
  const absl::Duration now = clock_.Elapsed();
  std::vector<Connection*> late;
  for (const auto& [address, peer] : peers_) {
    for (const auto& connection : peer.by_phase[static_cast<size_t>(phase)]) {
      if (now - connection->since < limit) break;  // The oldest come first.
      late.push_back(connection.get());
    }
  }
  for (Connection* connection : late) HangUp(connection, why);
}

}  // namespace cxlpool::fm
