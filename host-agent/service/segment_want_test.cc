// A Region that grows and shrinks under an Attachment that stays: segments come, go and are held
// one by one. And one whose segment has several targets.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "test/rigs/core_rig.h"

namespace cxlpool::agent {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const AttachmentKey kKey = {.generation = 1, .tag = "tag-1"};

v1::Offer OneSegment() { return MakeOffer(1, kOnline, {{1, 0x51}}); }

// A second segment, of which `want` is wanted.
v1::Offer TwoSegments(v1::Offer::Want want = v1::Offer::WANT_UNSPECIFIED) {
  v1::Offer offer = MakeOffer(1, kOnline, {{1, 0x51}, {3, 0x52}});
  offer.mutable_segments(1)->set_want(want);
  return offer;
}

struct GrowRig : CoreRig {
  GrowRig() {
    memory.plugged = {{1, 0x51}, {3, 0x52}};
    Start();
  }
  void Open(uint64_t connection, const std::vector<uint64_t>& serials) {
    core->opens().Open(kKey, {connection, {static_cast<uint32_t>(connection), 99}, "regions/r1"},
                       serials);
    core->ReportOpensSoon();
    executor.RunReady();
  }
  void Close(uint64_t connection) {
    core->opens().Close(connection, "regions/r1");
    core->Reconsider();
    executor.RunReady();
  }
};

TEST(SegmentWantTest, ASegmentIsAddedWhileTheOthersStay) {
  GrowRig rig;
  rig.Connect({OneSegment()});
  rig.memory.calls.clear();
  rig.link.reports.clear();
  rig.Offer(TwoSegments(kOnline));
  EXPECT_THAT(rig.memory.calls,
              ElementsAre("PowerOn 0x52", "CreateHostRegion 0x52", "BindDax 0x52"));
  EXPECT_EQ(rig.Reported(0x52), v1::SEGMENT_ONLINE);
  EXPECT_EQ(rig.link.Last(0x52)->segment().extent_index(), 1u);
  EXPECT_FALSE(rig.link.Last(0x51).has_value());  // No news of the first.
}

TEST(SegmentWantTest, TheLastOneIsTakenOffWhileTheOthersStay) {
  GrowRig rig;
  rig.Connect({TwoSegments()});
  rig.memory.calls.clear();
  rig.Offer(TwoSegments(kOffline));
  EXPECT_THAT(rig.memory.calls,
              ElementsAre("FindHolders 0x52", "UnbindDax 0x52", "DestroyHostRegion 0x52"));
  EXPECT_EQ(rig.Reported(0x52), v1::SEGMENT_PRESENT);
  rig.memory.calls.clear();
  rig.Offer(TwoSegments(kEjected));
  EXPECT_THAT(rig.memory.calls, ElementsAre("PowerOff 0x52"));
  EXPECT_EQ(rig.Reported(0x52), v1::SEGMENT_ABSENT);

  rig.Offer(OneSegment());
  EXPECT_EQ(rig.core->attachments().all().at(kKey).segments.size(), 1u);
  EXPECT_EQ(rig.link.Last(0x52)->region_tag(), "");  // Gone, and forgotten.
  EXPECT_EQ(rig.Reported(0x51), v1::SEGMENT_ONLINE);
  rig.memory.calls.clear();
  rig.executor.Advance(absl::Minutes(1));
  EXPECT_THAT(rig.memory.calls, IsEmpty());
}

TEST(SegmentWantTest, WhatIsNoLongerNamedAndIsThereIsReportedAndLeft) {
  GrowRig rig;
  rig.Connect({TwoSegments()});
  rig.memory.calls.clear();
  rig.Offer(OneSegment());
  EXPECT_THAT(rig.memory.calls, IsEmpty());
  EXPECT_EQ(rig.Reported(0x52), v1::SEGMENT_ONLINE);
  EXPECT_EQ(rig.link.Last(0x52)->region_tag(), "");
  rig.Offer(TwoSegments(kEjected));  // The manager says what to do with it.
  EXPECT_EQ(rig.Reported(0x52), v1::SEGMENT_ABSENT);
  EXPECT_EQ(rig.Reported(0x51), v1::SEGMENT_ONLINE);
}

TEST(SegmentWantTest, OnlyWhoOpenedTheSegmentHoldsIt) {
  GrowRig rig;
  rig.Connect({OneSegment()});
  rig.Open(7, {0x51});
  rig.Offer(TwoSegments(kOnline));
  rig.Offer(
      TwoSegments(kOffline));  // A process that was there before the growth is not in its way.
  EXPECT_EQ(rig.Reported(0x52), v1::SEGMENT_PRESENT);

  rig.Offer(TwoSegments(kOnline));
  rig.Open(8, {0x51, 0x52});
  rig.Offer(TwoSegments(kOffline));
  EXPECT_EQ(rig.ReportedError(0x52), "HOLDERS");
  EXPECT_THAT(rig.link.Last(0x52)->error().holder_pids(), ElementsAre(8));
  EXPECT_EQ(rig.ReportedError(0x51), "");
  rig.Close(8);
  EXPECT_EQ(rig.Reported(0x52), v1::SEGMENT_PRESENT);
  EXPECT_EQ(rig.Reported(0x51), v1::SEGMENT_ONLINE);
}

TEST(SegmentWantTest, WhoHasTheDeviceMappedIsInTheWayToo) {
  GrowRig rig;
  rig.Connect({TwoSegments()});
  rig.memory.holders = {99};
  rig.Offer(TwoSegments(kOffline));
  EXPECT_EQ(rig.ReportedError(0x52), "HOLDERS");
  EXPECT_EQ(rig.Calls("FindHolders 0x51"), 0);
  EXPECT_EQ(rig.Calls("UnbindDax 0x52"), 0);
}

TEST(SegmentWantTest, AShrinkThatIsCalledOffLeavesEverythingUp) {
  GrowRig rig;
  rig.Connect({TwoSegments()});
  rig.Open(7, {0x51, 0x52});
  rig.Offer(TwoSegments(kOffline));
  EXPECT_EQ(rig.Reported(0x52), v1::SEGMENT_STOPPING);
  rig.memory.calls.clear();
  rig.Offer(TwoSegments(kOnline));
  EXPECT_THAT(rig.memory.calls, IsEmpty());
  EXPECT_EQ(rig.Reported(0x52), v1::SEGMENT_ONLINE);
  EXPECT_EQ(rig.ReportedError(0x52), "");
}

TEST(SegmentWantTest, TheWholeAttachmentGoesThoughASegmentIsAhead) {
  GrowRig rig;
  rig.Connect({TwoSegments()});
  v1::Offer offer = TwoSegments(kEjected);
  offer.set_want(kOffline);
  rig.Offer(offer);
  EXPECT_EQ(rig.Reported(0x51), v1::SEGMENT_PRESENT);
  EXPECT_EQ(rig.Reported(0x52), v1::SEGMENT_ABSENT);
}

TEST(SegmentWantTest, TheManagerHearsAtOnceWhetherASegmentIsOpen) {
  GrowRig rig;
  rig.Connect({TwoSegments()});
  EXPECT_EQ(rig.link.Last(0x51)->opens(), 0u);
  rig.Open(7, {0x51});
  EXPECT_EQ(rig.link.Last(0x51)->opens(), 1u);
  EXPECT_EQ(rig.link.Last(0x52)->opens(), 0u);
  rig.link.reports.clear();
  rig.Open(8, {0x51});
  rig.Close(8);
  EXPECT_THAT(rig.link.reports, IsEmpty());  // How many is no news.
  rig.Open(8, {0x51});
  rig.Close(7);
  rig.Close(8);
  EXPECT_EQ(rig.link.Last(0x51)->opens(), 0u);
  rig.Open(9, {0x51, 0x52});
  rig.Open(10, {0x51, 0x52});
  const v1::Hello hello = rig.Connect({TwoSegments()});
  EXPECT_EQ(hello.segments(0).opens(), 2u);
}

TEST(SegmentWantTest, InterleavedTargetsComeAndGoAsOneHostRegion) {
  GrowRig rig;
  rig.memory.plugged = {{1, 0x51}, {2, 0x52}};
  v1::Offer offer = OneSegment();
  v1::OfferedSegment& segment = *offer.mutable_segments(0);
  segment.set_interleave_granularity_bytes(256);
  segment.add_targets()->set_slot(2);
  segment.mutable_targets(1)->set_serial(0x52);
  rig.Connect({offer});
  EXPECT_THAT(rig.memory.calls,
              ElementsAre("PowerOn 0x51", "PowerOn 0x52", "CreateHostRegion 0x51", "BindDax 0x51"));
  EXPECT_THAT(rig.memory.specs.at(0).serials, ElementsAre(0x51, 0x52));
  EXPECT_EQ(rig.memory.specs.at(0).interleave_granularity_bytes, 256u);
  EXPECT_EQ(rig.memory.specs.at(0).size_bytes, kTestLength);
  EXPECT_EQ(rig.Reported(0x51), v1::SEGMENT_ONLINE);
  EXPECT_FALSE(rig.link.Last(0x52).has_value());  // One segment, one report: of its first serial.

  rig.memory.calls.clear();
  offer.set_want(kEjected);
  rig.Offer(offer);
  EXPECT_THAT(rig.memory.calls,
              ElementsAre("FindHolders 0x51", "UnbindDax 0x51", "DestroyHostRegion 0x51",
                          "PowerOff 0x51", "PowerOff 0x52"));
  EXPECT_EQ(rig.Reported(0x51), v1::SEGMENT_ABSENT);
}

TEST(SegmentWantTest, AnInterleavedHostRegionThatLostATargetIsTakenAway) {
  GrowRig rig;
  rig.memory.plugged = {{1, 0x51}, {2, 0x52}};
  v1::Offer offer = OneSegment();
  offer.mutable_segments(0)->add_targets()->set_slot(2);
  offer.mutable_segments(0)->mutable_targets(1)->set_serial(0x52);
  rig.Connect({offer});
  rig.memory.Unplug(1);
  rig.memory.Region(0x52)->serials = {0, 0x52};  // What a restarted agent is shown.
  rig.memory.Region(0x52)->dax_driver = DaxDriver::kNone;
  rig.memory.calls.clear();
  rig.executor.Advance(absl::Seconds(2));
  ASSERT_FALSE(rig.memory.calls.empty());
  EXPECT_EQ(rig.memory.calls.front(), "PowerOn 0x51");  // It may have been bound again.
  EXPECT_EQ(rig.ReportedError(0x51), "DEADLINE_EXCEEDED");
  EXPECT_EQ(rig.memory.host.regions.size(), 1u);
  offer.set_want(kEjected);
  rig.Offer(offer);
  EXPECT_THAT(rig.memory.host.regions, IsEmpty());
  EXPECT_THAT(rig.memory.host.memdevs, IsEmpty());
}

// The fabric lost a target and bound it again, under a new serial.
TEST(SegmentWantTest, AnInterleavedHostRegionMakesRoomForTheSuccessorOfATarget) {
  constexpr uint64_t kLost = uint64_t{0x0c} << 56 | 0x51;
  for (const auto mode : {v1::DEVDAX, v1::SYSTEM_RAM}) {
    GrowRig rig;
    rig.memory.plugged = {{1, kLost}, {2, 0x52}};
    v1::Offer offer = OneSegment();
    offer.set_mode(mode);
    offer.mutable_segments(0)->mutable_targets(0)->set_serial(kLost);
    offer.mutable_segments(0)->add_targets()->set_slot(2);
    offer.mutable_segments(0)->mutable_targets(1)->set_serial(0x52);
    rig.Connect({offer});
    EXPECT_EQ(rig.Reported(kLost), v1::SEGMENT_ONLINE);
    rig.memory.Unplug(1);
    rig.memory.plugged[1] = 0x53;
    offer.mutable_segments(0)->mutable_targets(0)->set_serial(0x53);
    rig.Offer(offer);
    rig.executor.Advance(absl::Seconds(2));
    EXPECT_EQ(rig.Reported(0x53), v1::SEGMENT_ONLINE);
    ASSERT_EQ(rig.memory.host.regions.size(), 1u);
    EXPECT_THAT(rig.memory.host.regions[0].serials, ElementsAre(0x53, 0x52));
  }
}

// The manager forgot what was said of the set that it was.
TEST(SegmentWantTest, AnotherSetOfTargetsIsNewsThoughTheFirstStays) {
  GrowRig rig;
  v1::Offer offer = OneSegment();
  offer.set_want(v1::Offer::WANT_OFFLINE);
  offer.mutable_segments(0)->add_targets()->set_slot(2);
  offer.mutable_segments(0)->mutable_targets(1)->set_serial(0x52);
  rig.Connect({offer});
  const size_t before = rig.link.reports.size();
  rig.Offer(offer);
  EXPECT_EQ(rig.link.reports.size(), before);
  offer.mutable_segments(0)->mutable_targets(1)->set_serial(0x53);
  rig.Offer(offer);
  EXPECT_EQ(rig.link.reports.size(), before + 1);
  EXPECT_EQ(rig.Reported(0x51), v1::SEGMENT_ABSENT);
}

TEST(SegmentWantTest, OffersThatMakeNoSenseAreRefused) {
  const auto refused = [](void (*spoil)(v1::OfferedSegment&)) {
    AttachmentTable table;
    v1::Offer offer = TwoSegments();
    spoil(*offer.mutable_segments(1));
    return !table.Put(offer).ok() && table.all().empty();
  };
  EXPECT_FALSE(refused([](v1::OfferedSegment&) {}));
  EXPECT_TRUE(refused([](v1::OfferedSegment& s) { s.set_want(static_cast<v1::Offer::Want>(9)); }));
  EXPECT_TRUE(refused([](v1::OfferedSegment& s) { s.mutable_targets(0)->set_serial(0x51); }));
  EXPECT_TRUE(refused([](v1::OfferedSegment& s) { s.set_interleave_granularity_bytes(300); }));
  EXPECT_TRUE(refused([](v1::OfferedSegment& s) { s.set_interleave_granularity_bytes(32768); }));
  EXPECT_TRUE(refused([](v1::OfferedSegment& s) {
    s.set_length_bytes(s.length_bytes() + 1);
    s.add_targets()->set_serial(0x53);
  }));
}

}  // namespace
}  // namespace cxlpool::agent
