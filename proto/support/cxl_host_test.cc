#include "proto/support/cxl_host.h"

#include <gtest/gtest.h>

#include <vector>

namespace cxlpool {
namespace {

struct LiveRegion {
  uint64_t hpa_bytes, size_bytes, serial;
};

BridgeStack StackOf(const std::vector<LiveRegion>& live) {
  BridgeStack stack(1000, 100);
  for (const LiveRegion& region : live) {
    stack.Add(region.hpa_bytes, region.size_bytes, region.serial);
  }
  return stack;
}

TEST(CxlHostTest, PoolSerialsHaveAFirstByteOfTheirOwn) {
  EXPECT_TRUE(IsPoolSerial(0x0c00000000000051));
  EXPECT_TRUE(IsPoolSerial(kSerialBase | 0xff'ffff'ffff'ffff));
  for (const uint64_t other : {uint64_t{0}, uint64_t{0x51}, uint64_t{0xc000000000000051},
                               uint64_t{0x0d00000000000051}, ~uint64_t{0}}) {
    EXPECT_FALSE(IsPoolSerial(other)) << std::hex << other;
  }
}

TEST(CxlHostTest, PageStructsTakeASixtyFourth) {
  EXPECT_EQ(PageStructBytes(uint64_t{64} << 30), uint64_t{1} << 30);
  EXPECT_EQ(PageStructBytes(4096), 64u);
}

TEST(CxlHostTest, GranularitiesArePowersOfTwoWithinLimits) {
  for (uint32_t bytes = 256; bytes <= 16384; bytes *= 2)
    EXPECT_TRUE(IsInterleaveGranularity(bytes));
  for (const uint32_t bytes : {0u, 128u, 300u, 32768u})
    EXPECT_FALSE(IsInterleaveGranularity(bytes));
}

TEST(BridgeStackTest, EmptyStackStartsAtTheWindow) {
  const BridgeStack stack = StackOf({});
  EXPECT_EQ(stack.live(), 0u);
  EXPECT_FALSE(stack.blocked());
  EXPECT_EQ(stack.next_hpa_bytes(), 1000u);
  EXPECT_EQ(stack.free_bytes(), 100u);
  EXPECT_EQ(stack.topmost_serial(), 0u);
}

TEST(BridgeStackTest, GrowsUpwards) {
  const BridgeStack stack = StackOf({{1010, 20, 2}, {1000, 10, 1}});
  EXPECT_EQ(stack.live(), 2u);
  EXPECT_FALSE(stack.blocked());
  EXPECT_EQ(stack.next_hpa_bytes(), 1030u);
  EXPECT_EQ(stack.free_bytes(), 70u);
  EXPECT_EQ(stack.topmost_serial(), 2u);
}

TEST(BridgeStackTest, FreedBelowALiveOneBlocksUntilAllAboveAreGone) {
  // 1 (10 bytes), 2 (20), 3 (30); free 1.
  EXPECT_TRUE(StackOf({{1010, 20, 2}, {1030, 30, 3}}).blocked());
  EXPECT_EQ(StackOf({{1010, 20, 2}, {1030, 30, 3}}).topmost_serial(), 3u);
  EXPECT_TRUE(StackOf({{1010, 20, 2}}).blocked());
  EXPECT_FALSE(StackOf({}).blocked());
  // Free 2 in the middle, then 3: what is left is a stack again.
  EXPECT_TRUE(StackOf({{1000, 10, 1}, {1030, 30, 3}}).blocked());
  EXPECT_FALSE(StackOf({{1000, 10, 1}}).blocked());
}

TEST(BridgeStackTest, TheTopmostAboveAHoleHasToGoFirst) {
  const auto blocker = [](const std::vector<int>& stack) {  // 0: a hole; else whose it is.
    const int* const found = TopmostAboveHole<int>(
        stack, [](const int& entry) { return entry == 0; },
        [](const int& entry) { return entry != 0; },
        [](const int& a, const int& b) { return &a < &b; });
    return found == nullptr ? 0 : *found;
  };
  EXPECT_EQ(blocker({}), 0);
  EXPECT_EQ(blocker({1, 2, 0, 0}), 0);
  EXPECT_EQ(blocker({1, 0, 3, 4, 0}), 4);
  EXPECT_EQ(blocker({0, 2}), 2);
}

}  // namespace
}  // namespace cxlpool
