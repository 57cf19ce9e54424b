// Regions that grow and shrink while they are attached, against a world of its own; and the same
// with the manager killed at every rung.

#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "fabric-manager/service/scrubs.h"
#include "test/rigs/service_fixture.h"

namespace cxlpool::fm {
namespace {

class ResizeTest : public ServiceTest {
 protected:
  void Start() {
    Restart();
    Make(AllocateOn("kv", "host-a", 1));
  }
  void ExpectSound() {
    ServiceTest::ExpectSound();
    uint64_t held = 0;
    for (const Extent& extent : rig->Find("kv")->extents) held += extent.length_bytes;
    EXPECT_EQ(rig->views.Get()->capacity.held_bytes, held);
  }
};

TEST_F(ResizeTest, GrowsWhileAttachedAndShrinksAgain) {
  Start();
  const auto grown = rig->Resize("kv", 5 * kGranule, 2);
  ASSERT_TRUE(grown.ok()) << grown.status();
  EXPECT_TRUE(grown->region->resizing());
  EXPECT_EQ(grown->region->size_bytes(), 2 * kGranule) << "not yet";
  // What was there stays ONLINE all the while.
  EXPECT_EQ(grown->region->attachments[0].settled().state, AttachmentState::kOnline);
  ASSERT_TRUE(rig->RunUntil([&] { return Settled(rig->Find("kv")); }));
  EXPECT_EQ(rig->Find("kv")->size_bytes(), 5 * kGranule);
  EXPECT_EQ(rig->Find("kv")->extents.size(), 2u);
  EXPECT_EQ(world.bound.size(), 2u);
  ExpectSound();

  ASSERT_TRUE(rig->Resize("kv", 2 * kGranule, 3).ok());
  ASSERT_TRUE(rig->RunUntil([&] { return Settled(rig->Find("kv")); }));
  EXPECT_EQ(rig->Find("kv")->size_bytes(), 2 * kGranule);
  EXPECT_EQ(world.bound.size(), 1u);
  EXPECT_EQ(world.scrubbed.size(), 1u) << "what left is clean";
  ExpectSound();
}

TEST_F(ResizeTest, AGrowthThatCannotComeUpIsUndoneAndTheRestStays) {
  Start();
  world.refuse_online = true;
  ASSERT_TRUE(rig->Resize("kv", 3 * kGranule, 2).ok());
  ASSERT_TRUE(rig->RunUntil([&] { return Settled(rig->Find("kv")); }));
  const RegionPtr region = rig->Find("kv");
  EXPECT_EQ(region->size_bytes(), 2 * kGranule);
  EXPECT_EQ(region->extents.size(), 1u);
  EXPECT_EQ(region->requested_bytes, 2 * kGranule);
  EXPECT_NE(region->state_reason.find("RESIZE_FAILED: REGION_COMMIT"), std::string::npos)
      << region->state_reason;
  EXPECT_EQ(world.bound.size(), 1u);
  EXPECT_EQ(world.scrubbed.size(), 1u);
  ExpectSound();
}

// What was waited for is over when it is done, and what was to be said before is said still.
TEST_F(ResizeTest, AScrubThatHadToBeTriedAgainLeavesNoWords) {
  Start();
  ASSERT_TRUE(rig->Resize("kv", 3 * kGranule, 2).ok());
  ASSERT_TRUE(rig->RunUntil([&] { return Settled(rig->Find("kv")); }));
  world.failing_scrubs = 1;
  ASSERT_TRUE(rig->Resize("kv", 2 * kGranule, 3).ok());
  ASSERT_TRUE(rig->RunUntil([&] { return Settled(rig->Find("kv")); }));
  EXPECT_EQ(world.failing_scrubs, 0);
  EXPECT_EQ(rig->Find("kv")->state_reason, "");
  world.failing_scrubs = 1;
  world.refuse_online = true;
  ASSERT_TRUE(rig->Resize("kv", 3 * kGranule, 4).ok());
  ASSERT_TRUE(rig->RunUntil([&] { return Settled(rig->Find("kv")); }));
  EXPECT_EQ(world.failing_scrubs, 0);
  EXPECT_TRUE(absl::StartsWith(rig->Find("kv")->state_reason, "RESIZE_FAILED: REGION_COMMIT"))
      << rig->Find("kv")->state_reason;
  world.failing_scrubs = 1;
  ASSERT_TRUE(Release("kv", 5).ok());
  ASSERT_TRUE(rig->RunUntil([&] { return rig->Find("kv") == nullptr; }));
  const auto end = rig->views.EndOf("kv");
  ASSERT_TRUE(end.has_value());
  EXPECT_FALSE(absl::StrContains(end->reason, kScrubWaits)) << end->reason;
  EXPECT_TRUE(absl::StrContains(end->reason, "scrubbed and free")) << end->reason;
}

TEST_F(ResizeTest, WithoutAHostGrowthIsThereAtOnceAndShrinkingScrubs) {
  rig = std::make_unique<ServiceRig>(disk, &world);
  ASSERT_TRUE(rig->Allocate(AllocateOn("kv", "", 1)).ok());
  const auto grown = rig->Resize("kv", 3 * kGranule, 2);
  ASSERT_TRUE(grown.ok()) << grown.status();
  EXPECT_EQ(grown->region->size_bytes(), 3 * kGranule);
  EXPECT_FALSE(grown->region->resizing());
  ASSERT_TRUE(rig->Resize("kv", 1, 3).ok());
  ASSERT_TRUE(rig->RunUntil([&] { return Settled(rig->Find("kv")); }));
  EXPECT_EQ(rig->Find("kv")->size_bytes(), 2 * kGranule);
  EXPECT_EQ(world.scrubbed.size(), 1u);
  ExpectSound();
}

TEST_F(ResizeTest, WhoAsksOnceMoreForWhatItHasIsToldSo) {
  Start();
  ASSERT_TRUE(rig->Resize("kv", 2 * kGranule + 1, 2).ok());
  ASSERT_TRUE(rig->RunUntil([&] { return Settled(rig->Find("kv")); }));
  ASSERT_EQ(rig->Find("kv")->size_bytes(), 3 * kGranule);
  const auto remedy = [&](uint64_t bytes, char request) {
    const auto refusal = RefusalOf(rig->Resize("kv", bytes, request).status());
    return refusal.has_value() ? refusal->reason + ": " + refusal->remedy : "";
  };
  EXPECT_TRUE(absl::StartsWith(remedy(2 * kGranule + 1, 3), "RESIZE_INSIDE_EXTENT: nothing: "));
  EXPECT_TRUE(absl::StartsWith(remedy(2 * kGranule + 2, 4), "RESIZE_INSIDE_EXTENT: shrink it to "));
}

TEST_F(ResizeTest, IsRefusedWhereItCannotBe) {
  Start();
  EXPECT_EQ(ReasonOf(rig->Resize("kv", kGranule, 2).status()), "RESIZE_INSIDE_EXTENT");
  EXPECT_EQ(ReasonOf(rig->Resize("kv", 100 * kGranule, 3).status()), "POOL_FULL");
  EXPECT_EQ(ReasonOf(rig->Resize("kv", 0, 4).status()), "BAD_SIZE");
  EXPECT_EQ(ReasonOf(rig->Resize("kw", kGranule, 5).status()), "UNKNOWN_REGION");
  world.hold_offline = true;
  ASSERT_TRUE(rig->Resize("kv", 3 * kGranule, 6).ok());
  ASSERT_TRUE(rig->RunUntil([&] { return Settled(rig->Find("kv")); }));
  ASSERT_TRUE(rig->Resize("kv", 2 * kGranule, 7).ok());
  rig->Run(absl::Seconds(1));
  EXPECT_EQ(ReasonOf(rig->Resize("kv", 4 * kGranule, 8).status()), "RESIZE_IN_PROGRESS");
  AttachSpec attach;
  attach.caller = Caller::Admin("cxlpool://operator/alice");
  attach.request = TestRequest("AttachRegion", 9);
  attach.region_id = "kv";
  attach.host = "host-b";
  absl::StatusOr<Committed> attached = absl::UnavailableError("");
  rig->pool.Attach(attach, false, [&](absl::StatusOr<Committed> got) { attached = got; });
  rig->Run(absl::Milliseconds(50));
  EXPECT_EQ(ReasonOf(attached.status()), "RESIZE_IN_PROGRESS");
}

TEST_F(ResizeTest, WhatAnApplicationHasOpenDoesNotLeave) {
  Start();
  ASSERT_TRUE(rig->Resize("kv", 3 * kGranule, 2).ok());
  ASSERT_TRUE(rig->RunUntil([&] { return Settled(rig->Find("kv")); }));
  const Segment& last = rig->Find("kv")->attachments[0].segments[1];
  const auto report = [&](uint32_t opens) {
    v1::AgentMessage message;
    message.set_session(rig->agents["host-a"]->session());
    v1::SegmentReport& segment = *message.mutable_report()->add_segments();
    segment.set_serial(last.serial);
    segment.set_state(v1::SEGMENT_ONLINE);
    segment.mutable_segment()->set_serial(last.serial);
    segment.set_opens(opens);
    rig->sessions.OnMessage(rig->agents["host-a"].get(), message);
    rig->Run(absl::Milliseconds(50));
  };
  report(1);
  const absl::Status refused = rig->Resize("kv", 2 * kGranule, 3).status();
  EXPECT_EQ(ReasonOf(refused), "REGION_IN_USE") << refused;
  report(0);
  EXPECT_TRUE(rig->Resize("kv", 2 * kGranule, 4).ok());
}

TEST_F(ResizeTest, ADetachOrAReleaseMidwayTakesAllOfItDown) {
  Start();
  world.slow_binds = true;
  ASSERT_TRUE(rig->Resize("kv", 3 * kGranule, 2).ok());
  rig->Run(absl::Seconds(1));
  ASSERT_EQ(world.slow.size(), 1u) << "the growth is being bound";
  DetachSpec detach;
  detach.caller = Caller::Admin("cxlpool://operator/alice");
  detach.request = TestRequest("DetachRegion", 3);
  detach.region_id = "kv";
  detach.host = "host-a";
  ASSERT_TRUE(rig->Call(&PoolService::Detach, detach).ok());
  rig->Run(absl::Seconds(1));
  EXPECT_EQ(rig->Find("kv")->attachments.size(), 1u) << "not before the bind's outcome is known";
  for (auto& bind : std::exchange(world.slow, {})) bind();
  world.slow_binds = false;
  ASSERT_TRUE(rig->RunUntil([&] { return rig->Find("kv")->attachments.empty(); }));
  ASSERT_TRUE(rig->RunUntil([&] { return Settled(rig->Find("kv")); }));
  EXPECT_TRUE(world.bound.empty());
  ExpectSound();
}

TEST_F(ResizeTest, AStripedRegionComesUpAndGrowsByWholeSets) {
  rig = std::make_unique<ServiceRig>(disk, &world);
  AllocateSpec spec = AllocateOn("kv", "host-a", 1);
  spec.policy = Policy::kBandwidth;
  spec.interleave_ways = 2;
  const auto made = rig->Allocate(spec);
  ASSERT_TRUE(made.ok()) << made.status();
  ASSERT_TRUE(rig->RunUntil([&] { return Settled(rig->Find("kv")); }));
  const RegionPtr region = rig->Find("kv");
  ASSERT_EQ(region->extents.size(), 2u);
  EXPECT_FALSE(region->extents[0].device == region->extents[1].device);
  const Attachment& attachment = region->attachments[0];
  EXPECT_EQ(attachment.segments[0].host_bridge, attachment.segments[1].host_bridge);
  EXPECT_EQ(attachment.segments[1].dax_device, "dax0.0") << "one host region for both";
  const v1::Offer& offer = rig->agents["host-a"]->offers.begin()->second;
  ASSERT_EQ(offer.segments_size(), 1);
  EXPECT_EQ(offer.segments(0).targets_size(), 2);
  EXPECT_EQ(offer.segments(0).length_bytes(), 2 * kGranule);
  EXPECT_EQ(offer.segments(0).interleave_granularity_bytes(), 256u);
  ASSERT_TRUE(rig->Resize("kv", 3 * kGranule, 2).ok());
  ASSERT_TRUE(rig->RunUntil([&] { return Settled(rig->Find("kv")); }));
  EXPECT_EQ(rig->Find("kv")->size_bytes(), 4 * kGranule) << "rounded up to a set";
  EXPECT_EQ(world.bound.size(), 4u);
  ExpectSound();
  ASSERT_TRUE(rig->Call(&PoolService::Release, ReleaseOf("kv", 3)).ok());
  ASSERT_TRUE(rig->RunUntil([&] { return rig->Find("kv") == nullptr; }));
  EXPECT_EQ(world.scrubbed.size(), 4u);
}

// Kills the manager at the n-th rung that is passed during the resize, for every n there is, and
// starts it again: the end is the same.
void KillEverywhere(uint64_t to_bytes, uint64_t want_bytes, bool refuse) {
  int killed = 0;
  for (int n = 0;; ++n) {
    SCOPED_TRACE(absl::StrCat("killed at rung ", n));
    World world;
    auto disk = std::make_shared<MemoryDisk>();
    {
      ServiceRig first(disk, &world);
      ASSERT_TRUE(first.Allocate(AllocateOn("kv", "host-a", 1)).ok());
      ASSERT_TRUE(first.RunUntil([&] { return Settled(first.Find("kv")); }));
      ASSERT_TRUE(first.Resize("kv", 4 * kGranule, 2).ok());
      ASSERT_TRUE(first.RunUntil([&] { return Settled(first.Find("kv")); }));
    }
    bool done = false;
    {
      int passed = 0;
      ServiceRig* self = nullptr;
      ServiceRig rig(disk, &world, [&](absl::string_view) {
        if (self != nullptr && passed++ == n) self->Kill();
      });
      ASSERT_TRUE(rig.RunUntil([&] { return Settled(rig.Find("kv")); }));
      world.refuse_online = refuse;
      self = &rig;
      ASSERT_TRUE(rig.Resize("kv", to_bytes, 3).ok() || rig.stopped);
      rig.RunUntil([&] { return Settled(rig.Find("kv")); });
      done = !rig.stopped;
      self = nullptr;
    }
    ServiceRig again(disk, &world);
    ASSERT_TRUE(again.opened.ok()) << again.opened;
    ASSERT_TRUE(again.Resize("kv", to_bytes, 3).ok());  // The client's retry.
    ASSERT_TRUE(again.RunUntil([&] { return Settled(again.Find("kv")); }));
    EXPECT_EQ(again.Find("kv")->size_bytes(), want_bytes);
    EXPECT_EQ(world.bound.size(), again.Find("kv")->extents.size());
    EXPECT_TRUE(again.writer.state().CheckInvariants().ok());
    if (done || testing::Test::HasFailure()) break;
    ++killed;
  }
  EXPECT_GE(killed, 5) << "void: hardly a rung";
}

TEST(ResizeKillTest, Growing) { KillEverywhere(6 * kGranule, 6 * kGranule, false); }
TEST(ResizeKillTest, AGrowthThatIsUndone) { KillEverywhere(6 * kGranule, 4 * kGranule, true); }
TEST(ResizeKillTest, Shrinking) { KillEverywhere(2 * kGranule, 2 * kGranule, false); }

}  // namespace
}  // namespace cxlpool::fm
