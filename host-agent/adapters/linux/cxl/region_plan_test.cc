#include "host-agent/adapters/linux/cxl/region_plan.h"

#include "gtest/gtest.h"
#include "proto/support/refusal.h"
#include "test/rigs/snapshot_for_test.h"

namespace cxlpool::agent {
namespace {

HostRegionSpec Spec(uint64_t serial, uint64_t size_bytes = 256 * kMiB) {
  return {.host_bridge = "ACPI0016:00", .serials = {serial}, .size_bytes = size_bytes};
}

std::string ReasonFor(const CxlSnapshot& snapshot, const HostRegionSpec& spec) {
  const absl::StatusOr<RegionPlan> plan = PlanHostRegion(snapshot, spec);
  return plan.ok() ? "OK" : ReasonOf(plan.status());
}

TEST(RegionPlanTest, TakesTheBridgesOwnWindow) {
  const absl::StatusOr<RegionPlan> plan = PlanHostRegion(OneBridge(), Spec(0x1001, 512 * kMiB));
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->window, "decoder0.0");
  EXPECT_EQ(plan->interleave_granularity_bytes, 256u);
  EXPECT_EQ(plan->size_bytes, 512 * kMiB);
}

TEST(RegionPlanTest, RefusesBadSpecs) {
  const CxlSnapshot snapshot = OneBridge();
  EXPECT_EQ(ReasonFor(snapshot, Spec(0x1001, 0)), "BAD_REGION_SPEC");
  EXPECT_EQ(ReasonFor(snapshot, Spec(0x1001, 255 * kMiB)), "BAD_REGION_SPEC");
  EXPECT_EQ(ReasonFor(snapshot, Spec(0x1001, 1024 * kMiB)), "BAD_REGION_SPEC");  // Has 512 MiB.
  EXPECT_EQ(ReasonFor(snapshot, Spec(0)), "BAD_REGION_SPEC");
  HostRegionSpec twice = Spec(0x1001, 512 * kMiB);
  twice.serials.push_back(0x1001);
  EXPECT_EQ(ReasonFor(snapshot, twice), "BAD_REGION_SPEC");
  HostRegionSpec none = Spec(0x1001);
  none.serials.clear();
  EXPECT_EQ(ReasonFor(snapshot, none), "BAD_REGION_SPEC");
}

TEST(RegionPlanTest, RefusesMemdevsThatAreNotThere) {
  CxlSnapshot snapshot = OneBridge();
  EXPECT_EQ(ReasonFor(snapshot, Spec(0x9999)), "NO_MEMDEV");
  snapshot.memdevs[0].ready = false;
  EXPECT_EQ(ReasonFor(snapshot, Spec(0x1001)), "NO_MEMDEV");
}

TEST(RegionPlanTest, RefusesTheWrongBridge) {
  HostRegionSpec spec = Spec(0x1001);
  spec.host_bridge = "ACPI0016:07";
  EXPECT_EQ(ReasonFor(OneBridge(), spec), "NO_HOST_BRIDGE");
}

TEST(RegionPlanTest, BlockedBridgeNamesTheBlocker) {
  CxlSnapshot snapshot = OneBridge();
  AddRegion(snapshot, 1, 0x1002);
  const absl::Status status = PlanHostRegion(snapshot, Spec(0x1001)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ReasonOf(status), "BRIDGE_BLOCKED");
  EXPECT_NE(RefusalOf(status)->message.find("0x1002"), std::string::npos);
}

TEST(RegionPlanTest, FullBridgeAndFullWindow) {
  CxlSnapshot snapshot = OneBridge();
  snapshot.windows[0].largest_free_bytes = 128 * kMiB;
  EXPECT_EQ(ReasonFor(snapshot, Spec(0x1001)), "WINDOW_FULL");
  for (int id = 0; id < 4; ++id) AddRegion(snapshot, id, 0x2000 + id);
  EXPECT_EQ(ReasonFor(snapshot, Spec(0x1001)), "DECODERS_FULL");
  snapshot = OneBridge();
  snapshot.windows.clear();
  EXPECT_EQ(ReasonFor(snapshot, Spec(0x1001)), "NO_WINDOW");
}

TEST(RegionPlanTest, AnInterleaveSetBehindOneBridgeTakesItsOwnWindow) {
  HostRegionSpec spec = Spec(0x1001, 512 * kMiB);
  spec.serials = {0x1001, 0x1002};
  for (const uint32_t granularity : {256u, 4096u, 16384u}) {
    spec.interleave_granularity_bytes = granularity;
    const absl::StatusOr<RegionPlan> plan = PlanHostRegion(OneBridge(), spec);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(plan->window, "decoder0.0");
    EXPECT_EQ(plan->interleave_granularity_bytes, granularity);
    EXPECT_EQ(plan->serials, spec.serials);
  }
  for (const uint32_t granularity : {1u, 128u, 300u, 32768u}) {
    spec.interleave_granularity_bytes = granularity;
    EXPECT_EQ(ReasonFor(OneBridge(), spec), "BAD_REGION_SPEC") << granularity;
  }
  spec.interleave_granularity_bytes = 256;
  spec.size_bytes = 256 * kMiB;  // Each target gives a multiple of 256 MiB.
  EXPECT_EQ(ReasonFor(OneBridge(), spec), "BAD_REGION_SPEC");
}

TEST(RegionPlanTest, InterleaveNeedsTheWindowsOrder) {
  CxlSnapshot snapshot = OneBridge();
  snapshot.bridges.push_back({"ACPI0016:01", "pci0000:24", {EmptyStack("port3", 4)}});
  snapshot.windows.push_back({"decoder0.1",
                              kWindowHpa + 8192 * kMiB,
                              8192 * kMiB,
                              8192 * kMiB,
                              512,
                              true,
                              {"pci0000:0c", "pci0000:24"}});
  snapshot.memdevs.push_back({"mem2", 0x2001, 512 * kMiB, "0000:27:00.0", "pci0000:24", true});
  HostRegionSpec spec = Spec(0x1001, 512 * kMiB);
  spec.serials = {0x1001, 0x2001};
  const absl::StatusOr<RegionPlan> plan = PlanHostRegion(snapshot, spec);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->window, "decoder0.1");
  EXPECT_EQ(plan->interleave_granularity_bytes, 512u);
  spec.interleave_granularity_bytes = 256;  // The window's host bridges are striped otherwise.
  EXPECT_EQ(ReasonFor(snapshot, spec), "BAD_REGION_SPEC");
  spec.interleave_granularity_bytes = 512;
  EXPECT_EQ(ReasonFor(snapshot, spec), "OK");
  spec.serials = {0x2001, 0x1001};
  spec.host_bridge = "ACPI0016:01";
  EXPECT_EQ(ReasonFor(snapshot, spec), "NO_WINDOW");
  spec = Spec(0x1001, 768 * kMiB);
  spec.serials = {0x1001, 0x1002, 0x2001};
  EXPECT_EQ(ReasonFor(snapshot, spec), "BAD_REGION_SPEC");
}

}  // namespace
}  // namespace cxlpool::agent
