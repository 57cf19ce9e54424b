#include "host-agent/service/agent_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "test/rigs/core_rig.h"

namespace cxlpool::agent {
namespace {

using testing::HasSubstr;

class AgentMetricsTest : public testing::Test {
 protected:
  std::string Text() const { return AgentMetrics(*rig.core, std::nullopt); }

  CoreRig rig;
};

TEST_F(AgentMetricsTest, SaysWhatIsOnlineAndHowItGotThere) {
  rig.memory.plugged = {{1, 0x51}};
  rig.Start();
  EXPECT_THAT(Text(), HasSubstr("cxlpool_agent_session_up 0\n"));
  rig.Connect({MakeOffer(1, kOnline, {{1, 0x51}})});
  ASSERT_EQ(rig.Reported(0x51), v1::SEGMENT_ONLINE);
  const std::string up = Text();
  EXPECT_THAT(up, HasSubstr("cxlpool_agent_session_up 1\n"));
  EXPECT_THAT(up, HasSubstr("cxlpool_agent_fit 1\n"));
  EXPECT_THAT(up, HasSubstr("cxlpool_agent_segments{state=\"ONLINE\"} 1\n"));
  EXPECT_THAT(up, HasSubstr("cxlpool_agent_segments{state=\"ABSENT\"} 0\n"));
  EXPECT_THAT(up, testing::Not(HasSubstr("cxlpool_agent_online_bytes{mode=\"devdax\"} 0\n")));
  EXPECT_THAT(up, HasSubstr("cxlpool_agent_step_duration_seconds_count{step=\"PowerOn\"} 1\n"));
  EXPECT_THAT(up, HasSubstr("cxlpool_agent_step_failures_total{step=\"PowerOn\"} 0\n"));
  EXPECT_THAT(up, HasSubstr("cxlpool_agent_host_events_total{kind=\"POISON\"} 0\n"));

  rig.Offer(MakeOffer(1, kOffline, {{1, 0x51}}));
  const std::string down = Text();
  EXPECT_THAT(down, HasSubstr("cxlpool_agent_online_bytes{mode=\"devdax\"} 0\n"));
  EXPECT_THAT(down, HasSubstr("cxlpool_agent_step_duration_seconds_count{step=\"UnbindDax\"} 1\n"));
}

TEST_F(AgentMetricsTest, ApplicationsAreCountedByWhetherTheyAreToLetGo) {
  rig.memory.plugged = {{1, 0x51}, {2, 0x52}};
  rig.Start();
  rig.Connect({MakeOffer(1, kOnline, {{1, 0x51}}), MakeOffer(2, kOnline, {{2, 0x52}})});
  const AttachmentKey one = {.generation = 1, .tag = "tag-1"};
  const AttachmentKey two = {.generation = 2, .tag = "tag-2"};
  rig.core->opens().Open(one, {7, {4711, 99}, "regions/r1"}, {0x51});
  rig.core->opens().Open(two, {7, {4711, 99}, "regions/r2"}, {0x52});
  rig.core->opens().Open(two, {8, {4712, 99}, "regions/r2"}, {0x52});
  EXPECT_THAT(Text(), HasSubstr("cxlpool_agent_applications{state=\"using\"} 2\n"));
  EXPECT_THAT(Text(), HasSubstr("cxlpool_agent_applications{state=\"letting_go\"} 0\n"));
  rig.Offer(MakeOffer(1, kOffline, {{1, 0x51}}));
  EXPECT_THAT(Text(), HasSubstr("cxlpool_agent_applications{state=\"using\"} 1\n"));
  EXPECT_THAT(Text(), HasSubstr("cxlpool_agent_applications{state=\"letting_go\"} 1\n"));
}

// The kernel was stopped: nobody has said that somebody holds the memory.
TEST_F(AgentMetricsTest, OfflineThatTookTooLongIsATimeout) {
  rig.memory.plugged = {{1, 0x51}};
  rig.Start();
  rig.Connect({MakeOffer(1, kOnline, {{1, 0x51}}, v1::SYSTEM_RAM)});
  rig.memory.hangs = {0x51};
  rig.Offer(MakeOffer(1, kOffline, {{1, 0x51}}, v1::SYSTEM_RAM));
  rig.executor.Advance(absl::Seconds(10));
  ASSERT_EQ(rig.ReportedError(0x51), "BLOCKS_BUSY");
  const std::string text = Text();
  EXPECT_THAT(text, HasSubstr("cxlpool_agent_offline_attempts_total{outcome=\"timeout\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("cxlpool_agent_offline_attempts_total{outcome=\"held\"} 0\n"));
}

}  // namespace
}  // namespace cxlpool::agent
