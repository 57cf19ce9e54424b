#include "tools/benches/survival.h"

#include <gtest/gtest.h>

namespace cxlpool::bench {
namespace {

v1::Region Make(const std::string& tag, uint64_t dpa, const std::string& device = "devices/d") {
  v1::Region region;
  region.set_tag(tag);
  v1::Extent* extent = region.add_extents();
  extent->set_device(device);
  extent->set_dpa_bytes(dpa);
  extent->set_length_bytes(10);
  return region;
}

Survival Compare(const std::vector<v1::Region>& acknowledged,
                 const std::vector<v1::Region>& listed) {
  SurvivalCheck check;
  for (const v1::Region& region : acknowledged) check.Acknowledged(region);
  for (const v1::Region& region : listed) check.Listed(region);
  return check.Finish();
}

TEST(SurvivalTest, AllThereIsNothingLost) {
  const auto survival = Compare({Make("a", 0), Make("b", 10)}, {Make("b", 10), Make("a", 0)});
  EXPECT_EQ(survival.acknowledged, 2u);
  EXPECT_EQ(survival.lost, 0u);
  EXPECT_EQ(survival.overlap, 0u);
  EXPECT_EQ(survival.extra, 0u);
}

TEST(SurvivalTest, MissingIsLost) {
  const auto survival = Compare({Make("a", 0), Make("b", 10)}, {Make("b", 10)});
  EXPECT_EQ(survival.lost, 1u);
  EXPECT_NE(survival.first_loss.find("gone"), std::string::npos);
}

TEST(SurvivalTest, ChangedIsLost) {
  const auto survival = Compare({Make("a", 0)}, {Make("a", 20)});
  EXPECT_EQ(survival.lost, 1u);
  EXPECT_EQ(survival.extra, 0u);
}

TEST(SurvivalTest, OneRegionForTwoAnswersIsLost) {
  EXPECT_EQ(Compare({Make("a", 0), Make("a", 0)}, {Make("a", 0)}).lost, 1u);
}

TEST(SurvivalTest, UnacknowledgedIsExtra) { EXPECT_EQ(Compare({}, {Make("a", 0)}).extra, 1u); }

TEST(SurvivalTest, SharedBytesOverlap) {
  EXPECT_EQ(Compare({}, {Make("a", 0), Make("b", 9)}).overlap, 1u);
  EXPECT_EQ(Compare({}, {Make("a", 0), Make("b", 10)}).overlap, 0u);
  EXPECT_EQ(Compare({}, {Make("a", 0), Make("b", 0, "devices/e")}).overlap, 0u);
}

TEST(SurvivalTest, SumsKeepTheFirstLoss) {
  Survival sum;
  sum += Compare({Make("a", 0)}, {});
  sum += Compare({Make("b", 0)}, {});
  EXPECT_EQ(sum.acknowledged, 2u);
  EXPECT_EQ(sum.lost, 2u);
  EXPECT_NE(sum.first_loss.find("tag a"), std::string::npos);
}

}  // namespace
}  // namespace cxlpool::bench
