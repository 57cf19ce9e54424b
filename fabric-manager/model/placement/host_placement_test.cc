#include <gtest/gtest.h>

#include "fabric-manager/model/placement/placement.h"
#include "test/model/model_rig.h"

namespace cxlpool::fm {
namespace {

using Slots = std::vector<uint32_t>;
using Ids = std::vector<std::string>;

class PlaceOnHostTest : public testing::Test, protected ModelRig {
 protected:
  PlaceOnHostTest() {
    AddDevice("cmm-0", 64 * kGiB);
    AddHost("host-a", 2, 2);  // Slots 16, 17 on bridge-0; 18, 19 on bridge-1.
  }

  HostRequest Want(const std::vector<uint64_t>& lengths) {
    HostRequest request{.host = "host-a", .label = "region \"kv\"", .extents = {}};
    for (const uint64_t length : lengths) request.extents.push_back({"cmm-0", 0, length});
    return request;
  }
  absl::StatusOr<HostPlacement> Place(const std::vector<uint64_t>& lengths) {
    return PlaceOnHost(state(), Want(lengths));
  }
  uint32_t SlotOf(const absl::StatusOr<HostPlacement>& placed) {
    EXPECT_TRUE(placed.ok()) << placed.status();
    return placed.ok() ? placed->segments.at(0).slot : 0;
  }
  std::vector<uint32_t> SlotsOf(const absl::StatusOr<HostPlacement>& placed) {
    std::vector<uint32_t> slots;
    EXPECT_TRUE(placed.ok()) << placed.status();
    if (!placed.ok()) return slots;
    for (const Segment& segment : placed->segments) slots.push_back(segment.slot);
    return slots;
  }
  void AllocateOnline(const std::string& id, uint64_t size = kUnit) {
    const auto region = Allocate(Allocation(id, size, "host-a"));
    ASSERT_TRUE(region.ok()) << region.status();
    BringUp(id);
  }
  static HostRuntime OneBridge(HostRuntime runtime, uint32_t slots) {
    runtime.bridges.resize(1);
    for (uint32_t slot = 18; slot < 16 + slots; ++slot) runtime.bridges[0].slots.push_back(slot);
    return runtime;
  }
  template <typename Edit>
  void EditRuntime(Edit edit) {
    HostRuntime runtime = state().Runtime("host-a");
    edit(runtime);
    state().SetRuntime("host-a", runtime);
  }
};

TEST_F(PlaceOnHostTest, AnEmptyBridgeFirstThenTheShallowest) {
  EXPECT_EQ(SlotOf(Place({kUnit})), 16u);
  AllocateOnline("a");
  EXPECT_EQ(SlotOf(Place({kUnit})), 18u);
  AllocateOnline("b");
  EXPECT_EQ(SlotOf(Place({kUnit})), 17u);  // Equal: by name.
  AllocateOnline("c");
  EXPECT_EQ(SlotOf(Place({kUnit})), 19u);
}

TEST_F(PlaceOnHostTest, ExtentsOfOneRegionSpread) {
  const auto placed = Place({kUnit, 2 * kUnit, kUnit});
  EXPECT_EQ(SlotsOf(placed), (Slots{16, 18, 17}));
  EXPECT_EQ(placed->segments[2].extent_index, 2u);
  EXPECT_EQ(placed->segments[2].host_bridge, "bridge-0");
  EXPECT_EQ(placed->segments[0].serial, 0u);
}

TEST_F(PlaceOnHostTest, ThePlanSaysWhatLiesBelowAndWhatAReleaseUnblocks) {
  EditRuntime([](HostRuntime& r) { r = OneBridge(r, 4); });
  AllocateOnline("a");
  auto placed = Place({kUnit});
  ASSERT_TRUE(placed.ok()) << placed.status();
  ASSERT_EQ(placed->bridges.size(), 1u);
  EXPECT_EQ(placed->bridges[0].host_bridge, "bridge-0");
  EXPECT_EQ(placed->bridges[0].stack_depth, 2u);
  EXPECT_EQ(placed->bridges[0].above, (Ids{"a"}));
  EXPECT_EQ(placed->bridges[0].unblocks, (Ids{"a"}));
  AllocateOnline("b");
  placed = Place({kUnit});
  EXPECT_EQ(placed->bridges[0].above, (Ids{"a", "b"}));
  EXPECT_EQ(placed->bridges[0].unblocks, (Ids{"b"}));  // "a" still lies under "b".
}

TEST_F(PlaceOnHostTest, ARegionThatIsHeldElsewhereIsNotUnblocked) {
  AllocateOnline("low");  // bridge-0
  AllocateSpec spec = Allocation("wide", 2 * kUnit, "host-a");
  spec.max_extents = 2;
  ASSERT_TRUE(Allocate(spec).ok());
  BringUp("wide");
  // One on bridge-1, above nothing; then on bridge-0 above "low".
  AllocateOnline("next");
  const auto placed = Place({kUnit});
  ASSERT_TRUE(placed.ok()) << placed.status();
  for (const auto& bridge : placed->bridges) {
    for (const std::string& id : bridge.unblocks) EXPECT_NE(id, "low");
  }
}

TEST_F(PlaceOnHostTest, ShortAboveLong) {
  AllocateSpec spec = Allocation("short", kUnit, "host-a");
  spec.expected_lifetime = absl::Hours(1);
  ASSERT_TRUE(Allocate(spec).ok());  // bridge-0
  AllocateOnline("long");            // bridge-1
  HostRequest want = Want({kUnit});
  EXPECT_EQ(SlotOf(PlaceOnHost(state(), want)), 19u);  // Stays: not above what goes soon.
  want.expected_lifetime = absl::Hours(2);
  EXPECT_EQ(SlotOf(PlaceOnHost(state(), want)), 19u);
  want.expected_lifetime = absl::Minutes(5);
  EXPECT_EQ(SlotOf(PlaceOnHost(state(), want)), 17u);  // Either will do: by name.
}

TEST_F(PlaceOnHostTest, AStripeSetSharesABridgeThatIsItsOwn) {
  AllocateOnline("a");  // bridge-0
  HostRequest want = Want({kUnit, kUnit});
  want.interleave_ways = 2;
  const auto placed = PlaceOnHost(state(), want);
  EXPECT_EQ(SlotsOf(placed), (Slots{18, 19}));
  EXPECT_EQ(placed->bridges[0].stack_depth, 1u);
  EXPECT_TRUE(placed->bridges[0].above.empty());
  // Two sets: one on each bridge if there is room, else above the other.
  want.extents.resize(4, want.extents[0]);
  EXPECT_EQ(ReasonOf(PlaceOnHost(state(), want).status()), "NO_FREE_PORT");
  EditRuntime([&](HostRuntime& r) { r = MakeRuntime(3, 2); });
  EXPECT_EQ(SlotsOf(PlaceOnHost(state(), want)), (Slots{18, 19, 20, 21}));
}

TEST_F(PlaceOnHostTest, OthersKeepOffTheBridgeOfASetIfTheyCan) {
  AddDevice("cmm-1", 64 * kGiB);
  EditRuntime([&](HostRuntime& r) { r = MakeRuntime(2, 3); });  // 16-18, 19-21.
  AllocateSpec spec = Allocation("set", 2 * kUnit, "host-a");
  spec.policy = Policy::kBandwidth;
  ASSERT_TRUE(Allocate(spec).ok());  // 16, 17
  for (const uint32_t slot : {19u, 20u, 21u, 18u}) {
    const std::string id = absl::StrCat("r", slot);
    AllocateOnline(id);
    EXPECT_EQ((*state().FindRegionById(id))->attachments[0].segments[0].slot, slot);
  }
}

TEST_F(PlaceOnHostTest, ASetNeedsPortsUnderOneBridge) {
  HostRequest want = Want({kUnit, kUnit, kUnit, kUnit});
  want.interleave_ways = 4;
  const absl::Status status = PlaceOnHost(state(), want).status();
  EXPECT_EQ(ReasonOf(status), "NO_FREE_PORT");
  EXPECT_EQ(status.message(),
            "region \"kv\" needs 4 ports under one host bridge of host \"host-a\"; a bridge has at "
            "most 2 (ask for fewer ways)");
  AllocateOnline("a");
  AllocateOnline("b");
  want.interleave_ways = 2;
  want.extents.resize(2);
  const absl::Status taken = PlaceOnHost(state(), want).status();
  EXPECT_EQ(ReasonOf(taken), "NO_FREE_PORT");
  EXPECT_EQ(taken.message(),
            "region \"kv\": host \"host-a\" has no 2 free ports under one host bridge; taken by "
            "a,b (detach a Region there)");
}

TEST_F(PlaceOnHostTest, ASetsWindowIsThatOfAllItsMembers) {
  HostRequest want = Want({3 * kGiB, 3 * kGiB});
  want.interleave_ways = 2;
  const absl::Status status = PlaceOnHost(state(), want).status();
  EXPECT_EQ(ReasonOf(status), "WINDOW_FULL");
  EXPECT_EQ(MetadataOf(status, "largest_free_bytes"), absl::StrCat(4 * kGiB));
}

class PlaceByTopologyTest : public PlaceOnHostTest {
 protected:
  PlaceByTopologyTest() {
    AddDevice("cmm-1", 64 * kGiB);
    AddDevice("cmm-2", 64 * kGiB);
    TopologySpec spec;
    spec.hosts = {"host-a", "host-b"};
    for (const char* id : {"cmm-0", "cmm-1", "cmm-2"}) spec.devices.push_back({id});
    spec.links = {Link("cmm-0", {}), Link("cmm-1", {19}), Link("cmm-2", {17, 18})};
    spec.links.push_back({.a = "host-b", .b = "cmm-0"});
    state().SetTopology(Topology::Create(spec).value());
    AddHost("host-b", 1, 1);
  }
  static TopologySpec::Link Link(const char* device, Slots slots) {
    return {.a = "host-a", .b = device, .slots = std::move(slots)};
  }
  HostRequest On(const std::vector<std::string>& devices) {
    HostRequest request = Want(std::vector<uint64_t>(devices.size(), kUnit));
    for (size_t i = 0; i < devices.size(); ++i) request.extents[i].device = devices[i];
    return request;
  }
};

TEST_F(PlaceByTopologyTest, ASlotThatLeadsToTheDevice) {
  EXPECT_EQ(SlotsOf(PlaceOnHost(state(), On({"cmm-0"}))), (Slots{16}));
  EXPECT_EQ(SlotsOf(PlaceOnHost(state(), On({"cmm-1"}))), (Slots{19}));
  EXPECT_EQ(SlotsOf(PlaceOnHost(state(), On({"cmm-2"}))), (Slots{17}));
}

TEST_F(PlaceByTopologyTest, TheOneWithTheLeastChoiceChoosesFirst) {
  EditRuntime([](HostRuntime& r) { r.bridges.erase(r.bridges.begin()); });  // 18, 19.
  EXPECT_EQ(SlotsOf(PlaceOnHost(state(), On({"cmm-0", "cmm-1"}))), (Slots{18, 19}));
  HostRequest set = On({"cmm-0", "cmm-2"});
  set.interleave_ways = 2;
  EXPECT_EQ(SlotsOf(PlaceOnHost(state(), set)), (Slots{19, 18}));
}

TEST_F(PlaceByTopologyTest, NoPathNamesTheDevice) {
  HostRequest want = On({"cmm-1"});
  want.host = "host-b";
  absl::Status status = PlaceOnHost(state(), want).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ReasonOf(status), "NO_PATH");
  EXPECT_EQ(MetadataOf(status, "device"), "cmm-1");
  EditRuntime([](HostRuntime& r) { std::erase(r.fabric_slots, 19u); });
  status = PlaceOnHost(state(), On({"cmm-1"})).status();
  EXPECT_EQ(ReasonOf(status), "NO_PATH");
  EXPECT_EQ(status.message(),
            "region \"kv\": host \"host-a\" has no port that leads to cmm-1 (compare the slots of "
            "its links with `cxlpool topology`)");
  HostRequest set = On({"cmm-1", "cmm-2"});  // By no bridge together.
  set.interleave_ways = 2;
  EXPECT_EQ(ReasonOf(PlaceOnHost(state(), set).status()), "NO_PATH");
}

TEST_F(PlaceByTopologyTest, WhatTheFabricFoundNotToBeReachedIsNotPlaced) {
  EditRuntime([](HostRuntime& r) { r.unreached["cmm-1"] = "it shows no device at all"; });
  const absl::Status status = PlaceOnHost(state(), On({"cmm-1"})).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ReasonOf(status), "NO_PATH");
  EXPECT_EQ(MetadataOf(status, "device"), "cmm-1");
  EXPECT_EQ(status.message(),
            "region \"kv\": host \"host-a\" does not reach device \"cmm-1\": it shows no device at "
            "all (compare what the hosts see (`cxlpool device discover`), or use another host or "
            "device)");
  EXPECT_TRUE(PlaceOnHost(state(), On({"cmm-0"})).ok());
  // An allocation goes elsewhere by itself, and says what was seen where it cannot.
  for (const char* device : {"cmm-0", "cmm-2", "cmm-1"}) {
    EditRuntime([&](HostRuntime& r) { r.unreached = {{device, "it shows no device at all"}}; });
    const auto placed = Allocate(Allocation(absl::StrCat("not-", device), kUnit, "host-a"));
    ASSERT_TRUE(placed.ok()) << placed.status();
    EXPECT_NE((*placed)->extents[0].device.str(), device);
  }
  AllocateSpec spec = Allocation("b", kUnit, "host-a");
  spec.device = "cmm-1";
  EXPECT_EQ(ReasonOf(Allocate(spec).status()), "NO_PATH");
  EditRuntime([](HostRuntime& r) {
    for (const char* device : {"cmm-0", "cmm-1", "cmm-2"}) r.unreached[device] = "a copy";
  });
  EXPECT_EQ(ReasonOf(Allocate(Allocation("c", kUnit, "host-a")).status()), "NO_PATH");
  EXPECT_TRUE(Allocate(Allocation("d", kUnit)).ok()) << "for no host in particular";
}

TEST_F(PlaceByTopologyTest, ThePortsThatLeadThereAreTaken) {
  AllocateSpec spec = Allocation("a", kUnit, "host-a");
  spec.device = "cmm-1";
  ASSERT_TRUE(Allocate(spec).ok());
  const absl::Status status = PlaceOnHost(state(), On({"cmm-1"})).status();
  EXPECT_EQ(ReasonOf(status), "NO_FREE_PORT");
  EXPECT_EQ(MetadataOf(status, "holders"), "a");
  EXPECT_EQ(status.message(),
            "region \"kv\": host \"host-a\" has no free port that leads to cmm-1; taken by a "
            "(detach a Region there)");
}

TEST_F(PlaceOnHostTest, HostsThatCannotTakeAnything) {
  const auto reason = [&](const char* host) { return ReasonOf(CheckHost(state(), host)); };
  EXPECT_EQ(reason("host-a"), "");
  EXPECT_EQ(reason("host-z"), "UNKNOWN_HOST");
  EditRuntime([](HostRuntime& r) { r.fabric_reachable = false; });
  EXPECT_EQ(reason("host-a"), "HOST_UNREACHABLE");
  EditRuntime([](HostRuntime& r) { r.online = false; });
  EXPECT_EQ(reason("host-a"), "HOST_NOT_ONLINE");
  Commit(PlanRetire(state(), kAlice, "host-a", context()).value());
  EXPECT_EQ(reason("host-a"), "HOST_RETIRED");
  EXPECT_EQ(ReasonOf(Place({kUnit}).status()), "HOST_RETIRED");
}

TEST_F(PlaceOnHostTest, NoFreePortNamesWhoHoldsThem) {
  for (const char* id : {"a", "b", "c", "d"}) AllocateOnline(id);
  const absl::Status status = Place({kUnit}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(status), "NO_FREE_PORT");
  EXPECT_EQ(MetadataOf(status, "holders"), "a,b,c,d");
  EXPECT_EQ(MetadataOf(status, "host"), "host-a");
}

TEST_F(PlaceOnHostTest, WithoutAnyPortItSaysWhereToLook) {
  EditRuntime([](HostRuntime& r) { r.fabric_slots.clear(); });
  EXPECT_EQ(ReasonOf(Place({kUnit}).status()), "NO_FREE_PORT");
  EditRuntime([](HostRuntime& r) { r.bridges.clear(); });
  EXPECT_EQ(ReasonOf(Place({kUnit}).status()), "NO_FREE_PORT");
}

TEST_F(PlaceOnHostTest, ABlockedBridgeNamesTheRegionAndOthersAreTriedFirst) {
  for (const char* id : {"a", "b", "c"}) AllocateOnline(id);  // 16, 18, 17.
  // "a" went from under "c": its slot is free, and the agent says that the bridge is blocked.
  ASSERT_TRUE(Release("a", true).ok());
  Rewrite("a", [](Region& r) { r.attachments.clear(); });
  const uint64_t serial = (*state().FindRegionById("c"))->attachments[0].segments[0].serial;
  EditRuntime([&](HostRuntime& r) {
    r.bridges[0].blocked = true;
    r.bridges[0].blocking_serial = serial;
  });
  EXPECT_EQ(SlotOf(Place({kUnit})), 19u);
  AllocateOnline("d");
  const absl::Status status = Place({kUnit}).status();
  EXPECT_EQ(ReasonOf(status), "BRIDGE_BLOCKED");
  EXPECT_EQ(MetadataOf(status, "blocked_by"), "c");
  EXPECT_EQ(status.message(),
            "region \"kv\": host bridge bridge-0 of host \"host-a\" is blocked until region \"c\" "
            "goes, and no other bridge can take it (detach or release c first)");
}

TEST_F(PlaceOnHostTest, ABridgeThatIsBeingLeftIsWaitedFor) {
  EditRuntime([](HostRuntime& r) { r.bridges.resize(1); });
  AllocateOnline("a");
  ASSERT_TRUE(Release("a", true).ok());
  const absl::Status status = Place({kUnit}).status();
  EXPECT_EQ(ReasonOf(status), "BRIDGE_BLOCKED");
  EXPECT_EQ(MetadataOf(status, "blocked_by"), "a");
  EXPECT_NE(status.message().find("retry when a is gone"), absl::string_view::npos) << status;
  // Its decoder is free as soon as it is OFFLINE, though its slot is not.
  Rewrite("a", [](Region& r) { r.attachments[0].settled().state = AttachmentState::kOffline; });
  EXPECT_EQ(SlotOf(Place({kUnit})), 17u);
}

TEST_F(PlaceOnHostTest, FullDecoderStacks) {
  EditRuntime([](HostRuntime& r) {
    for (Bridge& bridge : r.bridges) bridge.max_regions = 1;
  });
  AllocateOnline("a");
  AllocateOnline("b");
  EXPECT_EQ(ReasonOf(Place({kUnit}).status()), "BRIDGE_FULL");
}

TEST_F(PlaceOnHostTest, AFullWindowSaysWhatWouldFit) {
  EditRuntime([](HostRuntime& r) { r.bridges[1].free_window_bytes = 8 * kGiB; });
  EXPECT_EQ(SlotOf(Place({5 * kGiB})), 18u);
  const absl::Status status = Place({9 * kGiB}).status();
  EXPECT_EQ(ReasonOf(status), "WINDOW_FULL");
  EXPECT_EQ(MetadataOf(status, "largest_free_bytes"), absl::StrCat(8 * kGiB));
  // The second extent no longer fits where the first went.
  EXPECT_EQ(ReasonOf(Place({5 * kGiB, 5 * kGiB}).status()), "WINDOW_FULL");
}

TEST_F(PlaceOnHostTest, PageStructsMustFitTheHostsOwnMemory) {
  EditRuntime([](HostRuntime& r) { r.page_struct_spare_bytes = 8 * kMiB; });  // Of 512 MiB.
  EXPECT_TRUE(Place({kUnit, kUnit}).ok());
  const absl::Status status = Place({kUnit, 2 * kUnit}).status();
  EXPECT_EQ(ReasonOf(status), "PAGE_STRUCT_SPACE");
  EXPECT_EQ(MetadataOf(status, "needed_bytes"), absl::StrCat(12 * kMiB));
  // What is under way will take its part; what is online has been counted by the agent.
  ASSERT_TRUE(Allocate(Allocation("a", kUnit, "host-a")).ok());
  EXPECT_EQ(ReasonOf(Place({kUnit, kUnit}).status()), "PAGE_STRUCT_SPACE");
  BringUp("a");
  EXPECT_TRUE(Place({kUnit, kUnit}).ok());
}

TEST_F(PlaceOnHostTest, OnABridgeOfAnyOrderNothingLiesOnAnother) {
  EditRuntime([](HostRuntime& runtime) {
    runtime = OneBridge(std::move(runtime), 4);
    runtime.bridges[0].any_order = true;
    runtime.bridges[0].free_window_bytes = 0;
  });
  AllocateOnline("a");
  AllocateOnline("b");
  ASSERT_TRUE(Detach("a", "host-a").ok());
  const auto placed = Place({kUnit});
  EXPECT_EQ(SlotOf(placed), 18u) << "while another that lies lower is leaving";
  ASSERT_EQ(placed->bridges.size(), 1u);
  EXPECT_TRUE(placed->bridges[0].above.empty());
  EXPECT_TRUE(placed->bridges[0].unblocks.empty());
}

TEST_F(PlaceOnHostTest, AHostThatSeesItsDevicesWholeInterleavesNothing) {
  EditRuntime([](HostRuntime& runtime) {
    for (Bridge& bridge : runtime.bridges) bridge.any_order = true;
  });
  const HostRequest set{.host = "host-a",
                        .label = "region \"x\"",
                        .extents = {{"cmm-0", 0, kUnit}, {"cmm-1", 0, kUnit}},
                        .interleave_ways = 2};
  EXPECT_EQ(ReasonOf(PlaceOnHost(state(), set).status()), "INTERLEAVE_UNSUPPORTED");
}

}  // namespace
}  // namespace cxlpool::fm
