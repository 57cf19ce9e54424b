// Host regions that lost all their targets, and of which nobody knows whose they were.
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "test/rigs/core_rig.h"

namespace cxlpool::agent {
namespace {

class OrphanTest : public testing::Test {
 protected:
  OrphanTest() {
    rig.Start();
    rig.Connect();
  }
  ObservedHostRegion& Add(const std::string& name, std::vector<uint64_t> serials) {
    ObservedHostRegion region;
    region.name = name;
    region.serials = std::move(serials);
    region.size_bytes = kTestLength;
    rig.memory.host.regions.push_back(region);
    return rig.memory.host.regions.back();
  }
  size_t Regions() const { return rig.memory.host.regions.size(); }

  CoreRig rig;
};

TEST_F(OrphanTest, IsClearedAwayOnceItHasBeenThereForAWhile) {
  Add("region0", {0, 0});
  Add("region1", {});
  rig.executor.Advance(absl::Seconds(20));
  EXPECT_EQ(Regions(), 2u);
  rig.executor.Advance(absl::Seconds(15));
  EXPECT_EQ(Regions(), 0u);
  EXPECT_EQ(rig.Calls("DestroyHostRegion 0x0"), 1);
  for (const v1::Report& report : rig.link.reports) {
    for (const v1::SegmentReport& segment : report.segments()) EXPECT_NE(segment.serial(), 0u);
  }
}

TEST_F(OrphanTest, AYoungOneKeepsTheOthers) {
  Add("region0", {0});
  rig.executor.Advance(absl::Seconds(25));
  Add("region1", {});  // A person is about to make a region.
  rig.executor.Advance(absl::Seconds(20));
  EXPECT_EQ(Regions(), 2u);
  rig.memory.host.regions[1].committed = true;  // It is made.
  rig.executor.Advance(absl::Seconds(5));
  ASSERT_EQ(Regions(), 1u);
  EXPECT_EQ(rig.memory.host.regions[0].name, "region1");
}

TEST_F(OrphanTest, WhatIsInUseOrHasATargetIsNone) {
  Add("region0", {0}).committed = true;
  Add("region1", {0}).dax_device = "dax1.0";
  Add("region2", {0x77, 0});  // A device of the host's own.
  rig.executor.Advance(absl::Minutes(2));
  EXPECT_EQ(Regions(), 3u);
  EXPECT_EQ(rig.Calls("DestroyHostRegion 0x0"), 0);
}

TEST_F(OrphanTest, OneThatDoesNotGoIsTriedAgainWithBackoff) {
  rig.memory.lies = {"DestroyHostRegion"};
  Add("region0", {0});
  rig.executor.Advance(absl::Minutes(1));
  EXPECT_GT(rig.Calls("DestroyHostRegion 0x0"), 2);
  EXPECT_LT(rig.Calls("DestroyHostRegion 0x0"), 20);
  rig.memory.lies.clear();
  rig.executor.Advance(absl::Seconds(6));
  EXPECT_EQ(Regions(), 0u);
}

TEST_F(OrphanTest, IsLeftAloneUntilAManagerHasSaidWhatItWants) {
  rig.NewCore();
  rig.Start();
  Add("region0", {0});
  rig.executor.Advance(absl::Minutes(2));
  EXPECT_EQ(Regions(), 1u);
  rig.Connect();
  rig.executor.Advance(absl::Seconds(40));
  EXPECT_EQ(Regions(), 0u);
}

}  // namespace
}  // namespace cxlpool::agent
