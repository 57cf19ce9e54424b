#include "host-agent/adapters/linux/memory_blocks.h"

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "host-agent/adapters/linux/fake_host_for_test.h"
#include "proto/support/refusal.h"

namespace cxlpool::agent {
namespace {

constexpr uint64_t kBlock = 128ull << 20;

class MemoryBlocksTest : public testing::Test {
 protected:
  MemoryBlocksTest() { host_.Put("sys/devices/system/memory/block_size_bytes", "8000000\n"); }

  void Block(uint64_t index, const std::string& state, const std::string& zones) const {
    const std::string folder = absl::StrCat("sys/devices/system/memory/memory", index);
    host_.Put(folder + "/state", state + "\n");
    host_.Put(folder + "/valid_zones", zones + "\n");
  }
  void Node(int node, uint64_t total_kb, uint64_t free_kb) const {
    host_.Put(absl::StrCat("sys/devices/system/node/node", node, "/meminfo"),
              absl::StrCat("Node ", node, " MemTotal: ", total_kb, " kB\nNode ", node,
                           " MemFree: ", free_kb, " kB\nNode ", node, " Active(file): 0 kB\nNode ",
                           node, " Inactive(file): 0 kB\n"));
  }
  std::string State(uint64_t index) const {
    return host_.files()
        .Read(absl::StrCat("sys/devices/system/memory/memory", index, "/state"))
        .value_or("");
  }

  FakeHost host_;
  OfflineChild child_;
  const DaxDevice dax_{"dax0.0", "region0", 8 * kBlock, 2 * kBlock, 2 << 20, 1, 252, 0};
};

TEST_F(MemoryBlocksTest, ReadsEachBlockOfTheRangeAndNoOther) {
  Block(7, "online", "Normal");
  Block(8, "online", "Movable");
  Block(9, "offline", "Normal Movable");
  Block(10, "online", "Normal");
  const auto blocks = ReadMemoryBlocks(host_.files(), 8 * kBlock, 2 * kBlock);
  ASSERT_EQ(blocks.size(), 2u);
  EXPECT_EQ(blocks[0].index, 8u);
  EXPECT_TRUE(blocks[0].movable);
  EXPECT_TRUE(blocks[1].offline);
  EXPECT_FALSE(blocks[1].movable);
  EXPECT_EQ(CountOnline(blocks), 1u);
}

TEST_F(MemoryBlocksTest, BlocksPartlyInTheRangeAreNotTheDevices) {
  Block(8, "online", "Normal");
  Block(9, "online", "Movable");
  const auto blocks = ReadMemoryBlocks(host_.files(), 8 * kBlock + 1, 2 * kBlock);
  ASSERT_EQ(blocks.size(), 1u);
  EXPECT_EQ(blocks[0].index, 9u);
}

TEST_F(MemoryBlocksTest, WithoutHotplugThereAreNone) {
  FakeHost bare;
  EXPECT_EQ(MemoryBlockBytes(bare.files()), 0u);
  EXPECT_TRUE(ReadMemoryBlocks(bare.files(), 0, UINT64_MAX).empty());
}

TEST_F(MemoryBlocksTest, OnlineWantsMovable) {
  Block(8, "offline", "Normal Movable");
  Block(9, "online", "Normal");
  EXPECT_EQ(ReasonOf(OnlineMemoryBlocks(host_.files(), dax_)), "NOT_MOVABLE");
  EXPECT_EQ(State(8), "online_movable");
}

TEST_F(MemoryBlocksTest, OnlineWithoutBlocks) {
  EXPECT_EQ(ReasonOf(OnlineMemoryBlocks(host_.files(), dax_)), "NOT_SYSTEM_RAM");
}

TEST_F(MemoryBlocksTest, OfflineGoesThroughEveryBlock) {
  Block(8, "online", "Movable");
  Block(9, "online", "Movable");
  host_.Put("sys/devices/system/node/has_memory", "0-1\n");
  Node(0, 1 << 20, 512 << 10);
  Node(1, 256 << 10, 200 << 10);
  const absl::Status status =
      OfflineMemoryBlocks(host_.files(), dax_, child_, Deadline::In(absl::Seconds(30)));
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(State(8), "offline");
  EXPECT_EQ(State(9), "offline");
}

TEST_F(MemoryBlocksTest, OfflineTriesNothingWithoutRoomElsewhere) {
  Block(8, "online", "Movable");
  Block(9, "online", "Movable");
  host_.Put("sys/devices/system/node/has_memory", "0-1\n");
  Node(0, 1 << 20, 64 << 10);
  Node(1, 256 << 10, 1 << 10);
  const absl::Status status =
      OfflineMemoryBlocks(host_.files(), dax_, child_, Deadline::In(absl::Seconds(30)));
  EXPECT_EQ(ReasonOf(status), "BLOCKS_BUSY");
  EXPECT_EQ(RefusalOf(status)->metadata[0].second, "no_room");
  EXPECT_EQ(State(8), "online");
}

TEST_F(MemoryBlocksTest, OfflineWithNothingOnlineIsDone) {
  Block(8, "offline", "Normal Movable");
  EXPECT_TRUE(
      OfflineMemoryBlocks(host_.files(), dax_, child_, Deadline::In(absl::Seconds(30))).ok());
}

}  // namespace
}  // namespace cxlpool::agent
