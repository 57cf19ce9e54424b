#include <gtest/gtest.h>

#include "fabric-manager/model/model_rig.h"
#include "fabric-manager/model/placement.h"

namespace cxlpool::fm {
namespace {

class PlaceOnHostTest : public testing::Test, protected ModelRig {
 protected:
  PlaceOnHostTest() {
    AddDevice("cmm-0", 64 * kGiB);
    AddHost("host-a", 2, 2);  // Slots 16, 17 on bridge-0; 18, 19 on bridge-1.
  }

  absl::StatusOr<std::vector<Segment>> Place(std::vector<uint64_t> lengths) {
    return PlaceOnHost(state(), "host-a", lengths, "region \"kv\"");
  }
  uint32_t SlotOf(absl::StatusOr<std::vector<Segment>> segments) {
    EXPECT_TRUE(segments.ok()) << segments.status();
    return segments.ok() ? segments->at(0).slot : 0;
  }
  void AllocateOnline(const std::string& id, uint64_t size = kUnit) {
    const auto region = Allocate(Allocation(id, size, "host-a"));
    ASSERT_TRUE(region.ok()) << region.status();
    BringUp(id);
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
  const auto segments = Place({kUnit, 2 * kUnit, kUnit});
  ASSERT_TRUE(segments.ok()) << segments.status();
  ASSERT_EQ(segments->size(), 3u);
  EXPECT_EQ((*segments)[0].slot, 16u);
  EXPECT_EQ((*segments)[1].slot, 18u);
  EXPECT_EQ((*segments)[2].slot, 17u);
  EXPECT_EQ((*segments)[2].extent_index, 2u);
  EXPECT_EQ((*segments)[2].host_bridge, "bridge-0");
  EXPECT_EQ((*segments)[0].serial, 0u);
}

TEST_F(PlaceOnHostTest, HostsThatCannotTakeAnything) {
  const auto reason = [&](const char* host) { return ReasonOf(CheckHost(state(), host)); };
  EXPECT_EQ(reason("host-a"), "");
  EXPECT_EQ(reason("host-z"), "UNKNOWN_HOST");
  EditRuntime([](HostRuntime& r) { r.fabric_reachable = false; });
  EXPECT_EQ(reason("host-a"), "HOST_UNREACHABLE");
  EditRuntime([](HostRuntime& r) { r.online = false; });
  EXPECT_EQ(reason("host-a"), "HOST_NOT_ONLINE");
  Commit(PlanRetire(state(), "host-a", context()).value());
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
  Rewrite("a", [](Region& r) { r.attachments[0].state = AttachmentState::kOffline; });
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

}  // namespace
}  // namespace cxlpool::fm
