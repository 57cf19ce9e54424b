#include "host-agent/adapters/linux/memory/node_room.h"

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "test/rigs/fake_host_for_test.h"

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

TEST(NodeRoomTest, SpareIsReadAnewAfterAMoment) {
  FakeHost host;
  PageStructSpare spare(host.files());
  const auto put = [&](const char* free) {
    host.Put("sys/devices/system/node/has_normal_memory", "0\n");
    host.Put("sys/devices/system/node/node0/meminfo",
             absl::StrCat("Node 0 MemTotal: 16384 kB\nNode 0 MemFree: ", free,
                          " kB\nNode 0 Active(file): 0 kB\nNode 0 Inactive(file): 0 kB\n"));
    host.Put("proc/meminfo", absl::StrCat("MemAvailable: ", free, " kB\n"));
  };
  const absl::Time now = absl::UnixEpoch() + absl::Hours(1);
  put("8192");
  const uint64_t before = spare.Read(now);
  EXPECT_EQ(before, ReadPageStructSpare(host.files()));
  put("4096");
  EXPECT_EQ(spare.Read(now + PageStructSpare::kMaxAge / 2), before);
  const uint64_t after = spare.Read(now + PageStructSpare::kMaxAge);
  EXPECT_LT(after, before);
  put("8192");
  spare.Forget();
  EXPECT_EQ(spare.Read(now + PageStructSpare::kMaxAge), before);
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

TEST(NodeRoomTest, ALineOfNumaMapsSaysHowMuchIsOnANode) {
  const std::string line =
      "7f3e4c000000 bind:2 anon=30 dirty=30 active=0 N0=10 N2=20 kernelpagesize_kB=4";
  EXPECT_EQ(NumaMapsLineBytes(line, 2), 20u << 12);
  EXPECT_EQ(NumaMapsLineBytes(line, 0), 10u << 12);
  EXPECT_EQ(NumaMapsLineBytes(line, 1), 0u);
  EXPECT_EQ(NumaMapsLineBytes("7f3e4c000000 default huge N1=3 kernelpagesize_kB=2048", 1),
            3u << 21);
  EXPECT_EQ(NumaMapsLineBytes("7f3e4c000000 default file=/N1=7 N1=x", 1), 0u);
  EXPECT_EQ(NumaMapsLineBytes("", 1), 0u);
}

TEST(NodeRoomTest, TheProcessesWithMostOnTheNodeAreFound) {
  FakeHost host;
  const auto put = [&](int pid, const std::string& maps) {
    host.Put(absl::StrCat("proc/", pid, "/numa_maps"), maps);
  };
  put(100, "1000 default N0=4000 kernelpagesize_kB=4\n");
  put(200, "1000 default N1=1 kernelpagesize_kB=4\n2000 default N1=2 kernelpagesize_kB=4\n");
  put(300, "1000 default N0=9 N1=7 kernelpagesize_kB=4\n");
  put(400, "1000 default N1=99 kernelpagesize_kB=4\n");
  host.Put("proc/500/maps", "");  // It may not be looked at.
  host.Put("proc/self/numa_maps", "1000 default N1=5 kernelpagesize_kB=4\n");
  const Deadline soon = Deadline::In(absl::Seconds(30));
  EXPECT_EQ(FindNodeUsers(host.files(), 1, /*self=*/400, soon),
            (std::vector<NodeUser>{{300, 7u << 12}, {200, 3u << 12}}));
  EXPECT_TRUE(FindNodeUsers(host.files(), 2, 400, soon).empty());
  for (int pid = 1000; pid < 1020; ++pid) {
    // Longer than what is read at once.
    std::string maps;
    for (int i = 0; i < 1000; ++i) maps += "1000 default N1=1 kernelpagesize_kB=4\n";
    put(pid, maps);
  }
  const auto most = FindNodeUsers(host.files(), 1, 400, soon);
  ASSERT_EQ(most.size(), kMaxNodeUsers);
  EXPECT_EQ(most[0], (NodeUser{1000, 1000u << 12}));
  EXPECT_TRUE(FindNodeUsers(host.files(), 1, 400, Deadline::In(absl::ZeroDuration())).empty());
}

}  // namespace
}  // namespace cxlpool::agent
