// The drain hook: when it runs, what it is given, and that nothing waits for it but its segment.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "test/rigs/core_rig.h"

namespace cxlpool::agent {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Ends when the test says so.
class FakeDrainHook : public DrainHook {
 public:
  void Run(DrainRequest request, Done done) override {
    requests.push_back(std::move(request));
    running.push_back(std::move(done));
  }
  void End(absl::Status status = absl::OkStatus()) {
    Done done = std::move(running.front());
    running.erase(running.begin());
    std::move(done)(std::move(status));
  }

  std::vector<DrainRequest> requests;
  std::vector<Done> running;
};

class DrainTest : public testing::Test {
 protected:
  void Begin(v1::AttachmentMode mode = v1::DEVDAX) {
    rig.memory.plugged = {{1, 0x51}, {3, 0x53}};
    rig.core->SetDrainHook(&hook);
    rig.Start();
    rig.Connect({MakeOffer(1, kOnline, {{1, 0x51}}, mode), MakeOffer(2, kOnline, {{3, 0x53}})});
    ASSERT_EQ(rig.Reported(0x51), v1::SEGMENT_ONLINE);
    ASSERT_EQ(rig.Reported(0x53), v1::SEGMENT_ONLINE);
    ASSERT_TRUE(hook.requests.empty());
  }
  void Release(v1::AttachmentMode mode = v1::DEVDAX) {
    rig.Offer(MakeOffer(1, kOffline, {{1, 0x51}}, mode));
  }
  void End(absl::Status status = absl::OkStatus()) {
    hook.End(std::move(status));
    rig.executor.RunReady();
  }
  std::vector<std::string> Reasons() const {
    std::vector<std::string> reasons;
    for (const DrainRequest& request : hook.requests) reasons.push_back(request.reason);
    return reasons;
  }
  std::string Message() const { return rig.link.Last(0x51)->error().message(); }

  FakeDrainHook hook;
  CoreRig rig;
};

TEST_F(DrainTest, RunsOnceBeforeTheMemoryIsTakenAndIsToldOfWhat) {
  Begin();
  rig.memory.holders = {4711, 17};
  Release();
  ASSERT_EQ(hook.requests.size(), 1u);
  const DrainRequest& request = hook.requests[0];
  EXPECT_EQ(request.region, "r1");
  EXPECT_EQ(request.tag, "tag-1");
  EXPECT_EQ(request.mode, "devdax");
  EXPECT_EQ(request.numa_node, 2);
  EXPECT_THAT(request.dax_device, HasSubstr("dax"));
  EXPECT_THAT(request.processes, ElementsAre(ProcessId{17, FakeHostMemory::kHolderStart},
                                             ProcessId{4711, FakeHostMemory::kHolderStart}));
  EXPECT_EQ(request.reason, "RELEASE");
  EXPECT_EQ(rig.Calls("UnbindDax 0x51"), 0);
  rig.executor.Advance(absl::Minutes(5));
  EXPECT_EQ(hook.requests.size(), 1u) << "one at a time";
  EXPECT_EQ(rig.Reported(0x51), v1::SEGMENT_STOPPING);
  rig.memory.holders.clear();
  End();
  EXPECT_EQ(rig.Reported(0x51), v1::SEGMENT_PRESENT);
  EXPECT_EQ(hook.requests.size(), 1u);
}

TEST_F(DrainTest, NothingElseWaitsForIt) {
  Begin();
  Release();
  ASSERT_EQ(hook.running.size(), 1u);
  rig.memory.plugged[4] = 0x54;
  rig.Offer(MakeOffer(3, kOnline, {{4, 0x54}}));
  EXPECT_EQ(rig.Reported(0x54), v1::SEGMENT_ONLINE);
  rig.Offer(MakeOffer(2, kOffline, {{3, 0x53}}));
  ASSERT_EQ(hook.running.size(), 2u) << "the hook of another segment runs beside it";
  EXPECT_TRUE(rig.core->progress().reconciled);
  hook.running.erase(hook.running.begin() + 1, hook.running.end());
}

TEST_F(DrainTest, RunsAgainWithBackoffWhileTheMemoryIsHeld) {
  Begin();
  rig.memory.holders = {7};
  Release();
  for (int i = 0; i < 4; ++i) {
    ASSERT_EQ(hook.running.size(), 1u) << i;
    End();
    EXPECT_EQ(rig.ReportedError(0x51), "HOLDERS");
    EXPECT_TRUE(hook.running.empty());
    rig.executor.Advance(absl::Milliseconds(100 << i) - absl::Milliseconds(1));
    EXPECT_TRUE(hook.running.empty()) << i;
    rig.executor.Advance(absl::Milliseconds(1));
  }
  EXPECT_THAT(Reasons(), ElementsAre("RELEASE", "HOLDERS", "HOLDERS", "HOLDERS", "HOLDERS"));
  EXPECT_EQ(rig.ReportedError(0x51), "HOLDERS") << "it stands while the hook runs";
  rig.memory.holders.clear();
  End();
  EXPECT_EQ(rig.Reported(0x51), v1::SEGMENT_PRESENT);
}

TEST_F(DrainTest, RunsAgainAfterBlocksThatStayOnline) {
  Begin(v1::SYSTEM_RAM);
  rig.memory.failures["OfflineBlocks"] =
      Refuse(absl::StatusCode::kFailedPrecondition, "BLOCKS_BUSY", "4 of 4 stay online", "",
             {{"cause", "busy"}, {"pids", "4711,17"}, {"starts", "88,77"}});
  Release(v1::SYSTEM_RAM);
  ASSERT_EQ(hook.requests.size(), 1u);
  EXPECT_EQ(hook.requests[0].mode, "system-ram");
  End();
  EXPECT_EQ(rig.Calls("OfflineBlocks 0x51"), 1);
  rig.executor.Advance(absl::Milliseconds(100));
  rig.memory.failures.clear();
  ASSERT_EQ(hook.running.size(), 1u);
  EXPECT_THAT(hook.requests[1].processes, ElementsAre(ProcessId{17, 77}, ProcessId{4711, 88}));
  End();
  EXPECT_THAT(Reasons(), ElementsAre("RELEASE", "BLOCKS_BUSY"));
  EXPECT_EQ(rig.Reported(0x51), v1::SEGMENT_PRESENT);
}

TEST_F(DrainTest, ItsFailureIsToldWhereTheReleaseIsHeldUp) {
  Begin();
  const absl::Status failed =
      Refuse(absl::StatusCode::kAborted, "DRAIN_HOOK", "the drain hook exited with status 3", "");
  rig.memory.holders = {7};
  Release();
  End(failed);
  EXPECT_EQ(rig.ReportedError(0x51), "HOLDERS");
  EXPECT_THAT(Message(), HasSubstr("DRAIN_HOOK: the drain hook exited with status 3"));
  rig.executor.Advance(absl::Milliseconds(100));
  End();
  EXPECT_EQ(Message().find("DRAIN_HOOK"), std::string::npos) << "it went well then";
  rig.executor.Advance(absl::Milliseconds(200));
  rig.memory.holders.clear();
  End(failed);
  EXPECT_EQ(rig.Reported(0x51), v1::SEGMENT_PRESENT) << "the release goes on all the same";
}

TEST_F(DrainTest, ApplicationsThatHaveItOpenAreHoldersToo) {
  Begin();
  rig.core->opens().Open({1, "tag-1"}, {.connection = 5, .process = {42, 99}, .name = "r1"},
                         {0x51});
  Release();
  ASSERT_EQ(hook.requests.size(), 1u);
  EXPECT_THAT(hook.requests[0].processes, ElementsAre(ProcessId{42, 99}));
  End();
  EXPECT_EQ(rig.ReportedError(0x51), "HOLDERS");
  rig.executor.Advance(absl::Milliseconds(100));
  EXPECT_THAT(Reasons(), ElementsAre("RELEASE", "HOLDERS"));
}

TEST_F(DrainTest, AWayDownThatIsTakenBackNeedsItAnewTheNextTime) {
  Begin();
  Release();
  ASSERT_EQ(hook.running.size(), 1u);
  rig.Offer(MakeOffer(1, kOnline, {{1, 0x51}}));
  End();
  EXPECT_EQ(rig.Reported(0x51), v1::SEGMENT_ONLINE);
  Release();
  EXPECT_EQ(hook.requests.size(), 2u);
  End();
  EXPECT_EQ(rig.Reported(0x51), v1::SEGMENT_PRESENT);
}

// As each Welcome does.
TEST_F(DrainTest, TheSameOfferOnceMoreRunsItNoSooner) {
  Begin();
  rig.core->opens().Open({1, "tag-1"}, {.connection = 5, .process = {42, 99}, .name = "r1"},
                         {0x51});
  Release();
  ASSERT_EQ(hook.running.size(), 1u);
  End(Refuse(absl::StatusCode::kAborted, "DRAIN_HOOK", "it exited with status 3", ""));
  for (const int pause_ms : {100, 200}) {
    Release();
    EXPECT_TRUE(hook.running.empty());
    EXPECT_EQ(rig.ReportedError(0x51), "HOLDERS");
    rig.executor.Advance(absl::Milliseconds(pause_ms - 1));
    EXPECT_TRUE(hook.running.empty()) << pause_ms;
    rig.executor.Advance(absl::Milliseconds(1));
    ASSERT_EQ(hook.running.size(), 1u) << pause_ms;
    End();
  }
  EXPECT_THAT(Reasons(), ElementsAre("RELEASE", "HOLDERS", "HOLDERS"));
}

// While the holders are looked for.
TEST_F(DrainTest, AHookThatTheConfigurationLosesMeanwhileIsNotRun) {
  Begin();
  rig.link.handlers.on_offer(MakeOffer(1, kOffline, {{1, 0x51}}));
  rig.executor.Post([this] {
    EXPECT_EQ(rig.Calls("FindHolders 0x51"), 1);
    rig.core->SetDrainHook(nullptr);
  });
  rig.executor.RunReady();
  EXPECT_TRUE(hook.requests.empty());
  EXPECT_EQ(rig.Reported(0x51), v1::SEGMENT_PRESENT);
}

TEST_F(DrainTest, AnOfferThatGoesMeanwhileHarmsNothing) {
  Begin();
  Release();
  v1::Withdraw withdraw;
  withdraw.set_region_tag("tag-1");
  withdraw.set_attachment_generation(1);
  rig.link.handlers.on_withdraw(withdraw);
  rig.executor.RunReady();
  End();
  EXPECT_EQ(rig.Calls("UnbindDax 0x51"), 0);
}

}  // namespace
}  // namespace cxlpool::agent
