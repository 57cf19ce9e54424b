#include "fabric-manager/adapters/fabric_qemu/qmp_client.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <filesystem>

#include "test/rigs/scripted_qmp_server.h"

namespace cxlpool::fm {
namespace {

constexpr absl::Duration kLong = absl::Seconds(20);
constexpr absl::Duration kShort = absl::Milliseconds(50);

class QmpClientTest : public ::testing::Test {
 protected:
  QmpClientTest() : interrupt_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    std::string pattern = (std::filesystem::temp_directory_path() / "cxlpool-XXXXXX").string();
    directory_ = ::mkdtemp(pattern.data());
    socket_ = directory_ + "/qmp";
  }
  ~QmpClientTest() override {
    client_.reset();
    server_.reset();
    std::filesystem::remove_all(directory_);
  }

  absl::Status Connect(ScriptedQmpServer::Script script, absl::Duration greeting = kLong) {
    server_ = std::make_unique<ScriptedQmpServer>(socket_, std::move(script));
    auto client = QmpClient::Connect(socket_, interrupt_.get(), [this](const QmpMessage& event) {
      events_.push_back(event.name);
    });
    if (!client.ok()) return client.status();
    client_ = std::move(*client);
    return client_->Negotiate(greeting);
  }

  // Connects well, then lets `rest` misbehave.
  void ConnectThen(ScriptedQmpServer::Script rest) {
    const absl::Status status = Connect([rest](const ScriptedPeer& peer) {
      peer.Greet();
      peer.Answer(1, "{}");
      rest(peer);
    });
    ASSERT_TRUE(status.ok()) << status;
  }

  absl::StatusOr<nlohmann::json> Execute(absl::Duration timeout = kLong) {
    return client_->Execute("query-status", nlohmann::json::object(), timeout);
  }

  // The connection is unusable, and says why again.
  void ExpectBroken(const absl::Status& status) {
    EXPECT_FALSE(status.ok());
    EXPECT_EQ(Execute().status(), status);
    EXPECT_EQ(client_->Drain(), status);
  }

  std::string directory_, socket_;
  UniqueFd interrupt_;
  std::vector<std::string> events_;
  std::unique_ptr<ScriptedQmpServer> server_;
  std::unique_ptr<QmpClient> client_;
};

TEST_F(QmpClientTest, NegotiatesAndExecutes) {
  ConnectThen([](const ScriptedPeer& peer) {
    peer.Answer(2, "{\"status\": \"running\"}");
    peer.WaitUntilGone();
  });
  EXPECT_EQ(client_->version(), "11.1.3");
  EXPECT_EQ(client_->peer_pid(), ::getpid());
  auto value = Execute();
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_EQ(value->at("status"), "running");
}

TEST_F(QmpClientTest, NobodyListens) {
  EXPECT_TRUE(absl::IsUnavailable(
      QmpClient::Connect(socket_, interrupt_.get(), [](const QmpMessage&) {}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(
      QmpClient::Connect(std::string(200, 'x'), interrupt_.get(), [](const QmpMessage&) {
      }).status()));
}

TEST_F(QmpClientTest, NoGreetingMeansThatAnotherHasTheSocket) {
  const absl::Status status =
      Connect([](const ScriptedPeer& peer) { peer.WaitUntilGone(); }, kShort);
  EXPECT_TRUE(absl::IsDeadlineExceeded(status));
  EXPECT_NE(std::string(status.message()).find("another client"), std::string::npos);
}

TEST_F(QmpClientTest, WhatGreetsOtherwiseIsNoQmp) {
  for (const char* greeting :
       {"HTTP/1.1 400 Bad Request\r\n", "{\"return\": {}, \"id\": 1}\n", "{}\n", "\n", "\xff\n"}) {
    EXPECT_TRUE(absl::IsUnavailable(Connect([greeting](const ScriptedPeer& peer) {
      peer.Send(greeting);
      peer.WaitUntilGone();
    }))) << greeting;
    client_.reset();
    server_.reset();
    std::filesystem::remove(socket_);
  }
}

TEST_F(QmpClientTest, RefusalsKeepTheConnection) {
  ConnectThen([](const ScriptedPeer& peer) {
    peer.ReadLine();
    peer.Send("{\"error\": {\"class\": \"DeviceNotFound\", \"desc\": \"no zz\"}, \"id\": " +
              peer.Id(2) + "}\n");
    peer.ReadLine();
    peer.Send("{\"error\": {\"class\": \"GenericError\", \"desc\": \"busy\"}, \"id\": " +
              peer.Id(3) + "}\n");
    peer.Answer(4, "7");
    peer.WaitUntilGone();
  });
  auto missing = Execute();
  EXPECT_TRUE(absl::IsNotFound(missing.status()));
  EXPECT_EQ(missing.status().message(), "no zz");
  EXPECT_TRUE(absl::IsFailedPrecondition(Execute().status()));
  auto value = Execute();
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_EQ(*value, 7);
}

TEST_F(QmpClientTest, EventsBetweenAreHandedOver) {
  ConnectThen([](const ScriptedPeer& peer) {
    peer.ReadLine();
    peer.Send("{\"event\": \"ONE\"}\r\n{\"event\": \"TWO\"}\r\n{\"ret");
    peer.Send("urn\": 1, \"id\": " + peer.Id(2) + "}\r\n{\"event\": \"THREE\"}\r\n");
    peer.WaitUntilGone();
  });
  ASSERT_TRUE(Execute().ok());
  while (events_.size() < 3) ASSERT_TRUE(client_->Drain().ok());
  EXPECT_EQ(events_, (std::vector<std::string>{"ONE", "TWO", "THREE"}));
}

TEST_F(QmpClientTest, SlowReplyEndsTheWaitAndTheConnection) {
  ConnectThen([](const ScriptedPeer& peer) { peer.WaitUntilGone(); });
  const absl::Status status = Execute(kShort).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  ExpectBroken(status);
}

TEST_F(QmpClientTest, HalfALineIsNoReply) {
  ConnectThen([](const ScriptedPeer& peer) {
    peer.ReadLine();
    peer.Send("{\"return\": {}, \"id\": " + peer.Id(2));
    peer.WaitUntilGone();
  });
  EXPECT_TRUE(absl::IsDeadlineExceeded(Execute(kShort).status()));
}

TEST_F(QmpClientTest, DisconnectDuringACommand) {
  ConnectThen([](const ScriptedPeer& peer) {
    peer.ReadLine();
    peer.Send("{\"return\": {}, \"i");
  });
  const absl::Status status = Execute().status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  ExpectBroken(status);
}

TEST_F(QmpClientTest, GarbageBreaksTheConnection) {
  const std::string deep = "{\"return\": " + std::string(500000, '[') + "\n";
  for (const std::string& reply :
       {std::string("no JSON\n"), std::string("{\"return\": {}, \"id\": 1}\n"),
        std::string("{\"return\": {}, \"id\": \"2\"}\n"), std::string("{\"return\": {}}\n"),
        std::string("{\"QMP\": {}}\n"), std::string("\n"), std::string(1, '\0') + "\n",
        std::string("{\"error\": {\"class\": \"GenericError\", \"desc\": \"no id\"}}\n"), deep}) {
    ConnectThen([reply](const ScriptedPeer& peer) {
      peer.ReadLine();
      peer.Send(reply);
      peer.WaitUntilGone();
    });
    const absl::Status status = Execute().status();
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    ExpectBroken(status);
    client_.reset();
    server_.reset();
    std::filesystem::remove(socket_);
  }
}

TEST_F(QmpClientTest, LineWithoutEndBreaksTheConnection) {
  ConnectThen([](const ScriptedPeer& peer) {
    peer.ReadLine();
    peer.Send("{\"return\": \"" + std::string(4 << 20, 'x'));
    peer.WaitUntilGone();
  });
  const absl::Status status = Execute().status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  ExpectBroken(status);
}

TEST_F(QmpClientTest, FloodOfEventsBreaksTheConnection) {
  ConnectThen([](const ScriptedPeer& peer) {
    peer.ReadLine();
    std::string flood;
    for (int i = 0; i < 20000; ++i) flood += "{\"event\": \"E\"}\n";
    peer.Send(flood);
    peer.WaitUntilGone();
  });
  EXPECT_TRUE(absl::IsUnavailable(Execute().status()));
}

TEST_F(QmpClientTest, ReplyToNothingBreaksTheConnection) {
  ConnectThen([](const ScriptedPeer& peer) {
    peer.Send("{\"return\": {}, \"id\": " + peer.Id(2) + "}\n");
    peer.WaitUntilGone();
  });
  while (client_->Drain().ok()) {
  }
  EXPECT_TRUE(absl::IsUnavailable(client_->Drain()));
}

TEST_F(QmpClientTest, InterruptEndsTheWaitAtOnce) {
  ConnectThen([this](const ScriptedPeer& peer) {
    peer.ReadLine();
    const uint64_t one = 1;
    ASSERT_EQ(::write(interrupt_.get(), &one, sizeof(one)), 8);
    peer.WaitUntilGone();
  });
  const absl::Status status = Execute().status();
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
  ExpectBroken(status);
}

TEST_F(QmpClientTest, CommandThatIsNoTextIsNotSent) {
  ConnectThen([](const ScriptedPeer& peer) {
    peer.Answer(3, "1");
    peer.WaitUntilGone();
  });
  EXPECT_TRUE(absl::IsInvalidArgument(
      client_->Execute("object-add", {{"mem-path", "\xff"}}, kLong).status()));
  EXPECT_TRUE(Execute().ok());
}

}  // namespace
}  // namespace cxlpool::fm
