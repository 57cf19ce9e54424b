#include "fabric-manager/model/placement/placement.h"

#include <gtest/gtest.h>

#include "test/model/model_rig.h"

namespace cxlpool::fm {
namespace {

class PlaceExtentsTest : public testing::Test, protected ModelRig {
 protected:
  PlaceExtentsTest() { AddPool(); }

  ExtentRequest Want(uint64_t size) {
    return {.label = "region \"kv\"", .size_bytes = size, .device = {}};
  }
  absl::StatusOr<PlacedExtents> Place(const ExtentRequest& want) {
    return PlaceExtents(state(), want);
  }
  std::vector<Extent> ExtentsOf(const ExtentRequest& want) {
    const auto placed = Place(want);
    EXPECT_TRUE(placed.ok()) << placed.status();
    return placed.ok() ? placed->extents : std::vector<Extent>(1);
  }
  absl::Status Refusal(const ExtentRequest& want) { return Place(want).status(); }
  // Takes [dpa, dpa + length) of the device.
  RegionPtr Hold(const std::string& device, uint64_t dpa, uint64_t length) {
    auto region = std::make_shared<Region>();
    region->key = context().next_id();
    region->tag = context().make_tag();
    region->id = absl::StrCat("hold-", region->key);
    region->state = RegionState::kAllocated;
    region->extents = {{device, dpa, length}};
    Commit({RegionPtr(region)});
    return region;
  }
};

TEST_F(PlaceExtentsTest, RoundsUpToTheDevicesGranule) {
  EXPECT_EQ(ExtentsOf(Want(1)), (std::vector<Extent>{{"cmm-0", 0, 2 * kMiB}}));
}

TEST_F(PlaceExtentsTest, RoundsUpToTheUnit) {
  ExtentRequest want = Want(kUnit + 1);
  want.unit_bytes = kUnit;
  EXPECT_EQ(ExtentsOf(want)[0].length_bytes, 2 * kUnit);
  want.unit_bytes = 3 * kMiB;  // No multiple of the granule, 2 MiB.
  EXPECT_EQ(ExtentsOf(want)[0].length_bytes % (6 * kMiB), 0u);
}

TEST_F(PlaceExtentsTest, TakesTheSmallestRunThatFits) {
  Hold("cmm-0", kGiB, kGiB);      // Free: 1 GiB and 2 GiB.
  Hold("cmm-1", 0, 2560 * kMiB);  // Free: 1536 MiB.
  EXPECT_EQ(ExtentsOf(Want(kGiB))[0], (Extent{"cmm-0", 0, kGiB}));
  EXPECT_EQ(ExtentsOf(Want(1200 * kMiB))[0], (Extent{"cmm-1", 2560 * kMiB, 1200 * kMiB}));
  EXPECT_EQ(ExtentsOf(Want(2 * kGiB))[0], (Extent{"cmm-0", 2 * kGiB, 2 * kGiB}));
}

TEST_F(PlaceExtentsTest, PlacesOnlyOnTheDeviceThatIsNamed) {
  ExtentRequest want = Want(kGiB);
  want.device = "cmm-1";
  EXPECT_EQ(ExtentsOf(want)[0].device, "cmm-1");
  want.device = "cmm-7";
  EXPECT_EQ(ReasonOf(Refusal(want)), "UNKNOWN_DEVICE");
  state().SetReachable("cmm-1", "not seen");
  want.device = "cmm-1";
  EXPECT_EQ(ReasonOf(Refusal(want)), "DEVICE_UNREACHABLE");
}

TEST_F(PlaceExtentsTest, UnreachableDevicesTakeNothing) {
  state().SetReachable("cmm-0", "not seen");
  EXPECT_EQ(ExtentsOf(Want(kGiB))[0].device, "cmm-1");
  EXPECT_EQ(ReasonOf(Refusal(Want(5 * kGiB))), "POOL_FULL");
  state().SetReachable("cmm-1", "not seen");
  EXPECT_EQ(ReasonOf(Refusal(Want(kGiB))), "DEVICE_UNREACHABLE");
}

TEST_F(PlaceExtentsTest, FewestExtentsTheLongestFirstAndTheRestWhereItFitsBest) {
  Hold("cmm-0", 1 * kGiB, kGiB);    // Free: [0,1) [2,4).
  Hold("cmm-1", 512 * kMiB, kGiB);  // Free: [0,0.5) [1.5,4).
  ExtentRequest want = Want(3 * kGiB);
  want.max_extents = 4;
  EXPECT_EQ(ExtentsOf(want),
            (std::vector<Extent>{{"cmm-1", 1536 * kMiB, 2560 * kMiB}, {"cmm-1", 0, 512 * kMiB}}));
  want.size_bytes = 5 * kGiB;
  EXPECT_EQ(ExtentsOf(want), (std::vector<Extent>{{"cmm-1", 1536 * kMiB, 2560 * kMiB},
                                                  {"cmm-0", 2 * kGiB, 2 * kGiB},
                                                  {"cmm-1", 0, 512 * kMiB}}));
}

TEST_F(PlaceExtentsTest, FragmentedSaysWhatWouldFit) {
  Hold("cmm-0", 1 * kGiB, kGiB);
  Hold("cmm-1", 512 * kMiB, kGiB);
  const absl::Status status = Refusal(Want(3 * kGiB));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(status), "POOL_FRAGMENTED");
  EXPECT_EQ(MetadataOf(status, "largest_free_bytes"), absl::StrCat(2560 * kMiB));
  EXPECT_EQ(MetadataOf(status, "extents"), "2");
  EXPECT_EQ(status.message(),
            "region \"kv\" needs 3 GiB in one extent; largest free is 2.5 GiB on cmm-1 "
            "(use --max-extents 2)");
}

TEST_F(PlaceExtentsTest, FragmentedBeyondTheLimitOfExtents) {
  for (int i = 0; i < 64; ++i) {
    Hold("cmm-0", i * 64 * kMiB, 32 * kMiB);
    Hold("cmm-1", i * 64 * kMiB, 32 * kMiB);
  }
  ExtentRequest want = Want(3 * kGiB);
  want.max_extents = kMaxExtentsPerRegion;
  const absl::Status status = Refusal(want);
  EXPECT_EQ(ReasonOf(status), "POOL_FRAGMENTED");
  EXPECT_EQ(MetadataOf(status, "extents"), "");
  want.size_bytes = 16 * 32 * kMiB;
  EXPECT_EQ(ExtentsOf(want).size(), 16u);
}

TEST_F(PlaceExtentsTest, PoolFullSaysWhatIsFree) {
  Hold("cmm-0", 0, 4 * kGiB);
  const absl::Status status = Refusal(Want(5 * kGiB));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(status), "POOL_FULL");
  EXPECT_EQ(MetadataOf(status, "free_bytes"), absl::StrCat(4 * kGiB));
  EXPECT_NE(status.message().find("free in the pool: 4 GiB"), absl::string_view::npos) << status;
}

TEST_F(PlaceExtentsTest, BytesThatMakeNoWholeUnitAreNotFree) {
  Hold("cmm-1", 0, 4 * kGiB);
  Hold("cmm-0", 128 * kMiB, 3968 * kMiB);  // 128 MiB are left.
  ExtentRequest want = Want(kMiB);
  want.unit_bytes = kUnit;
  EXPECT_EQ(ReasonOf(Refusal(want)), "POOL_FULL");
}

TEST_F(PlaceExtentsTest, AbsurdSizesAreRefusedNotWrapped) {
  for (uint64_t size : {UINT64_MAX, UINT64_MAX - kGiB, uint64_t{1} << 63, 9 * kGiB}) {
    ExtentRequest want = Want(size);
    want.max_extents = 16;
    EXPECT_EQ(ReasonOf(Refusal(want)), "POOL_FULL") << size;
    want.unit_bytes = UINT64_MAX - 1;
    EXPECT_EQ(ReasonOf(Refusal(want)), "POOL_FULL") << size;
  }
}

TEST_F(PlaceExtentsTest, AnEmptyPoolIsFull) {
  EXPECT_EQ(ReasonOf(PlaceExtents(PoolState(), Want(1)).status()), "POOL_FULL");
}

}  // namespace
}  // namespace cxlpool::fm
