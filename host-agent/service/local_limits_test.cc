// What is left of a local connection that has ended is little, whatever its user does over and
// over: no turn of the core, so many calls to the manager, and no timers.

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "host-agent/service/local_service.h"
#include "test/rigs/core_rig.h"

namespace cxlpool::agent {
namespace {

// Counts the timers that are set.
class TimerCount : public ManualExecutor {
 public:
  void PostAfter(absl::Duration delay, Task task) override {
    ++set;
    longest = std::max(longest, delay);
    ManualExecutor::PostAfter(delay, std::move(task));
  }
  int set = 0;
  absl::Duration longest = absl::ZeroDuration();
};

struct LimitsRig : CoreRig {
  LimitsRig() {
    service = std::make_unique<LocalService>(LocalPolicy{.agent_uid = 990}, core.get(), &timers,
                                             &executor, &memory, &link);
    Start();
  }

  static LocalPeer PeerOf(uint64_t connection, uint32_t uid = 1000) {
    return {.connection = connection, .uid = uid, .pid = 4711, .start_ticks = 99};
  }
  static v1::LocalRequest Empty() {
    v1::LocalRequest request;
    request.set_protocol_version(kLocalProtocolVersion);
    return request;
  }
  static v1::LocalRequest OpenFor(uint32_t wait_ms) {
    v1::LocalRequest request = Empty();
    request.mutable_open()->set_name("regions/r1");
    request.mutable_open()->set_wait_ms(wait_ms);
    return request;
  }

  // The answer's reason, "" where it is OK, "-" where there is none yet.
  std::string Ask(const LocalPeer& peer, const v1::LocalRequest& request) {
    std::string reason = "-";
    auto answer = std::make_shared<std::string*>(&reason);
    service->Handle(peer, request, [answer](const LocalReply& reply) {
      if (*answer != nullptr) **answer = reply.response.error().reason();
    });
    executor.RunReady();
    timers.RunReady();
    *answer = nullptr;  // A later one is not heard.
    return reason;
  }
  std::string Allocate(uint64_t connection, uint32_t uid) {
    v1::LocalRequest request = Empty();
    request.mutable_allocate()->set_request_id(absl::StrCat("request-", connection));
    request.mutable_allocate()->set_size_bytes(kTestLength);
    return Ask(PeerOf(connection, uid), request);
  }
  void End(uint64_t connection) {
    service->ConnectionEnded(connection);
    executor.RunReady();
  }

  TimerCount timers;  // The service's executor.
  std::unique_ptr<LocalService> service;
};

TEST(LocalLimitsTest, TheEndOfAConnectionThatHadNothingOpenIsNoTurnOfTheCore) {
  LimitsRig rig;
  rig.memory.plugged = {{1, 0x51}};
  rig.Connect({MakeOffer(1, kOnline, {{1, 0x51}})});
  int turns = 0;
  rig.core->AddOnChange([&] { ++turns; });
  v1::LocalRequest list = LimitsRig::Empty();
  list.mutable_list();
  v1::LocalRequest close = LimitsRig::Empty();
  close.mutable_close()->set_name("regions/r1");
  for (uint64_t connection = 10; connection < 20; ++connection) {
    EXPECT_EQ(rig.Ask(LimitsRig::PeerOf(connection), list), "");
    EXPECT_EQ(rig.Ask(LimitsRig::PeerOf(connection), close), "");
    rig.End(connection);
  }
  EXPECT_EQ(turns, 0);
  EXPECT_EQ(rig.Ask(LimitsRig::PeerOf(20), LimitsRig::OpenFor(0)), "");
  turns = 0;
  rig.End(20);
  EXPECT_GT(turns, 0) << "what was open may go now";
}

TEST(LocalLimitsTest, WhoHangsUpHasNoMoreCallsToTheManagerUnderWay) {
  LimitsRig rig;
  rig.Connect();
  uint64_t connection = 100;
  for (size_t i = 0; i < UserCalls::kMaxOfUser; ++i) {
    EXPECT_EQ(rig.Allocate(++connection, 1000), "-");
    rig.End(connection);
  }
  EXPECT_EQ(rig.link.allocates.size(), UserCalls::kMaxOfUser);
  EXPECT_EQ(rig.Allocate(++connection, 1000), "QUEUE_FULL");
  v1::LocalRequest release = LimitsRig::Empty();
  release.mutable_release()->set_name("regions/r9");
  EXPECT_EQ(rig.Ask(LimitsRig::PeerOf(++connection), release), "QUEUE_FULL");
  EXPECT_TRUE(rig.link.gets.empty());
  EXPECT_EQ(rig.Allocate(++connection, 1001), "-") << "another user's";
  EXPECT_EQ(rig.Allocate(++connection, 0), "-") << "root's";
  std::move(rig.link.allocates[0].second)(absl::ResourceExhaustedError("full"));
  rig.timers.RunReady();
  EXPECT_EQ(rig.Allocate(++connection, 1000), "-") << "one was answered";
}

TEST(LocalLimitsTest, WaitsOfConnectionsThatHungUpLeaveNoTimersBehind) {
  LimitsRig rig;  // The Region's memory is not there.
  rig.Connect({MakeOffer(1, kOnline, {{1, 0x51}})});
  v1::LocalRequest faults = LimitsRig::Empty();
  faults.mutable_faults()->set_wait_ms(60'000);
  for (uint64_t connection = 10; connection < 1000; ++connection) {
    EXPECT_EQ(rig.Ask(LimitsRig::PeerOf(connection),
                      connection % 2 == 0 ? faults : LimitsRig::OpenFor(600'000)),
              "-");
    rig.End(connection);
  }
  EXPECT_LE(rig.timers.set, 2) << "one for opens, one for faults";
  EXPECT_LE(rig.timers.longest, WaitTimer::kStep);
}

}  // namespace
}  // namespace cxlpool::agent
