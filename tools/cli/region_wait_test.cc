#include "tools/cli/region_wait.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/cli/testing.h"

namespace cxlpool::cli {
namespace {

using testing::HasSubstr;
using A = v1::Attachment;
using R = v1::Region;

const WaitGoal kOnline{WaitGoal::Kind::kOnline, "hosts/host-a", 7};
const WaitGoal kUntilAllocated{WaitGoal::Kind::kAllocated, "", 0};
const WaitGoal kDetached{WaitGoal::Kind::kDetached, "hosts/host-a", 7};
const WaitGoal kGone{WaitGoal::Kind::kGone, "", 0};

v1::Region At(R::State state, A::State attachment, uint64_t revision = 2) {
  return WithAttachment(MakeRegion(state, revision), attachment);
}

v1::Region Detaching(v1::Region region, const std::string& reason) {
  region.mutable_attachments(0)->set_detaching(true);
  region.mutable_attachments(0)->set_state_reason(reason);
  return region;
}

bool IsReached(const WaitGoal& goal, const v1::Region& region) {
  const auto reached = Reached(goal, region);
  EXPECT_TRUE(reached.ok()) << reached.status();
  return reached.value_or(false);
}

TEST(ReachedTest, OnlineNeedsBothRegionAndAttachment) {
  EXPECT_FALSE(IsReached(kOnline, At(R::RESERVED, A::WANTED)));
  EXPECT_FALSE(IsReached(kOnline, At(R::RESERVED, A::ONLINE)));
  EXPECT_FALSE(IsReached(kOnline, At(R::ALLOCATED, A::BOUND)));
  EXPECT_TRUE(IsReached(kOnline, At(R::ALLOCATED, A::ONLINE)));
}

TEST(ReachedTest, AnotherHostsAttachmentDoesNotCount) {
  const v1::Region region =
      WithAttachment(At(R::ALLOCATED, A::BOUND), A::ONLINE, 8, "hosts/host-b");
  EXPECT_FALSE(IsReached(kOnline, region));
}

TEST(ReachedTest, AttachmentUndoneFailsWithItsReason) {
  const auto reached = Reached(kOnline, Detaching(At(R::ALLOCATED, A::BOUND), "no memdev in 30s"));
  EXPECT_TRUE(absl::IsAborted(reached.status()));
  EXPECT_EQ(ReasonOf(reached.status()), "ATTACHMENT_FAILED");
  EXPECT_THAT(reached.status().message(), HasSubstr("no memdev in 30s"));
  EXPECT_TRUE(absl::IsAborted(Reached(kOnline, MakeRegion(R::ALLOCATED, 3)).status()));
}

TEST(ReachedTest, FailedRegionFailsWithItsReason) {
  v1::Region region = At(R::FAILED, A::EJECTING);
  region.set_state_reason("host-a: no memory block is free");
  for (const WaitGoal& goal : {kOnline, kUntilAllocated}) {
    const auto reached = Reached(goal, region);
    EXPECT_EQ(ReasonOf(reached.status()), "REGION_FAILED");
    EXPECT_THAT(reached.status().message(), HasSubstr("no memory block is free"));
  }
}

TEST(ReachedTest, AllocatedIgnoresAttachments) {
  EXPECT_FALSE(IsReached(kUntilAllocated, MakeRegion(R::RESERVED, 2)));
  EXPECT_TRUE(IsReached(kUntilAllocated, MakeRegion(R::ALLOCATED, 2)));
}

TEST(ReachedTest, ReleasedMeanwhileFails) {
  EXPECT_EQ(ReasonOf(Reached(kOnline, At(R::RELEASING, A::ONLINE)).status()), "REGION_RELEASING");
  EXPECT_EQ(ReasonOf(Reached(kUntilAllocated, MakeRegion(R::SCRUBBING, 2)).status()),
            "REGION_RELEASING");
}

TEST(ReachedTest, DetachedOnceTheAttachmentIsGoneOrReplaced) {
  EXPECT_FALSE(IsReached(kDetached, At(R::ALLOCATED, A::RELEASE_BLOCKED)));
  EXPECT_FALSE(IsReached(kDetached, At(R::RELEASING, A::EJECTING)));
  EXPECT_TRUE(IsReached(kDetached, At(R::ALLOCATED, A::UNBOUND)));
  EXPECT_TRUE(IsReached(kDetached, MakeRegion(R::ALLOCATED, 2)));
  EXPECT_TRUE(IsReached(kDetached, WithAttachment(MakeRegion(R::ALLOCATED, 2), A::WANTED, 9)));
}

TEST(ReachedTest, GoneOnlyByRemoval) {
  EXPECT_FALSE(IsReached(kGone, MakeRegion(R::SCRUBBING, 2)));
  EXPECT_TRUE(ReachedByRemoval(kGone, MakeRegion(R::SCRUBBING, 2)).ok());
  EXPECT_TRUE(ReachedByRemoval(kDetached, MakeRegion(R::SCRUBBING, 2)).ok());
  EXPECT_TRUE(absl::IsAborted(ReachedByRemoval(kOnline, MakeRegion(R::RESERVED, 2))));
}

TEST(ReachedTest, QuarantineFailsEveryGoalButThatAHostLetsGo) {
  v1::Region region = At(R::QUARANTINED, A::BOUND);
  region.set_state_reason("host-a is out of reach; fence it");
  EXPECT_FALSE(IsReached(kDetached, region));
  for (const WaitGoal& goal : {kOnline, kUntilAllocated, kGone}) {
    const auto reached = Reached(goal, region);
    EXPECT_EQ(ReasonOf(reached.status()), "REGION_QUARANTINED");
    EXPECT_THAT(reached.status().message(), HasSubstr("fence it"));
  }
}

class WaitForRegionTest : public testing::Test {
 protected:
  absl::StatusOr<v1::Region> Wait(const WaitGoal& goal, const v1::Region& region,
                                  absl::Duration limit = absl::Minutes(5)) {
    return WaitForRegion(fake_.connection, goal, region, region.revision(), limit,
                         [&](const v1::Region& now) { seen_.push_back(now.revision()); });
  }

  FakeConnection fake_;
  std::vector<uint64_t> seen_;
  const v1::Region start_ = At(R::RESERVED, A::WANTED, 2);
};

TEST_F(WaitForRegionTest, NeedsNoStreamWhereItIsThereAlready) {
  EXPECT_TRUE(Wait(kOnline, At(R::ALLOCATED, A::ONLINE)).ok());
  EXPECT_TRUE(fake_.manager.watches.empty());
}

TEST_F(WaitForRegionTest, FollowsThroughARestartOfTheManager) {
  fake_.manager.streams = {
      {{Synced(2), Changed(At(R::RESERVED, A::BOUND, 3))}, absl::UnavailableError("gone")},
      {{}, absl::UnavailableError("refused")},
      {{Changed(At(R::RESERVED, A::ONLINE, 4)), Changed(At(R::ALLOCATED, A::ONLINE, 5))}, {}},
  };
  const auto region = Wait(kOnline, start_);
  ASSERT_TRUE(region.ok()) << region.status();
  EXPECT_EQ(region->revision(), 5u);
  EXPECT_THAT(seen_, testing::ElementsAre(3, 4, 5));
  EXPECT_EQ(fake_.manager.watches[0].start_revision(), 2u);
  EXPECT_EQ(fake_.manager.watches[0].name(), "regions/kv");
  EXPECT_EQ(fake_.manager.watches[2].start_revision(), 3u);
}

TEST_F(WaitForRegionTest, FailsWithTheManagersReason) {
  v1::Region failed = At(R::FAILED, A::EJECTING, 4);
  failed.set_state_reason("the memdev did not appear");
  fake_.manager.streams = {{{Changed(failed)}, {}}};
  const auto region = Wait(kOnline, start_);
  EXPECT_TRUE(absl::IsAborted(region.status()));
  EXPECT_THAT(region.status().message(), HasSubstr("the memdev did not appear"));
}

TEST_F(WaitForRegionTest, ARemovalEndsAReleaseAndFailsAnAllocation) {
  fake_.manager.streams = {{{Removed(start_, 9)}, {}}, {{Removed(start_, 9)}, {}}};
  EXPECT_TRUE(Wait(kGone, MakeRegion(R::RELEASING, 2)).ok());
  EXPECT_TRUE(absl::IsAborted(Wait(kOnline, start_).status()));
}

TEST_F(WaitForRegionTest, AnotherRegionUnderTheNameMeansOursIsGone) {
  fake_.manager.streams = {{{Changed(MakeRegion(R::RESERVED, 20, "regions/kv", "tag-2"))}, {}}};
  EXPECT_TRUE(Wait(kGone, MakeRegion(R::RELEASING, 2)).ok());
}

TEST_F(WaitForRegionTest, AnEarlierRegionOfTheNameIsNotOurs) {
  fake_.manager.streams = {{{Removed(MakeRegion(R::SCRUBBING, 1, "regions/kv", "tag-0"), 3),
                             Changed(At(R::ALLOCATED, A::ONLINE, 5))},
                            {}}};
  EXPECT_TRUE(Wait(kOnline, start_).ok());
}

TEST_F(WaitForRegionTest, ARemovalMissedByCompactionIsFound) {
  fake_.manager.streams = {
      {{}, Refused(absl::StatusCode::kOutOfRange, "REVISION_COMPACTED")},
      {{Synced(99)}, {}},
  };
  EXPECT_TRUE(Wait(kGone, MakeRegion(R::RELEASING, 2)).ok());
  fake_.manager.streams = {{{}, Refused(absl::StatusCode::kNotFound, "UNKNOWN_REGION")}};
  EXPECT_TRUE(Wait(kGone, MakeRegion(R::RELEASING, 2)).ok());
}

TEST_F(WaitForRegionTest, TimesOutSayingWhereItStands) {
  v1::Region blocked = At(R::RELEASING, A::RELEASE_BLOCKED, 3);
  blocked.mutable_attachments(0)->set_state_reason("3 of 4 blocks are busy");
  fake_.manager.streams.assign(10, Quiet());
  fake_.manager.streams.push_front(Quiet({Changed(blocked)}));
  const absl::Duration begin = fake_.pacer.Elapsed();
  const auto region = Wait(kGone, At(R::RELEASING, A::ONLINE), absl::Seconds(90));
  EXPECT_EQ(fake_.pacer.Elapsed() - begin, absl::Seconds(90));
  EXPECT_TRUE(absl::IsDeadlineExceeded(region.status()));
  EXPECT_EQ(RefusalOf(region.status())->message,
            "after 1m30s regions/kv is RELEASING; hosts/host-a is RELEASE_BLOCKED: 3 of 4 blocks "
            "are busy");
}

TEST_F(WaitForRegionTest, TimesOutWhileTheManagerIsAway) {
  fake_.manager.streams.assign(1000, {{}, absl::UnavailableError("connection refused")});
  const auto region = Wait(kOnline, start_, absl::Seconds(20));
  EXPECT_TRUE(absl::IsDeadlineExceeded(region.status()));
  EXPECT_THAT(region.status().message(), HasSubstr("out of reach: connection refused"));
}

}  // namespace
}  // namespace cxlpool::cli
