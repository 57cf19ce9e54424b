// System-ram as the core makes it: what the kernel does otherwise, and what is refused first.
#include <gtest/gtest.h>

#include "test/rigs/core_rig.h"

namespace cxlpool::agent {
namespace {

TEST(SystemRamTest, ARungThatBringsAboutSomethingElseIsFoundOutAndBackedOff) {
  CoreRig rig;
  rig.memory.plugged[1] = 0x51;
  rig.memory.kernel_picks_zone = true;
  rig.Start();
  rig.Connect({MakeOffer(1, kOnline, {{1, 0x51}}, v1::SYSTEM_RAM)});
  // What comes next is another rung: the blocks go offline again.
  EXPECT_EQ(rig.Reported(0x51), v1::SEGMENT_REGION);
  EXPECT_EQ(rig.ReportedError(0x51), "NO_EFFECT");
  EXPECT_EQ(rig.link.Last(0x51)->error().message(),
            "OnlineBlocks reported success, but the kernel does not show every memory block online "
            "in its zone (see the kernel log of this host)");
  EXPECT_EQ(rig.Calls("OnlineBlocks 0x51"), 1);
  EXPECT_EQ(rig.Calls("OfflineBlocks 0x51"), 0);
  rig.executor.Advance(absl::Minutes(1));
  EXPECT_LE(rig.Calls("OnlineBlocks 0x51"), 30);
  rig.memory.kernel_picks_zone = false;
  rig.executor.Advance(absl::Seconds(6));
  EXPECT_EQ(rig.Reported(0x51), v1::SEGMENT_ONLINE);
  EXPECT_EQ(rig.ReportedError(0x51), "");
}

TEST(SystemRamTest, PageStructsThatDoNotFitAreRefusedBeforeAnythingIsMade) {
  CoreRig rig;
  rig.memory.plugged[1] = 0x51;
  rig.memory.host.page_struct_spare_bytes = kTestLength / 64 - 1;
  rig.Start();
  rig.Connect({MakeOffer(1, kOnline, {{1, 0x51}}, v1::SYSTEM_RAM)});
  EXPECT_EQ(rig.ReportedError(0x51), "PAGE_STRUCT_SPACE");
  EXPECT_FALSE(rig.link.Last(0x51)->error().permanent());
  EXPECT_TRUE(rig.memory.calls.empty());
  rig.memory.host.page_struct_spare_bytes = kTestLength / 64;
  rig.executor.Advance(absl::Seconds(3));
  EXPECT_EQ(rig.Reported(0x51), v1::SEGMENT_ONLINE);
}

TEST(SystemRamTest, SystemRamThatCannotBeOnThisHostIsRefusedForGood) {
  CoreRig rig;
  rig.memory.plugged[1] = 0x51;
  rig.memory.host.own_nodes = {0, 2};  // 2 is where its host regions come.
  rig.Start();
  rig.Connect({MakeOffer(1, kOnline, {{1, 0x51}}, v1::SYSTEM_RAM)});
  EXPECT_EQ(rig.ReportedError(0x51), "NO_OWN_NODE");
  EXPECT_TRUE(rig.link.Last(0x51)->error().permanent());
  EXPECT_EQ(rig.Calls("BindDax 0x51"), 0);
  rig.Offer(MakeOffer(1, kOffline, {{1, 0x51}}, v1::SYSTEM_RAM));
  EXPECT_EQ(rig.Reported(0x51), v1::SEGMENT_PRESENT);
}

}  // namespace
}  // namespace cxlpool::agent
