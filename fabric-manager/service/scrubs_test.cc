#include "fabric-manager/service/scrubs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "proto/support/refusal.h"
#include "test/rigs/recorded_region.h"

namespace cxlpool::fm {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

// The Region is released and no host has it any more.
class ScrubsTest : public RecordedRegionTest {
 protected:
  void SetUp() override {
    RecordedRegionTest::SetUp();
    Change([](Region& edited) {
      edited.state = RegionState::kScrubbing;
      edited.attachments.clear();
    });
  }
  void Begin() { scrubs.Begin(region(), NextRegionMove(region(), scrubs.Done(region()))); }
  void Answer(absl::StatusOr<ScrubResult> result) {
    ASSERT_EQ(fabric.scrubs.size(), 1u);
    HeldFabric::AnswerFirst(fabric.scrubs, std::move(result));
    executor.Advance(absl::Milliseconds(10));  // What is recorded of it is durable.
  }

  // `ended`: the lives that have.
  void TakeView(const std::string& only, const FabricView& view, const std::string& ended = "") {
    owners.TakeView(only, view, calls.epoch(),
                    [&](const std::string&, const std::string& life) { return life == ended; });
  }

  uint64_t Backlog() const { return writer.meters().scrub_backlog_bytes; }

  LdOwners owners{&writer, &tracks, &calls, fabric.capabilities()};
  RegionRecorder recorder{&writer, &active, &probe, &executor};
  std::vector<std::string> looked_at;
  Scrubs scrubs{absl::Milliseconds(500),
                &executor,
                &executor,
                &writer,
                &fabric,
                &owners,
                &recorder,
                &active,
                &probe,
                [this](const std::string& host) { looked_at.push_back(host); }};
};

TEST_F(ScrubsTest, OneExtentAfterTheOtherIsClearedUntilNoneIsLeft) {
  Begin();
  Begin();  // The first is under way.
  ASSERT_EQ(fabric.scrubs.size(), 1u);
  EXPECT_EQ(fabric.scrubs[0].asked, (Slice{"cmm-0", 0, kBytes}));
  Answer(ScrubResult::kZero);
  EXPECT_THAT(scrubs.Done(region()), UnorderedElementsAre(0));
  EXPECT_TRUE(active.Contains(kRegion));
  Begin();
  EXPECT_EQ(fabric.scrubs[0].asked, (Slice{"cmm-0", kBytes, kBytes}));
  Answer(ScrubResult::kUnreadable);  // Nobody can read what was there.
  EXPECT_THAT(scrubs.Done(region()), UnorderedElementsAre(0, 1));
  EXPECT_THAT(rungs, ElementsAre("before-scrub", "after-scrub", "before-scrub", "after-scrub"));
}

TEST_F(ScrubsTest, WhatIsLeftToBeClearedIsCounted) {
  EXPECT_EQ(Backlog(), 0u);
  Begin();
  EXPECT_EQ(Backlog(), 2 * kBytes);
  EXPECT_EQ(scrubs.LeftBytes(kRegion), 2 * kBytes);
  fabric.scrub_progress(kBytes / 4);
  Begin();  // The first is under way.
  EXPECT_EQ(scrubs.LeftBytes(kRegion), 2 * kBytes - kBytes / 4);
  Answer(ScrubResult::kZero);
  EXPECT_EQ(Backlog(), kBytes);
  EXPECT_EQ(scrubs.LeftBytes(kRegion), kBytes);
  Begin();
  fabric.scrub_progress(kBytes / 2);
  EXPECT_EQ(scrubs.LeftBytes(kRegion), kBytes / 2);
  Answer(absl::UnavailableError("the device is busy"));
  EXPECT_EQ(Backlog(), kBytes);
  executor.Advance(absl::Milliseconds(500));
  Begin();
  EXPECT_EQ(scrubs.LeftBytes(kRegion), kBytes) << "from the beginning";
  Answer(ScrubResult::kZero);
  EXPECT_EQ(scrubs.LeftBytes(kRegion), 0u);
  EXPECT_EQ(Backlog(), 0u);
  Begin();
  scrubs.Forget(kRegion);
  EXPECT_EQ(Backlog(), 0u);
}

TEST_F(ScrubsTest, WhatFailsIsSaidAndTriedAgain) {
  Begin();
  Answer(absl::UnavailableError("the device is busy"));
  EXPECT_THAT(scrubs.Done(region()), IsEmpty());
  EXPECT_THAT(region().state_reason, HasSubstr("WAITS: its bytes cannot be cleared"));
  EXPECT_THAT(region().state_reason, HasSubstr("the device is busy"));
  Begin();
  EXPECT_THAT(fabric.scrubs, IsEmpty()) << "before its time";
  executor.Advance(absl::Milliseconds(500));
  Begin();
  Answer(ScrubResult::kZero);
  EXPECT_THAT(scrubs.Done(region()), UnorderedElementsAre(0));
  Begin();  // It waits for nothing any more; what is next follows once that is recorded.
  executor.Advance(absl::Milliseconds(10));
  EXPECT_EQ(region().state_reason, "");
  Begin();
  EXPECT_EQ(fabric.scrubs.size(), 1u);
}

// A host that does not answer keeps the driver busy for half a minute each time, and with it the
// scrubs of all others.
TEST_F(ScrubsTest, WhatFailsAfterLongIsTriedAgainAsLongAfter) {
  Begin();
  executor.Advance(absl::Seconds(30));
  Answer(absl::UnavailableError("host-a does not answer"));
  executor.Advance(absl::Seconds(29));
  Begin();
  EXPECT_THAT(fabric.scrubs, IsEmpty()) << "others have their turns";
  executor.Advance(absl::Seconds(1));
  Begin();
  ASSERT_EQ(fabric.scrubs.size(), 1u);
  executor.Advance(absl::Hours(1));
  Answer(absl::UnavailableError("host-a does not answer"));
  executor.Advance(absl::Minutes(2));
  Begin();
  EXPECT_EQ(fabric.scrubs.size(), 1u) << "and not an hour later";
}

TEST_F(ScrubsTest, OfWhyItFailsNoMoreThanTheLimitIsRecorded) {
  Begin();
  Answer(absl::UnavailableError(std::string(2 << 20, 'x')));
  EXPECT_THAT(region().state_reason, HasSubstr("tried again and again: xxx"));
  EXPECT_LT(region().state_reason.size(), kMaxFabricError + 512);
}

TEST_F(ScrubsTest, WhatItHadToSayBeforeIsKept) {
  Change([](Region& edited) { edited.state_reason = "FORCED: nobody needs it"; });
  for (const char* error : {"the device is busy", "the device does not answer"}) {
    Begin();
    Answer(absl::UnavailableError(error));
    EXPECT_THAT(region().state_reason, HasSubstr(error));
    EXPECT_THAT(region().state_reason, HasSubstr("FORCED: nobody needs it"));
    EXPECT_EQ(ReasonBeforeWait(region().state_reason), "FORCED: nobody needs it");
    executor.Advance(absl::Milliseconds(500));
  }
  Begin();
  Answer(ScrubResult::kZero);
  Begin();
  executor.Advance(absl::Milliseconds(10));
  EXPECT_EQ(region().state_reason, "FORCED: nobody needs it");
  EXPECT_EQ(ReasonBeforeWait(region().state_reason), "FORCED: nobody needs it");
}

// A device fails while a Region shrinks: the scrub of what it gives back ends with an error.
TEST_F(ScrubsTest, WhatIsQuarantinedMeanwhileWaitsForNoScrub) {
  Change([](Region& edited) {
    edited.state = RegionState::kAllocated;
    edited.tail_extents = 1;
    edited.tail_leaving = true;
  });
  Begin();
  EXPECT_EQ(fabric.scrubs[0].asked, (Slice{"cmm-0", kBytes, kBytes}));
  Change([](Region& edited) {
    edited.state = RegionState::kQuarantined;
    edited.state_reason = "DEVICE_FAILED: smoke";
  });
  EXPECT_EQ(Backlog(), kBytes);
  Answer(absl::UnavailableError("the device does not answer"));
  EXPECT_EQ(region().state_reason, "DEVICE_FAILED: smoke");
  scrubs.Done(region());
  EXPECT_EQ(Backlog(), 0u) << "it waits for none any more";
}

TEST_F(ScrubsTest, WhatCannotBeClearedIsMarked) {
  Begin();
  Answer(Refuse(absl::StatusCode::kUnimplemented, "NOT_SCRUBBABLE", "it is read-only", "wait"));
  ASSERT_EQ(region().bad.size(), 1u);
  EXPECT_EQ(region().bad[0].extent_index, 0u);
  EXPECT_THAT(region().bad[0].reason, HasSubstr("NOT_SCRUBBABLE: it is read-only"));
  EXPECT_THAT(scrubs.Done(region()), IsEmpty());
}

TEST_F(ScrubsTest, ADeviceThatIsNotReachedIsWaitedFor) {
  writer.SetReachable({{"cmm-0", "other storage stands behind its name"}});
  Begin();
  executor.Advance(absl::Milliseconds(10));
  EXPECT_THAT(fabric.scrubs, IsEmpty());
  EXPECT_THAT(region().state_reason, HasSubstr("WAITS: device cmm-0 has to be reached"));
}

TEST_F(ScrubsTest, NothingIsClearedUnderAnLdOfNoRecord) {
  FabricView view;
  view.bound.push_back(Bound(0));
  view.bound[0].key.reset();
  view.bound[0].serial = 7;
  TakeView("", view);
  Begin();
  executor.Advance(absl::Milliseconds(10));
  EXPECT_THAT(fabric.scrubs, IsEmpty());
  EXPECT_THAT(looked_at, ElementsAre("host-a"));
  EXPECT_THAT(region().state_reason, HasSubstr("host host-a slot 1 reaches its bytes"));

  TakeView("", {});
  executor.Advance(absl::Milliseconds(500));
  Begin();
  executor.Advance(absl::Milliseconds(10));
  Begin();
  EXPECT_EQ(fabric.scrubs.size(), 1u);
}

// LDs of hosts that cannot be asked are unknown, not absent.
TEST_F(ScrubsTest, NothingIsClearedUnderAnLdOfAHostThatCannotBeAsked) {
  FabricView view;
  view.hosts.push_back({.id = "host-a", .reachable = true, .fabric_incarnation = "1", .slots = {}});
  view.bound.push_back(Bound(0));
  view.bound[0].key.reset();
  view.bound[0].serial = 7;
  TakeView("", view);
  view.bound.clear();
  view.hosts[0].reachable = false;
  const auto begins = [&] {
    executor.Advance(absl::Milliseconds(500));
    Begin();
    executor.Advance(absl::Milliseconds(10));
    Begin();  // What it waited for is not said any more.
    return !fabric.scrubs.empty();
  };
  for (const char* only : {"", "host-a", ""}) {
    TakeView(only, view);
    EXPECT_FALSE(begins()) << "\"" << only << "\"";
  }
  TakeView("", view, /*ended=*/"0");
  EXPECT_FALSE(begins()) << "that was an earlier life";
  TakeView("", view, /*ended=*/"1");
  EXPECT_TRUE(begins());
}

TEST_F(ScrubsTest, WhatAHostHadThatIsFencedOrRetiredIsNotWaitedFor) {
  FabricView view;
  view.hosts.push_back({.id = "host-a", .reachable = true, .fabric_incarnation = "1", .slots = {}});
  view.bound.push_back(Bound(0));
  view.bound[0].key.reset();
  view.bound[0].serial = 7;
  FabricView silent;
  silent.hosts.push_back(
      {.id = "host-a", .reachable = false, .fabric_incarnation = "1", .slots = {}});
  const Slice slice = view.bound[0].slice;
  TakeView("", view);
  TakeView("", silent);
  ASSERT_NE(owners.UnrecordedOn(slice), nullptr);
  owners.HostFenced("host-a");
  EXPECT_EQ(owners.UnrecordedOn(slice), nullptr);
  TakeView("", view);
  Host retired = *writer.state().FindHost("host-a");
  retired.retired = true;
  Commit(retired);
  TakeView("", silent);
  EXPECT_EQ(owners.UnrecordedOn(slice), nullptr) << "the operator has said that it is off";
}

// After two restores LDs of two hosts may bear one generation.
TEST_F(ScrubsTest, ACallAboutOneHostHidesNothingThatAnotherHas) {
  Attachment busy;
  busy.host = "host-a";
  busy.generation = kGeneration;
  busy.segments.resize(2);
  tracks.Of(region(), busy).driver_calls = 1;
  FabricView view;
  view.hosts.push_back({.id = "host-b", .reachable = true, .fabric_incarnation = "1", .slots = {}});
  view.bound.push_back(Bound(0));
  view.bound[0].host = "host-b";
  view.bound[0].serial = 7;
  TakeView("", view);
  EXPECT_NE(owners.UnrecordedOn(view.bound[0].slice), nullptr);
  Begin();
  EXPECT_THAT(fabric.scrubs, IsEmpty());
}

TEST_F(ScrubsTest, BytesOfAFailedDeviceAreGivenToNobodyAndNeedNoScrub) {
  Device failed = *writer.state().FindDevice("cmm-0");
  failed.service = DeviceService::kFailed;
  Commit(failed);
  EXPECT_THAT(scrubs.Done(region()), UnorderedElementsAre(0, 1));
}

TEST_F(ScrubsTest, WhatTakesThePlaceOfExtentsThatWentIsScrubbedItself) {
  Begin();
  Answer(ScrubResult::kZero);
  scrubs.ForgetDone(kRegion);
  EXPECT_THAT(scrubs.Done(region()), IsEmpty());
}

// Its device failed while it was being cleared, so that it was given away without that.
TEST_F(ScrubsTest, WhatIsClearedLateIsNotTakenForWhatTookItsPlace) {
  Begin();
  scrubs.ForgetDone(kRegion);
  Answer(ScrubResult::kZero);
  EXPECT_THAT(scrubs.Done(region()), IsEmpty());
  Begin();
  ASSERT_EQ(fabric.scrubs.size(), 1u);
  EXPECT_EQ(fabric.scrubs[0].asked, (Slice{"cmm-0", 0, kBytes}));
  scrubs.ForgetDone(kRegion);
  Answer(Refuse(absl::StatusCode::kUnimplemented, "NOT_SCRUBBABLE", "it is read-only", "wait"));
  EXPECT_TRUE(region().bad.empty());
}

TEST_F(ScrubsTest, ARegionThatIsGoneTakesNoAnswer) {
  Begin();
  scrubs.Forget(kRegion);
  Answer(ScrubResult::kZero);
  EXPECT_THAT(rungs, ElementsAre("before-scrub"));
}

}  // namespace
}  // namespace cxlpool::fm
