#include "fabric-manager/service/fabric_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "test/rigs/recorded_region.h"

namespace cxlpool::fm {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class FabricCallsTest : public RecordedRegionTest {
 protected:
  void SetUp() override {
    RecordedRegionTest::SetUp();
    track = &tracks.Of(region(), attached());
  }

  static Move Of(MoveKind kind, std::vector<uint32_t> segments) {
    return {.kind = kind, .segments = std::move(segments), .reason = {}};
  }
  void Bind(std::vector<uint32_t> segments) {
    calls.Bind(region(), attached(), 0, *track, Of(MoveKind::kBind, std::move(segments)), "life-1",
               /*claim=*/7);
  }
  static FabricView Shows(std::vector<BoundLd> bound) {
    FabricView view;
    view.hosts.push_back({"host-a", true, "life-1", {1, 2}});
    view.bound = std::move(bound);
    return view;
  }
  void Take(const FabricView& view, uint64_t epoch) {
    calls.TakeView(
        "", view, epoch, [this](const std::string&) { return gone; }, active);
  }
  FabricSide side(size_t segment) const { return track->known[segment].fabric; }

  Track* track = nullptr;
  bool gone = false;
};

TEST_F(FabricCallsTest, ABindIsKnownOnceItsAnswerIsThere) {
  Bind({0, 1});
  ASSERT_EQ(fabric.binds.size(), 2u);
  const BindRequest& asked = fabric.binds[1].asked;
  EXPECT_EQ(asked.key, *Bound(1).key);
  EXPECT_EQ(asked.slot, 2u);
  EXPECT_EQ(asked.serial, 102u);
  EXPECT_EQ(asked.claim, 7u);
  EXPECT_EQ(asked.incarnation, "life-1");
  EXPECT_EQ(side(0), FabricSide::kUnknown);
  EXPECT_FALSE(calls.MayCall(*track));

  HeldFabric::AnswerFirst(fabric.binds, absl::StatusOr<BoundLd>(Bound(0)));
  EXPECT_EQ(side(0), FabricSide::kUnknown) << "answers come from any thread";
  executor.RunReady();
  EXPECT_EQ(side(0), FabricSide::kBound);
  EXPECT_EQ(track->known[0].serial, 101u);
  EXPECT_EQ(side(1), FabricSide::kUnknown);
  EXPECT_FALSE(calls.MayCall(*track)) << "the other one is under way";
  HeldFabric::AnswerFirst(fabric.binds, absl::StatusOr<BoundLd>(Bound(1)));
  executor.RunReady();
  EXPECT_TRUE(calls.MayCall(*track));
  EXPECT_THAT(track->serials_tried, ElementsAre(101, 102));
  EXPECT_THAT(ended, ElementsAre(kGeneration, kGeneration));
  EXPECT_THAT(rungs, ElementsAre("before-bind", "before-bind", "after-bind", "after-bind"));
}

// What a switch or an agent says of an error may be of any length. It is recorded as the reason of
// the Region, and a record that the store does not take would never be given up.
TEST_F(FabricCallsTest, OfAnErrorNoMoreThanTheLimitIsKept) {
  const std::string endless(2 << 20, 'x');
  Bind({0});
  HeldFabric::AnswerFirst(fabric.binds, absl::StatusOr<BoundLd>(absl::InternalError(endless)));
  executor.RunReady();
  EXPECT_EQ(track->known[0].fabric_error, std::string(kMaxFabricError, 'x'));
  executor.Advance(absl::Seconds(1));
  calls.AwaitUnbound(region(), attached(), 0, *track);
  HeldFabric::AnswerFirst(fabric.waits, absl::UnavailableError(endless));
  executor.RunReady();
  EXPECT_THAT(track->stuck, HasSubstr("UNBIND_NOT_PROVEN: xxx"));
  EXPECT_LT(track->stuck.size(), kMaxFabricError + 512);
}

TEST_F(FabricCallsTest, ABindThatFailedIsNotTakenForNoneAndWaitsForItsRetry) {
  track->known[0].fabric = FabricSide::kUnbound;
  Bind({0});
  HeldFabric::AnswerFirst(fabric.binds,
                          absl::StatusOr<BoundLd>(absl::NotFoundError("there is no such slot")));
  executor.RunReady();
  EXPECT_EQ(side(0), FabricSide::kUnknown);
  EXPECT_EQ(track->known[0].fabric_error, "there is no such slot");
  EXPECT_TRUE(track->known[0].fabric_error_permanent);
  EXPECT_THAT(track->serials_tried, ElementsAre(101));
  EXPECT_FALSE(calls.MayCall(*track));
  executor.Advance(absl::Milliseconds(500));
  EXPECT_TRUE(calls.MayCall(*track));
}

TEST_F(FabricCallsTest, AnUnbindThatHasBegunIsNoProofAndOneThatWasAwaitedIs) {
  track->known[0].fabric = track->known[1].fabric = FabricSide::kBound;
  calls.BeginUnbind(region(), attached(), 0, *track, Of(MoveKind::kBeginUnbind, {0}));
  HeldFabric::AnswerFirst(fabric.unbinds, absl::OkStatus());
  executor.RunReady();
  EXPECT_EQ(side(0), FabricSide::kUnbinding);

  track->known[1].fabric = FabricSide::kUnbound;
  calls.AwaitUnbound(region(), attached(), 0, *track);
  ASSERT_EQ(fabric.waits.size(), 1u) << "only what the part still has";
  HeldFabric::AnswerFirst(fabric.waits, absl::DeadlineExceededError("it holds on"));
  executor.RunReady();
  EXPECT_EQ(side(0), FabricSide::kUnbinding);
  EXPECT_THAT(track->stuck, HasSubstr("UNBIND_NOT_PROVEN: it holds on"));
  EXPECT_THAT(track->stuck, HasSubstr("cannot come back, reboot it")) << "it cannot be fenced";
  EXPECT_FALSE(calls.MayCall(*track));

  executor.Advance(absl::Seconds(1));
  calls.AwaitUnbound(region(), attached(), 0, *track);
  HeldFabric::AnswerFirst(fabric.waits, absl::OkStatus());
  executor.RunReady();
  EXPECT_EQ(side(0), FabricSide::kUnbound);
  EXPECT_THAT(track->stuck, IsEmpty());
}

// It is under way nearly all the time while a host that lets go of something is rebooted.
TEST_F(FabricCallsTest, ALifeThatEndsDuringAWaitForAProofIsThatProofOnceTheWaitIsOver) {
  track->known[0].fabric = track->known[1].fabric = FabricSide::kUnbinding;
  calls.AwaitUnbound(region(), attached(), 0, *track);
  ASSERT_EQ(fabric.waits.size(), 2u);
  calls.LifeEnded(*track);
  EXPECT_EQ(side(0), FabricSide::kUnbinding);
  HeldFabric::AnswerFirst(fabric.waits, absl::UnavailableError("it does not show the device"));
  executor.RunReady();
  EXPECT_EQ(side(0), FabricSide::kUnbinding) << "the other one is under way";
  HeldFabric::AnswerFirst(fabric.waits, absl::UnavailableError("it does not show the device"));
  executor.RunReady();
  EXPECT_EQ(side(0), FabricSide::kUnbound);
  EXPECT_EQ(side(1), FabricSide::kUnbound);
  EXPECT_THAT(track->stuck, IsEmpty());
  EXPECT_FALSE(track->life_ended);
}

TEST_F(FabricCallsTest, AnUnbindThatCouldNotBeginLeavesTheFabricToBeReadBack) {
  track->known[0].fabric = FabricSide::kBound;
  calls.BeginUnbind(region(), attached(), 0, *track, Of(MoveKind::kBeginUnbind, {0}));
  HeldFabric::AnswerFirst(fabric.unbinds, absl::UnavailableError("the switch is busy"));
  executor.RunReady();
  EXPECT_EQ(side(0), FabricSide::kUnknown);
  EXPECT_EQ(track->known[0].fabric_error, "the switch is busy");
  EXPECT_FALSE(calls.MayCall(*track));
}

TEST_F(FabricCallsTest, ALookIsNotBelievedOfWhatWasCalledAboutSinceItBegan) {
  const uint64_t before = calls.epoch();
  Bind({0});
  Take(Shows({}), before);
  EXPECT_EQ(side(0), FabricSide::kUnknown) << "a call is under way";
  const uint64_t during = calls.epoch();
  Take(Shows({}), during);
  EXPECT_EQ(side(0), FabricSide::kUnknown) << "a call is under way";
  HeldFabric::AnswerFirst(fabric.binds, absl::StatusOr<BoundLd>(Bound(0)));
  executor.RunReady();
  Take(Shows({}), during);
  EXPECT_EQ(side(0), FabricSide::kBound) << "the look began before the call ended";
  Take(Shows({}), calls.epoch());
  EXPECT_EQ(side(0), FabricSide::kUnbound);
}

TEST_F(FabricCallsTest, ALookShowsWhatIsBoundAndWhatIsNotWhereItCanSee) {
  FabricView view = Shows({Bound(0)});
  Take(view, calls.epoch());
  EXPECT_EQ(side(0), FabricSide::kBound);
  EXPECT_EQ(side(1), FabricSide::kUnbound);
  EXPECT_TRUE(active.Contains(3));

  view.bound[0].unbinding = true;
  view.hosts[0].slots = {1};
  track->known[1].fabric = FabricSide::kBound;
  Take(view, calls.epoch());
  EXPECT_EQ(side(0), FabricSide::kUnbinding);
  EXPECT_EQ(side(1), FabricSide::kUnknown) << "a slot that the fabric does not know";

  view = Shows({Bound(0)});
  view.bound[0].serial = 7;  // Another LD, by this one's key.
  Take(view, calls.epoch());
  EXPECT_EQ(side(0), FabricSide::kUnknown);

  Take({}, calls.epoch());
  EXPECT_EQ(side(0), FabricSide::kUnknown) << "a host that cannot be asked";
  gone = true;
  Take({}, calls.epoch());
  EXPECT_EQ(side(0), FabricSide::kUnbound);
  gone = false;
  Take({}, calls.epoch());
  EXPECT_EQ(side(0), FabricSide::kUnbound) << "what was proven stays so";
}

TEST_F(FabricCallsTest, WhatALookProvesIsNotMissingAnyMore) {
  track->stuck = "UNBIND_NOT_PROVEN: it holds on";
  track->known[0].fabric = FabricSide::kUnbinding;
  FabricView view = Shows({Bound(0), Bound(1)});
  view.bound[0].unbinding = true;
  Take(view, calls.epoch());
  EXPECT_THAT(track->stuck, HasSubstr("it holds on"));
  view.bound.erase(view.bound.begin());
  Take(view, calls.epoch());
  EXPECT_EQ(side(0), FabricSide::kUnbound);
  EXPECT_EQ(track->stuck, "");
}

TEST_F(FabricCallsTest, WhatAnotherHostSaysThatItHasByAKeyChangesNothing) {
  FabricView view = Shows({Bound(0), Bound(0)});
  view.bound[1].host = "host-b";
  view.bound[1].serial = 7;
  Take(view, calls.epoch());
  EXPECT_EQ(side(0), FabricSide::kBound);
  EXPECT_FALSE(track->known[0].other_there);
  view.bound.erase(view.bound.begin());
  Take(view, calls.epoch());
  EXPECT_EQ(side(0), FabricSide::kUnbound);
}

// Each once, however often it is looked at.
TEST_F(FabricCallsTest, WhatTheRecordsHaveOtherwiseIsCounted) {
  const auto differences = [this] { return writer.meters().fabric_differences.value(); };
  Take(Shows({}), calls.epoch());
  EXPECT_EQ(differences(), 0u) << "it is not recorded as bound";
  Change([](Region& edited) { edited.attachments[0].settled().state = AttachmentState::kBound; });
  Take(Shows({Bound(0), Bound(1)}), calls.epoch());
  EXPECT_EQ(differences(), 0u);
  for (int look = 0; look < 2; ++look) {
    Take(Shows({Bound(1)}), calls.epoch());
    EXPECT_EQ(differences(), 1u) << look;
  }
  FabricView view = Shows({Bound(1)});
  view.bound[0].serial = 7;  // Another LD, by this one's key.
  Take(view, calls.epoch());
  EXPECT_EQ(differences(), 2u);
}

TEST_F(FabricCallsTest, AnotherLdByItsKeyIsCountedAtTheFirstLookAndOnceInAll) {
  const auto differences = [this] { return writer.meters().fabric_differences.value(); };
  FabricView view = Shows({Bound(0)});
  view.bound[0].serial = 7;
  for (int look = 0; look < 2; ++look) {
    Take(view, calls.epoch());
    EXPECT_EQ(differences(), 1u) << look;
  }
  Take({}, calls.epoch());
  Take(view, calls.epoch());
  EXPECT_EQ(differences(), 1u) << "the host could not be asked meanwhile";
  Take(Shows({Bound(0)}), calls.epoch());
  Take(view, calls.epoch());
  EXPECT_EQ(differences(), 2u) << "it was away";
}

TEST_F(FabricCallsTest, OtherProofIsNotOverwrittenByALookThatBeganBefore) {
  track->known[0].fabric = FabricSide::kBound;
  const uint64_t before = calls.epoch();
  calls.MarkUnbound(*track);
  Take(Shows({Bound(0), Bound(1)}), before);
  EXPECT_EQ(side(0), FabricSide::kUnbound);
  EXPECT_EQ(side(1), FabricSide::kUnbound);
}

TEST_F(FabricCallsTest, AnAnswerAboutATrackThatIsGoneIsDropped) {
  Bind({0});
  tracks.Erase(kGeneration);
  HeldFabric::AnswerFirst(fabric.binds, absl::StatusOr<BoundLd>(Bound(0)));
  executor.RunReady();
  EXPECT_THAT(ended, IsEmpty());
}

TEST_F(FabricCallsTest, ALookThatIsUnderWayMayStillShowWhatWasDropped) {
  const uint64_t before = calls.epoch();
  calls.Drop(kGeneration, true);
  EXPECT_EQ(tracks.Find(kGeneration), nullptr);
  EXPECT_TRUE(calls.DroppedSince("host-a", before));
  EXPECT_FALSE(calls.DroppedSince("host-a", calls.epoch()));
  EXPECT_FALSE(calls.DroppedSince("host-b", before));
}

}  // namespace
}  // namespace cxlpool::fm
