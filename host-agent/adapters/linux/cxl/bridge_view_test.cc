#include "host-agent/adapters/linux/cxl/bridge_view.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "test/rigs/snapshot_for_test.h"

namespace cxlpool::agent {
namespace {

using testing::ElementsAre;

TEST(BridgeViewTest, EmptyBridgeTakesAsManyRegionsAsItHasDecoders) {
  const CxlSnapshot snapshot = OneBridge();
  const std::vector<PciSlot> slots = {{10, "0000:0f:00", "0000:0e:00.0", "pci0000:0c"},
                                      {11, "0000:10:00", "0000:0e:01.0", "pci0000:0c"},
                                      {30, "0000:27:00", "0000:26:00.0", "pci0000:24"}};
  const std::vector<ObservedBridge> views = ViewBridges(snapshot, slots);
  ASSERT_EQ(views.size(), 1u);
  EXPECT_EQ(views[0].name, "ACPI0016:00");
  EXPECT_THAT(views[0].slots, ElementsAre(10, 11));
  EXPECT_EQ(views[0].max_regions, 4u);
  EXPECT_EQ(views[0].live_regions, 0u);
  EXPECT_FALSE(views[0].blocked);
  EXPECT_EQ(views[0].blocking_serial, 0u);
  EXPECT_EQ(views[0].window_bytes, 8192 * kMiB);
  EXPECT_EQ(views[0].free_window_bytes, 8192 * kMiB);
}

TEST(BridgeViewTest, StackWithoutHolesIsNotBlocked) {
  CxlSnapshot snapshot = OneBridge();
  AddRegion(snapshot, 0, 0x1001);
  AddRegion(snapshot, 1, 0x1002);
  const ObservedBridge view = ViewBridges(snapshot, {})[0];
  EXPECT_EQ(view.live_regions, 2u);
  EXPECT_FALSE(view.blocked);
  EXPECT_EQ(view.blocking_serial, 0x1002u);
}

TEST(BridgeViewTest, FreedDecoderUnderLiveOneBlocks) {
  CxlSnapshot snapshot = OneBridge();
  AddRegion(snapshot, 1, 0x1002);
  const ObservedBridge view = ViewBridges(snapshot, {})[0];
  EXPECT_EQ(view.live_regions, 1u);
  EXPECT_TRUE(view.blocked);
  EXPECT_EQ(view.blocking_serial, 0x1002u);
}

TEST(BridgeViewTest, HoleInSwitchBlocksItsBridge) {
  CxlSnapshot snapshot = OneBridge();
  AddRegion(snapshot, 0, 0x1001);
  AddRegion(snapshot, 1, 0x1002);
  snapshot.bridges[0].stacks[1].decoders[0].in_use = false;
  EXPECT_TRUE(ViewBridges(snapshot, {})[0].blocked);
}

TEST(BridgeViewTest, RegionInHigherWindowBlocks) {
  CxlSnapshot snapshot = OneBridge();
  AddRegion(snapshot, 0, 0x1001);
  snapshot.bridges[0].stacks[0].decoders[0].hpa_bytes = kWindowHpa + 8192 * kMiB;
  EXPECT_TRUE(ViewBridges(snapshot, {})[0].blocked);
}

TEST(BridgeViewTest, FewestDecodersOnThePathCount) {
  CxlSnapshot snapshot = OneBridge();
  snapshot.bridges[0].stacks[1] = EmptyStack("port2", 2);
  EXPECT_EQ(ViewBridges(snapshot, {})[0].max_regions, 2u);
}

TEST(BridgeViewTest, DecodersNotEnumeratedYetCountAsOne) {
  CxlSnapshot snapshot = OneBridge();
  snapshot.bridges[0].stacks = {EmptyStack("port1", 0)};
  EXPECT_EQ(ViewBridges(snapshot, {})[0].max_regions, 1u);
  EXPECT_TRUE(ViewBridges(snapshot, {})[0].depth_unknown);
  snapshot.bridges[0].stacks.clear();
  EXPECT_EQ(ViewBridges(snapshot, {})[0].max_regions, 1u);
  EXPECT_TRUE(ViewBridges(snapshot, {})[0].depth_unknown);
  // A bridge that really has one says so.
  snapshot.bridges[0].stacks = {EmptyStack("port1", 1)};
  EXPECT_EQ(ViewBridges(snapshot, {})[0].max_regions, 1u);
  EXPECT_FALSE(ViewBridges(snapshot, {})[0].depth_unknown);
}

TEST(BridgeViewTest, WindowIsChosenByTargetsAndRoom) {
  CxlSnapshot snapshot = OneBridge();
  snapshot.windows.push_back({"decoder0.1", 0, 1, 9000 * kMiB, 256, true, {"pci0000:0c"}});
  snapshot.windows.push_back({"decoder0.2", 0, 1, 9999 * kMiB, 256, false, {"pci0000:0c"}});
  snapshot.windows.push_back(
      {"decoder0.3", 0, 1, 9999 * kMiB, 256, true, {"pci0000:0c", "pci0000:24"}});
  EXPECT_EQ(WindowOf(snapshot, {"pci0000:0c"})->name, "decoder0.1");
  EXPECT_EQ(WindowOf(snapshot, {"pci0000:24"}), nullptr);
  EXPECT_EQ(WindowOf(snapshot, {"pci0000:24", "pci0000:0c"}), nullptr);
}

}  // namespace
}  // namespace cxlpool::agent
