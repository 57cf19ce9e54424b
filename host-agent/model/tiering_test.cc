#include "host-agent/model/tiering.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cxlpool::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr uint64_t kCard = 0x0c00000000000001;
using Balancing = TieringConfig::NumaBalancing;

const PolicyValues kLinux6 = {{"demotion_enabled", "false"},
                              {"numa_balancing", "0"},
                              {"weighted_interleave/node0", "1"},
                              {"weighted_interleave/node1", "1"}};

PolicyValues With(PolicyValues values, const PolicyValues& more) {
  for (const auto& [name, value] : more) values[name] = value;
  return values;
}

ObservedHostRegion SystemRam(int node, uint32_t online, uint64_t serial = kCard) {
  ObservedHostRegion region;
  region.serials = {serial};
  region.dax_driver = DaxDriver::kKmem;
  region.numa_node = node;
  region.online_blocks = online;
  region.total_blocks = 4;
  return region;
}

TEST(TieringTest, NodesAreThoseOfOnlineMemoryOfThePool) {
  HostObservation host;
  host.own_nodes = {0, 1};
  EXPECT_THAT(TieringNodesOf(host).pool, IsEmpty());
  host.regions = {SystemRam(2, 1), SystemRam(3, 0), SystemRam(4, 4, 0x1234)};
  host.regions.push_back(SystemRam(5, 4));
  host.regions.back().dax_driver = DaxDriver::kDeviceDax;
  EXPECT_EQ(TieringNodesOf(host), (TieringNodes{{0, 1}, {2}}));
}

TEST(TieringTest, NamesAreTheSettingsAndNothingElse) {
  for (const char* name : {"demotion_enabled", "numa_balancing", "weighted_interleave/auto",
                           "weighted_interleave/node0", "weighted_interleave/node17"}) {
    EXPECT_TRUE(IsPolicyName(name)) << name;
  }
  for (const char* name :
       {"", "demotion", "weighted_interleave", "weighted_interleave/node",
        "weighted_interleave/node01", "weighted_interleave/node-1", "weighted_interleave/node1/x",
        "weighted_interleave/../auto", "numa_balancing/"}) {
    EXPECT_FALSE(IsPolicyName(name)) << name;
  }
}

TEST(TieringTest, WantedIsWhatTheConfigurationNames) {
  const TieringNodes nodes = {{0}, {1}};
  const PolicyValues linux7 = With(kLinux6, {{"weighted_interleave/auto", "true"}});
  struct Row {
    const char* name;
    TieringConfig config;
    TieringNodes nodes;
    PolicyValues now;
    PolicyValues wanted;
  };
  const TieringConfig all = {true, Balancing::kTiering, 3, 1};
  const Row kTable[] = {
      {"nothing", {}, nodes, kLinux6, {}},
      {"no memory of the pool", all, {{0}, {}}, kLinux6, {}},
      {"demotion", {.demotion = true}, nodes, kLinux6, {{"demotion_enabled", "true"}}},
      {"no demotion", {.demotion = false}, nodes, kLinux6, {{"demotion_enabled", "false"}}},
      {"off", {.numa_balancing = Balancing::kOff}, nodes, kLinux6, {{"numa_balancing", "0"}}},
      {"on", {.numa_balancing = Balancing::kOn}, nodes, kLinux6, {{"numa_balancing", "1"}}},
      {"pool weight", {.pool_weight = 2}, nodes, kLinux6, {{"weighted_interleave/node1", "2"}}},
      {"local weight", {.local_weight = 4}, nodes, kLinux6, {{"weighted_interleave/node0", "4"}}},
      {"all",
       all,
       {{0, 1}, {2, 3}},
       kLinux6,
       {{"demotion_enabled", "true"},
        {"numa_balancing", "2"},
        {"weighted_interleave/node0", "3"},
        {"weighted_interleave/node1", "3"},
        {"weighted_interleave/node2", "1"},
        {"weighted_interleave/node3", "1"}}},
      {"memory of the pool on the host's own node",
       {.local_weight = 3, .pool_weight = 1},
       {{0}, {0}},
       kLinux6,
       {{"weighted_interleave/node0", "3"}}},
      {"weights on Linux 7",
       {.pool_weight = 2},
       nodes,
       linux7,
       {{"weighted_interleave/auto", "false"}, {"weighted_interleave/node1", "2"}}},
      {"no weights on Linux 7", {.demotion = true}, nodes, linux7, {{"demotion_enabled", "true"}}},
  };
  for (const Row& row : kTable) {
    EXPECT_EQ(WantedPolicy(row.config, row.nodes, row.now), row.wanted) << row.name;
  }
}

TEST(TieringTest, SetsInOrderAndSavesWhatWasThere) {
  const PolicyValues now = With(kLinux6, {{"weighted_interleave/auto", "true"}});
  const SetPlan plan = PlanSet({},
                               {{"weighted_interleave/auto", "false"},
                                {"weighted_interleave/node0", "3"},
                                {"weighted_interleave/node1", "1"},
                                {"weighted_interleave/node2", "1"},
                                {"numa_balancing", "2"}},
                               now);
  EXPECT_THAT(plan.writes,
              ElementsAre(Pair("numa_balancing", "2"), Pair("weighted_interleave/auto", "false"),
                          Pair("weighted_interleave/node0", "3")));
  EXPECT_EQ(plan.saved, (SavedPolicy{{"numa_balancing", {"0", "2"}},
                                     {"weighted_interleave/auto", {"true", "false"}},
                                     {"weighted_interleave/node0", {"1", "3"}},
                                     {"weighted_interleave/node1", {"1", "1"}}}));
  EXPECT_THAT(plan.unsupported, ElementsAre("weighted_interleave/node2"));
}

TEST(TieringTest, SetsAgainWhatADeadAgentHadOnlySaved) {
  const SavedPolicy saved = {{"demotion_enabled", {"false", "true"}}};
  const PolicyValues wanted = {{"demotion_enabled", "true"}};
  EXPECT_THAT(PlanSet(saved, wanted, {{"demotion_enabled", "false"}}).writes,
              ElementsAre(Pair("demotion_enabled", "true")));
  EXPECT_THAT(PlanSet(saved, wanted, {{"demotion_enabled", "true"}}).writes, IsEmpty());
  EXPECT_EQ(PlanSet(saved, wanted, {{"demotion_enabled", "true"}}).saved, saved);
}

TEST(TieringTest, DoesNotTakeBackWhatSomebodyElseSet) {
  const SavedPolicy saved = {{"numa_balancing", {"0", "2"}}};
  EXPECT_THAT(PlanSet(saved, {{"numa_balancing", "2"}}, {{"numa_balancing", "1"}}).writes,
              IsEmpty());
  const RestorePlan plan = PlanRestore(saved, {}, {{"numa_balancing", "1"}});
  EXPECT_THAT(plan.writes, IsEmpty());
  EXPECT_THAT(plan.foreign, ElementsAre("numa_balancing"));
}

TEST(TieringTest, RestoresWeightsBeforeTheKernelWorksThemOutAgain) {
  const SavedPolicy saved = {{"demotion_enabled", {"false", "true"}},
                             {"numa_balancing", {"0", "0"}},
                             {"weighted_interleave/auto", {"true", "false"}},
                             {"weighted_interleave/node0", {"1", "3"}},
                             {"weighted_interleave/node1", {"5", "1"}}};
  PolicyValues now = {{"demotion_enabled", "true"},
                      {"numa_balancing", "0"},
                      {"weighted_interleave/auto", "false"},
                      {"weighted_interleave/node0", "3"}};  // Node 1 is gone.
  const RestorePlan plan = PlanRestore(saved, {}, now);
  EXPECT_THAT(plan.writes, ElementsAre(Pair("weighted_interleave/node0", "1"),
                                       Pair("weighted_interleave/auto", "true"),
                                       Pair("demotion_enabled", "false")));
  EXPECT_THAT(plan.settled, ElementsAre("numa_balancing"));
  EXPECT_THAT(plan.foreign, IsEmpty());
  // The kernel has the weight of node 1 again, too.
  now["weighted_interleave/auto"] = "true";
  EXPECT_THAT(PlanRestore({{"weighted_interleave/node1", {"5", "1"}}}, {}, now).settled,
              ElementsAre("weighted_interleave/node1"));
}

TEST(TieringTest, WeightsThatTheKernelWasToldToWorkOutAreLeftAlone) {
  const SavedPolicy saved = {{"weighted_interleave/auto", {"true", "false"}},
                             {"weighted_interleave/node0", {"1", "3"}}};
  // A write of a weight would switch that off again.
  const RestorePlan plan = PlanRestore(
      saved, {}, {{"weighted_interleave/auto", "true"}, {"weighted_interleave/node0", "3"}});
  EXPECT_THAT(plan.writes, IsEmpty());
  EXPECT_THAT(plan.foreign, ElementsAre("weighted_interleave/node0"));
  EXPECT_THAT(plan.settled, ElementsAre("weighted_interleave/auto"));
}

TEST(TieringTest, WeightOfANodeThatIsGoneStaysSavedUntilItComesBack) {
  const SavedPolicy saved = {{"weighted_interleave/node1", {"5", "1"}}};
  const RestorePlan gone = PlanRestore(saved, {}, {});
  EXPECT_THAT(gone.writes, IsEmpty());
  EXPECT_THAT(gone.foreign, IsEmpty());
  EXPECT_THAT(gone.settled, IsEmpty());
  EXPECT_THAT(PlanRestore(saved, {}, {{"weighted_interleave/node1", "1"}}).writes,
              ElementsAre(Pair("weighted_interleave/node1", "5")));
}

TEST(TieringTest, TakesBackWhatIsWantedDifferentlyNow) {
  const SavedPolicy saved = {{"demotion_enabled", {"false", "true"}},
                             {"numa_balancing", {"0", "2"}}};
  const RestorePlan plan =
      PlanRestore(saved, {{"demotion_enabled", "true"}, {"numa_balancing", "1"}},
                  {{"demotion_enabled", "true"}, {"numa_balancing", "2"}});
  EXPECT_THAT(plan.writes, ElementsAre(Pair("numa_balancing", "0")));
}

}  // namespace
}  // namespace cxlpool::agent
