// The listener over real sockets, without gRPC: what is handed over, what is hung up on, and that
// it goes on afterwards.
#include "fabric-manager/rpc/listener.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <condition_variable>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

constexpr absl::Duration kListenerPatience = absl::Seconds(30);
// A TLS record of two bytes.
const std::string kHello("\x16\x03\x01\x00\x02hi", 7);

// What the listener hands over: kept open until a test closes it, as gRPC would.
class Taken {
 public:
  void Take(int fd) {
    MutexLock lock(mutex_);
    fds_.emplace_back(fd);
    came_.notify_all();
  }
  // Whether there are so many, soon.
  bool Await(size_t count) {
    MutexLock lock(mutex_);
    return came_.wait_for(lock.native(), absl::ToChronoMilliseconds(kListenerPatience),
                          [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return fds_.size() >= count; });
  }
  size_t size() {
    MutexLock lock(mutex_);
    return fds_.size();
  }
  void Close(size_t index) {
    MutexLock lock(mutex_);
    fds_[index].Reset();
  }

 private:
  Mutex mutex_;
  std::condition_variable came_;
  std::vector<UniqueFd> fds_ ABSL_GUARDED_BY(mutex_);
};

class Client {
 public:
  Client() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {}

  void Connect(int port, const char* from = "127.0.0.1") {
    sockaddr_in own{};
    own.sin_family = AF_INET;
    inet_pton(AF_INET, from, &own.sin_addr);
    ASSERT_EQ(bind(fd_.get(), reinterpret_cast<sockaddr*>(&own), sizeof(own)), 0);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(connect(fd_.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0)
        << strerror(errno);
  }
  void Send(const std::string& text) const {
    ASSERT_EQ(send(fd_.get(), text.data(), text.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(text.size()));
  }
  // Whether the other side has hung up, within `limit`.
  bool HungUp(absl::Duration limit = kListenerPatience) const {
    pollfd wait{fd_.get(), POLLIN | POLLRDHUP, 0};
    if (poll(&wait, 1, static_cast<int>(absl::ToInt64Milliseconds(limit))) <= 0) return false;
    char byte;
    return recv(fd_.get(), &byte, 1, MSG_DONTWAIT) <= 0;
  }
  void Close() { fd_.Reset(); }
  // As gRPC writes the peer.
  std::string Peer() const {
    sockaddr_in own{};
    socklen_t size = sizeof(own);
    getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&own), &size);
    return absl::StrCat("ipv4:127.0.0.1:", ntohs(own.sin_port));
  }

 private:
  UniqueFd fd_;
};

class ListenerTest : public testing::Test {
 protected:
  void Start(const ConnectionLimits& limits) {
    listener_ = std::make_unique<Listener>(limits, &refused_);
    auto port = listener_->Listen("127.0.0.1:0", true, [this](int fd) { taken_.Take(fd); });
    ASSERT_TRUE(port.ok()) << port.status();
    port_ = *port;
    listener_->Start();
  }
  std::unique_ptr<Client> Dial(const std::string& text = "") {
    auto client = std::make_unique<Client>();
    client->Connect(port_);
    if (!text.empty()) client->Send(text);
    return client;
  }
  // Whether the listener takes connections again, until it has taken `count`. Some that come while
  // it still closes others are closed with them, and on a busy machine not at once: their clients
  // dial again, as here.
  bool IsTakenAgain(size_t count) {
    const absl::Time until = absl::Now() + kListenerPatience;
    while (absl::Now() < until) {
      const auto client = Dial(kHello);
      if (!client->HungUp(absl::Milliseconds(100)) && taken_.size() >= count) return true;
    }
    return false;
  }
  // A connection on which a call was let in.
  std::unique_ptr<Client> Established(const std::string& identity = "", bool is_host = false) {
    const size_t before = taken_.size();
    auto client = Dial(kHello);
    EXPECT_TRUE(taken_.Await(before + 1));
    last_proof_ = listener_->Prove(client->Peer(), identity, is_host);
    return client;
  }

  SystemClock clock_;
  RefusedPeers refused_{&clock_};
  Taken taken_;
  std::unique_ptr<Listener> listener_;
  int port_ = 0;
  absl::Status last_proof_;
};

TEST_F(ListenerTest, HandsOverWhatBeginsATlsHandshakeAndNothingElse) {
  Start({});
  const auto silent = Dial();
  const auto half = Dial(kHello.substr(0, 6));
  const auto plain = Dial("PRI * HTTP/2.0\r\n");
  const auto huge = Dial(std::string("\x16\x03\x01\xff\xff", 5));
  EXPECT_TRUE(plain->HungUp());
  EXPECT_TRUE(huge->HungUp());
  const auto good = Dial(kHello);
  ASSERT_TRUE(taken_.Await(1));
  EXPECT_EQ(taken_.size(), 1u);
  half->Send(kHello.substr(6));
  ASSERT_TRUE(taken_.Await(2));
  EXPECT_FALSE(silent->HungUp(absl::ZeroDuration()));
  EXPECT_EQ(listener_->counts().waiting, 1u);
}

TEST_F(ListenerTest, WhoSaysNothingInTimeIsHungUpOn) {
  Start({.first_bytes = absl::Milliseconds(200)});
  EXPECT_TRUE(Dial()->HungUp());
  EXPECT_TRUE(Dial(kHello.substr(0, 6))->HungUp());
}

TEST_F(ListenerTest, AConnectionWithoutACallThatIsLetInEnds) {
  Start({.first_call = absl::Milliseconds(300)});
  const auto stranger = Dial(kHello);
  ASSERT_TRUE(taken_.Await(1));
  const auto agent = Established();
  EXPECT_TRUE(stranger->HungUp());
  EXPECT_FALSE(agent->HungUp(absl::Milliseconds(500)));
}

TEST_F(ListenerTest, TheOldestOfTooManyBeginnersGo) {
  Start({.waiting = 4, .handshaking = 4});
  std::vector<std::unique_ptr<Client>> silent;
  for (int i = 0; i < 12; ++i) silent.push_back(Dial());
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(silent[i]->HungUp()) << i;
  EXPECT_FALSE(silent[11]->HungUp(absl::ZeroDuration()));
  // Somebody who means it comes through all the same; and the same in the next phase.
  const auto first = Dial(kHello);
  ASSERT_TRUE(taken_.Await(1));
  std::vector<std::unique_ptr<Client>> half;
  for (size_t i = 0; i < 4; ++i) {
    half.push_back(Dial(kHello));
    ASSERT_TRUE(taken_.Await(2 + i));
  }
  EXPECT_TRUE(first->HungUp());
  EXPECT_FALSE(half.back()->HungUp(absl::ZeroDuration()));
}

// 127.0.0.1 comes first in whatever order addresses have, and last in time.
TEST_F(ListenerTest, WhoHasJustComeIsNotTheOneToGo) {
  Start({.waiting = 3});
  std::vector<std::unique_ptr<Client>> silent;
  for (const char* from : {"127.0.0.9", "127.0.0.8", "127.0.0.7", "127.0.0.1"}) {
    silent.push_back(std::make_unique<Client>());
    silent.back()->Connect(port_, from);
  }
  EXPECT_TRUE(silent[0]->HungUp());
  const auto more = Dial();  // The second of 127.0.0.1, and yet the last to come.
  EXPECT_TRUE(silent[1]->HungUp());
  EXPECT_FALSE(more->HungUp(absl::Milliseconds(100)));
  EXPECT_FALSE(silent[3]->HungUp(absl::ZeroDuration()));
}

TEST_F(ListenerTest, WhereAllPlacesAreTakenNewOnesAreRefusedUntilOneIsFree) {
  Start({.established = 2, .of_one_address = 10});
  const auto first = Established(), second = Established();
  EXPECT_TRUE(Dial(kHello)->HungUp());
  EXPECT_EQ(taken_.size(), 2u);
  taken_.Close(0);  // As gRPC does when its peer is gone.
  EXPECT_TRUE(IsTakenAgain(3));
}

TEST_F(ListenerTest, OneAddressDoesNotTakeAllPlaces) {
  Start({.established = 10, .of_one_address = 2});
  const auto first = Established(), second = Established();
  EXPECT_TRUE(Dial(kHello)->HungUp());
}

TEST_F(ListenerTest, OneHostDoesNotTakeAllPlaces) {
  Start({.of_one_host = 2});
  const auto first = Established("cxlpool://host/host-a", true);
  const auto second = Established("cxlpool://host/host-a", true);
  EXPECT_TRUE(last_proof_.ok());
  const auto third = Established("cxlpool://host/host-a", true);
  EXPECT_EQ(ReasonOf(last_proof_), "TOO_MANY_CONNECTIONS");
  const auto other = Established("cxlpool://host/host-b", true);
  EXPECT_TRUE(last_proof_.ok());
  taken_.Close(0);
  absl::Status again;
  for (int i = 0; i < 300; ++i) {
    again = listener_->Prove(third->Peer(), "cxlpool://host/host-a", true);
    if (again.ok()) break;
    absl::SleepFor(absl::Milliseconds(10));
  }
  EXPECT_TRUE(again.ok()) << again;
}

TEST_F(ListenerTest, WhoMakesTooManyEmptyCallsLosesItsConnectionsAndGetsNoNewOnesForAWhile) {
  Start({.empty_calls = 3, .first_ban = absl::Seconds(1)});
  const auto first = Established("cxlpool://operator/mallory");
  const auto second = Established("cxlpool://operator/mallory");
  const auto other = Established("cxlpool://operator/bob");
  for (int i = 0; i < 3; ++i) listener_->NoteEmptyCall(first->Peer(), true);
  EXPECT_FALSE(first->HungUp(absl::Milliseconds(100)));
  listener_->NoteEmptyCall(second->Peer(), true);
  EXPECT_TRUE(first->HungUp());
  EXPECT_TRUE(second->HungUp());
  EXPECT_TRUE(Dial(kHello)->HungUp());
  EXPECT_FALSE(other->HungUp(absl::ZeroDuration()));
  EXPECT_TRUE(IsTakenAgain(4));
  listener_->NoteEmptyCall("ipv4:127.0.0.1:1", true);  // Of a connection that is gone.
}

// Of IPv6 a whole network counts as one address: a stranger within it could keep all agents away.
TEST_F(ListenerTest, WhoHasNoCertificateKeepsNobodyFromWhereOneIsNeeded) {
  const ConnectionLimits limits{.empty_calls = 3, .first_ban = absl::Minutes(1)};
  listener_ = std::make_unique<Listener>(limits, &refused_);
  const auto take = [this](int fd) { taken_.Take(fd); };
  const auto own = listener_->Listen("127.0.0.1:0", true, take);
  const auto open_to_all = listener_->Listen("127.0.0.1:0", true, take, /*tokens=*/true);
  ASSERT_TRUE(own.ok() && open_to_all.ok());
  listener_->Start();
  port_ = *open_to_all;
  const auto stranger = Dial(kHello);
  ASSERT_TRUE(taken_.Await(1));
  for (int i = 0; i < 4; ++i) listener_->NoteEmptyCall(stranger->Peer(), false);
  EXPECT_TRUE(stranger->HungUp());
  EXPECT_TRUE(Dial(kHello)->HungUp());
  port_ = *own;
  const auto agent = Dial(kHello);
  EXPECT_TRUE(taken_.Await(2));
  EXPECT_FALSE(agent->HungUp(absl::Milliseconds(100)));
}

// The room is made by forgetting connections that stand beside the new one in every table.
TEST_F(ListenerTest, RoomIsMadeWhileAConnectionIsProven) {
  constexpr size_t kMany = 64;
  Start({.of_one_host = kMany});
  std::vector<std::unique_ptr<Client>> before;
  for (size_t i = 0; i < kMany; ++i) before.push_back(Established("cxlpool://host/host-a", true));
  const auto next = Established("cxlpool://host/host-a", true);
  EXPECT_EQ(ReasonOf(last_proof_), "TOO_MANY_CONNECTIONS");
  for (size_t i = 0; i < kMany; ++i) taken_.Close(i);
  absl::Status again;
  for (int i = 0; i < 300; ++i) {
    again = listener_->Prove(next->Peer(), "cxlpool://host/host-a", true);
    if (again.ok()) break;
    absl::SleepFor(absl::Milliseconds(10));
  }
  EXPECT_TRUE(again.ok()) << again;
}

// Fills this process's table of descriptors to the last one.
class NoDescriptors {
 public:
  NoDescriptors() {
    getrlimit(RLIMIT_NOFILE, &before_);
    rlimit low = before_;
    low.rlim_cur = 256;
    setrlimit(RLIMIT_NOFILE, &low);
    while (true) {
      UniqueFd fd(fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0));
      if (!fd.valid()) break;
      fds_.push_back(std::move(fd));
    }
  }
  ~NoDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
  std::vector<UniqueFd> fds_;
};

TEST_F(ListenerTest, WithoutDescriptorsPeersAreToldAtOnceAndItGoesOnAfterwards) {
  Start({});
  std::vector<Client> clients(40);  // Have their descriptors already.
  {
    const NoDescriptors none;
    for (Client& client : clients) client.Connect(port_);
    for (const Client& client : clients) EXPECT_TRUE(client.HungUp());
  }
  EXPECT_TRUE(IsTakenAgain(1));
}

TEST_F(ListenerTest, PeersAreFoundAsGrpcWritesThem) {
  Start({});
  const auto v4 = Dial(kHello);
  ASSERT_TRUE(taken_.Await(1));
  for (const char* peer : {"unix:", "ipv4:", "ipv4:1.2.3.4", "ipv6:[::1", "", "ipv4:x:1"}) {
    EXPECT_TRUE(listener_->Prove(peer, "", false).ok()) << peer;
  }
  EXPECT_EQ(listener_->counts().established, 0u);
  EXPECT_TRUE(listener_->Prove(v4->Peer(), "", false).ok());
  EXPECT_EQ(listener_->counts().established, 1u);

  Listener six({}, &refused_);
  auto port = six.Listen("[::1]:0", true, [this](int fd) { taken_.Take(fd); });
  if (!port.ok()) GTEST_SKIP() << "no IPv6 here: " << port.status();
  six.Start();
  const UniqueFd client(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in6 to{};
  to.sin6_family = AF_INET6;
  to.sin6_port = htons(static_cast<uint16_t>(*port));
  to.sin6_addr = in6addr_loopback;
  ASSERT_EQ(connect(client.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
  ASSERT_EQ(send(client.get(), kHello.data(), kHello.size(), 0), 7);
  ASSERT_TRUE(taken_.Await(2));
  sockaddr_in6 own{};
  socklen_t size = sizeof(own);
  getsockname(client.get(), reinterpret_cast<sockaddr*>(&own), &size);
  EXPECT_TRUE(six.Prove(absl::StrCat("ipv6:%5B::1%5D:", ntohs(own.sin6_port)), "", false).ok());
  EXPECT_EQ(six.counts().established, 1u);
}

TEST_F(ListenerTest, AnswersAPing) {
  Start({});
  Taken answered;
  listener_->Ping([&] { answered.Take(-1); });
  EXPECT_TRUE(answered.Await(1));
}

TEST(ListenerAddressTest, RefusesWhatItCannotListenOn) {
  SystemClock clock;
  RefusedPeers refused(&clock);
  Listener listener({}, &refused);
  for (const char* address :
       {"127.0.0.1", "127.0.0.1:99999", "127.0.0.1:x", "unix:", ":7600x", ""}) {
    EXPECT_EQ(ReasonOf(listener.Listen(address, true, [](int) {}).status()), "BAD_ADDRESS")
        << address;
  }
  EXPECT_EQ(ReasonOf(listener.Listen("192.0.2.1:7600", true, [](int) {}).status()),
            "CANNOT_LISTEN");
  auto port = listener.Listen("127.0.0.1:0", true, [](int) {});
  ASSERT_TRUE(port.ok());
  EXPECT_EQ(ReasonOf(listener.Listen(absl::StrCat("127.0.0.1:", *port), true, [](int) {}).status()),
            "CANNOT_LISTEN");
}

TEST(ConnectionLimitsTest, LeaveDescriptorsToTheRest) {
  for (const uint64_t descriptors : {256, 1024, 4096, 20000, 65536}) {
    const ConnectionLimits limits = ConnectionLimits::For(descriptors);
    EXPECT_LE(limits.waiting + limits.handshaking + limits.established + 32, descriptors);
    EXPECT_GE(limits.waiting, 16u);
    EXPECT_GE(limits.handshaking, 16u);
    EXPECT_GT(limits.established, limits.waiting);
  }
  EXPECT_EQ(ConnectionLimits::For(65536).established, 16384u);
}

}  // namespace
}  // namespace cxlpool::fm
