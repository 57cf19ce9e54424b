#include "fabric-manager/model/space/bytes.h"

#include <gtest/gtest.h>

namespace cxlpool::fm {
namespace {

TEST(BytesTest, RoundsUpToWholeUnits) {
  EXPECT_EQ(RoundUp(0, 4), 0u);
  EXPECT_EQ(RoundUp(1, 4), 4u);
  EXPECT_EQ(RoundUp(4, 4), 4u);
  EXPECT_EQ(RoundUp(UINT64_MAX, 1), UINT64_MAX);
}

TEST(BytesTest, RoundingNeverWrapsAround) {
  EXPECT_EQ(RoundUp(UINT64_MAX, 2), std::nullopt);
  EXPECT_EQ(RoundUp(UINT64_MAX - 1, kGiB), std::nullopt);
  EXPECT_EQ(RoundUp(1, 0), std::nullopt);
}

TEST(BytesTest, ACommonUnitSuitsBoth) {
  EXPECT_EQ(CommonUnit(0, 0), 0u);
  EXPECT_EQ(CommonUnit(0, 6), 6u);
  EXPECT_EQ(CommonUnit(4, 6), 12u);
  EXPECT_EQ(CommonUnit(2 * kMiB, 256 * kMiB), 256 * kMiB);
  EXPECT_EQ(CommonUnit(UINT64_MAX, UINT64_MAX - 1), std::nullopt);
}

}  // namespace
}  // namespace cxlpool::fm
