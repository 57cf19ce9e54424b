#include "fabric-manager/model/pool/pool_state.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>

#include "test/model/model_rig.h"

namespace cxlpool::fm {
namespace {

class PoolStateTest : public testing::Test, protected ModelRig {
 protected:
  PoolStateTest() { AddPool(); }

  std::shared_ptr<Region> MakeRegion(const std::string& id, uint64_t dpa = 0) {
    auto region = std::make_shared<Region>();
    region->key = context().next_id();
    region->tag = context().make_tag();
    region->id = id;
    region->state = RegionState::kAllocated;
    region->extents = {{"cmm-0", dpa, kUnit}};
    region->requests = {NewRequest("AllocateRegion")};
    return region;
  }
  Attachment MakeAttachment(const std::string& host, uint32_t slot) {
    Attachment attachment;
    attachment.host = host;
    attachment.generation = context().next_id();
    Segment segment;
    segment.slot = slot;
    segment.serial = kSerialBase | context().next_id();
    attachment.segments = {segment};
    return attachment;
  }
  // Applying it is refused, and nothing has changed.
  void ExpectRefused(const Change& change, const std::string& why) {
    const uint64_t free = state().GetCapacity().free_bytes;
    const size_t count = state().region_count();
    const auto applied = state().Apply(change);
    ASSERT_FALSE(applied.ok()) << why;
    EXPECT_EQ(applied.status().code(), absl::StatusCode::kInternal);
    EXPECT_NE(applied.status().message().find(why), absl::string_view::npos) << applied.status();
    EXPECT_EQ(state().GetCapacity().free_bytes, free);
    EXPECT_EQ(state().region_count(), count);
    EXPECT_TRUE(state().CheckInvariants().ok()) << state().CheckInvariants();
  }
};

TEST_F(PoolStateTest, FindsARegionEveryWay) {
  auto region = MakeRegion("kv");
  region->attachments = {MakeAttachment("host-a", 16)};
  Commit({RegionPtr(region)});
  EXPECT_EQ(*state().FindRegion(region->key), region);
  EXPECT_EQ(*state().FindRegionById("kv"), region);
  EXPECT_EQ(*state().FindRegionByTag(region->tag), region);
  EXPECT_EQ(*state().FindRegionBySerial(region->attachments[0].segments[0].serial), region);
  EXPECT_EQ(state().FindRequest(region->requests[0].id)->region, region);
  ASSERT_EQ(state().Occupied("host-a").size(), 1u);
  EXPECT_EQ(state().Occupied("host-a")[0].region_id, "kv");
  EXPECT_EQ(state().Occupied("host-a")[0].length_bytes, kUnit);
  EXPECT_EQ(state().FindRegionById("kw"), nullptr);
  EXPECT_EQ(state().FindRegionBySerial(1), nullptr);
  EXPECT_TRUE(state().Occupied("nowhere").empty());
  EXPECT_FALSE(state().Runtime("nowhere").online);
  EXPECT_TRUE(state().CheckInvariants().ok()) << state().CheckInvariants();
}

TEST_F(PoolStateTest, TheInverseRestoresEverything) {
  auto region = MakeRegion("kv");
  const Change made = Commit({RegionPtr(region)});
  auto changed = std::make_shared<Region>(*region);
  changed->state = RegionState::kReleasing;
  changed->attachments = {MakeAttachment("host-b", 17)};
  const Change undo_change = Commit({RegionPtr(changed)});
  Commit(undo_change);
  EXPECT_EQ(*state().FindRegionById("kv"), region);
  EXPECT_TRUE(state().Occupied("host-b").empty());
  const Change undo_gone = Commit({Tombstone{region, context().now}});
  EXPECT_EQ(state().FindRegionById("kv"), nullptr);
  EXPECT_EQ(state().FindRequest(region->requests[0].id)->region, region);
  Commit(undo_gone);
  EXPECT_EQ(*state().FindRegionById("kv"), region);
  Commit(made);
  EXPECT_EQ(state().region_count(), 0u);
  EXPECT_EQ(state().GetCapacity().free_bytes, 8 * kGiB);
  EXPECT_FALSE(state().FindRequest(region->requests[0].id).has_value());
  EXPECT_TRUE(state().CheckInvariants().ok()) << state().CheckInvariants();
}

TEST_F(PoolStateTest, TheInverseOfAHandOverRestoresEverything) {
  auto first = MakeRegion("first");
  Commit({RegionPtr(first)});
  auto second = MakeRegion("second");  // The same bytes.
  const Change undo = Commit({Tombstone{first, context().now}, RegionPtr(second)});
  EXPECT_EQ(state().FindRegionById("first"), nullptr);
  Commit(undo);
  EXPECT_EQ(*state().FindRegionById("first"), first);
  EXPECT_EQ(state().FindRegionById("second"), nullptr);
  EXPECT_TRUE(state().CheckInvariants().ok()) << state().CheckInvariants();
}

TEST_F(PoolStateTest, ARefusedChangeLeavesNothingBehind) {
  const auto kv = MakeRegion("kv");
  Commit({RegionPtr(kv)});
  // The first two items are sound; the third wants bytes that are taken.
  const auto fine = MakeRegion("fine", kUnit);
  const Host host{.key = context().next_id(), .id = "host-d", .identity = "cxlpool://host/host-d"};
  ExpectRefused({RegionPtr(fine), host, RegionPtr(MakeRegion("late"))}, "that are free");
  EXPECT_EQ(state().FindHost("host-d"), nullptr);
  EXPECT_EQ(state().FindRegionById("fine"), nullptr);
}

TEST_F(PoolStateTest, RefusesWhatBreaksAnInvariant) {
  auto kv = MakeRegion("kv");
  kv->attachments = {MakeAttachment("host-a", 16)};
  Commit({RegionPtr(kv)});
  const auto refused = [&](const std::string& why, auto spoil) {
    auto region = MakeRegion("other", 2 * kUnit);
    spoil(*region);
    ExpectRefused({RegionPtr(region)}, why);
  };
  refused("already", [](Region& r) { r.id = "kv"; });
  refused("tag", [&](Region& r) { r.tag = kv->tag; });
  refused("tag", [](Region& r) { r.tag = Uuid(); });
  refused("request", [&](Region& r) { r.requests = kv->requests; });
  refused("request", [](Region& r) { r.requests.push_back(r.requests[0]); });
  refused("that are free", [](Region& r) { r.extents.push_back({"cmm-0", 0, kUnit}); });
  refused("that are free", [](Region& r) { r.extents.push_back(r.extents[0]); });
  refused("that are free", [](Region& r) { r.extents[0].dpa_bytes += 1; });
  refused("no such device", [](Region& r) { r.extents[0].device = "cmm-9"; });
  refused("extents", [](Region& r) { r.extents.clear(); });
  refused("extents", [](Region& r) { r.extents.resize(17); });
  const auto attached = [&](const std::string& why, auto spoil) {
    refused(why, [&](Region& r) {
      r.attachments = {MakeAttachment("host-a", 17)};
      spoil(r);
    });
  };
  attached("slot", [](Region& r) { r.attachments[0].segments[0].slot = 16; });
  attached("slot", [&](Region& r) {
    r.attachments[0].segments.push_back(r.attachments[0].segments[0]);
    r.attachments[0].segments[1].serial = kSerialBase | context().next_id();
  });
  attached("serial", [&](Region& r) {
    r.attachments[0].segments[0].serial = kv->attachments[0].segments[0].serial;
  });
  attached("serial", [](Region& r) { r.attachments[0].segments[0].serial = 0; });
  attached("serial",
           [](Region& r) { r.attachments[0].segments.push_back(r.attachments[0].segments[0]); });
  attached("generation",
           [&](Region& r) { r.attachments[0].generation = kv->attachments[0].generation; });
  attached("not enrolled", [](Region& r) { r.attachments[0].host = "host-z"; });
  attached("order", [](Region& r) { r.attachments.push_back(r.attachments[0]); });
  attached("of extent", [](Region& r) { r.attachments[0].segments[0].extent_index = 1; });
  for (const uint32_t first : {0u, 1u}) {
    attached("parts",
             [=](Region& r) { r.attachments[0].parts.push_back({.first_segment = first}); });
  }
  attached("parts", [](Region& r) { r.attachments[0].parts.clear(); });
  attached("scrubbed", [](Region& r) { r.state = RegionState::kScrubbing; });
  ExpectRefused({Tombstone{kv, context().now}}, "gone while attached");
  ExpectRefused({RegionPtr(kv), RegionPtr(kv)}, "twice in one change");
  ExpectRefused({Erased{12345}}, "no record");
  ExpectRefused({Erased{state().FindDevice("cmm-0")->key}}, "holds bytes");
  ExpectRefused({Erased{state().FindHost("host-a")->key}}, "Attachment");
}

TEST_F(PoolStateTest, KeysBelongToOneRecordForLife) {
  Host host = *state().FindHost("host-a");
  Device device = *state().FindDevice("cmm-0");
  auto region = MakeRegion("kv");
  region->key = host.key;
  ExpectRefused({RegionPtr(region)}, "not a Region's");
  host.key = 999;
  ExpectRefused({host}, "is record");
  device.key = 998;
  ExpectRefused({device}, "is record");
  ExpectRefused({Host{.key = state().FindDevice("cmm-1")->key, .id = "host-z", .identity = "x:z"}},
                "is not");
  ExpectRefused(
      {Host{.key = 997, .id = "host-z", .identity = state().FindHost("host-b")->identity}},
      "belongs to");
  ExpectRefused({Device{.key = 996,
                        .id = "cmm-9",
                        .serial = "",
                        .capacity_bytes = 3,
                        .granule_bytes = 2,
                        .service_reason = {}}},
                "not made of");
}

TEST_F(PoolStateTest, TheOrderWithinAChangeDoesNotMatterToHosts) {
  auto region = MakeRegion("kv");
  region->attachments = {MakeAttachment("host-z", 16)};
  const Change undo = Commit(
      {RegionPtr(region), Host{.key = context().next_id(), .id = "host-z", .identity = "x:z"}});
  EXPECT_TRUE(state().CheckInvariants().ok()) << state().CheckInvariants();
  Commit(undo);
  EXPECT_EQ(state().FindHost("host-z"), nullptr);
  ExpectRefused({RegionPtr(region),
                 Host{.key = context().next_id(), .id = "host-z", .identity = "x:z"}, Erased{5}},
                "no record");
}

TEST_F(PoolStateTest, CapacityFollowsTheStateOfRegions) {
  auto region = MakeRegion("kv");
  region->extents.push_back({"cmm-1", 0, 2 * kUnit});
  Commit({RegionPtr(region)});
  EXPECT_EQ(state().GetCapacity().held_bytes, 3 * kUnit);
  Rewrite("kv", [](Region& r) { r.state = RegionState::kScrubbing; });
  EXPECT_EQ(state().GetCapacity().scrubbing_bytes, 3 * kUnit);
  EXPECT_EQ(state().GetCapacity().held_bytes, 0u);
  Rewrite("kv", [](Region& r) { r.state = RegionState::kQuarantined; });
  EXPECT_EQ(state().GetCapacity().quarantined_bytes, 3 * kUnit);
  EXPECT_EQ(state().UseOf(*state().IndexOf("cmm-1")).quarantined_bytes, 2 * kUnit);
  const Capacity capacity = state().GetCapacity();
  EXPECT_EQ(capacity.total_bytes, 8 * kGiB);
  EXPECT_EQ(capacity.free_bytes, 8 * kGiB - 3 * kUnit);
  EXPECT_EQ(capacity.largest_free_bytes, 4 * kGiB - kUnit);
  state().SetReachable("cmm-0", "not seen");
  EXPECT_EQ(state().GetCapacity().largest_free_bytes, 4 * kGiB - 2 * kUnit);
}

TEST_F(PoolStateTest, ADeviceKeepsReachableAndMayGrowAroundItsRegions) {
  Commit({RegionPtr(MakeRegion("kv"))});
  Device device = *state().FindDevice("cmm-0");
  device.capacity_bytes = 8 * kGiB;
  device.reachable = false;
  const Change undo = Commit({device});
  EXPECT_TRUE(state().FindDevice("cmm-0")->reachable);
  EXPECT_EQ(state().space().free_bytes(*state().IndexOf("cmm-0")), 8 * kGiB - kUnit);
  device.capacity_bytes = 2 * kMiB;
  ExpectRefused({device}, "would not have room");
  Commit(undo);
  EXPECT_EQ(state().space().free_bytes(*state().IndexOf("cmm-0")), 4 * kGiB - kUnit);
  EXPECT_TRUE(state().CheckInvariants().ok()) << state().CheckInvariants();
}

TEST_F(PoolStateTest, AnUnboundAttachmentFreesItsSlot) {
  auto region = MakeRegion("kv");
  region->attachments = {MakeAttachment("host-a", 16)};
  region->attachments[0].settled().state = AttachmentState::kUnbound;
  Commit({RegionPtr(region)});
  EXPECT_TRUE(state().Occupied("host-a").empty());
  auto other = MakeRegion("other", kUnit);
  other->attachments = {MakeAttachment("host-a", 16)};
  Commit({RegionPtr(other)});
  EXPECT_TRUE(state().CheckInvariants().ok()) << state().CheckInvariants();
}

TEST_F(PoolStateTest, OccupiedIsInOrderOfSlot) {
  for (uint32_t slot : {19, 16, 18}) {
    auto region = MakeRegion("r" + std::to_string(slot), (slot - 16) * kUnit);
    region->attachments = {MakeAttachment("host-a", slot)};
    Commit({RegionPtr(region)});
  }
  ASSERT_EQ(state().Occupied("host-a").size(), 3u);
  EXPECT_EQ(state().Occupied("host-a")[0].slot, 16u);
  EXPECT_EQ(state().Occupied("host-a")[2].slot, 19u);
}

TEST_F(PoolStateTest, IdentitiesOfRetiredHostsAreForgotten) {
  Host host = *state().FindHost("host-a");
  EXPECT_EQ(state().FindHostByIdentity(host.identity)->id, "host-a");
  host.retired = true;
  const Change undo = Commit({host});
  EXPECT_EQ(state().FindHostByIdentity(host.identity), nullptr);
  EXPECT_NE(state().FindHost("host-a"), nullptr);
  Commit(undo);
  EXPECT_EQ(state().FindHostByIdentity(host.identity)->id, "host-a");
}

TEST_F(PoolStateTest, GranulesAreThoseOfHostsThatMayAttach) {
  using Granules = std::map<uint64_t, size_t>;
  EXPECT_EQ(state().host_granules(), (Granules{{kUnit, 3}}));
  HostRuntime runtime = state().Runtime("host-a");
  runtime.region_granule_bytes = 2 * kUnit;
  state().SetRuntime("host-a", runtime);
  const Granules both = {{kUnit, 2}, {2 * kUnit, 1}};
  EXPECT_EQ(state().host_granules(), both);
  Host host = *state().FindHost("host-a");
  host.retired = true;
  const Change undo = Commit({host});
  EXPECT_EQ(state().host_granules(), (Granules{{kUnit, 2}}));
  Commit(undo);
  EXPECT_EQ(state().host_granules(), both);
  runtime.unfit_reason = "it says so";
  state().SetRuntime("host-a", runtime);
  EXPECT_EQ(state().host_granules(), (Granules{{kUnit, 2}}));
  state().SetRuntime("host-z", runtime);
  Commit({Erased{state().FindHost("host-b")->key}});
  EXPECT_EQ(state().host_granules(), (Granules{{kUnit, 1}}));
  EXPECT_TRUE(state().CheckInvariants().ok()) << state().CheckInvariants();
}

TEST_F(PoolStateTest, TombstonesAreRememberedForAnHourOldestFirst) {
  std::vector<RegionPtr> gone;
  for (int i = 0; i < 4; ++i) {
    gone.push_back(MakeRegion("r" + std::to_string(i)));
    // Not in order of key.
    Commit({Tombstone{gone.back(), context().now - absl::Minutes(i)}});
  }
  EXPECT_EQ(state().FindRequest(gone[2]->requests[0].id)->region, gone[2]);
  EXPECT_TRUE(state().ExpiredTombstones(context().now + absl::Minutes(50), 10).empty());
  const absl::Time later = context().now + kTombstoneLife - absl::Seconds(90);
  const Change expired = state().ExpiredTombstones(later, 10);
  ASSERT_EQ(expired.size(), 2u);
  EXPECT_EQ(KeyOf(expired[0]), gone[3]->key);
  EXPECT_EQ(KeyOf(expired[1]), gone[2]->key);
  EXPECT_EQ(state().ExpiredTombstones(later, 1).size(), 1u);
  const Change undo = Commit(expired);
  EXPECT_FALSE(state().FindRequest(gone[2]->requests[0].id).has_value());
  EXPECT_TRUE(state().FindRequest(gone[1]->requests[0].id).has_value());
  EXPECT_TRUE(state().CheckInvariants().ok()) << state().CheckInvariants();
  Commit(undo);
  EXPECT_TRUE(state().FindRequest(gone[2]->requests[0].id).has_value());
}

TEST_F(PoolStateTest, TombstonesBeyondTheLimitExpireYoung) {
  Change change;
  for (size_t i = 0; i < kMaxTombstones + 3; ++i) {
    auto region = std::make_shared<Region>();
    region->key = context().next_id();
    change.push_back(Tombstone{region, context().now + absl::Microseconds(i)});
  }
  Commit(change);
  const Change expired = state().ExpiredTombstones(context().now, 100);
  ASSERT_EQ(expired.size(), 3u);
  EXPECT_EQ(KeyOf(expired[0]), KeyOf(change[0]));
}

}  // namespace
}  // namespace cxlpool::fm
