#include "host-agent/adapters/linux/memory/memory_blocks.h"

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "proto/support/refusal.h"
#include "test/rigs/fake_host_for_test.h"

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
  // Reads as online, and the kernel refuses every write.
  void Stuck(uint64_t index) const {
    const std::string state = absl::StrCat("sys/devices/system/memory/memory", index, "/state");
    std::filesystem::remove(host_.Path(state));
    host_.Link(state, "/proc/version");
  }
  static std::string Detail(const absl::Status& status, const std::string& name) {
    const std::optional<Refusal> refusal = RefusalOf(status);
    if (!refusal.has_value()) return "";
    for (const auto& [key, value] : refusal->metadata) {
      if (key == name) return value;
    }
    return "";
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
  EXPECT_EQ(ReasonOf(OnlineMemoryBlocks(host_.files(), dax_, MemoryZone::kMovable)), "NOT_MOVABLE");
  EXPECT_EQ(State(8), "online_movable");
}

TEST_F(MemoryBlocksTest, OnlineInTheKernelsZoneTakesWhatIsOnlineAlready) {
  Block(8, "offline", "Normal Movable");
  Block(9, "online", "Normal");
  EXPECT_TRUE(OnlineMemoryBlocks(host_.files(), dax_, MemoryZone::kKernel).ok());
  EXPECT_EQ(State(8), "online_kernel");
}

TEST_F(MemoryBlocksTest, OnlineWithoutBlocks) {
  EXPECT_EQ(ReasonOf(OnlineMemoryBlocks(host_.files(), dax_, MemoryZone::kMovable)),
            "NOT_SYSTEM_RAM");
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
  EXPECT_EQ(Detail(status, "cause"), "no_room");
  EXPECT_EQ(Detail(status, "blocks"), "8,9");
  EXPECT_EQ(Detail(status, "zone"), "Movable");
  EXPECT_NE(status.message().find("blocks 8, 9 (2 of 2) stay online in zone Movable: up to "),
            absl::string_view::npos)
      << status;
  EXPECT_EQ(State(8), "online");
}

TEST_F(MemoryBlocksTest, ABlockThatStaysOnlineIsNamedWithItsZone) {
  Block(8, "online", "Movable");
  Block(9, "online", "Normal");
  Stuck(9);
  const absl::Status status =
      OfflineMemoryBlocks(host_.files(), dax_, child_, Deadline::In(absl::Seconds(30)));
  EXPECT_EQ(ReasonOf(status), "BLOCKS_BUSY");
  EXPECT_EQ(Detail(status, "cause"), "busy");
  EXPECT_EQ(Detail(status, "blocks"), "9");
  EXPECT_EQ(Detail(status, "zone"), "Normal");
  EXPECT_NE(status.message().find(
                "dax0.0: block 9 (1 of 2) stays online in zone Normal: the kernel says "),
            absl::string_view::npos)
      << status;
  EXPECT_EQ(State(8), "offline");
}

TEST_F(MemoryBlocksTest, WhoUsesTheNodeOfABusyBlockIsNamed) {
  Block(8, "online", "Movable");
  Stuck(8);
  host_.Put("proc/17/numa_maps", "1000 default N1=3 kernelpagesize_kB=4\n");
  host_.Put("proc/4711/numa_maps", "1000 default N1=5 kernelpagesize_kB=4\n");
  host_.Put("proc/5000/numa_maps", "1000 default N0=9 kernelpagesize_kB=4\n");
  const absl::Status status =
      OfflineMemoryBlocks(host_.files(), dax_, child_, Deadline::In(absl::Seconds(30)));
  EXPECT_EQ(Detail(status, "pids"), "17,4711");
  EXPECT_NE(status.message().find("; NUMA node 1 is used most by process 17, 4711"),
            absl::string_view::npos)
      << status;
}

TEST_F(MemoryBlocksTest, OfManyBlocksTheFirstAreNamed) {
  const DaxDevice dax{"dax0.0", "region0", 8 * kBlock, 40 * kBlock, 2 << 20, 1, 252, 0};
  for (uint64_t index = 8; index < 48; ++index) {
    Block(index, "online", index == 8 ? "Normal" : index == 9 ? "none" : "Movable");
    Stuck(index);
  }
  const absl::Status status =
      OfflineMemoryBlocks(host_.files(), dax, child_, Deadline::In(absl::Seconds(30)));
  EXPECT_NE(status.message().find("blocks 8, 9, 10, 11, 12, 13, 14, 15 and 32 more (40 of 40) stay "
                                  "online in zones Normal, Movable: "),
            absl::string_view::npos)
      << status;
  const std::string blocks = Detail(status, "blocks");
  EXPECT_EQ(blocks.substr(0, 5), "8,9,1");
  EXPECT_EQ(blocks.substr(blocks.size() - 3), ",39");
}

TEST_F(MemoryBlocksTest, OfflineWithNothingOnlineIsDone) {
  Block(8, "offline", "Normal Movable");
  EXPECT_TRUE(
      OfflineMemoryBlocks(host_.files(), dax_, child_, Deadline::In(absl::Seconds(30))).ok());
}

}  // namespace
}  // namespace cxlpool::agent
