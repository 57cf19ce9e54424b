// The policies one by one, and what they refuse.

#include <gtest/gtest.h>

#include <set>

#include "fabric-manager/model/placement/placement.h"
#include "test/model/model_rig.h"

namespace cxlpool::fm {
namespace {

using absl::StatusCode;

class PolicyTest : public testing::Test, protected ModelRig {
 protected:
  // `devices` devices of 4 GiB, with granules of kUnit.
  void AddDevices(int devices, uint64_t capacity = 4 * kGiB) {
    for (int i = 0; i < devices; ++i) AddDevice(absl::StrCat("cmm-", i), capacity, kUnit);
  }
  ExtentRequest Want(Policy policy, uint64_t size, uint32_t max_extents = 1) {
    ExtentRequest want{.label = "region \"kv\"", .size_bytes = size, .device = {}};
    want.policy = policy;
    want.max_extents = max_extents;
    return want;
  }
  std::vector<Extent> ExtentsOf(const ExtentRequest& want) {
    const auto placed = PlaceExtents(state(), want);
    EXPECT_TRUE(placed.ok()) << placed.status();
    return placed.ok() ? placed->extents : std::vector<Extent>(1);
  }
  std::string DevicesOf(const ExtentRequest& want) {
    std::string devices;
    for (const Extent& extent : ExtentsOf(want)) {
      absl::StrAppend(&devices, devices.empty() ? "" : " ", extent.device.str());
    }
    return devices;
  }
  const absl::Status& Refusal(const ExtentRequest& want, StatusCode code,
                              const std::string& reason) {
    refusal_ = PlaceExtents(state(), want).status();
    EXPECT_EQ(refusal_.code(), code) << refusal_;
    EXPECT_EQ(ReasonOf(refusal_), reason) << refusal_;
    return refusal_;
  }
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
  void SetService(const std::string& id, DeviceService service, const std::string& reason = "") {
    Device device = *state().FindDevice(id);
    device.service = service;
    device.service_reason = reason;
    Commit({device});
  }
  // host-a at a switch with the first half of the devices near, and the others behind another.
  void FarAndNear(int devices) {
    TopologySpec spec;
    spec.hosts = {"host-a", "host-b"};
    spec.switches = {{"near", 50, 20000, "row-1"}, {"far", 50, 10000, "row-2"}};
    spec.links = {{.a = "host-a", .b = "near"}, {.a = "near", .b = "far"}};
    for (int i = 0; i < devices; ++i) {
      const std::string id = absl::StrCat("cmm-", i);
      spec.devices.push_back({.id = id, .latency_ns = 100});
      spec.links.push_back({.a = i < devices / 2 ? "near" : "far", .b = id});
    }
    state().SetTopology(Topology::Create(spec).value());
  }

 private:
  absl::Status refusal_;
};

TEST_F(PolicyTest, SpreadTakesTheLeastLoaded) {
  AddDevices(3);
  Hold("cmm-0", 0, 2 * kUnit);
  Hold("cmm-1", 0, kUnit);
  EXPECT_EQ(DevicesOf(Want(Policy::kSpread, kUnit)), "cmm-2");
  Hold("cmm-2", 0, 3 * kUnit);
  EXPECT_EQ(DevicesOf(Want(Policy::kSpread, kUnit)), "cmm-1");
  // By the part of a device that is taken, not by bytes.
  AddDevice("large", 64 * kGiB, kUnit);
  Hold("large", 0, 2 * kGiB);
  EXPECT_EQ(DevicesOf(Want(Policy::kSpread, kUnit)), "large");
}

TEST_F(PolicyTest, SpreadOverSeveralDevicesLeavesThemEven) {
  AddDevices(3);
  Hold("cmm-0", 0, 4 * kUnit);
  const auto extents = ExtentsOf(Want(Policy::kSpread, 8 * kUnit, 3));
  std::map<std::string, uint64_t> bytes;
  for (const Extent& extent : extents) bytes[extent.device.str()] += extent.length_bytes;
  EXPECT_EQ(bytes, (std::map<std::string, uint64_t>{{"cmm-1", 4 * kUnit}, {"cmm-2", 4 * kUnit}}));
  EXPECT_EQ(ExtentsOf(Want(Policy::kSpread, 16 * kUnit, 3)).size(), 3u);
  EXPECT_EQ(ExtentsOf(Want(Policy::kSpread, kUnit, 3)).size(), 1u);
  EXPECT_EQ(ExtentsOf(Want(Policy::kSpread, 8 * kUnit, 2)).size(), 2u);
}

TEST_F(PolicyTest, SpreadUsesWhatRunsThereAre) {
  AddDevices(2);
  for (uint64_t i = 0; i < 16; i += 2) Hold("cmm-0", i * kUnit, kUnit);
  Hold("cmm-1", 0, 16 * kUnit);
  EXPECT_EQ(ExtentsOf(Want(Policy::kSpread, 3 * kUnit, 4)).size(), 3u);
  Refusal(Want(Policy::kSpread, 3 * kUnit, 2), StatusCode::kResourceExhausted, "POOL_FRAGMENTED");
}

TEST_F(PolicyTest, ASpreadRegionGrowsWhereItIsNotYet) {
  AddDevices(3);
  const RegionPtr there = Hold("cmm-0", 0, kUnit);
  Hold("cmm-1", 0, 3 * kUnit);
  Hold("cmm-2", 0, 4 * kUnit);
  ExtentRequest want = Want(Policy::kSpread, kUnit);
  EXPECT_EQ(DevicesOf(want), "cmm-0");
  want.grown = there.get();
  EXPECT_EQ(DevicesOf(want), "cmm-1");
}

TEST_F(PolicyTest, BandwidthStripesOverDistinctDevices) {
  AddDevices(5);
  Hold("cmm-0", 0, kUnit);
  ExtentRequest want = Want(Policy::kBandwidth, 3 * kUnit);
  want.interleave_ways = 4;
  want.interleave_granularity_bytes = 4096;
  const auto placed = PlaceExtents(state(), want);
  ASSERT_TRUE(placed.ok()) << placed.status();
  EXPECT_EQ(placed->interleave_ways, 4u);
  EXPECT_EQ(placed->interleave_granularity_bytes, 4096u);
  EXPECT_EQ(
      placed->extents,
      (std::vector<Extent>{
          {"cmm-1", 0, kUnit}, {"cmm-2", 0, kUnit}, {"cmm-3", 0, kUnit}, {"cmm-4", 0, kUnit}}));
}

TEST_F(PolicyTest, BandwidthChoosesTheWaysThatRoundUpLittle) {
  AddDevices(9);
  const auto ways = [&](uint64_t units) {
    const auto placed = PlaceExtents(state(), Want(Policy::kBandwidth, units * kUnit));
    EXPECT_TRUE(placed.ok()) << placed.status();
    EXPECT_EQ(placed->interleave_granularity_bytes, 256u);
    return placed.ok() ? placed->interleave_ways : 0;
  };
  EXPECT_EQ(ways(1), 2u);
  EXPECT_EQ(ways(3), 2u);
  EXPECT_EQ(ways(4), 4u);
  EXPECT_EQ(ways(12), 4u);
  EXPECT_EQ(ways(15), 8u);
  EXPECT_EQ(ways(32), 8u);  // There are no 16 devices.
}

TEST_F(PolicyTest, BandwidthTakesTheWidestWays) {
  AddDevices(4);
  FarAndNear(4);
  ExtentRequest want = Want(Policy::kBandwidth, 2 * kUnit);
  want.host = "host-a";
  want.interleave_ways = 2;
  Hold("cmm-0", 0, kGiB);
  EXPECT_EQ(DevicesOf(want), "cmm-1 cmm-0");
  want.interleave_ways = 4;
  EXPECT_EQ(DevicesOf(want), "cmm-1 cmm-0 cmm-2 cmm-3");
}

TEST_F(PolicyTest, BandwidthKeepsToWhatOneBridgeLeadsTo) {
  AddDevices(4);
  AddHost("host-a", 2, 2);  // 16, 17; 18, 19.
  TopologySpec spec;
  spec.hosts = {"host-a"};
  spec.switches = {{"left"}, {"right"}};
  for (int i = 0; i < 4; ++i) {
    spec.devices.push_back({absl::StrCat("cmm-", i)});
    spec.links.push_back({.a = i % 2 == 0 ? "left" : "right", .b = absl::StrCat("cmm-", i)});
  }
  spec.links.push_back({.a = "host-a", .b = "left", .slots = {16, 17}});
  spec.links.push_back({.a = "host-a", .b = "right", .slots = {18, 19}});
  state().SetTopology(Topology::Create(spec).value());
  ExtentRequest want = Want(Policy::kBandwidth, 4 * kUnit);
  want.host = "host-a";
  EXPECT_EQ(DevicesOf(want), "cmm-0 cmm-2");
  want.interleave_ways = 4;  // By no bridge: PlaceOnHost says so.
  EXPECT_EQ(ExtentsOf(want).size(), 4u);
}

TEST_F(PolicyTest, BandwidthTakesSeveralSetsWhereOneDoesNotFit) {
  AddDevices(3, kGiB);
  ExtentRequest want = Want(Policy::kBandwidth, 3 * kGiB, 8);
  want.interleave_ways = 2;
  const std::vector<Extent> extents = ExtentsOf(want);
  uint64_t bytes = 0;
  for (size_t i = 0; i < extents.size(); i += 2) {
    EXPECT_NE(extents[i].device, extents[i + 1].device);
    EXPECT_EQ(extents[i].length_bytes, extents[i + 1].length_bytes);
    bytes += 2 * extents[i].length_bytes;
  }
  EXPECT_EQ(bytes, 3 * kGiB);  // All there is.
  want.max_extents = 1;
  const absl::Status status = Refusal(want, StatusCode::kResourceExhausted, "POOL_FRAGMENTED");
  EXPECT_EQ(MetadataOf(status, "extents"), "3");
  EXPECT_EQ(MetadataOf(status, "largest_free_bytes"), absl::StrCat(2 * kGiB));
}

TEST_F(PolicyTest, BandwidthNeverMakesMoreExtentsThanARegionMayHave) {
  AddDevices(8, kGiB);
  for (int i = 0; i < 8; ++i) {
    Hold(absl::StrCat("cmm-", i), kUnit, kUnit);  // Runs of 1 and 2 units.
  }
  ExtentRequest want = Want(Policy::kBandwidth, 24 * kUnit, 16);
  want.interleave_ways = 8;
  EXPECT_EQ(ExtentsOf(want).size(), 16u);
  Region grown;
  grown.interleave_ways = 8;
  grown.interleave_granularity_bytes = 512;
  grown.extents.resize(8);
  want.grown = &grown;
  Refusal(want, StatusCode::kResourceExhausted, "POOL_FRAGMENTED");
  want.size_bytes = 16 * kUnit;
  const auto placed = PlaceExtents(state(), want);
  ASSERT_TRUE(placed.ok()) << placed.status();
  EXPECT_EQ(placed->extents.size(), 8u);
  EXPECT_EQ(placed->interleave_granularity_bytes, 512u);
}

TEST_F(PolicyTest, BandwidthRefusals) {
  AddDevices(3);
  ExtentRequest want = Want(Policy::kBandwidth, kGiB);
  want.interleave_ways = 4;
  absl::Status status = Refusal(want, StatusCode::kFailedPrecondition, "TOO_FEW_DEVICES");
  EXPECT_EQ(status.message(),
            "region \"kv\" needs 4 devices for 4 ways; there are 3 in the pool (ask for fewer "
            "ways)");
  for (const uint32_t ways : {1u, 3u, 32u}) {
    want.interleave_ways = ways;
    Refusal(want, StatusCode::kInvalidArgument, "BAD_INTERLEAVE");
  }
  want.interleave_ways = 2;
  for (const uint32_t granularity : {1u, 128u, 300u, 32768u}) {
    want.interleave_granularity_bytes = granularity;
    Refusal(want, StatusCode::kInvalidArgument, "BAD_INTERLEAVE");
  }
  want.interleave_granularity_bytes = 0;
  want.policy = Policy::kPack;
  Refusal(want, StatusCode::kInvalidArgument, "BAD_INTERLEAVE");
  want.policy = Policy::kBandwidth;
  want.size_bytes = 13 * kGiB;
  Refusal(want, StatusCode::kResourceExhausted, "POOL_FULL");
  Hold("cmm-2", 0, 4 * kGiB);
  Hold("cmm-1", 0, 3 * kGiB);
  want.size_bytes = 3 * kGiB;
  status = Refusal(want, StatusCode::kResourceExhausted, "POOL_FRAGMENTED");
  EXPECT_EQ(MetadataOf(status, "largest_free_bytes"), absl::StrCat(2 * kGiB));
}

TEST_F(PolicyTest, LatencyTakesTheNearestThatHoldsIt) {
  AddDevices(4, kGiB);
  FarAndNear(4);
  Hold("cmm-2", 0, 2 * kUnit);  // Fits better, but is farther.
  ExtentRequest want = Want(Policy::kLatency, 2 * kUnit);
  want.host = "host-a";
  EXPECT_EQ(DevicesOf(want), "cmm-0");
  Hold("cmm-0", 0, 3 * kUnit);
  Hold("cmm-1", 0, 3 * kUnit);
  EXPECT_EQ(DevicesOf(want), "cmm-2");
  want.max_extents = 2;
  EXPECT_EQ(DevicesOf(want), "cmm-0 cmm-1");
  want.size_bytes = 8 * kUnit;  // Only all of them together.
  want.max_extents = 4;
  EXPECT_EQ(ExtentsOf(want).size(), 4u);
}

TEST_F(PolicyTest, LatencyWithoutATopologyGoesByTheDevices) {
  AddDevices(3);
  TopologySpec spec;
  spec.devices = {{.id = "cmm-1", .latency_ns = 90}, {.id = "cmm-2", .latency_ns = 80}};
  state().SetTopology(Topology::Create(spec).value());
  EXPECT_EQ(DevicesOf(Want(Policy::kLatency, kUnit)), "cmm-2");
  Hold("cmm-2", 0, 4 * kGiB);
  EXPECT_EQ(DevicesOf(Want(Policy::kLatency, kUnit)), "cmm-1");
  Hold("cmm-1", 0, 4 * kGiB);
  EXPECT_EQ(DevicesOf(Want(Policy::kLatency, kUnit)), "cmm-0");  // Nobody knows how far.
}

TEST_F(PolicyTest, IsolateKeepsAwayFromOthersDomains) {
  AddDevices(4, kGiB);
  FarAndNear(4);  // Domains row-1 of 0, 1 and row-2 of 2, 3.
  const RegionPtr other = Hold("cmm-0", 0, kUnit);
  ExtentRequest want = Want(Policy::kIsolate, kUnit);
  EXPECT_EQ(DevicesOf(want), "cmm-0");  // Fits best.
  want.isolate_from = {other};
  EXPECT_EQ(DevicesOf(want), "cmm-2");
  want.isolate_from.push_back(Hold("cmm-3", 0, kUnit));
  const absl::Status status = Refusal(want, StatusCode::kFailedPrecondition, "NOT_ISOLATED");
  EXPECT_EQ(MetadataOf(status, "isolate_from"),
            absl::StrCat(other->id, ",", want.isolate_from[1]->id));
}

TEST_F(PolicyTest, NoOtherPolicyKeepsAwayFromAnybody) {
  AddDevices(4, kGiB);
  const RegionPtr other = Hold("cmm-0", 0, kUnit);
  for (const Policy policy :
       {Policy::kPack, Policy::kSpread, Policy::kBandwidth, Policy::kLatency}) {
    ExtentRequest want = Want(policy, kUnit);
    want.isolate_from = {other};
    Refusal(want, StatusCode::kInvalidArgument, "BAD_ISOLATE_FROM");
  }
}

TEST_F(PolicyTest, IsolateStaysInOneDomain) {
  AddDevices(4, kGiB);
  FarAndNear(4);
  for (int i = 1; i < 4; ++i) Hold(absl::StrCat("cmm-", i), 0, (i + 1) / 2 * kUnit);
  // Free: 4 and 3 in row-1, 3 and 2 in row-2.
  ExtentRequest want = Want(Policy::kIsolate, 7 * kUnit, 16);
  EXPECT_EQ(DevicesOf(want), "cmm-0 cmm-1");
  want.size_bytes = 8 * kUnit;  // There are 12, but not in one domain.
  absl::Status status = Refusal(want, StatusCode::kFailedPrecondition, "NOT_ISOLATED");
  EXPECT_EQ(status.message(),
            "region \"kv\" needs 2 GiB in one failure domain; most free is 1.75 GiB (release a "
            "Region there)");
  want.size_bytes = 13 * kUnit;
  Refusal(want, StatusCode::kResourceExhausted, "POOL_FULL");
}

TEST_F(PolicyTest, AnIsolatedRegionGrowsInItsDomain) {
  AddDevices(4, kGiB);
  FarAndNear(4);
  const RegionPtr there = Hold("cmm-3", 0, kUnit);
  Hold("cmm-0", 0, 3 * kUnit);
  ExtentRequest want = Want(Policy::kIsolate, kUnit);
  EXPECT_EQ(DevicesOf(want), "cmm-0");
  want.grown = there.get();
  EXPECT_EQ(DevicesOf(want), "cmm-3");
  Hold("cmm-3", kUnit, 3 * kUnit);
  Hold("cmm-2", 0, 4 * kUnit);
  Refusal(want, StatusCode::kFailedPrecondition, "NOT_ISOLATED");
}

TEST_F(PolicyTest, DevicesThatAreNotInService) {
  AddDevices(2);
  ExtentRequest want = Want(Policy::kPack, kUnit);
  SetService("cmm-0", DeviceService::kDraining);
  EXPECT_EQ(DevicesOf(want), "cmm-1");
  want.device = "cmm-0";
  Refusal(want, StatusCode::kFailedPrecondition, "DEVICE_DRAINING");
  SetService("cmm-0", DeviceService::kFailed, "burnt");
  const absl::Status failed = Refusal(want, StatusCode::kFailedPrecondition, "DEVICE_FAILED");
  EXPECT_EQ(failed.message(),
            "region \"kv\": device \"cmm-0\" has failed: burnt (name another device)");
  SetService("cmm-0", DeviceService::kRemoved);
  Refusal(want, StatusCode::kFailedPrecondition, "DEVICE_FAILED");

  want.device.clear();
  SetService("cmm-1", DeviceService::kDraining);
  Refusal(want, StatusCode::kFailedPrecondition, "DEVICE_DRAINING");
  SetService("cmm-1", DeviceService::kFailed);
  Refusal(want, StatusCode::kFailedPrecondition, "DEVICE_FAILED");
  SetService("cmm-1", DeviceService::kRemoved);
  Refusal(want, StatusCode::kResourceExhausted, "POOL_FULL");
}

TEST_F(PolicyTest, FullSaysWhatIsFreeElsewhere) {
  AddDevices(4);
  FarAndNear(4);
  AddDevice("alone", kGiB, kUnit);
  SetService("cmm-0", DeviceService::kDraining);
  state().SetReachable("cmm-1", "not seen");
  ExtentRequest want = Want(Policy::kPack, 9 * kGiB, 16);
  want.host = "host-a";
  const absl::Status status = Refusal(want, StatusCode::kResourceExhausted, "POOL_FULL");
  EXPECT_EQ(status.message(),
            "region \"kv\" needs 9 GiB; free where host \"host-a\" has a path: 8 GiB, and 1 GiB "
            "where no path leads host \"host-a\", 4 GiB on devices that are draining, 4 GiB on "
            "devices that the fabric does not see (release a Region, or ask for less)");
}

TEST_F(PolicyTest, OnlyWhatTheHostReaches) {
  AddDevices(4);
  FarAndNear(4);
  AddDevice("alone", kUnit, kUnit);
  ExtentRequest want = Want(Policy::kPack, kUnit);
  EXPECT_EQ(DevicesOf(want), "alone");
  want.host = "host-a";
  EXPECT_EQ(DevicesOf(want), "cmm-0");
  want.device = "alone";
  Refusal(want, StatusCode::kFailedPrecondition, "NO_PATH");
  want.device.clear();
  want.host = "host-b";
  const absl::Status status = Refusal(want, StatusCode::kFailedPrecondition, "NO_PATH");
  EXPECT_EQ(MetadataOf(status, "host"), "host-b");
}

TEST_F(PolicyTest, LdLimits) {
  AddDevices(2);
  state().SetLimits({0, 2});
  Hold("cmm-0", 0, kUnit);
  Hold("cmm-0", kUnit, kUnit);
  ExtentRequest want = Want(Policy::kPack, kUnit);
  EXPECT_EQ(DevicesOf(want), "cmm-1");
  want.device = "cmm-0";
  absl::Status status = Refusal(want, StatusCode::kResourceExhausted, "LD_LIMIT");
  EXPECT_EQ(status.message(),
            "region \"kv\" needs 256 MiB; 3.5 GiB are free on device \"cmm-0\", but a device "
            "carries at most 2 LDs, and so many are on cmm-0 (release a Region there, or ask for "
            "fewer and larger Regions)");
  want.device.clear();
  Hold("cmm-1", 0, kUnit);
  want.size_bytes = 20 * kUnit;  // 29 are free.
  want.max_extents = 16;
  status = Refusal(want, StatusCode::kResourceExhausted, "LD_LIMIT");
  EXPECT_EQ(MetadataOf(status, "devices"), "cmm-0");
}

TEST_F(PolicyTest, SeveralExtentsOfOneRequestCountAsLds) {
  AddDevices(2);
  for (uint64_t i = 1; i < 16; i += 2) {
    Hold("cmm-0", i * kUnit, kUnit);
    Hold("cmm-1", i * kUnit, kUnit);
  }
  state().SetLimits({0, 10});  // Two more on each.
  ExtentRequest want = Want(Policy::kPack, 4 * kUnit, 16);
  EXPECT_EQ(DevicesOf(want), "cmm-0 cmm-0 cmm-1 cmm-1");
  want.size_bytes = 5 * kUnit;
  Refusal(want, StatusCode::kResourceExhausted, "LD_LIMIT");
}

TEST_F(PolicyTest, TheFabricsGranuleCounts) {
  AddDevice("cmm-0", 4 * kGiB, 2 * kMiB);
  state().SetLimits({64 * kMiB, 0});
  EXPECT_EQ(ExtentsOf(Want(Policy::kPack, 1))[0].length_bytes, 64 * kMiB);
  ExtentRequest want = Want(Policy::kPack, 1);
  want.unit_bytes = 96 * kMiB;
  EXPECT_EQ(ExtentsOf(want)[0].length_bytes, 192 * kMiB);
}

TEST_F(PolicyTest, SeveralStripeSetsCountAsLds) {
  AddDevices(2);
  for (uint64_t i = 1; i < 16; i += 2) {
    Hold("cmm-0", i * kUnit, kUnit);
    Hold("cmm-1", i * kUnit, kUnit);
  }
  state().SetLimits({0, 10});  // Two more on each.
  ExtentRequest want = Want(Policy::kBandwidth, 4 * kUnit, 8);
  want.interleave_ways = 2;
  EXPECT_EQ(ExtentsOf(want).size(), 4u);
  want.size_bytes = 6 * kUnit;
  EXPECT_FALSE(PlaceExtents(state(), want).ok()) << "three LDs on a device that has two left";
}

TEST_F(PolicyTest, AGrowthGoesWhereItsHostIsLedTo) {
  AddDevices(2);
  AddHost("host-a");
  TopologySpec spec;
  spec.hosts = {"host-a"};
  spec.devices = {{.id = "cmm-0"}, {.id = "cmm-1"}};
  spec.links = {{.a = "host-a", .b = "cmm-0"}};
  state().SetTopology(Topology::Create(spec).value());
  ASSERT_TRUE(Allocate(Allocation("kv", kUnit, "host-a")).ok());
  BringUp("kv");
  Hold("cmm-1", 0, 4 * kGiB - kUnit);  // What is left there fits best.
  const auto grown = Resize("kv", 2 * kUnit);
  ASSERT_TRUE(grown.ok()) << grown.status();
  EXPECT_EQ((*grown)->extents.back().device.str(), "cmm-0");
}

}  // namespace
}  // namespace cxlpool::fm
