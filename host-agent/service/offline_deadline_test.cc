#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "test/rigs/core_rig.h"

namespace cxlpool::agent {
namespace {

using testing::ElementsAre;

TEST(OfflineDeadlineTest, DoublesWithEachTryThatHangsUpToAMinute) {
  CoreRig rig;
  rig.memory.plugged[1] = 0x51;
  rig.Start();
  rig.Connect({MakeOffer(1, kOnline, {{1, 0x51}}, v1::SYSTEM_RAM)});
  rig.memory.hangs = {0x51};
  rig.memory.calls.clear();
  rig.Offer(MakeOffer(1, kOffline, {{1, 0x51}}, v1::SYSTEM_RAM));
  rig.executor.Advance(absl::Seconds(10 + 20 + 40 + 60) + absl::Seconds(5));
  EXPECT_THAT(rig.memory.calls,
              ElementsAre("OfflineBlocks 0x51 hangs for 10s", "OfflineBlocks 0x51 hangs for 20s",
                          "OfflineBlocks 0x51 hangs for 40s", "OfflineBlocks 0x51 hangs for 1m",
                          "OfflineBlocks 0x51 hangs for 1m"));
  EXPECT_EQ(rig.ReportedError(0x51), "BLOCKS_BUSY");
  rig.memory.hangs.clear();
  rig.executor.Advance(absl::Seconds(65));
  EXPECT_EQ(rig.Reported(0x51), v1::SEGMENT_PRESENT);

  // The next time it goes down it begins again.
  rig.Offer(MakeOffer(1, kOnline, {{1, 0x51}}, v1::SYSTEM_RAM));
  ASSERT_EQ(rig.Reported(0x51), v1::SEGMENT_ONLINE);
  rig.memory.hangs = {0x51};
  rig.Offer(MakeOffer(1, kOffline, {{1, 0x51}}, v1::SYSTEM_RAM));
  EXPECT_EQ(rig.memory.calls.back(), "OfflineBlocks 0x51 hangs for 10s");
}

TEST(OfflineDeadlineTest, StaysAsItIsWhileTheKernelSaysNo) {
  CoreRig rig;
  rig.memory.plugged[1] = 0x51;
  rig.Start();
  rig.Connect({MakeOffer(1, kOnline, {{1, 0x51}}, v1::SYSTEM_RAM)});
  rig.memory.failures["OfflineBlocks"] =
      Refuse(absl::StatusCode::kFailedPrecondition, "BLOCKS_BUSY", "4 of 4 stay online", "",
             {{"cause", "busy"}});
  rig.Offer(MakeOffer(1, kOffline, {{1, 0x51}}, v1::SYSTEM_RAM));
  rig.executor.Advance(absl::Seconds(20));
  rig.memory.hangs = {0x51};
  rig.executor.Advance(absl::Seconds(5));
  EXPECT_EQ(rig.memory.calls.back(), "OfflineBlocks 0x51 hangs for 10s");
}

TEST(OfflineDeadlineTest, WhatHangsWaitsForTheRungsOfOthers) {
  CoreRig rig;
  rig.memory.plugged = {{1, 0x51}, {2, 0x52}, {3, 0x53}};
  rig.Start();
  rig.Connect({MakeOffer(1, kOnline, {{1, 0x51}}, v1::SYSTEM_RAM),
               MakeOffer(2, kOnline, {{2, 0x52}}, v1::SYSTEM_RAM)});
  rig.memory.hangs = {0x51};
  rig.memory.calls.clear();
  rig.Offer(MakeOffer(1, kOffline, {{1, 0x51}}, v1::SYSTEM_RAM));
  rig.Offer(MakeOffer(2, kOffline, {{2, 0x52}}, v1::SYSTEM_RAM));
  rig.executor.Advance(absl::Seconds(10));  // One deadline, and the other is gone.
  EXPECT_EQ(rig.Reported(0x52), v1::SEGMENT_PRESENT);

  // What is wanted online goes before the next try, also where that is due first.
  rig.memory.silent = {"PowerOn"};
  rig.executor.Advance(absl::Milliseconds(99));
  rig.Offer(MakeOffer(3, kOnline, {{3, 0x53}}));
  rig.executor.Advance(absl::Seconds(5));
  rig.memory.Resume();
  rig.executor.RunReady();
  EXPECT_EQ(rig.Reported(0x53), v1::SEGMENT_ONLINE);
  EXPECT_THAT(
      rig.memory.calls,
      ElementsAre("OfflineBlocks 0x51 hangs for 10s", "OfflineBlocks 0x52", "UnbindDax 0x52",
                  "DestroyHostRegion 0x52", "PowerOn 0x53", "CreateHostRegion 0x53", "BindDax 0x53",
                  "OfflineBlocks 0x51 hangs for 20s"));
}

}  // namespace
}  // namespace cxlpool::agent
