#include "host-agent/adapters/linux/node_room.h"

#include "gtest/gtest.h"

namespace cxlpool::agent {
namespace {

constexpr uint64_t kGiB = 1ull << 30;

TEST(NodeRoomTest, ParsesANode) {
  const auto memory = ParseNodeMeminfo(
      1,
      "Node 1 MemTotal: 1024 kB\nNode 1 MemFree: 512 kB\nNode 1 Active(file): 16 kB\n"
      "Node 1 Inactive(file): 48 kB\n");
  ASSERT_TRUE(memory.has_value());
  EXPECT_EQ(memory->node, 1);
  EXPECT_EQ(memory->total_bytes, 1024u * 1024);
  EXPECT_EQ(memory->free_bytes, 512u * 1024);
  EXPECT_EQ(memory->cache_bytes, 64u * 1024);
}

TEST(NodeRoomTest, RefusesNonsense) {
  EXPECT_EQ(ParseNodeMeminfo(0, ""), std::nullopt);
  EXPECT_EQ(ParseNodeMeminfo(0,
                             "Node 0 MemTotal: 1 kB\nNode 0 MemFree: 2 kB\n"
                             "Node 0 Active(file): 0 kB\nNode 0 Inactive(file): 0 kB\n"),
            std::nullopt);
}

TEST(NodeRoomTest, SpareLeavesAMarginAndHalfTheCache) {
  EXPECT_EQ(PageStructSpareBytes({{0, 16 * kGiB, 8 * kGiB, 2 * kGiB}}, 20 * kGiB), 8 * kGiB);
  EXPECT_EQ(PageStructSpareBytes({{0, 16 * kGiB, 8 * kGiB, 2 * kGiB}}, 4 * kGiB), 3 * kGiB);
  EXPECT_EQ(PageStructSpareBytes({{0, 16 * kGiB, kGiB / 2, 0}}, 20 * kGiB), 0u);
  EXPECT_EQ(PageStructSpareBytes({}, 20 * kGiB), 0u);
}

TEST(NodeRoomTest, WhatGoesMustFitElsewhere) {
  const std::vector<NodeMemory> nodes = {{0, 32 * kGiB, 5 * kGiB, 2 * kGiB},
                                         {1, 8 * kGiB, 6 * kGiB, 0}};
  const NodeRoom all = RoomFor(nodes, 1, 8 * kGiB);
  EXPECT_EQ(all.wanted_bytes, 2 * kGiB);
  EXPECT_EQ(all.free_elsewhere_bytes, 5 * kGiB);  // 5 + 2/2, less 32/32.
  const NodeRoom some = RoomFor(nodes, 1, 2 * kGiB);
  EXPECT_EQ(some.wanted_bytes, 2 * kGiB);
  EXPECT_EQ(some.free_elsewhere_bytes, 9 * kGiB);  // And 6 - 2 on the node itself.
}

}  // namespace
}  // namespace cxlpool::agent
