#include "host-agent/service/tiering_keeper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "test/rigs/manual_executor.h"

namespace cxlpool::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const PolicyValues kBefore = {
    {"demotion_enabled", "false"}, {"numa_balancing", "0"}, {"weighted_interleave/node0", "1"}};
const PolicyValues kTiering = {
    {"demotion_enabled", "true"}, {"numa_balancing", "2"}, {"weighted_interleave/node0", "1"}};
const TieringConfig kConfig = {.demotion = true,
                               .numa_balancing = TieringConfig::NumaBalancing::kTiering};
const TieringNodes kNone = {{0}, {}};
const TieringNodes kNodes = {{0}, {1}};

// A kernel and the folder /run of one boot.
struct FakePolicy : HostPolicy {
  PolicyValues values = kBefore;
  SavedPolicy saved;
  std::vector<std::string> calls;  // Writes, and "save" where `saved` changed.
  absl::Status write;
  absl::Status save;

  PolicyValues Read() override { return values; }
  absl::Status Write(const std::string& name, const std::string& value) override {
    calls.push_back(name + "=" + value);
    if (write.ok()) values.at(name) = value;
    return write;
  }
  SavedPolicy Saved() override { return saved; }
  absl::Status Save(const SavedPolicy& policy) override {
    calls.emplace_back("save");
    if (save.ok()) saved = policy;
    return save;
  }
};

struct TieringKeeperTest : testing::Test {
  ManualExecutor executor;
  FakePolicy policy;
  std::unique_ptr<TieringKeeper> keeper = New(kConfig);

  std::unique_ptr<TieringKeeper> New(const TieringConfig& config) {
    return std::make_unique<TieringKeeper>(config, &executor, &policy);
  }
  void Update(const TieringNodes& nodes) {
    keeper->Update(nodes);
    executor.RunReady();
  }
  void Stop() {
    keeper->Stop();
    executor.RunReady();
  }
};

TEST_F(TieringKeeperTest, SavesThenSetsWithTheFirstMemoryThatIsOnline) {
  Update(kNone);
  EXPECT_THAT(policy.calls, IsEmpty());
  Update(kNodes);
  EXPECT_THAT(policy.calls, ElementsAre("save", "demotion_enabled=true", "numa_balancing=2"));
  EXPECT_EQ(policy.values, kTiering);
  EXPECT_EQ(policy.saved,
            (SavedPolicy{{"demotion_enabled", {"false", "true"}}, {"numa_balancing", {"0", "2"}}}));
  Update(kNodes);
  Update({{0}, {1, 2}});
  EXPECT_EQ(policy.calls.size(), 3u);
}

TEST_F(TieringKeeperTest, RestoresWhenTheLastMemoryGoes) {
  Update(kNodes);
  Update({{0}, {1, 2}});
  Update({{0}, {2}});
  EXPECT_EQ(policy.values, kTiering);
  Update(kNone);
  EXPECT_EQ(policy.values, kBefore);
  EXPECT_THAT(policy.saved, IsEmpty());
  Update(kNodes);
  EXPECT_EQ(policy.values, kTiering);
}

TEST_F(TieringKeeperTest, RestoresOnStopAndDoesNothingMore) {
  Update(kNodes);
  Stop();
  EXPECT_EQ(policy.values, kBefore);
  EXPECT_THAT(policy.saved, IsEmpty());
  Update({{0}, {1, 2}});
  Stop();
  EXPECT_EQ(policy.values, kBefore);
}

TEST_F(TieringKeeperTest, AfterACrashGoesOnWhereMemoryIsOnline) {
  Update(kNodes);
  policy.calls.clear();
  keeper = New(kConfig);
  Update(kNodes);
  EXPECT_THAT(policy.calls, IsEmpty());
  Update(kNone);
  EXPECT_EQ(policy.values, kBefore);
}

TEST_F(TieringKeeperTest, AfterACrashRestoresWhereNothingNeedsIt) {
  Update(kNodes);
  keeper = New(kConfig);
  Update(kNone);
  EXPECT_EQ(policy.values, kBefore);
  EXPECT_THAT(policy.saved, IsEmpty());
}

TEST_F(TieringKeeperTest, AfterACrashAStopBeforeTheFirstLookRestores) {
  Update(kNodes);
  keeper = New(kConfig);
  Stop();
  EXPECT_EQ(policy.values, kBefore);
}

TEST_F(TieringKeeperTest, AfterACrashWhatIsNoLongerConfiguredIsRestored) {
  Update(kNodes);
  keeper = New({.numa_balancing = TieringConfig::NumaBalancing::kOn});
  Update(kNodes);
  EXPECT_EQ(policy.values.at("demotion_enabled"), "false");
  EXPECT_EQ(policy.values.at("numa_balancing"), "1");
  EXPECT_EQ(policy.saved, (SavedPolicy{{"numa_balancing", {"0", "1"}}}));
  keeper = New({});
  Update(kNodes);
  EXPECT_EQ(policy.values, kBefore);
}

TEST_F(TieringKeeperTest, WithoutConfigurationNothingIsTouched) {
  keeper = New({});
  Update(kNodes);
  Update(kNone);
  Stop();
  EXPECT_THAT(policy.calls, IsEmpty());
}

TEST_F(TieringKeeperTest, WhatSomebodyElseChangedStays) {
  Update(kNodes);
  policy.values["numa_balancing"] = "1";
  Update({{0}, {1, 2}});
  EXPECT_EQ(policy.values.at("numa_balancing"), "1");
  testing::internal::CaptureStderr();
  Update(kNone);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::HasSubstr("numa_balancing is not as the agent set it"));
  EXPECT_EQ(policy.values.at("numa_balancing"), "1");
  EXPECT_EQ(policy.values.at("demotion_enabled"), "false");
  EXPECT_THAT(policy.saved, IsEmpty());
}

TEST_F(TieringKeeperTest, WhatTheKernelLacksIsSaidOnce) {
  policy.values.erase("demotion_enabled");
  testing::internal::CaptureStderr();
  Update(kNodes);
  Update(kNone);
  Update(kNodes);
  const std::string log = testing::internal::GetCapturedStderr();
  const size_t first = log.find("TIERING_UNSUPPORTED: this kernel has no demotion_enabled");
  ASSERT_NE(first, std::string::npos) << log;
  EXPECT_EQ(log.find("TIERING_UNSUPPORTED", first + 1), std::string::npos) << log;
  EXPECT_EQ(policy.values.at("numa_balancing"), "2");
}

TEST_F(TieringKeeperTest, NothingIsSetThatCouldNotBeSaved) {
  policy.save = absl::UnavailableError("no space");
  Update(kNodes);
  EXPECT_EQ(policy.values, kBefore);
  testing::internal::CaptureStderr();
  executor.Advance(kTieringRetry);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");  // Said once.
  policy.save = absl::OkStatus();
  executor.Advance(kTieringRetry);
  EXPECT_EQ(policy.values, kTiering);
}

TEST_F(TieringKeeperTest, WhatTheHostCannotTakeBackIsSaidOnceAndNotTriedAgain) {
  Update(kNodes);
  policy.write = absl::UnimplementedError("no bandwidths");
  testing::internal::CaptureStderr();
  Update(kNone);
  EXPECT_THAT(policy.saved, IsEmpty());
  policy.calls.clear();
  executor.Advance(absl::Minutes(1));
  EXPECT_THAT(policy.calls, IsEmpty());
  policy.values = kBefore;
  Update(kNodes);
  policy.calls.clear();
  executor.Advance(absl::Minutes(1));
  EXPECT_THAT(policy.calls, IsEmpty());
  const std::string log = testing::internal::GetCapturedStderr();
  size_t said = 0;
  for (size_t at = log.find("no bandwidths"); at != std::string::npos;
       at = log.find("no bandwidths", at + 1)) {
    ++said;
  }
  EXPECT_EQ(said, 2u) << log;  // Of each of two settings.
}

TEST_F(TieringKeeperTest, WeightOfANodeThatIsGoneComesBackWithTheKernelsOwn) {
  policy.values = {{"weighted_interleave/auto", "true"},
                   {"weighted_interleave/node0", "1"},
                   {"weighted_interleave/node1", "4"}};
  keeper = New({.local_weight = 3, .pool_weight = 2});
  Update(kNodes);
  EXPECT_EQ(policy.values, (PolicyValues{{"weighted_interleave/auto", "false"},
                                         {"weighted_interleave/node0", "3"},
                                         {"weighted_interleave/node1", "2"}}));
  policy.values.erase("weighted_interleave/node1");
  Update(kNone);
  EXPECT_EQ(policy.values, (PolicyValues{{"weighted_interleave/auto", "true"},
                                         {"weighted_interleave/node0", "1"}}));
  EXPECT_THAT(policy.saved, IsEmpty());
}

TEST_F(TieringKeeperTest, WriteThatFailsIsTriedAgain) {
  policy.write = absl::InternalError("refused");
  Update(kNodes);
  EXPECT_EQ(policy.values, kBefore);
  policy.write = absl::OkStatus();
  executor.Advance(kTieringRetry);
  EXPECT_EQ(policy.values, kTiering);
  policy.write = absl::InternalError("refused");
  Update(kNone);
  EXPECT_EQ(policy.values, kTiering);
  EXPECT_EQ(policy.saved.size(), 2u);
  policy.write = absl::OkStatus();
  executor.Advance(kTieringRetry);
  EXPECT_EQ(policy.values, kBefore);
  EXPECT_THAT(policy.saved, IsEmpty());
  policy.calls.clear();
  executor.Advance(absl::Minutes(1));
  EXPECT_THAT(policy.calls, IsEmpty());
}

}  // namespace
}  // namespace cxlpool::agent
