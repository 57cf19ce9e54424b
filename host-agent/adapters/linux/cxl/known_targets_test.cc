#include "host-agent/adapters/linux/cxl/known_targets.h"

#include <sys/stat.h>

#include "gtest/gtest.h"
#include "test/rigs/fake_host_for_test.h"
#include "test/rigs/snapshot_for_test.h"

namespace cxlpool::agent {
namespace {

TEST(KnownTargetsTest, FillsInWhatWasPulledOut) {
  KnownTargets known;
  CxlSnapshot snapshot = OneBridge();
  AddRegion(snapshot, 0, 0x1001);
  known.Complete(snapshot);
  snapshot.regions[0].targets = {{"", 0}};
  known.Complete(snapshot);
  EXPECT_EQ(snapshot.regions[0].targets[0].serial, 0x1001u);
  snapshot.regions[0].targets.clear();
  known.Complete(snapshot);
  ASSERT_EQ(snapshot.regions[0].targets.size(), 1u);
  EXPECT_EQ(snapshot.regions[0].targets[0].decoder, "");
  EXPECT_NE(FindRegion(snapshot, 0x1001), nullptr);
}

TEST(KnownTargetsTest, NameUsedAgainIsAnotherRegion) {
  KnownTargets known;
  CxlSnapshot snapshot = OneBridge();
  AddRegion(snapshot, 0, 0x1001);
  known.Complete(snapshot);
  snapshot.regions[0].hpa_bytes += 256 * kMiB;
  snapshot.regions[0].targets = {{"", 0}};
  known.Complete(snapshot);
  EXPECT_EQ(snapshot.regions[0].targets[0].serial, 0u);
}

TEST(KnownTargetsTest, ForgetsRegionsThatAreGone) {
  KnownTargets known;
  CxlSnapshot snapshot = OneBridge();
  AddRegion(snapshot, 0, 0x1001);
  known.Complete(snapshot);
  CxlSnapshot empty = OneBridge();
  known.Complete(empty);
  snapshot.regions[0].targets = {{"", 0}};
  known.Complete(snapshot);
  EXPECT_EQ(FindRegion(snapshot, 0x1001), nullptr);
}

TEST(KnownTargetsTest, AnotherMakingOfTheSameNameAndAddressIsAnotherRegion) {
  KnownTargets known;
  CxlSnapshot snapshot = OneBridge();
  AddRegion(snapshot, 0, 0x1001);
  snapshot.regions[0].inode = 7;
  known.Complete(snapshot);
  snapshot.regions[0].inode = 8;
  snapshot.regions[0].targets = {{"", 0}};
  known.Complete(snapshot);
  EXPECT_EQ(snapshot.regions[0].targets[0].serial, 0u);
}

// A serial as managers give them.
constexpr uint64_t kOurs = 0x0c00'0000'0000'0051;

class KnownTargetsFileTest : public testing::Test {
 protected:
  KnownTargetsFileTest() {
    AddRegion(live_, 0, kOurs);
    live_.regions[0].inode = 4711;
    orphan_ = live_;
    orphan_.regions[0].committed = false;
    orphan_.regions[0].targets = {{"", 0}};
  }

  // What an agent that was started now takes the orphan for: 0 if it does not know.
  uint64_t SerialAfterRestart(const std::string& boot_id = "boot-1") {
    KnownTargets started(path_, boot_id);
    CxlSnapshot snapshot = orphan_;
    started.Complete(snapshot);
    return snapshot.regions[0].targets[0].serial;
  }
  void Leave(const CxlSnapshot& seen) {
    CxlSnapshot snapshot = seen;
    KnownTargets(path_, "boot-1").Complete(snapshot);
  }

  FakeHost host_;
  std::string path_ = host_.Path("known-regions");
  CxlSnapshot live_ = OneBridge();
  CxlSnapshot orphan_;
};

TEST_F(KnownTargetsFileTest, RestartedAgentKnowsWhoseAnOrphanWas) {
  EXPECT_EQ(SerialAfterRestart(), 0u) << "nobody left word";
  Leave(live_);
  EXPECT_EQ(SerialAfterRestart(), kOurs);
  EXPECT_EQ(SerialAfterRestart(), kOurs) << "and after the next restart";
}

TEST_F(KnownTargetsFileTest, HoldsWithinOneBootOnly) {
  Leave(live_);
  EXPECT_EQ(SerialAfterRestart("boot-2"), 0u);
  EXPECT_EQ(SerialAfterRestart(""), 0u);
}

TEST_F(KnownTargetsFileTest, AnotherRegionOfTheSameNameIsNotNamed) {
  Leave(live_);
  orphan_.regions[0].inode = 4712;
  EXPECT_EQ(SerialAfterRestart(), 0u);
  Leave(live_);
  orphan_ = live_;
  orphan_.regions[0].targets = {{"", 0}};
  orphan_.regions[0].hpa_bytes += 256 * kMiB;
  EXPECT_EQ(SerialAfterRestart(), 0u);
}

TEST_F(KnownTargetsFileTest, WhatIsNotOfAPoolIsNotKept) {
  live_.regions[0].targets[0].serial = 0x51;
  Leave(live_);
  EXPECT_EQ(SerialAfterRestart(), 0u);
  live_.regions[0].targets = {{"decoder4.0", kOurs}, {"decoder5.0", 0x52}};
  Leave(live_);
  EXPECT_TRUE(ReadKnownRegions(path_, "boot-1").empty());
}

TEST_F(KnownTargetsFileTest, IsWrittenWhenItChangesForItsUserAlone) {
  Leave(live_);
  struct stat file = {};
  ASSERT_EQ(stat(path_.c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 0777u, 0600u);
  KnownTargets known(path_, "boot-1");
  CxlSnapshot same = live_;
  known.Complete(same);
  struct stat after = {};
  ASSERT_EQ(stat(path_.c_str(), &after), 0);
  EXPECT_EQ(after.st_ino, file.st_ino);
  CxlSnapshot none = OneBridge();
  known.Complete(none);
  EXPECT_EQ(host_.files().Read("known-regions"), "cxlpool known regions 1 boot-1");
  EXPECT_FALSE(host_.files().Exists("known-regions.new"));
}

TEST_F(KnownTargetsFileTest, OneThatIsNotUnderstoodIsAsGoodAsEmpty) {
  const std::string first = "cxlpool known regions 1 boot-1\n";
  const std::string good = "region0 0x1000000000 4711 0xc00000000000051\n";
  host_.Put("known-regions", first + good);
  EXPECT_EQ(SerialAfterRestart(), kOurs);
  std::string many = first;
  for (size_t i = 0; i <= kMaxKnownRegions; ++i) {
    many += "region" + std::to_string(i) + " 0x1000000000 4711 0xc00000000000051\n";
  }
  for (const std::string& text :
       {std::string(), good, first + good + "region1", first + good + good,
        first + good + "region1 0x0 5 0xc00000000000052\n",
        first + good + "region1 x 5 0xc00000000000052\n", first + good + "region1 0x5 5 0x52\n",
        first + good + "mem0 0x5 5 0xc00000000000052\n", first + good + std::string(3, '\0') + "\n",
        first + good.substr(0, good.size() - 1), many, first + std::string(1 << 20, 'x')}) {
    host_.Put("known-regions", text);
    EXPECT_TRUE(ReadKnownRegions(path_, "boot-1").empty()) << text.substr(0, 200);
  }
}

TEST_F(KnownTargetsFileTest, OneThatOthersMayWriteOrALinkIsNotBelieved) {
  Leave(live_);
  ASSERT_EQ(chmod(path_.c_str(), 0660), 0);
  EXPECT_EQ(SerialAfterRestart(), 0u);
  std::filesystem::remove(path_);
  Leave(live_);
  std::filesystem::rename(path_, host_.Path("elsewhere"));
  host_.Link("known-regions", "elsewhere");
  EXPECT_EQ(SerialAfterRestart(), 0u);
}

TEST_F(KnownTargetsFileTest, WithoutItsFolderTheAgentGoesOn) {
  path_ = host_.Path("no/such/folder/known-regions");
  const absl::Status status = WriteKnownRegions(path_, "boot-1", {});
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(status.message().find(path_), absl::string_view::npos) << status;
  Leave(live_);
  EXPECT_EQ(SerialAfterRestart(), 0u);
}

}  // namespace
}  // namespace cxlpool::agent
