// What a program sends along with its packets may linger as it is closed, for as long as the
// program likes. Others are served meanwhile.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "host-agent/local/local_server.h"
#include "host-agent/local/packet.h"
#include "test/rigs/core_rig.h"

namespace cxlpool::agent {
namespace {

constexpr int kLingerSeconds = 30;
constexpr int kAnswerMs = 10'000;

class LingerTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/cxlpool-linger-XXXXXX";
    directory_ = ::mkdtemp(name);
    AgentOptions agent;
    agent.host = "hosts/host-a";
    core_ = std::make_unique<AgentCore>(agent, &loop_, &clock_, &memory_, &link_);
    LocalPolicy policy;
    policy.agent_uid = ::geteuid();
    service_ =
        std::make_unique<LocalService>(policy, core_.get(), &loop_, &clock_, &memory_, &link_);
    LocalServerOptions options;
    options.path = directory_ + "/agent.sock";
    server_ = std::make_unique<LocalServer>(options, service_.get(), &loop_);
    std::promise<void> started;
    loop_.Post([&] { core_->Start([&](absl::Status) { started.set_value(); }); });
    started.get_future().wait();
    ASSERT_TRUE(server_->Start().ok());
  }

  void TearDown() override {
    server_->Stop();
    loop_.Stop();
    service_.reset();
    core_.reset();
    std::filesystem::remove_all(directory_);
  }

  // Until what is returned is set the core does nothing.
  std::unique_ptr<std::promise<void>> HoldTheCore() {
    auto go_on = std::make_unique<std::promise<void>>();
    loop_.Post([until = go_on->get_future().share()] { until.wait(); });
    return go_on;
  }

  UniqueFd Connect() {
    UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, (directory_ + "/agent.sock").c_str());
    EXPECT_EQ(::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    return socket;
  }

  static void Ask(int socket, const std::vector<UniqueFd>& descriptors = {}) {
    v1::LocalRequest request;
    request.set_protocol_version(kLocalProtocolVersion);
    request.mutable_list();
    EXPECT_TRUE(SendPacket(socket, request.SerializeAsString(), descriptors).ok());
  }

  static bool IsAnswered(int socket) {
    pollfd ready = {.fd = socket, .events = POLLIN, .revents = 0};
    if (::poll(&ready, 1, kAnswerMs) != 1) return false;
    char bytes[4096];
    const ssize_t size = ::recv(socket, bytes, sizeof bytes, 0);
    v1::LocalResponse answer;
    return size > 0 && answer.ParseFromArray(bytes, static_cast<int>(size)) && answer.has_list();
  }

  // The close of its last descriptor takes kLingerSeconds: nobody reads what was sent.
  UniqueFd Lingering() {
    const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* const at = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(::bind(listener.get(), at, size), 0);
    EXPECT_EQ(::listen(listener.get(), 1), 0);
    EXPECT_EQ(::getsockname(listener.get(), at, &size), 0);
    UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(socket.get(), at, size), 0);
    unread_ = UniqueFd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const std::string bytes(1 << 16, 'x');
    while (::send(socket.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
    }
    const linger last = {.l_onoff = 1, .l_linger = kLingerSeconds};
    EXPECT_EQ(::setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &last, sizeof(last)), 0);
    return socket;
  }

  // While the core is held: the second request stays unread then, and what is sent along with it is
  // nobody else's any more when this returns.
  void AskTwice(int socket) {
    Ask(socket);
    std::vector<UniqueFd> descriptors;
    descriptors.emplace_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    descriptors.push_back(Lingering());
    Ask(socket, descriptors);
  }

  std::string directory_;
  Loop loop_{"linger-core"};
  SystemClock clock_;
  FakeHostMemory memory_{&loop_};
  FakeLink link_;
  UniqueFd unread_;  // The other end of what lingers.
  std::unique_ptr<AgentCore> core_;
  std::unique_ptr<LocalService> service_;
  std::unique_ptr<LocalServer> server_;
};

TEST_F(LingerTest, WhatIsNotReceivedKeepsNobodyWaiting) {
  const auto go_on = HoldTheCore();
  const UniqueFd socket = Connect();
  AskTwice(socket.get());
  go_on->set_value();
  EXPECT_TRUE(IsAnswered(socket.get()));
  EXPECT_TRUE(IsAnswered(socket.get()));
}

TEST_F(LingerTest, WhatIsUnreadAtTheEndKeepsNobodyWaiting) {
  const auto go_on = HoldTheCore();
  UniqueFd socket = Connect();
  AskTwice(socket.get());
  socket.Reset();
  go_on->set_value();
  const UniqueFd other = Connect();
  Ask(other.get());
  EXPECT_TRUE(IsAnswered(other.get()));
}

}  // namespace
}  // namespace cxlpool::agent
