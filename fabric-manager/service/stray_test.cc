// LDs that the fabric shows and no record has: nothing is given away under them, and an operator
// decides.

#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/support/cxl_host.h"
#include "test/rigs/service_fixture.h"

namespace cxlpool::fm {
namespace {

// A LD that the world has bound and no record knows.
BoundLd StrayBound(const Uuid& tag, uint32_t index, uint32_t slot, uint64_t dpa) {
  return BoundLd{"host-a",
                 slot,
                 {"cmm-1", dpa, kGranule},
                 false,
                 kSerialBase | (9'000'001 + index),
                 false,
                 LdKey{"host-a", FormatUuid(tag.bytes()), 9'000'000, index}};
}

class StrayTest : public ServiceTest {
 protected:
  StrayTest() { Restart(); }

  // Region "kv", of whose bytes host-a has an LD that is another's.
  void MakeUnderAStray() {
    Make(AllocateOn("kv", "", 1));
    const Extent extent = rig->Find("kv")->extents[0];
    BoundLd ld = StrayBound(Uuid("another-region--"), 0, 10, extent.dpa_bytes);
    ld.slice = {extent.device.str(), extent.dpa_bytes, extent.length_bytes};
    world.bound[ld.serial] = {ld, v1::SEGMENT_ONLINE};
    Restart();
  }
};

// Nobody can know whether somebody works with them: a log that was lost, a backup that was put
// back.
TEST_F(StrayTest, LdsOfNoRecordStayAsTheyAreUntilAnOperatorDecides) {
  const Uuid tag("0123456789abcdef");
  // The first of its LDs is gone already.
  for (uint32_t index : {1u, 2u}) {
    const BoundLd ld = StrayBound(tag, index, index == 1 ? 10 : 30, index * kGranule);
    world.bound[ld.serial] = {ld, v1::SEGMENT_ONLINE};
  }
  for (int start = 0; start < 2; ++start) {  // Found, and known from then on.
    Restart();
    rig->RunUntil([] { return false; }, absl::Seconds(150));  // Longer than an attach may take.
    EXPECT_EQ(world.bound.size(), 2u);
    for (const auto& [serial, ld] : world.bound) EXPECT_EQ(ld.state, v1::SEGMENT_ONLINE);
    const auto found = rig->views.Get()->regions.List("", 10);
    ASSERT_EQ(found.size(), 1u);
    ASSERT_EQ(found[0]->attachments.size(), 1u);
    const Attachment& as_found = found[0]->attachments[0];
    EXPECT_EQ(as_found.settled().state, AttachmentState::kBound)
        << "nothing is known of it but that";
    EXPECT_TRUE(absl::StrContains(as_found.settled().reason, "STRAY")) << as_found.settled().reason;
    EXPECT_TRUE(world.scrubbed.empty());
    EXPECT_EQ(rig->views.Get()->capacity.quarantined_bytes, 2 * kGranule);
  }
  const auto held = rig->views.Get()->regions.List("", 10);
  ASSERT_EQ(held.size(), 1u);
  const std::string id = held[0]->id;
  EXPECT_EQ(held[0]->state, RegionState::kQuarantined);
  EXPECT_EQ(held[0]->tag, tag);
  for (const std::string& says :
       {std::string("host \"host-a\""), std::string("slot 10, 30"),
        absl::StrCat("cxlpool region detach ", id, " --host host-a"),
        absl::StrCat("cxlpool region release ", id, " --force --reason WHY")}) {
    EXPECT_TRUE(absl::StrContains(held[0]->state_reason, says)) << held[0]->state_reason;
  }
  ReleaseSpec force = ReleaseOf(id, 3);
  EXPECT_EQ(ReasonOf(rig->Call(&PoolService::Release, force).status()), "REGION_QUARANTINED");
  force = ReleaseOf(id, 4);
  force.force = true;
  force.reason = "nobody needs it";
  EXPECT_EQ(ReasonOf(rig->Call(&PoolService::Release, force).status()), "FENCE_REQUIRED");
  // The host is asked to let go, and only then is anything unbound.
  ASSERT_TRUE(rig->Call(&PoolService::Detach, {.request = TestRequest("DetachRegion", 5),
                                               .caller = Caller::Admin("cxlpool://operator/alice"),
                                               .region_id = id,
                                               .host = "host-a"})
                  .ok());
  ASSERT_TRUE(rig->RunUntil([&] { return rig->Find(id)->attachments.empty(); }));
  EXPECT_TRUE(world.bound.empty());
  EXPECT_TRUE(world.scrubbed.empty());
  force.request = TestRequest("ReleaseRegion", 6);
  ASSERT_TRUE(rig->Call(&PoolService::Release, force).ok());
  EXPECT_TRUE(rig->RunUntil([&] { return rig->views.Get()->regions.size() == 0; }));
  EXPECT_EQ(world.scrubbed.size(), 2u);
  EXPECT_EQ(rig->views.Get()->capacity.free_bytes, 16 * kGranule);
}

// Nobody uses it, it seems. That is no proof, and no reason to bring it up either.
TEST_F(StrayTest, AStrayThatIsNotOnlineIsTakenNeitherUpNorDown) {
  const BoundLd ld = StrayBound(Uuid("0123456789abcdef"), 0, 10, kGranule);
  world.bound[ld.serial] = {ld, v1::SEGMENT_ABSENT};
  for (int start = 0; start < 2; ++start) {
    Restart();
    rig->RunUntil([] { return false; }, absl::Seconds(150));
    ASSERT_EQ(world.bound.size(), 1u);
    EXPECT_EQ(world.bound.begin()->second.state, v1::SEGMENT_ABSENT);
    EXPECT_FALSE(world.bound.begin()->second.ld.unbinding);
    EXPECT_TRUE(world.scrubbed.empty());
    EXPECT_EQ(rig->views.Get()->capacity.quarantined_bytes, kGranule);
  }
}

// On a shared device: neither a detach nor a fence takes it away.
TEST_F(StrayTest, OfADaxDeviceThatAPersonMadeItIsSaidHowToRemoveIt) {
  BoundLd ld;
  ld.host = "host-a";
  ld.slot = kSharedSlots + 1;
  ld.slice = {"cmm-0", kGranule, kGranule};
  world.bound[ld.serial] = {ld,
                            v1::SEGMENT_ABSENT};  // No segment of the pool's: no agent reports it.
  world.slots.push_back(ld.slot);
  Restart();
  ASSERT_TRUE(rig->RunUntil([&] { return !rig->views.Get()->regions.List("", 10).empty(); },
                            absl::Seconds(150)));
  const auto held = rig->views.Get()->regions.List("", 10)[0];
  EXPECT_EQ(held->state, RegionState::kQuarantined);
  for (const std::string& says :
       {std::string("host \"host-a\" has a DAX device"), std::string("of device cmm-0"),
        std::string("daxctl destroy-device"),
        absl::StrCat("cxlpool region release ", held->id, " --force --reason WHY")}) {
    EXPECT_TRUE(absl::StrContains(held->state_reason, says)) << held->state_reason;
  }
  EXPECT_FALSE(absl::StrContains(held->state_reason, "slot")) << held->state_reason;
}

TEST_F(StrayTest, StraysOfTwoHostsAreTwoThoughTheyBearOneGeneration) {
  const BoundLd one = StrayBound(Uuid("0123456789abcdef"), 0, 10, kGranule);
  BoundLd two = StrayBound(Uuid("0123456789abcdef"), 1, 10, 3 * kGranule);
  two.host = two.key->host = "host-b";
  world.bound[one.serial] = {one, v1::SEGMENT_ONLINE};
  world.bound[two.serial] = {two, v1::SEGMENT_ONLINE};
  Restart();
  const auto held = rig->views.Get()->regions.List("", 10);
  ASSERT_EQ(held.size(), 2u);
  EXPECT_EQ(rig->views.Get()->capacity.quarantined_bytes, 2 * kGranule);
  for (const RegionPtr& region : held) {
    EXPECT_EQ(region->extents.size(), 1u) << "no Attachment is made of the LDs of two hosts";
  }
}

// Nobody could ask the host when an operator said that it had let go. It had not.
TEST_F(StrayTest, AStrayThatComesBackIsHeldAgain) {
  const BoundLd ld = StrayBound(Uuid("0123456789abcdef"), 0, 10, kGranule);
  world.bound[ld.serial] = {ld, v1::SEGMENT_ONLINE};
  Restart();
  rig->RunUntil([] { return false; }, absl::Seconds(15));
  const auto held = rig->views.Get()->regions.List("", 10);
  ASSERT_EQ(held.size(), 1u);
  world.unreachable.insert("host-a");
  world.bound.clear();  // As the fabric shows it.
  GoSilent("host-a");
  rig->RunUntil([] { return false; }, absl::Seconds(15));
  ReleaseSpec force = ReleaseOf(held[0]->id, 3);
  force.force = true;
  force.reason = "the machine is scrap";
  ASSERT_TRUE(rig->Call(&PoolService::Release, force).ok());
  ASSERT_TRUE(rig->RunUntil([&] { return rig->views.Get()->regions.size() == 0; }));
  world.bound[ld.serial] = {ld, v1::SEGMENT_ONLINE};
  world.unreachable.clear();
  rig->RunUntil([] { return false; }, absl::Seconds(15));
  EXPECT_EQ(rig->views.Get()->regions.size(), 1u);
  EXPECT_EQ(rig->views.Get()->capacity.quarantined_bytes, kGranule);
}

// The hold of a repair looks like any other QUARANTINED Region, and its bytes may be anybody's:
// they are cleared before they are free, also where a driver's Bind clears nothing.
TEST_F(StrayTest, AHoldThatIsReleasedByForceIsScrubbed) {
  PlanContext context;
  auto hold = std::make_shared<Region>();
  rig->writer.Submit(
      Audit{{}, "test", "hold", ""},
      [&](const PoolState&, PlanContext& plan) -> absl::StatusOr<Proposal> {
        hold->key = plan.next_id();
        hold->generation = hold->key;
        hold->id = "fsck-hold-1";
        hold->tag = plan.make_tag();
        hold->tenant = kDefaultTenant;
        hold->state = RegionState::kQuarantined;
        hold->extents = {{"cmm-1", 0, 2 * kGranule}, {"cmm-1", 4 * kGranule, kGranule}};
        hold->requested_bytes = 3 * kGranule;
        hold->revision = plan.revision;
        return Proposal::Of(RegionPtr(hold), nullptr);
      },
      [](const absl::StatusOr<Committed>& done) { EXPECT_TRUE(done.ok()) << done.status(); });
  rig->Run(absl::Seconds(1));
  ReleaseSpec force = ReleaseOf("fsck-hold-1", 3);
  force.force = true;
  force.reason = "nobody has them";
  ASSERT_TRUE(rig->Call(&PoolService::Release, force).ok());
  EXPECT_TRUE(rig->RunUntil([&] { return rig->Find("fsck-hold-1") == nullptr; }));
  EXPECT_EQ(world.scrubbed.size(), 2u) << "both extents";
}

TEST_F(StrayTest, AStrayOfARegionThatIsKnownIsQuarantinedUntilAnOperatorSays) {
  Make(AllocateOn("kv", "", 1));
  const BoundLd ld = StrayBound(rig->Find("kv")->tag, 1, 10, 4 * kGranule);
  world.bound[ld.serial] = {ld, v1::SEGMENT_ONLINE};
  Restart();
  const auto regions = rig->views.Get()->regions.List("l", 10);
  ASSERT_EQ(regions.size(), 1u);
  EXPECT_EQ(regions[0]->state, RegionState::kQuarantined);
  EXPECT_EQ(rig->views.Get()->capacity.quarantined_bytes, kGranule);
  ASSERT_TRUE(rig->Do([&](Done done) {
                   rig->pool.Fence(Caller::Admin("op"), "host-a", "it was put back",
                                   std::move(done));
                 })
                  .ok());
  ReleaseSpec force = ReleaseOf(regions[0]->id, 3);
  force.force = true;
  force.reason = "fenced";
  ASSERT_TRUE(rig->Call(&PoolService::Release, force).ok());
  EXPECT_TRUE(rig->RunUntil([&] { return rig->views.Get()->regions.size() == 1; }));
  EXPECT_EQ(world.scrubbed.size(), 1u);
}

// A store that was put back: the fabric is ahead of it.
TEST_F(StrayTest, AnExtentGrownAfterTheBackupIsKeptFromOthers) {
  Make(AllocateOn("kv", "host-a", 1));
  const Attachment attachment = rig->Find("kv")->attachments[0];
  const Uuid tag = rig->Find("kv")->tag;
  BoundLd ld = StrayBound(tag, 1, 30, 5 * kGranule);
  ld.key->generation = attachment.generation;
  world.bound[ld.serial] = {ld, v1::SEGMENT_ONLINE};
  Restart();
  rig->RunUntil([] { return false; }, absl::Seconds(15));
  EXPECT_EQ(rig->views.Get()->capacity.quarantined_bytes, kGranule);
  EXPECT_TRUE(Online(rig->Find("kv"))) << "what the record names stays as it is";
  EXPECT_EQ(world.scrubbed.size(), 0u);
}

TEST_F(StrayTest, AnotherLdByTheSameKeyIsNotTakenForTheOneThatIsMeant) {
  Make(AllocateOn("kv", "host-a", 1));
  const uint64_t serial = rig->Find("kv")->attachments[0].segments[0].serial;
  World::HostLd moved = world.bound.at(serial);
  world.bound.erase(serial);
  moved.ld.slice = {"cmm-1", 4 * kGranule, 2 * kGranule};
  moved.ld.serial = serial + 4096;
  world.bound[moved.ld.serial] = moved;
  Restart();
  rig->RunUntil([] { return false; }, absl::Seconds(15));
  EXPECT_EQ(rig->views.Get()->capacity.quarantined_bytes, 2 * kGranule);
  EXPECT_EQ(world.bound.size(), 1u) << "and nothing is bound over it";
}

TEST_F(StrayTest, NothingIsClearedUnderALdThatNoRecordHas) {
  MakeUnderAStray();
  // A look at another host says nothing of this one.
  rig->fabric.Emit({.kind = FabricEvent::Kind::kHostReachable, .host = "host-b"});
  rig->Run(absl::Milliseconds(50));
  ASSERT_TRUE(rig->Call(&PoolService::Release, ReleaseOf("kv", 2)).ok());
  rig->RunUntil([] { return false; }, absl::Seconds(15));
  EXPECT_NE(rig->Find("kv"), nullptr);
  EXPECT_TRUE(world.scrubbed.empty());
  ASSERT_TRUE(rig->Do([&](Done done) {
                   rig->pool.Fence(Caller::Admin("op"), "host-a", "it was put back",
                                   std::move(done));
                 })
                  .ok());
  EXPECT_TRUE(rig->RunUntil([&] { return rig->Find("kv") == nullptr; }));
  EXPECT_EQ(world.scrubbed.size(), 1u);
}

// The host still has it, although the fabric cannot show that now.
TEST_F(StrayTest, NothingIsClearedUnderALdOfAHostThatCannotBeAsked) {
  MakeUnderAStray();
  world.unreachable.insert("host-a");
  rig->fabric.Emit({.kind = FabricEvent::Kind::kHostUnreachable, .host = "host-a"});
  rig->Run(absl::Milliseconds(50));
  ASSERT_TRUE(rig->Call(&PoolService::Release, ReleaseOf("kv", 2)).ok());
  rig->RunUntil([] { return false; }, absl::Seconds(150));  // Some looks at everything.
  EXPECT_NE(rig->Find("kv"), nullptr);
  EXPECT_TRUE(world.scrubbed.empty());
  world.bound.clear();
  world.unreachable.clear();
  rig->fabric.Emit({.kind = FabricEvent::Kind::kHostReachable, .host = "host-a"});
  EXPECT_TRUE(rig->RunUntil([&] { return rig->Find("kv") == nullptr; }));
  EXPECT_EQ(world.scrubbed.size(), 1u);
}

// The look at one host that found it is not undone by a look at everything that began before.
TEST_F(StrayTest, ALookThatBeganEarlierDoesNotOverwriteALaterOne) {
  Make(AllocateOn("kv", "", 1));
  const Extent extent = rig->Find("kv")->extents[0];
  world.slow_looks = true;
  ASSERT_TRUE(rig->RunUntil([&] { return !world.slow.empty(); }, absl::Seconds(150)));
  BoundLd ld = StrayBound(Uuid("another-region--"), 0, 10, extent.dpa_bytes);
  ld.slice = {extent.device.str(), extent.dpa_bytes, extent.length_bytes};
  world.bound[ld.serial] = {ld, v1::SEGMENT_ONLINE};
  rig->fabric.Emit({.kind = FabricEvent::Kind::kHostReachable, .host = "host-a"});
  rig->Run(absl::Milliseconds(50));
  world.slow.front()();  // What it saw is older than the LD.
  rig->Run(absl::Milliseconds(50));
  ASSERT_TRUE(rig->Call(&PoolService::Release, ReleaseOf("kv", 2)).ok());
  rig->RunUntil([] { return false; }, absl::Seconds(5));
  EXPECT_NE(rig->Find("kv"), nullptr);
  EXPECT_TRUE(world.scrubbed.empty());
}

// What was bound when a look began, and is gone with its record when it ends, is nobody's.
TEST_F(StrayTest, ALookThatSawWhatHasGoneMeanwhileFindsNoStray) {
  Make(AllocateOn("kv", "host-a", 1));
  ASSERT_TRUE(rig->RunUntil([&] { return rig->Find("kv")->state == RegionState::kAllocated; }));
  world.slow_looks = true;
  ASSERT_TRUE(rig->RunUntil([&] { return !world.slow.empty(); }, absl::Seconds(150)));
  ASSERT_TRUE(rig->Call(&PoolService::Release, ReleaseOf("kv", 2)).ok());
  ASSERT_TRUE(rig->RunUntil([&] { return rig->Find("kv") == nullptr; }));
  world.slow_looks = false;
  world.slow.front()();
  rig->RunUntil([] { return false; }, absl::Seconds(5));
  EXPECT_TRUE(rig->views.Get()->regions.List("", 10).empty());
  // Another one by the same host is found all the same.
  const BoundLd ld = StrayBound(Uuid("another-region--"), 0, 10, 0);
  world.bound[ld.serial] = {ld, v1::SEGMENT_ONLINE};
  rig->RunUntil([] { return false; }, absl::Seconds(150));
  EXPECT_EQ(rig->views.Get()->regions.List("", 10).size(), 1u);
}

}  // namespace
}  // namespace cxlpool::fm
