#include "host-agent/adapters/emulated/decoder_stack.h"

#include <gtest/gtest.h>

namespace cxlpool::agent {
namespace {

constexpr uint64_t kBase = 1000;
constexpr uint64_t kWindow = 100;

TEST(DecoderStackTest, EmptyStackStartsAtTheWindow) {
  const DecoderStack stack = StackOf({}, kBase, kWindow);
  EXPECT_EQ(stack.live, 0u);
  EXPECT_FALSE(stack.blocked);
  EXPECT_EQ(stack.next_hpa_bytes, kBase);
  EXPECT_EQ(stack.free_bytes, kWindow);
  EXPECT_EQ(stack.topmost_serial, 0u);
}

TEST(DecoderStackTest, GrowsUpwards) {
  const DecoderStack stack = StackOf({{1010, 20, 2}, {1000, 10, 1}}, kBase, kWindow);
  EXPECT_EQ(stack.live, 2u);
  EXPECT_FALSE(stack.blocked);
  EXPECT_EQ(stack.next_hpa_bytes, 1030u);
  EXPECT_EQ(stack.free_bytes, 70u);
  EXPECT_EQ(stack.topmost_serial, 2u);
}

TEST(DecoderStackTest, FreedBelowALiveOneBlocksUntilAllAboveAreGone) {
  // 1 (10 bytes), 2 (20), 3 (30); free 1.
  EXPECT_TRUE(StackOf({{1010, 20, 2}, {1030, 30, 3}}, kBase, kWindow).blocked);
  EXPECT_EQ(StackOf({{1010, 20, 2}, {1030, 30, 3}}, kBase, kWindow).topmost_serial, 3u);
  EXPECT_TRUE(StackOf({{1010, 20, 2}}, kBase, kWindow).blocked);
  EXPECT_FALSE(StackOf({}, kBase, kWindow).blocked);
  // Free 2 in the middle, then 3: what is left is a stack again.
  EXPECT_TRUE(StackOf({{1000, 10, 1}, {1030, 30, 3}}, kBase, kWindow).blocked);
  EXPECT_FALSE(StackOf({{1000, 10, 1}}, kBase, kWindow).blocked);
}

}  // namespace
}  // namespace cxlpool::agent
