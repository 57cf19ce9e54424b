#include "host-agent/rpc/grpc_manager_link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>

#include "absl/time/clock.h"
#include "proto/support/refusal.h"
#include "test/rigs/fake_manager.h"
#include "test/rigs/lossy_proxy.h"
#include "tools/pki/pki.h"

namespace cxlpool::agent {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kSession = 77;

v1::ManagerMessage Welcome(uint64_t session = kSession, uint32_t heartbeat_ms = 60000) {
  v1::ManagerMessage message;
  message.set_session(session);
  message.mutable_welcome()->set_heartbeat_ms(heartbeat_ms);
  message.mutable_welcome()->add_offers()->set_region_name("regions/kv");
  return message;
}

v1::ManagerMessage Offer(const std::string& name, uint64_t session = kSession) {
  v1::ManagerMessage message;
  message.set_session(session);
  message.mutable_offer()->set_region_name(name);
  return message;
}

absl::Status Refused(absl::StatusCode code, const std::string& reason) {
  return Refuse(code, reason, "refused", "fix it");
}

class GrpcManagerLinkTest : public ::testing::Test {
 protected:
  GrpcManagerLinkTest() {
    options_.addresses = {manager_.address()};
    options_.backoff_min = absl::Milliseconds(5);
    options_.backoff_max = absl::Milliseconds(20);
  }
  ~GrpcManagerLinkTest() override {
    if (link_ != nullptr) link_->Stop();
    manager_.Stop();
  }

  void Dial() {
    auto link = MakeGrpcManagerLink(options_);
    ASSERT_TRUE(link.ok()) << link.status();
    link_ = *std::move(link);
    link_->Start(Handlers());
  }

  ManagerLink::Handlers Handlers() {
    ManagerLink::Handlers handlers;
    handlers.make_hello = [this](DoneWith<v1::Hello> done) {
      v1::Hello hello;
      hello.set_protocol_version(1);
      hello.set_host("hosts/host-a");
      std::move(done)(hello);
      heard_.Set([&] { ++hellos_; });
    };
    handlers.on_welcome = [this](v1::Welcome welcome) {
      heard_.Set([&] { welcomes_.push_back(welcome); });
    };
    handlers.on_offer = [this](v1::Offer offer) {
      heard_.Set([&] { events_.push_back("offer " + offer.region_name()); });
      if (at_offer_ != nullptr) at_offer_();
    };
    handlers.on_withdraw = [this](v1::Withdraw withdraw) {
      heard_.Set([&] { events_.push_back("withdraw " + withdraw.region_tag()); });
    };
    handlers.on_lost = [this](absl::Status why, bool permanent) {
      heard_.Set([&] { lost_.emplace_back(why, permanent); });
    };
    return handlers;
  }

  // Has a session, welcomed.
  FakeSession* Connect(size_t index = 0) {
    FakeSession* const session = manager_.Session(index);
    if (session == nullptr) return nullptr;
    session->Say(Welcome());
    return heard_.Await([&] { return welcomes_.size() == index + 1; }) ? session : nullptr;
  }

  bool AwaitLost(size_t count) {
    return heard_.Await([&] { return lost_.size() >= count; });
  }
  // As of now: it goes on being reported.
  std::vector<std::pair<absl::Status, bool>> Lost() {
    std::vector<std::pair<absl::Status, bool>> lost;
    heard_.Set([&] { lost = lost_; });
    return lost;
  }

  FakeManager manager_;
  GrpcLinkOptions options_;
  Watched heard_;
  int hellos_ = 0;
  std::vector<v1::Welcome> welcomes_;
  std::vector<std::string> events_;
  std::vector<std::pair<absl::Status, bool>> lost_;
  std::function<void()> at_offer_;  // On the link's thread.
  std::unique_ptr<ManagerLink> link_;
};

TEST_F(GrpcManagerLinkTest, SaysHelloFirstAndHandsOnWhatTheManagerSays) {
  Dial();
  FakeSession* const session = Connect();
  ASSERT_NE(session, nullptr);
  EXPECT_EQ(session->heard[0].hello().host(), "hosts/host-a");
  EXPECT_EQ(session->heard[0].session(), 0u);
  EXPECT_EQ(welcomes_[0].offers(0).region_name(), "regions/kv");
  session->Say(Offer("regions/one"));
  v1::ManagerMessage withdraw;
  withdraw.set_session(kSession);
  withdraw.mutable_withdraw()->set_region_tag("tag");
  session->Say(withdraw);
  session->Say(Offer("regions/two"));
  ASSERT_TRUE(heard_.Await([&] { return events_.size() == 3; }));
  EXPECT_EQ(events_,
            (std::vector<std::string>{"offer regions/one", "withdraw tag", "offer regions/two"}));
}

TEST_F(GrpcManagerLinkTest, MessagesOfAnotherSessionAreDropped) {
  Dial();
  FakeSession* const session = Connect();
  ASSERT_NE(session, nullptr);
  session->Say(Offer("regions/stale", kSession - 1));
  session->Say(Offer("regions/current"));
  ASSERT_TRUE(heard_.Await([&] { return !events_.empty(); }));
  EXPECT_EQ(events_, (std::vector<std::string>{"offer regions/current"}));
}

TEST_F(GrpcManagerLinkTest, ReportsCarryTheSessionNumberInOrder) {
  Dial();
  FakeSession* const session = Connect();
  ASSERT_NE(session, nullptr);
  for (uint64_t serial = 1; serial <= 100; ++serial) {
    v1::Report report;
    report.add_segments()->set_serial(serial);
    link_->Send(std::move(report));
  }
  ASSERT_TRUE(manager_.watched.Await([&] { return session->heard.size() == 101; }));
  for (uint64_t serial = 1; serial <= 100; ++serial) {
    EXPECT_EQ(session->heard[serial].session(), kSession);
    EXPECT_EQ(session->heard[serial].report().segments(0).serial(), serial);
  }
}

TEST_F(GrpcManagerLinkTest, ReportsWithoutASessionAreDropped) {
  Dial();
  FakeSession* const session = manager_.Session(0);
  ASSERT_NE(session, nullptr);
  link_->Send(v1::Report());
  session->Say(Welcome(kSession, 50));
  ASSERT_TRUE(manager_.watched.Await([&] { return session->heard.size() >= 2; }));
  EXPECT_TRUE(session->heard[1].has_heartbeat());
}

TEST_F(GrpcManagerLinkTest, HeartbeatsFollowTheWelcome) {
  Dial();
  FakeSession* const session = manager_.Session(0);
  ASSERT_NE(session, nullptr);
  session->Say(Welcome(kSession, 50));
  ASSERT_TRUE(manager_.watched.Await([&] { return session->heard.size() >= 5; }));
  EXPECT_TRUE(session->heard[3].has_heartbeat());
  EXPECT_EQ(session->heard[3].session(), kSession);
}

TEST_F(GrpcManagerLinkTest, SessionThatTakesNothingMoreIsGivenUp) {
  options_.write_timeout = absl::Milliseconds(300);
  Dial();
  FakeSession* const session = manager_.Session(0);
  ASSERT_NE(session, nullptr);
  session->Say(Welcome(kSession, /*heartbeat_ms=*/50));
  ASSERT_TRUE(manager_.watched.Await([&] { return session->heard.size() > 10; }))
      << "heartbeats are taken";
  EXPECT_TRUE(Lost().empty());
  manager_.watched.Set([&] { session->stops_reading = true; });
  v1::Report report;
  report.add_segments()->set_region_tag(std::string(size_t{3} << 20, 'a'));
  for (int i = 0; i < 8; ++i) link_->Send(report);  // More than the connection holds.
  ASSERT_TRUE(AwaitLost(1));
  EXPECT_EQ(ReasonOf(Lost()[0].first), "MANAGER_UNREACHABLE");
  EXPECT_THAT(Lost()[0].first.message(), HasSubstr("has taken nothing for 300ms"));
  EXPECT_FALSE(Lost()[0].second) << "it is dialled again";
}

TEST_F(GrpcManagerLinkTest, SessionThatEndsIsDialledAgain) {
  Dial();
  for (size_t i = 0; i < 3; ++i) {
    FakeSession* const session = Connect(i);
    ASSERT_NE(session, nullptr) << i;
    session->End(Refused(absl::StatusCode::kAborted, "SESSION_REPLACED"));
    ASSERT_TRUE(AwaitLost(i + 1));
    EXPECT_EQ(ReasonOf(Lost()[i].first), "SESSION_REPLACED");
    EXPECT_FALSE(Lost()[i].second);
  }
}

// As after a host that stood still: all of it is there at once. gRPC gives the end of a call only
// once every message has been read.
TEST_F(GrpcManagerLinkTest, SessionThatEndedBehindUnreadMessagesAndAFailedWriteIsDialledAgain) {
  std::promise<void> ended;
  at_offer_ = [&, first = true]() mutable {
    if (!std::exchange(first, false)) return;
    ended.get_future().wait();
    link_->Send({});
  };
  Dial();
  FakeSession* const session = Connect();
  ASSERT_NE(session, nullptr);
  for (int i = 0; i < 100; ++i) session->Say(Offer("regions/kv"));
  session->End(Refused(absl::StatusCode::kUnavailable, "SESSION_ENDED"));
  ASSERT_TRUE(manager_.watched.Await([&] { return session->over; }));
  ended.set_value();
  ASSERT_TRUE(AwaitLost(1));
  EXPECT_EQ(ReasonOf(Lost()[0].first), "SESSION_ENDED");
  EXPECT_NE(manager_.Session(1), nullptr);
}

TEST_F(GrpcManagerLinkTest, ManagerThatRestartsIsFoundAgain) {
  Dial();
  ASSERT_NE(Connect(), nullptr);
  manager_.Stop();
  ASSERT_TRUE(AwaitLost(3));
  EXPECT_EQ(Lost().back().first.code(), absl::StatusCode::kUnavailable) << Lost().back().first;
  manager_.Start();
  ASSERT_NE(Connect(1), nullptr);
}

TEST_F(GrpcManagerLinkTest, RefusalsThatOnlyAnOperatorCanEndArePermanent) {
  options_.refused_retry = absl::Milliseconds(1);
  Dial();
  const struct {
    absl::StatusCode code;
    const char* reason;
    bool permanent;
  } cases[] = {{absl::StatusCode::kFailedPrecondition, "PROTOCOL_TOO_OLD", true},
               {absl::StatusCode::kFailedPrecondition, "HOST_RETIRED", true},
               {absl::StatusCode::kFailedPrecondition, "SESSION_ACTIVE", false},
               {absl::StatusCode::kNotFound, "UNKNOWN_HOST", true},
               {absl::StatusCode::kPermissionDenied, "WRONG_IDENTITY", true},
               {absl::StatusCode::kInvalidArgument, "BAD_HELLO", true},
               {absl::StatusCode::kResourceExhausted, "QUEUE_FULL", false}};
  size_t index = 0;
  for (const auto& [code, reason, permanent] : cases) {
    FakeSession* const session = manager_.Session(index);
    ASSERT_NE(session, nullptr) << reason;
    session->End(Refused(code, reason));
    ASSERT_TRUE(AwaitLost(++index));
    EXPECT_EQ(ReasonOf(Lost()[index - 1].first), reason);
    EXPECT_EQ(Lost()[index - 1].second, permanent) << reason;
  }
}

TEST_F(GrpcManagerLinkTest, PermanentRefusalIsNotDialledAgainSoon) {
  options_.refused_retry = absl::Hours(1);
  Dial();
  FakeSession* const session = manager_.Session(0);
  ASSERT_NE(session, nullptr);
  session->End(Refused(absl::StatusCode::kNotFound, "UNKNOWN_HOST"));
  ASSERT_TRUE(AwaitLost(1));
  link_->Stop();
  EXPECT_EQ(hellos_, 1);
}

TEST_F(GrpcManagerLinkTest, ManagerThatNeverWelcomesIsGivenUp) {
  options_.welcome_timeout = absl::Milliseconds(50);
  Dial();
  ASSERT_TRUE(AwaitLost(1));
  EXPECT_EQ(ReasonOf(Lost()[0].first), "NO_ANSWER") << Lost()[0].first;
  ASSERT_NE(manager_.Session(1), nullptr);
}

TEST_F(GrpcManagerLinkTest, SessionThatDoesNotBeginWithAWelcomeIsEnded) {
  Dial();
  FakeSession* const session = manager_.Session(0);
  ASSERT_NE(session, nullptr);
  session->Say(Offer("regions/kv"));
  ASSERT_TRUE(AwaitLost(1));
  EXPECT_EQ(ReasonOf(Lost()[0].first), "PROTOCOL_ERROR");
  EXPECT_TRUE(manager_.watched.Await([&] { return session->over; }));
}

TEST_F(GrpcManagerLinkTest, CallsCarryAnswersAndRefusals) {
  manager_.allocate = [](const v1::AllocateRegionRequest& request,
                         v1::AllocateRegionResponse* response) {
    if (request.size_bytes() == 0) {
      return Refused(absl::StatusCode::kInvalidArgument, "BAD_SIZE");
    }
    response->mutable_region()->set_name("regions/kv");
    return absl::OkStatus();
  };
  Dial();
  std::promise<absl::StatusOr<v1::AllocateRegionResponse>> good, bad;
  v1::AllocateRegionRequest request;
  link_->Allocate(request, [&](auto answer) { bad.set_value(std::move(answer)); });
  request.set_size_bytes(1);
  link_->Allocate(request, [&](auto answer) { good.set_value(std::move(answer)); });
  EXPECT_EQ(good.get_future().get()->region().name(), "regions/kv");
  const auto refused = bad.get_future().get();
  EXPECT_EQ(ReasonOf(refused.status()), "BAD_SIZE");
  std::promise<absl::Status> released;
  link_->Release({}, [&](auto answer) { released.set_value(answer.status()); });
  EXPECT_EQ(released.get_future().get().code(), absl::StatusCode::kUnimplemented);
}

TEST_F(GrpcManagerLinkTest, CallThatIsNeverAnsweredEndsAtItsDeadline) {
  options_.call_timeout = absl::Milliseconds(100);
  Dial();
  std::promise<absl::Status> ended;
  link_->Allocate({}, [&](auto answer) { ended.set_value(answer.status()); });
  EXPECT_EQ(ReasonOf(ended.get_future().get()), "NO_ANSWER");
}

TEST_F(GrpcManagerLinkTest, CallsAreAnsweredWhenTheManagerIsAwayAndWhenTheLinkStops) {
  Dial();
  std::promise<absl::Status> cancelled, late, away;
  link_->Allocate({}, [&](auto answer) { cancelled.set_value(answer.status()); });
  ASSERT_TRUE(manager_.watched.Await([&] { return manager_.calls == 1; }));
  link_->Stop();
  EXPECT_EQ(cancelled.get_future().get().code(), absl::StatusCode::kCancelled);
  link_->Allocate({}, [&](auto answer) { late.set_value(answer.status()); });
  EXPECT_EQ(ReasonOf(late.get_future().get()), "MANAGER_UNREACHABLE");
  manager_.Stop();
  Dial();
  link_->Allocate({}, [&](auto answer) { away.set_value(answer.status()); });
  EXPECT_EQ(ReasonOf(away.get_future().get()), "MANAGER_UNREACHABLE");
}

TEST_F(GrpcManagerLinkTest, NothingIsHeardAfterStop) {
  Dial();
  FakeSession* const session = Connect();
  ASSERT_NE(session, nullptr);
  link_->Stop();
  const size_t lost = Lost().size();
  EXPECT_TRUE(manager_.watched.Await([&] { return session->over; }));
  link_->Stop();
  link_.reset();
  EXPECT_EQ(Lost().size(), lost);
}

TEST_F(GrpcManagerLinkTest, HelloAnsweredAfterTheLinkIsGoneIsDropped) {
  auto link = MakeGrpcManagerLink(options_);
  ASSERT_TRUE(link.ok());
  DoneWith<v1::Hello> kept;
  ManagerLink::Handlers handlers = Handlers();
  handlers.make_hello = [&](DoneWith<v1::Hello> done) {
    heard_.Set([&] {
      kept = std::move(done);
      ++hellos_;
    });
  };
  (*link)->Start(std::move(handlers));
  ASSERT_TRUE(heard_.Await([&] { return hellos_ == 1; }));
  link->reset();
  std::move(kept)(v1::Hello());
}

TEST_F(GrpcManagerLinkTest, InsecureAddressOffThisMachineIsRefused) {
  options_.addresses = {manager_.address(), "192.0.2.1:7420"};
  EXPECT_EQ(ReasonOf(MakeGrpcManagerLink(options_).status()), "INSECURE_ADDRESS");
}

// An agent is killed and the next one starts, again and again: each time one manager welcomes it.
TEST_F(GrpcManagerLinkTest, TheNextAgentOfABootRefusesAManagerThatWasReplaced) {
  std::string directory =
      (std::filesystem::temp_directory_path() / "cxlpool-epoch-XXXXXX").string();
  ASSERT_NE(mkdtemp(directory.data()), nullptr);
  options_.epoch_path = directory + "/epoch";
  options_.boot_id = "boot-1";
  options_.backoff_min = options_.backoff_max = absl::Hours(1);  // One session each.
  size_t sessions = 0;
  const auto obeys = [&](uint64_t epoch) {
    const size_t before = welcomes_.size(), lost_before = lost_.size();  // Nothing runs.
    Dial();
    FakeSession* const session = manager_.Session(sessions++);
    if (session == nullptr) return false;
    v1::ManagerMessage welcome = Welcome();
    welcome.mutable_welcome()->set_epoch(epoch);
    session->Say(std::move(welcome));
    EXPECT_TRUE(
        heard_.Await([&] { return welcomes_.size() > before || lost_.size() > lost_before; }));
    link_->Stop();
    return welcomes_.size() > before;
  };
  EXPECT_TRUE(obeys(8));
  EXPECT_FALSE(obeys(7));
  ASSERT_FALSE(lost_.empty());
  EXPECT_EQ(ReasonOf(lost_.back().first), "LOWER_EPOCH");
  EXPECT_THAT(RefusalOf(lost_.back().first)->remedy,
              HasSubstr("remove " + options_.epoch_path + " and restart the agent"));
  EXPECT_TRUE(obeys(8)) << "it leads still";
  EXPECT_TRUE(obeys(9));
  EXPECT_FALSE(obeys(8));
  // As the remedy says.
  std::filesystem::remove(options_.epoch_path);
  EXPECT_TRUE(obeys(6));
  EXPECT_FALSE(obeys(5));
  // Files that say nothing: of another boot, and damaged.
  options_.boot_id = "boot-2";
  EXPECT_TRUE(obeys(4));
  for (const char* text : {"", "cxlpool epoch 1 boot-2\n", "cxlpool epoch 1 boot-2\n7x\n"}) {
    std::ofstream(options_.epoch_path) << text;
    EXPECT_TRUE(obeys(3)) << text;
    EXPECT_FALSE(obeys(2)) << "it is written anew";
  }
  // A folder that is not there: nothing is kept, and the agent works.
  std::filesystem::remove_all(directory);
  EXPECT_TRUE(obeys(9));
  EXPECT_TRUE(obeys(8));
}

TEST_F(GrpcManagerLinkTest, AnEpochThatCouldNotBeKeptIsKeptWithTheNextSession) {
  std::string directory =
      (std::filesystem::temp_directory_path() / "cxlpool-epoch-XXXXXX").string();
  ASSERT_NE(mkdtemp(directory.data()), nullptr);
  const std::filesystem::path folder = directory + "/run";
  options_.epoch_path = (folder / "epoch").string();
  options_.boot_id = "boot-1";
  Dial();
  const auto welcome = [&](size_t index) {
    FakeSession* const session = manager_.Session(index);
    if (session == nullptr) return false;
    v1::ManagerMessage message = Welcome();
    message.mutable_welcome()->set_epoch(8);
    session->Say(std::move(message));
    if (!heard_.Await([&] { return welcomes_.size() == index + 1; })) return false;
    session->End(Refused(absl::StatusCode::kUnavailable, "SESSION_ENDED"));
    return AwaitLost(index + 1);
  };
  EXPECT_TRUE(welcome(0)) << "there is no such folder, and the agent works on";
  std::filesystem::create_directory(folder);
  EXPECT_TRUE(welcome(1));
  std::ifstream in(options_.epoch_path);
  std::string kept;
  EXPECT_TRUE(std::getline(in, kept) && std::getline(in, kept));
  EXPECT_EQ(kept, "8");
  link_->Stop();
  std::filesystem::remove_all(directory);
}

// A second manager beside the first.
class SeveralManagersTest : public GrpcManagerLinkTest {
 protected:
  SeveralManagersTest() {
    options_.addresses = {manager_.address(), other_.address()};
    options_.backoff_min = options_.backoff_max = absl::Hours(1);  // Nothing here waits for it.
  }
  ~SeveralManagersTest() override {
    if (link_ != nullptr) link_->Stop();
    other_.Stop();
  }

  static absl::Status NotLeader(const std::string& leader) {
    return Refuse(absl::StatusCode::kUnavailable, "NOT_LEADER", "a standby", "call the leader",
                  {{"leader", leader}});
  }
  // The first session at `manager`, after its Hello, which is answered with a Welcome.
  FakeSession* Welcomed(FakeManager& manager, uint64_t epoch, size_t index = 0) {
    FakeSession* const session = manager.Session(index);
    if (session == nullptr) return nullptr;
    v1::ManagerMessage welcome = Welcome();
    welcome.mutable_welcome()->set_epoch(epoch);
    session->Say(std::move(welcome));
    return session;
  }
  bool AwaitWelcomes(size_t count) {
    return heard_.Await([&] { return welcomes_.size() >= count; });
  }

  FakeManager other_;
};

TEST_F(SeveralManagersTest, AStandbyLeadsToTheLeaderAtOnce) {
  Dial();
  FakeSession* const standby = manager_.Session(0);
  ASSERT_NE(standby, nullptr);
  standby->End(NotLeader(other_.address()));
  ASSERT_NE(Welcomed(other_, 1), nullptr);
  EXPECT_TRUE(AwaitWelcomes(1));
  EXPECT_TRUE(Lost().empty()) << "no session was lost";
  other_.allocate = [](const auto&, auto* response) {
    response->mutable_region()->set_name("regions/kv");
    return absl::OkStatus();
  };
  std::promise<absl::StatusOr<v1::AllocateRegionResponse>> allocated;
  link_->Allocate({}, [&](auto answer) { allocated.set_value(std::move(answer)); });
  EXPECT_TRUE(allocated.get_future().get().ok()) << "calls go where the session is";
}

TEST_F(SeveralManagersTest, ARefusalLeadsNobodyElsewhere) {
  FakeManager stranger;
  Dial();
  for (FakeManager* const standby : {&manager_, &other_}) {
    FakeSession* const session = standby->Session(0);
    ASSERT_NE(session, nullptr);
    session->End(NotLeader(stranger.address()));
  }
  ASSERT_TRUE(AwaitLost(1));
  EXPECT_EQ(ReasonOf(Lost()[0].first), "NOT_LEADER") << "said once, of the whole round";
  link_->Stop();
  EXPECT_TRUE(stranger.sessions.empty());
  stranger.Stop();
}

TEST_F(SeveralManagersTest, WhatIsWrongWithOneIsSaidRatherThanThatAnotherDoesNotLead) {
  manager_.Stop();
  Dial();
  FakeSession* const standby = other_.Session(0);
  ASSERT_NE(standby, nullptr);
  standby->End(NotLeader(manager_.address()));
  ASSERT_TRUE(AwaitLost(1));
  EXPECT_EQ(ReasonOf(Lost()[0].first), "MANAGER_UNREACHABLE");
  EXPECT_THAT(Lost()[0].first.message(), HasSubstr(manager_.address()));
}

TEST_F(SeveralManagersTest, AManagerThatIsGoneIsReplacedAtOnce) {
  Dial();
  ASSERT_NE(Welcomed(manager_, 1), nullptr);
  ASSERT_TRUE(AwaitWelcomes(1));
  manager_.Stop();
  ASSERT_NE(Welcomed(other_, 2), nullptr);
  EXPECT_TRUE(AwaitWelcomes(2));
  EXPECT_EQ(Lost().size(), 1u);
}

// No end of its connection arrives: it is silent from then on. Another manager leads within 1.3
// times the 1.5 s of store.takeover, and is to have a session within 2 s more.
TEST_F(SeveralManagersTest, AManagerWhoseMachineIsGoneIsReplacedInTime) {
  std::string directory =
      (std::filesystem::temp_directory_path() / "cxlpool-silent-XXXXXX").string();
  ASSERT_NE(mkdtemp(directory.data()), nullptr);
  manager_.Stop();
  manager_.unix_path = directory + "/fm.sock";
  manager_.Start();
  auto proxy = LossyProxy::Start(directory + "/proxy.sock", manager_.unix_path);
  ASSERT_TRUE(proxy.ok()) << proxy.status();
  options_.addresses[0] = "unix:" + directory + "/proxy.sock";
  Dial();
  ASSERT_NE(Welcomed(manager_, 1), nullptr);
  ASSERT_TRUE(AwaitWelcomes(1));
  const absl::Time silent = absl::Now();
  (*proxy)->Lose(true);
  ASSERT_NE(Welcomed(other_, 2), nullptr);
  EXPECT_LT(absl::Now() - silent, absl::Milliseconds(3900));
  link_->Stop();
  std::filesystem::remove_all(directory);
}

TEST_F(SeveralManagersTest, AManagerThatWasReplacedGetsNoSession) {
  options_.backoff_min = options_.backoff_max = absl::Milliseconds(5);
  // The other manager may be dialled a second time, and answers nothing then.
  options_.welcome_timeout = absl::Milliseconds(500);
  Dial();
  ASSERT_NE(Welcomed(manager_, 8), nullptr);
  ASSERT_TRUE(AwaitWelcomes(1));
  manager_.Stop();
  FakeSession* const replaced = Welcomed(other_, 7);
  ASSERT_NE(replaced, nullptr);
  EXPECT_TRUE(other_.watched.Await([&] { return replaced->over; }));
  manager_.Start();
  // It has not met a higher one, and one without replicas has none.
  ASSERT_NE(Welcomed(manager_, 8, 1), nullptr);
  ASSERT_TRUE(AwaitWelcomes(2));
  std::vector<uint64_t> epochs;
  heard_.Set([&] {
    for (const v1::Welcome& welcome : welcomes_) epochs.push_back(welcome.epoch());
  });
  EXPECT_EQ(epochs, (std::vector<uint64_t>{8, 8}));
}

TEST_F(SeveralManagersTest, AManagerWithoutReplicasHasNoEpochToJudge) {
  Dial();
  ASSERT_NE(Welcomed(manager_, 8), nullptr);
  ASSERT_TRUE(AwaitWelcomes(1));
  manager_.Stop();
  ASSERT_NE(Welcomed(other_, 0), nullptr);
  EXPECT_TRUE(AwaitWelcomes(2));
}

TEST_F(SeveralManagersTest, ARefusalOfTheLeaderIsNotForOthersToAnswer) {
  options_.refused_retry = absl::Milliseconds(1);
  Dial();
  for (size_t i = 0; i < 3; ++i) {
    FakeSession* const session = manager_.Session(i);
    ASSERT_NE(session, nullptr) << i;
    session->End(Refused(absl::StatusCode::kNotFound, "UNKNOWN_HOST"));
    ASSERT_TRUE(AwaitLost(i + 1));
    EXPECT_EQ(ReasonOf(Lost()[i].first), "UNKNOWN_HOST");
  }
  EXPECT_TRUE(other_.sessions.empty());
}

TEST_F(SeveralManagersTest, TheQuestionWhetherAHostIsTakenGoesRoundAsWell) {
  manager_.Stop();
  other_.Stop();
  const absl::Status status = AskManager(options_, v1::Hello(), absl::Seconds(5)).status();
  EXPECT_EQ(ReasonOf(status), "MANAGER_UNREACHABLE");
  EXPECT_THAT(status.message(), HasSubstr(manager_.address())) << "the first is named";
  other_.Start();
  EXPECT_EQ(AskManager(options_, v1::Hello(), absl::Seconds(5)).status().code(),
            absl::StatusCode::kUnimplemented)
      << "the second answers, and has no such method";
}

TEST(GrpcManagerLinkTlsTest, SessionRunsOverMutualTlsToANameThatIsNotTheAddress) {
  namespace fs = std::filesystem;
  std::string pattern = (fs::temp_directory_path() / "cxlpool-link-XXXXXX").string();
  const std::string dir = mkdtemp(pattern.data());
  ASSERT_TRUE(pki::InitAuthority(dir, false).ok());
  const auto fm = pki::IssueLeaf(dir, {pki::LeafRole::kManager, "fm", {}, {}, false});
  const auto host = pki::IssueLeaf(dir, {pki::LeafRole::kHost, "host-a", {}, {}, false});
  ASSERT_TRUE(fm.ok() && host.ok());
  FakeManager manager(*ServerTls({fm->ca, fm->cert, fm->key}));
  Watched heard;
  bool welcomed = false;
  GrpcLinkOptions options;
  options.addresses = {manager.address()};
  options.tls =
      *TlsSource::Load({host->ca, host->cert, host->key}, CertificateUse::Agent("host-a"));
  auto link = MakeGrpcManagerLink(options);
  ASSERT_TRUE(link.ok()) << link.status();
  ManagerLink::Handlers handlers;
  handlers.make_hello = [](DoneWith<v1::Hello> done) { std::move(done)(v1::Hello()); };
  handlers.on_welcome = [&](v1::Welcome) { heard.Set([&] { welcomed = true; }); };
  handlers.on_offer = [](v1::Offer) {};
  handlers.on_withdraw = [](v1::Withdraw) {};
  handlers.on_lost = [](absl::Status why, bool) { ADD_FAILURE() << why; };
  (*link)->Start(std::move(handlers));
  FakeSession* const session = manager.Session(0);
  ASSERT_NE(session, nullptr);
  session->Say(Welcome());
  EXPECT_TRUE(heard.Await([&] { return welcomed; }));
  (*link)->Stop();
  manager.Stop();
  fs::remove_all(dir);
}

}  // namespace
}  // namespace cxlpool::agent
