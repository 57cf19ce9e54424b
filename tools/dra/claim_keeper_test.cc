#include "tools/dra/claim_keeper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <memory>
#include <string>

#include "absl/time/clock.h"
#include "test/rigs/fake_agent.h"
#include "tools/dra/claim.h"

namespace cxlpool::dra {
namespace {

using libpool::FakeAgent;
using ::testing::HasSubstr;

constexpr char kRegionName[] = "regions/k8s-a";

class ClaimKeeperTest : public ::testing::Test {
 protected:
  ClaimKeeperTest() : keeper_(MakeKeeper()) { agent_.Add({.name = kRegionName}); }

  std::unique_ptr<ClaimKeeper> MakeKeeper() {
    std::filesystem::create_directory(dir_.Path("cdi"));
    return std::make_unique<ClaimKeeper>(dir_.Path("cdi"), agent_.socket_path());
  }
  // One try.
  absl::Status Prepare(const std::string& uid) {
    return keeper_->Prepare({uid}, absl::Now(), [] { return false; }).at(uid);
  }
  std::string PathOf(const std::string& uid) const {
    return dir_.Path("cdi") + "/" + CdiFileName("k8s-" + uid);
  }
  std::string TextOf(const std::string& uid) const {
    std::ifstream file(PathOf(uid));
    return {std::istreambuf_iterator<char>(file), {}};
  }
  size_t Files() const {
    const std::filesystem::directory_iterator entries(dir_.Path("cdi"));
    return static_cast<size_t>(std::distance(begin(entries), end(entries)));
  }

  libpool::TempDir dir_;
  FakeAgent agent_;
  std::unique_ptr<ClaimKeeper> keeper_;
};

TEST_F(ClaimKeeperTest, WhatIsPreparedIsOpenAndHasAFileForEverybody) {
  ASSERT_TRUE(Prepare("a").ok());
  EXPECT_EQ(agent_.Opens(kRegionName), 1);
  EXPECT_THAT(TextOf("a"), HasSubstr(agent_.FilePath(kRegionName, 0)));
  struct stat file = {};
  ASSERT_EQ(::stat(PathOf("a").c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 07777, 0644u);
  EXPECT_EQ(Files(), 1u);
}

TEST_F(ClaimKeeperTest, TwiceIsOnce) {
  ASSERT_TRUE(Prepare("a").ok());
  std::filesystem::remove(PathOf("a"));
  ASSERT_TRUE(Prepare("a").ok());
  EXPECT_THAT(TextOf("a"), HasSubstr("k8s-a"));
  ASSERT_TRUE(keeper_->Unprepare("a").ok());
  EXPECT_TRUE(agent_.AwaitOpens(kRegionName, 0));
  EXPECT_EQ(Files(), 0u);
  EXPECT_TRUE(keeper_->Unprepare("a").ok());
  EXPECT_TRUE(keeper_->Unprepare("never-seen").ok());
  EXPECT_TRUE(keeper_->Unprepare("../a").ok());
}

TEST_F(ClaimKeeperTest, ReadOnlyIsOpenedSo) {
  agent_.Add({.name = kRegionName, .access = v1::READ_ONLY});
  ASSERT_TRUE(Prepare("a").ok());
  EXPECT_THAT(TextOf("a"), HasSubstr(R"("ro")"));
}

TEST_F(ClaimKeeperTest, WhatNoContainerCanHaveIsRefusedAtOnce) {
  agent_.Add({.name = "regions/k8s-ram", .mode = v1::SYSTEM_RAM});
  agent_.Add({.name = "regions/k8s-two", .segment_bytes = {1 << 20, 1 << 20}});
  const auto outcomes =
      keeper_->Prepare({"ram", "two", "Bad"}, absl::InfiniteFuture(), [] { return false; });
  EXPECT_THAT(std::string(outcomes.at("ram").message()), HasSubstr("--mode devdax"));
  EXPECT_THAT(std::string(outcomes.at("two").message()), HasSubstr("--max-extents 1"));
  EXPECT_TRUE(absl::IsInvalidArgument(outcomes.at("Bad")));
  EXPECT_EQ(Files(), 0u);
  EXPECT_TRUE(agent_.AwaitOpens("regions/k8s-two", 0));
}

TEST_F(ClaimKeeperTest, WhatIsNotThereYetIsWaitedForAndHoldsUpNothingElse) {
  std::promise<void> tried;
  auto outcomes = std::async(std::launch::async, [&] {
    return keeper_->Prepare({"later", "a"}, absl::Now() + absl::Seconds(20),
                            [&, asked = 0]() mutable {
                              if (++asked == 3) tried.set_value();  // Both were tried.
                              return false;
                            });
  });
  tried.get_future().wait();
  EXPECT_TRUE(agent_.AwaitOpens(kRegionName, 1));
  agent_.Add({.name = "regions/k8s-later"});
  for (const auto& [uid, outcome] : outcomes.get()) EXPECT_TRUE(outcome.ok()) << uid << outcome;
  EXPECT_EQ(Files(), 2u);
}

TEST_F(ClaimKeeperTest, WhatNeverComesIsSaidAtTheDeadline) {
  const absl::Time begun = absl::Now();
  const auto outcomes =
      keeper_->Prepare({"none"}, begun + absl::Milliseconds(500), [] { return false; });
  EXPECT_TRUE(absl::IsNotFound(outcomes.at("none")));
  EXPECT_LT(absl::Now() - begun, absl::Seconds(10));
}

TEST_F(ClaimKeeperTest, WhoHasGoneIsPreparedNothing) {
  const auto outcomes = keeper_->Prepare({"a"}, absl::InfiniteFuture(), [] { return true; });
  EXPECT_FALSE(outcomes.at("a").ok());
  EXPECT_EQ(Files(), 0u);
}

// A kubelet gives up the one call and makes the other, which may overtake it.
TEST_F(ClaimKeeperTest, WhatIsUnpreparedMeanwhileIsNotPreparedAfterwards) {
  std::future<absl::Status> unprepared;
  const auto outcomes = keeper_->Prepare({"a"}, absl::Now(), [&] {
    if (!unprepared.valid()) {
      unprepared = std::async(std::launch::async, [&] { return keeper_->Unprepare("a"); });
      // Long enough for it to end, if it could have its turn between this and the preparing.
      (void)unprepared.wait_for(std::chrono::milliseconds(200));
    }
    return false;
  });
  EXPECT_TRUE(outcomes.at("a").ok()) << outcomes.at("a");
  EXPECT_TRUE(unprepared.get().ok());
  EXPECT_TRUE(agent_.AwaitOpens(kRegionName, 0));
  EXPECT_EQ(Files(), 0u);
}

TEST_F(ClaimKeeperTest, AnAgentThatStartsAgainKnowsOfIt) {
  ASSERT_TRUE(Prepare("a").ok());
  agent_.Stop();
  keeper_->Refresh();
  EXPECT_EQ(Files(), 1u) << "the device is still the Region's";
  EXPECT_TRUE(Prepare("a").ok());
  agent_.Start();
  keeper_->Refresh();
  EXPECT_EQ(agent_.Opens(kRegionName), 1);
}

TEST_F(ClaimKeeperTest, TheNextProcessTakesOver) {
  ASSERT_TRUE(Prepare("a").ok());
  keeper_.reset();
  EXPECT_TRUE(agent_.AwaitOpens(kRegionName, 0));
  std::ofstream(dir_.Path("cdi") + "/others.json") << "{}";
  keeper_ = MakeKeeper();
  ASSERT_TRUE(keeper_->Start().ok());
  EXPECT_EQ(agent_.Opens(kRegionName), 1);
  ASSERT_TRUE(keeper_->Unprepare("a").ok());
  EXPECT_TRUE(agent_.AwaitOpens(kRegionName, 0));
  EXPECT_EQ(Files(), 1u) << "that of others";
}

// The number of its device may be another Region's meanwhile.
TEST_F(ClaimKeeperTest, NoFileOfWhatNobodyHoldsIsLeft) {
  agent_.Add({.name = "regions/k8s-gone", .tag = "1f8fad5b-d9cb-469f-a165-70867728950e"});
  ASSERT_TRUE(Prepare("a").ok());
  ASSERT_TRUE(Prepare("gone").ok());
  keeper_.reset();
  agent_.Remove("regions/k8s-gone");
  agent_.Stop();
  keeper_ = MakeKeeper();
  ASSERT_TRUE(keeper_->Start().ok());
  EXPECT_EQ(Files(), 0u) << "the agent is away";
  agent_.Start();
  keeper_->Refresh();
  EXPECT_EQ(Files(), 1u);
  EXPECT_THAT(TextOf("a"), HasSubstr("k8s-a"));
}

TEST_F(ClaimKeeperTest, AnotherRegionOfTheNameIsOpenedAnew) {
  ASSERT_TRUE(Prepare("a").ok());
  agent_.Stop();
  agent_.Remove(kRegionName);
  agent_.Add({.name = kRegionName, .generation = 2, .segment_bytes = {2 << 20}});
  agent_.Start();
  keeper_->Refresh();
  EXPECT_THAT(TextOf("a"), HasSubstr("CXLPOOL_SIZE_BYTES=2097152"));
  EXPECT_TRUE(agent_.AwaitOpens(kRegionName, 1));
}

TEST_F(ClaimKeeperTest, WhatIsOpenStaysUntilItIsNotAttachedAnyMore) {
  ASSERT_TRUE(Prepare("a").ok());
  agent_.Stop();
  agent_.Add({.name = kRegionName, .generation = 2, .mode = v1::SYSTEM_RAM});
  agent_.Start();
  keeper_->Refresh();
  EXPECT_EQ(Files(), 1u) << "its device is open here, and nobody else's";
  agent_.Stop();
  agent_.Remove(kRegionName);
  agent_.Start();
  keeper_->Refresh();
  EXPECT_EQ(Files(), 0u);
}

TEST_F(ClaimKeeperTest, AFolderThatIsNotThereIsSaid) {
  ClaimKeeper keeper(dir_.Path("none"), agent_.socket_path());
  EXPECT_THAT(std::string(keeper.Start().message()), HasSubstr(dir_.Path("none")));
}

}  // namespace
}  // namespace cxlpool::dra
