#include "host-agent/local/local_server.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/sockios.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <future>

#include "host-agent/local/packet.h"
#include "host-agent/local/pidfd_watch.h"
#include "host-agent/local/processes.h"
#include "host-agent/service/owners.h"
#include "proto/support/process_stat.h"
#include "test/rigs/core_rig.h"

namespace cxlpool::agent {
namespace {

// A real socket and real threads around a core on a host in memory.
class LocalServerTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/cxlpool-local-XXXXXX";
    directory_ = ::mkdtemp(name);
    std::filesystem::permissions(directory_, std::filesystem::perms(0755));  // For other users.
    path_ = directory_ + "/agent.sock";
  }

  void TearDown() override {
    if (server_ != nullptr) server_->Stop();
    processes_.Stop();
    loop_.Stop();
    service_.reset();
    owners_.reset();
    core_.reset();
    std::filesystem::remove_all(directory_);
  }

  absl::Status Start(LocalServerOptions options = {}, LocalPolicy policy = {}) {
    policy.agent_uid = ::geteuid();
    memory_.plugged[1] = 0x51;
    AgentOptions agent;
    agent.host = "hosts/host-a";
    options.path = path_;
    core_ = std::make_unique<AgentCore>(agent, &loop_, &clock_, &memory_, &link_);
    service_ =
        std::make_unique<LocalService>(policy, core_.get(), &loop_, &clock_, &memory_, &link_);
    server_ = std::make_unique<LocalServer>(options, service_.get(), &loop_);
    EXPECT_TRUE(processes_.Start().ok());
    owners_ = std::make_unique<Owners>(core_.get(), &loop_, &clock_, &processes_, &link_);
    std::promise<void> started;
    loop_.Post([&] { core_->Start([&](absl::Status) { started.set_value(); }); });
    started.get_future().wait();
    return server_->Start();
  }

  void Offer(v1::Offer::Want want, v1::Access access = v1::READ_WRITE) {
    v1::Offer offer = MakeOffer(1, want, {{1, 0x51}});
    offer.set_access(access);
    v1::Welcome welcome;
    *welcome.add_offers() = offer;
    link_.handlers.on_welcome(welcome);
  }

  UniqueFd Connect() {
    UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, path_.c_str());
    EXPECT_EQ(::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    return socket;
  }

  // The same as another user: for the kernel it is the user who connects that counts. Root alone
  // can.
  UniqueFd ConnectAs(uint32_t uid, const std::vector<gid_t>& groups = {}) {
    // By system calls: the library's would change every thread.
    EXPECT_EQ(::syscall(SYS_setgroups, groups.size(), groups.data()), 0);
    EXPECT_EQ(::syscall(SYS_setresuid, -1, uid, -1), 0);
    UniqueFd socket = Connect();
    EXPECT_EQ(::syscall(SYS_setresuid, -1, 0, -1), 0);
    EXPECT_EQ(::syscall(SYS_setgroups, 0, nullptr), 0);
    return socket;
  }

  // Asks for a Region that is not there yet, and so is neither idle nor done.
  UniqueFd BusyAs(uint32_t uid) {
    UniqueFd socket = ConnectAs(uid);
    Send(socket.get(), OpenRequest(v1::READ_WRITE));
    return socket;
  }

  // What a List on a new connection is answered with; the reason of a refusal.
  std::string ListAs(uint32_t uid) {
    UniqueFd socket = ConnectAs(uid);
    const std::string request = ListRequest().SerializeAsString();
    ::send(socket.get(), request.data(), request.size(), MSG_NOSIGNAL);
    v1::LocalResponse answer = Receive(socket.get());
    // The kernel tells of the hang-up first.
    if (answer.code() == -1) answer = Receive(socket.get());
    return answer.code() == 0 ? "OK" : answer.code() == -1 ? "-" : answer.error().reason();
  }

  // Hangs up once the agent has read the request. False: it refused the connection.
  static bool AsksAndHangsUp(UniqueFd socket) {
    const std::string request = ListRequest().SerializeAsString();
    if (::send(socket.get(), request.data(), request.size(), MSG_NOSIGNAL) < 0) return false;
    int unread = 1;
    for (int i = 0; i < 20'000 && unread != 0; ++i) {
      EXPECT_EQ(::ioctl(socket.get(), SIOCOUTQ, &unread), 0);
      if (unread != 0) ::poll(nullptr, 0, 1);
    }
    EXPECT_EQ(unread, 0);
    pollfd state = {.fd = socket.get(), .events = 0, .revents = 0};
    return ::poll(&state, 1, 0) == 0;
  }

  // Until what is returned is set the core does nothing.
  std::unique_ptr<std::promise<void>> HoldTheCore() {
    auto go_on = std::make_unique<std::promise<void>>();
    loop_.Post([until = go_on->get_future().share()] { until.wait(); });
    return go_on;
  }

  static void Send(int socket, const std::string& bytes) {
    EXPECT_EQ(::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }

  static void Send(int socket, const v1::LocalRequest& request) {
    Send(socket, request.SerializeAsString());
  }

  // The next answer and its descriptors; code -1 for a hang-up.
  static v1::LocalResponse Receive(int socket, std::vector<UniqueFd>* descriptors = nullptr) {
    v1::LocalResponse response;
    response.set_code(-1);
    pollfd ready = {.fd = socket, .events = POLLIN, .revents = 0};
    EXPECT_EQ(::poll(&ready, 1, 20'000), 1);
    std::string bytes(kMaxPacketBytes, '\0');
    char control[CMSG_SPACE(sizeof(int) * kMaxDescriptors)];
    iovec part = {.iov_base = bytes.data(), .iov_len = bytes.size()};
    msghdr header = {};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof(control);
    const ssize_t size = ::recvmsg(socket, &header, MSG_CMSG_CLOEXEC);
    if (size <= 0) return response;
    for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
      if (c->cmsg_type != SCM_RIGHTS) continue;
      for (size_t i = 0; i < (c->cmsg_len - CMSG_LEN(0)) / sizeof(int); ++i) {
        int fd;
        std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
        UniqueFd owned(fd);
        if (descriptors != nullptr) descriptors->push_back(std::move(owned));
      }
    }
    EXPECT_TRUE(response.ParseFromArray(bytes.data(), static_cast<int>(size)));
    return response;
  }

  static v1::LocalRequest OpenRequest(v1::Access access, uint32_t wait_ms = 20'000) {
    v1::LocalRequest request;
    request.set_protocol_version(1);
    request.mutable_open()->set_name("regions/r1");
    request.mutable_open()->set_access(access);
    request.mutable_open()->set_wait_ms(wait_ms);
    return request;
  }

  static v1::LocalRequest ListRequest() {
    v1::LocalRequest request;
    request.set_protocol_version(1);
    request.mutable_list();
    return request;
  }

  // A process that sends the request on a connection of its own and lives until it is killed.
  pid_t Spawn(const v1::LocalRequest& request) {
    const std::string bytes = request.SerializeAsString();
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, path_.c_str());
    const pid_t child = ::fork();
    if (child != 0) return child;
    const int socket = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
        ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL) < 0) {
      ::_exit(1);
    }
    while (true) ::pause();
  }

  // Evaluates on the core's thread until it holds.
  bool Becomes(const std::function<bool()>& holds) {
    for (int i = 0; i < 2000; ++i) {
      std::promise<bool> answer;
      loop_.Post([&] { answer.set_value(holds()); });
      if (answer.get_future().get()) return true;
      ::poll(nullptr, 0, 5);
    }
    return false;
  }

  // Asks until the answer is as wanted; it comes from another thread.
  bool OpensBecome(int socket, uint32_t opens) {
    for (int i = 0; i < 2000; ++i) {
      Send(socket, ListRequest());
      const v1::LocalResponse answer = Receive(socket);
      if (answer.list().regions_size() == 1 && answer.list().regions(0).opens() == opens) {
        return true;
      }
      ::poll(nullptr, 0, 5);
    }
    return false;
  }

  std::string directory_;
  std::string path_;
  Loop loop_{"test-core"};
  SystemClock clock_;
  FakeHostMemory memory_{&loop_};
  FakeLink link_;
  std::unique_ptr<AgentCore> core_;
  PidfdWatch processes_;
  std::unique_ptr<Owners> owners_;
  std::unique_ptr<LocalService> service_;
  std::unique_ptr<LocalServer> server_;
};

TEST_F(LocalServerTest, PassesDescriptorsOfWhatIsOpened) {
  ASSERT_TRUE(Start().ok());
  UniqueFd socket = Connect();
  Send(socket.get(), OpenRequest(v1::READ_WRITE));  // Before it is even offered: waits.
  Offer(v1::Offer::WANT_ONLINE);
  std::vector<UniqueFd> descriptors;
  const v1::LocalResponse answer = Receive(socket.get(), &descriptors);
  ASSERT_EQ(answer.code(), 0) << answer.message();
  ASSERT_EQ(answer.open().segments_size(), 1);
  EXPECT_EQ(answer.open().segments(0).length_bytes(), kTestLength);
  EXPECT_EQ(answer.open().segments(0).alignment_bytes(), uint64_t{2} << 20);
  ASSERT_EQ(descriptors.size(), 1u);
  EXPECT_EQ(::fcntl(descriptors[0].get(), F_GETFL) & O_ACCMODE, O_RDWR);
}

TEST_F(LocalServerTest, SocketIsForEverybodyAndGoesWithTheServer) {
  ASSERT_TRUE(Start().ok());
  struct stat socket;
  ASSERT_EQ(::stat(path_.c_str(), &socket), 0);
  EXPECT_EQ(socket.st_mode & 0777, 0666u);
  server_->Stop();
  EXPECT_NE(::stat(path_.c_str(), &socket), 0);
}

TEST_F(LocalServerTest, EndOfTheConnectionClosesItsOpens) {
  ASSERT_TRUE(Start().ok());
  Offer(v1::Offer::WANT_ONLINE);
  UniqueFd user = Connect();
  UniqueFd watcher = Connect();
  Send(user.get(), OpenRequest(v1::READ_ONLY));
  ASSERT_EQ(Receive(user.get()).code(), 0);
  EXPECT_TRUE(OpensBecome(watcher.get(), 1));
  user.Reset();
  EXPECT_TRUE(OpensBecome(watcher.get(), 0));
}

TEST_F(LocalServerTest, EndWhileWaitingDropsTheWait) {
  ASSERT_TRUE(Start().ok());
  UniqueFd user = Connect();
  Send(user.get(), OpenRequest(v1::READ_WRITE));
  user.Reset();
  Offer(v1::Offer::WANT_ONLINE);
  UniqueFd watcher = Connect();
  EXPECT_TRUE(OpensBecome(watcher.get(), 0));
}

TEST_F(LocalServerTest, AKilledOwnersRegionIsReleasedAndAnotherStays) {
  ASSERT_TRUE(Start().ok());
  v1::LocalRequest request;
  request.set_protocol_version(1);
  request.mutable_allocate()->set_request_id("9b2d1c1e-0000-4000-8000-000000000001");
  request.mutable_allocate()->set_size_bytes(kTestLength);
  const pid_t owner = Spawn(request);
  request.mutable_allocate()->set_request_id("9b2d1c1e-0000-4000-8000-000000000002");
  const pid_t other = Spawn(request);
  ASSERT_TRUE(Becomes([&] { return link_.allocates.size() == 2; }));
  v1::Welcome welcome;
  for (const auto& [asked, done] : link_.allocates) {
    const auto pid = static_cast<pid_t>(asked.owner().pid());
    EXPECT_TRUE(pid == owner || pid == other);
    EXPECT_EQ(asked.owner().uid(), ::geteuid());
    EXPECT_EQ(asked.owner().start_ticks(), StartTicksOf(asked.owner().pid()));
    v1::Offer offer = MakeOffer(pid == owner ? 1 : 2, v1::Offer::WANT_ONLINE, {});
    *offer.mutable_owner() = asked.owner();
    *welcome.add_offers() = std::move(offer);
  }
  link_.handlers.on_welcome(welcome);
  ASSERT_TRUE(Becomes([&] { return core_->attachments().all().size() == 2; }));
  EXPECT_TRUE(link_.releases.empty());
  ::kill(owner, SIGKILL);
  EXPECT_TRUE(Becomes([&] { return !link_.releases.empty(); }));
  EXPECT_TRUE(Becomes([&] {
    return link_.releases.size() == 1 && link_.releases[0].first.name() == "regions/tag-1";
  }));
  ::kill(other, SIGKILL);
  EXPECT_TRUE(Becomes([&] { return link_.releases.size() == 2; }));
  ::waitpid(owner, nullptr, 0);
  ::waitpid(other, nullptr, 0);
}

TEST_F(LocalServerTest, AnswersInOrder) {
  ASSERT_TRUE(Start().ok());
  UniqueFd socket = Connect();
  Send(socket.get(), OpenRequest(v1::READ_WRITE));
  Send(socket.get(), ListRequest());
  Offer(v1::Offer::WANT_ONLINE);
  EXPECT_TRUE(Receive(socket.get()).has_open());
  EXPECT_TRUE(Receive(socket.get()).has_list());
}

TEST_F(LocalServerTest, MalformedPacketIsAnsweredAndEndsTheConnection) {
  ASSERT_TRUE(Start().ok());
  UniqueFd socket = Connect();
  Send(socket.get(), std::string("\xff\xff\xff garbage"));
  const v1::LocalResponse answer = Receive(socket.get());
  EXPECT_EQ(answer.code(), static_cast<int>(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(answer.error().reason(), "BAD_PACKET");
  EXPECT_EQ(Receive(socket.get()).code(), -1);
  UniqueFd other = Connect();
  Send(other.get(), ListRequest());
  EXPECT_TRUE(Receive(other.get()).has_list());
}

TEST_F(LocalServerTest, OversizedPacketEndsTheConnection) {
  ASSERT_TRUE(Start().ok());
  UniqueFd socket = Connect();
  Send(socket.get(), std::string(kMaxPacketBytes + 1, 'x'));
  EXPECT_EQ(Receive(socket.get()).code(), -1);
}

TEST_F(LocalServerTest, OneConnectionTooManyIsRefusedWithItsReason) {
  ASSERT_TRUE(Start({.path = "", .max_connections = 2}).ok());
  UniqueFd first = Connect();
  UniqueFd second = Connect();
  Send(second.get(), ListRequest());
  Receive(second.get());
  // Root has some places more.
  std::vector<UniqueFd> more;
  for (size_t i = 0; i < LocalServer::kPlacesForRoot; ++i) {
    more.push_back(Connect());
    Send(more.back().get(), ListRequest());
    EXPECT_TRUE(Receive(more.back().get()).has_list());
  }
  UniqueFd third = Connect();
  EXPECT_EQ(Receive(third.get()).error().reason(), "TOO_MANY_CONNECTIONS");
  EXPECT_EQ(Receive(third.get()).code(), -1);
  Send(first.get(), ListRequest());
  EXPECT_TRUE(Receive(first.get()).has_list());
}

constexpr char kNeedsRoot[] = "needs root, to connect as other users";

TEST_F(LocalServerTest, WhoMayNotUseTheAgentTakesNoPlace) {
  if (::geteuid() != 0) GTEST_SKIP() << kNeedsRoot;
  UserRule by_group;
  by_group.gids = {4242};
  by_group.tenant = "tenants/default";
  ASSERT_TRUE(
      Start({.path = "", .max_connections = 4}, {.allowed_uids = {1001}, .users = {by_group}})
          .ok());
  std::vector<UniqueFd> idle;
  for (uint32_t i = 0; i < 40; ++i) {
    idle.push_back(ConnectAs(2000 + i % 4));
    EXPECT_EQ(Receive(idle.back().get()).error().reason(), "USER_NOT_ALLOWED");
    EXPECT_EQ(Receive(idle.back().get()).code(), -1) << "and is hung up on";
  }
  EXPECT_EQ(ListAs(1001), "OK");
  EXPECT_EQ(ListAs(0), "OK");
  UniqueFd member = ConnectAs(2000, {7, 4242});
  Send(member.get(), ListRequest());
  EXPECT_TRUE(Receive(member.get()).has_list()) << "by a supplementary group";
}

TEST_F(LocalServerTest, RootFindsAPlaceWhenUsersHaveTakenAll) {
  if (::geteuid() != 0) GTEST_SKIP() << kNeedsRoot;
  ASSERT_TRUE(Start({.path = "", .max_connections = 3, .max_connections_per_uid = 2}).ok());
  const UniqueFd first = BusyAs(1001);
  const UniqueFd second = BusyAs(1001);
  EXPECT_EQ(ListAs(1001), "TOO_MANY_CONNECTIONS") << "for one user";
  const UniqueFd third = BusyAs(1002);
  EXPECT_EQ(ListAs(1003), "TOO_MANY_CONNECTIONS") << "for all users";
  EXPECT_EQ(ListAs(0), "OK");
}

// Else what they asked for would wait for the core without end, and with it what is next.
TEST_F(LocalServerTest, WhoHangsUpKeepsThePlaceUntilTheCoreHasSeenTheEnd) {
  ASSERT_TRUE(Start({.path = "", .max_connections = 2}).ok());
  const auto go_on = HoldTheCore();
  size_t asked = 0;
  while (asked < 100 && AsksAndHangsUp(Connect())) ++asked;
  EXPECT_EQ(asked, 2 + LocalServer::kPlacesForRoot);
  go_on->set_value();
  int tries = 2000;
  while (!AsksAndHangsUp(Connect()) && --tries > 0) ::poll(nullptr, 0, 5);
  EXPECT_GT(tries, 0) << "the places are free again";
}

TEST_F(LocalServerTest, WhoHangsUpTakesNoMorePlacesThanAUserMayHave) {
  if (::geteuid() != 0) GTEST_SKIP() << kNeedsRoot;
  ASSERT_TRUE(Start({.path = "", .max_connections = 3, .max_connections_per_uid = 2}).ok());
  const auto go_on = HoldTheCore();
  EXPECT_TRUE(AsksAndHangsUp(ConnectAs(1001)));
  EXPECT_TRUE(AsksAndHangsUp(ConnectAs(1001)));
  EXPECT_FALSE(AsksAndHangsUp(ConnectAs(1001))) << "for one user";
  EXPECT_TRUE(AsksAndHangsUp(ConnectAs(1002)));
  EXPECT_FALSE(AsksAndHangsUp(ConnectAs(1003))) << "for all users";
  EXPECT_TRUE(AsksAndHangsUp(Connect())) << "and root has places left";
  go_on->set_value();
}

TEST_F(LocalServerTest, WhoDoesNothingMakesRoom) {
  if (::geteuid() != 0) GTEST_SKIP() << kNeedsRoot;
  ASSERT_TRUE(Start({.path = "", .max_connections = 3}).ok());
  Offer(v1::Offer::WANT_ONLINE);
  UniqueFd silent = ConnectAs(1001);
  UniqueFd uses = ConnectAs(1000);
  Send(uses.get(), OpenRequest(v1::READ_WRITE));
  ASSERT_EQ(Receive(uses.get()).code(), 0);
  v1::LocalRequest waits;
  waits.set_protocol_version(1);
  waits.mutable_faults()->set_wait_ms(60'000);
  UniqueFd waiting = ConnectAs(1002);
  Send(waiting.get(), waits);
  std::string answer;
  for (int i = 0; i < 100 && answer != "OK"; ++i) {  // It is spared for its first second.
    answer = ListAs(1003);
    if (answer != "OK") ::poll(nullptr, 0, 50);
  }
  EXPECT_EQ(answer, "OK");
  EXPECT_EQ(Receive(silent.get()).code(), -1);
  UniqueFd root = Connect();
  EXPECT_TRUE(OpensBecome(root.get(), 1)) << "who has something open keeps the place";
}

TEST_F(LocalServerTest, AConnectionThatIsIdleAndHasNothingOpenIsEnded) {
  ASSERT_TRUE(Start({.path = "", .idle_timeout = absl::Milliseconds(100)}).ok());
  Offer(v1::Offer::WANT_ONLINE);
  UniqueFd silent = Connect();
  UniqueFd asked = Connect();
  Send(asked.get(), ListRequest());
  EXPECT_TRUE(Receive(asked.get()).has_list());
  UniqueFd uses = Connect();
  Send(uses.get(), OpenRequest(v1::READ_WRITE));
  ASSERT_EQ(Receive(uses.get()).code(), 0);
  UniqueFd waits = Connect();
  v1::LocalRequest faults;
  faults.set_protocol_version(1);
  faults.mutable_faults()->set_wait_ms(400);
  Send(waits.get(), faults);
  EXPECT_EQ(Receive(silent.get()).code(), -1);
  EXPECT_EQ(Receive(asked.get()).code(), -1);
  EXPECT_TRUE(Receive(waits.get()).has_faults()) << "who waits is not idle";
  Send(uses.get(), ListRequest());
  EXPECT_EQ(Receive(uses.get()).list().regions(0).opens(), 1u);
  v1::LocalRequest close;
  close.set_protocol_version(1);
  close.mutable_close()->set_name("regions/r1");
  Send(uses.get(), close);
  EXPECT_TRUE(Receive(uses.get()).has_close());
  EXPECT_EQ(Receive(uses.get()).code(), -1);
}

// The process ends by what the function says.
int InAChild(const std::function<int()>& function) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(function());
  int status = -1;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(FitConnectionsTest, RaisesTheLimitOfOpenFilesOrSaysHowManyFit) {
  EXPECT_EQ(InAChild([] {
              const rlimit low = {.rlim_cur = 64, .rlim_max = 8192};
              if (::setrlimit(RLIMIT_NOFILE, &low) != 0) return 2;
              rlimit now = {};
              if (FitConnections(4096) != 4096) return 3;
              ::getrlimit(RLIMIT_NOFILE, &now);
              return now.rlim_cur > 4096 ? 0 : 4;
            }),
            0);
  EXPECT_EQ(InAChild([] {
              const rlimit hard = {.rlim_cur = 256, .rlim_max = 1024};
              if (::setrlimit(RLIMIT_NOFILE, &hard) != 0) return 2;
              return FitConnections(4096) == 512 && FitConnections(16) == 16 ? 0 : 3;
            }),
            0);
}

TEST_F(LocalServerTest, PeerThatDoesNotReadIsHungUpOn) {
  ASSERT_TRUE(Start({.path = "", .send_timeout = absl::Milliseconds(50)}).ok());
  Offer(v1::Offer::WANT_ONLINE);
  UniqueFd socket = Connect();
  const std::string request = ListRequest().SerializeAsString();
  int sent = 0;
  pollfd ready = {.fd = socket.get(), .events = POLLOUT, .revents = 0};
  for (; sent < 1'000'000; ++sent) {  // Until both buffers are full, and then hung up.
    ASSERT_EQ(::poll(&ready, 1, 20'000), 1);
    if (::send(socket.get(), request.data(), request.size(), MSG_NOSIGNAL) < 0) break;
  }
  EXPECT_LT(sent, 1'000'000);
  UniqueFd other = Connect();
  Send(other.get(), ListRequest());
  EXPECT_TRUE(Receive(other.get()).has_list());
}

TEST_F(LocalServerTest, StaleSocketIsReplacedAndALiveOneIsNot) {
  {
    UniqueFd stale(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, path_.c_str());
    ASSERT_EQ(::bind(stale.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }
  ASSERT_TRUE(Start().ok());
  LocalServerOptions options;
  options.path = path_;
  LocalServer second(options, service_.get(), &loop_);
  const absl::Status refused = second.Start();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(refused.message().find("another agent"), absl::string_view::npos);
  UniqueFd socket = Connect();
  Send(socket.get(), ListRequest());
  EXPECT_TRUE(Receive(socket.get()).has_list());
}

TEST_F(LocalServerTest, SomethingElseAtThePathIsLeftAlone) {
  UniqueFd(::open(path_.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600)).Reset();
  EXPECT_FALSE(Start().ok());
  EXPECT_TRUE(std::filesystem::is_regular_file(path_));
}

// --- Descriptors of peers.

// A memfd that begins as a page of counters.
UniqueFd Memfd(off_t bytes, int seals) {
  UniqueFd fd(::memfd_create("usage", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const UsagePage page;
  EXPECT_EQ(::pwrite(fd.get(), &page, sizeof page, 0), static_cast<ssize_t>(sizeof page));
  EXPECT_EQ(::ftruncate(fd.get(), bytes), 0);
  EXPECT_EQ(::fcntl(fd.get(), F_ADD_SEALS, seals), 0);
  return fd;
}

void SendWith(int socket, const v1::LocalRequest& request, std::vector<UniqueFd> descriptors) {
  ASSERT_TRUE(SendPacket(socket, request.SerializeAsString(), descriptors).ok());
}

v1::LocalRequest UsageRequest() {
  v1::LocalRequest request;
  request.set_protocol_version(1);
  request.mutable_usage();
  return request;
}

std::ptrdiff_t OpenFiles() {
  const std::filesystem::directory_iterator files("/proc/self/fd");
  return std::distance(begin(files), end(files));
}

// What is dropped is closed by another thread.
bool OpenFilesBecome(std::ptrdiff_t count) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (OpenFiles() != count) {
    if (std::chrono::steady_clock::now() > until) return false;
    ::poll(nullptr, 0, 1);
  }
  return true;
}

TEST_F(LocalServerTest, APageOfCountersIsKeptAsLongAsItsConnection) {
  ASSERT_TRUE(Start().ok());
  UniqueFd socket = Connect();
  Send(socket.get(), ListRequest());
  Receive(socket.get());
  const std::ptrdiff_t before = OpenFiles();
  for (int i = 0; i < 3; ++i) {  // Each replaces the one before.
    std::vector<UniqueFd> page;
    page.push_back(Memfd(4096, F_SEAL_SHRINK));
    SendWith(socket.get(), UsageRequest(), std::move(page));
    const v1::LocalResponse answer = Receive(socket.get());
    EXPECT_TRUE(answer.has_usage()) << answer.message();
    EXPECT_EQ(OpenFiles(), before + 1);
  }
  socket.Reset();
  EXPECT_TRUE(OpenFilesBecome(before - 2)) << "both ends, and the page";
}

TEST_F(LocalServerTest, WhatIsNoPageOfCountersIsRefusedAndClosed) {
  ASSERT_TRUE(Start().ok());
  UniqueFd socket = Connect();
  Send(socket.get(), ListRequest());
  Receive(socket.get());
  const std::ptrdiff_t before = OpenFiles();
  for (const char* const what : {"none", "two", "a pipe", "not sealed", "too long", "too short",
                                 "a socket", "a folder", "many"}) {
    const std::string kind = what;
    std::vector<UniqueFd> given;
    int ends[2] = {-1, -1};
    if (kind == "two" || kind == "many") {
      for (int i = 0; i < (kind == "two" ? 2 : 250); ++i) {
        given.push_back(Memfd(4096, F_SEAL_SHRINK));
      }
    }
    if (kind == "a pipe") {
      ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
      given.emplace_back(ends[0]);
    }
    const UniqueFd other_end(ends[1]);
    if (kind == "not sealed") given.push_back(Memfd(4096, 0));
    if (kind == "too long") given.push_back(Memfd(8192, F_SEAL_SHRINK));
    if (kind == "too short") given.push_back(Memfd(4000, F_SEAL_SHRINK));
    if (kind == "a socket") given.push_back(Connect());
    if (kind == "a folder") given.emplace_back(::open("/", O_PATH | O_CLOEXEC));
    SendWith(socket.get(), UsageRequest(), std::move(given));
    EXPECT_EQ(Receive(socket.get()).error().reason(), "BAD_USAGE_PAGE") << what;
  }
  EXPECT_TRUE(OpenFilesBecome(before)) << OpenFiles() << " open files, and before " << before;
}

TEST_F(LocalServerTest, DescriptorsThatNobodyAskedForAreClosed) {
  ASSERT_TRUE(Start().ok());
  UniqueFd socket = Connect();
  Send(socket.get(), ListRequest());
  Receive(socket.get());
  const std::ptrdiff_t before = OpenFiles();
  for (int i = 0; i < 3; ++i) {
    std::vector<UniqueFd> given;
    given.push_back(Memfd(4096, i == 0 ? F_SEAL_SHRINK : 0));
    if (i == 2) given.push_back(Memfd(4096, 0));
    SendWith(socket.get(), ListRequest(), std::move(given));
    EXPECT_TRUE(Receive(socket.get()).has_list());
  }
  EXPECT_TRUE(OpenFilesBecome(before));
  {
    std::vector<UniqueFd> given;  // With what is no message.
    given.push_back(Memfd(4096, 0));
    ASSERT_TRUE(SendPacket(socket.get(), "\x0b", given).ok());
    EXPECT_EQ(Receive(socket.get()).error().reason(), "BAD_PACKET");
  }
  socket.Reset();
  EXPECT_TRUE(OpenFilesBecome(before - 2));
}

TEST(DescriptorBinTest, HasRoomAgainOnceWhatItDroppedIsClosed) {
  DescriptorBin bin;
  EXPECT_TRUE(bin.HasRoom());
  for (int i = 0; i < 100; ++i) {
    bin.Drop(UniqueFd());
    bin.Drop(UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC)));
  }
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!bin.HasRoom() && std::chrono::steady_clock::now() < until) ::poll(nullptr, 0, 1);
  EXPECT_TRUE(bin.HasRoom());
}

TEST(ProgramOfTest, IsWhatTheProcessCallsItselfInPlainCharacters) {
  EXPECT_EQ(ProgramOf(0), "");
  EXPECT_EQ(ProgramOf(1 << 30), "");
  std::thread([] {
    const auto me = static_cast<int>(::syscall(SYS_gettid));
    ASSERT_EQ(::prctl(PR_SET_NAME, "my prog"), 0);
    EXPECT_EQ(ProgramOf(me), "my prog");
    ASSERT_EQ(::prctl(PR_SET_NAME, "a\x1b[2J\nb\xff"), 0);
    EXPECT_EQ(ProgramOf(me), "a?[2J?b?");
  }).join();
}

}  // namespace
}  // namespace cxlpool::agent
