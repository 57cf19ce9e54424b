#include "tools/cli/region_follower.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/cli/testing.h"

namespace cxlpool::cli {
namespace {

using Event = v1::WatchRegionsResponse;
using testing::ElementsAre;

constexpr auto kAllocated = v1::Region::ALLOCATED;

struct Passed {
  std::vector<std::string> lines;
  size_t stop_after = 1000;

  bool operator()(const Event& event) {
    lines.push_back(Event::Event_Name(event.event()) + " " + event.region().name() + "@" +
                    std::to_string(event.revision()));
    return lines.size() < stop_after;
  }
};

absl::Status Away() { return absl::UnavailableError("connection refused"); }

class RegionFollowerTest : public testing::Test {
 protected:
  absl::StatusOr<RegionFollower::End> Follow(RegionFollower::Options options) {
    RegionFollower follower(fake_.connection, std::move(options));
    return follower.Follow([this](const Event& event) { return passed_(event); });
  }

  FakeConnection fake_;
  Passed passed_;
  const v1::Region a_ = MakeRegion(kAllocated, 3, "regions/a");
  const v1::Region b_ = MakeRegion(kAllocated, 4, "regions/b");
};

TEST_F(RegionFollowerTest, ResumesAfterTheLastRevisionSeen) {
  fake_.manager.streams = {
      {{Changed(a_), Synced(5)}, Away()},
      {{Changed(MakeRegion(kAllocated, 6, "regions/a"))}, Away()},
      {{Removed(a_, 8)}, Away()},
  };
  passed_.stop_after = 4;
  const auto end = Follow({});
  ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_EQ(*end, RegionFollower::End::kStopped);
  EXPECT_THAT(passed_.lines, ElementsAre("CHANGED regions/a@3", "SYNCED @5", "CHANGED regions/a@6",
                                         "REMOVED regions/a@8"));
  ASSERT_EQ(fake_.manager.watches.size(), 3u);
  EXPECT_EQ(fake_.manager.watches[1].start_revision(), 5u);
  EXPECT_EQ(fake_.manager.watches[2].start_revision(), 6u);
}

TEST_F(RegionFollowerTest, ResumesAtAnotherManagerWithoutAPause) {
  fake_.manager.others = 2;
  fake_.manager.streams = {
      {{Changed(a_), Synced(5)}, Away()},
      {{}, Refused(absl::StatusCode::kUnavailable, "NOT_LEADER")},
      {{Removed(a_, 8)}, Away()},
  };
  passed_.stop_after = 3;
  EXPECT_TRUE(Follow({.name = "", .patience = absl::ZeroDuration()}).ok());
  EXPECT_TRUE(fake_.pacer.sleeps.empty());
  ASSERT_EQ(fake_.manager.watches.size(), 3u);
  EXPECT_EQ(fake_.manager.watches[1].start_revision(), 5u);
  EXPECT_EQ(fake_.manager.watches[2].start_revision(), 5u);
}

TEST_F(RegionFollowerTest, AListingThatBreaksBeginsAgainAndTellsNothingTwice) {
  fake_.manager.streams = {
      {{Changed(a_)}, Away()},
      {{Changed(a_), Changed(b_), Synced(5)}, Away()},
  };
  passed_.stop_after = 3;
  ASSERT_TRUE(Follow({}).ok());
  EXPECT_EQ(fake_.manager.watches[1].start_revision(), 0u);
  EXPECT_THAT(passed_.lines,
              ElementsAre("CHANGED regions/a@3", "CHANGED regions/b@4", "SYNCED @5"));
}

TEST_F(RegionFollowerTest, AfterCompactionTellsWhatChangedAndWhatIsGone) {
  fake_.manager.streams = {
      {{Changed(a_), Changed(b_), Synced(5)}, Away()},
      {{}, Refused(absl::StatusCode::kOutOfRange, "REVISION_COMPACTED")},
      {{Changed(MakeRegion(kAllocated, 90, "regions/b")), Synced(95)}, Away()},
  };
  passed_.stop_after = 5;
  ASSERT_TRUE(Follow({}).ok());
  EXPECT_EQ(fake_.manager.watches[2].start_revision(), 0u);
  EXPECT_THAT(passed_.lines, ElementsAre("CHANGED regions/a@3", "CHANGED regions/b@4", "SYNCED @5",
                                         "CHANGED regions/b@90", "REMOVED regions/a@95"));
}

TEST_F(RegionFollowerTest, AQuietStreamIsResumedWithoutAPause) {
  fake_.manager.streams = {Quiet({Synced(5)}), Quiet(), Quiet({Changed(a_)})};
  passed_.stop_after = 2;
  ASSERT_TRUE(Follow({}).ok());
  EXPECT_TRUE(fake_.pacer.sleeps.empty());
  EXPECT_EQ(fake_.manager.watch_limits[1], RegionFollower::kStreamLife);
}

TEST_F(RegionFollowerTest, StopsWhenItsTimeIsUp) {
  fake_.manager.streams.assign(100, Quiet());
  const absl::Duration begin = fake_.pacer.Elapsed();
  const auto end = Follow({.name = "", .limit = absl::Seconds(150)});
  ASSERT_TRUE(end.ok());
  EXPECT_EQ(*end, RegionFollower::End::kTimeUp);
  EXPECT_EQ(fake_.pacer.Elapsed() - begin, absl::Seconds(150));
  EXPECT_THAT(fake_.manager.watch_limits,
              ElementsAre(absl::Seconds(60), absl::Seconds(60), absl::Seconds(30)));
}

TEST_F(RegionFollowerTest, PatienceEndsWithTheManagersAbsence) {
  fake_.manager.streams.assign(1000, {{}, Away()});
  const absl::Duration begin = fake_.pacer.Elapsed();
  const auto end = Follow({.name = "", .patience = absl::Seconds(10)});
  EXPECT_TRUE(absl::IsUnavailable(end.status())) << end.status();
  EXPECT_LE(fake_.pacer.Elapsed() - begin, absl::Seconds(10));
}

// A pool may be quiet for longer than the manager may be away.
TEST_F(RegionFollowerTest, PatienceBeginsWhenAQuietStreamBreaks) {
  const v1::Region later = MakeRegion(kAllocated, 6, "regions/a");
  const ScriptedStream quiet{.end = Away(), .takes = absl::Seconds(45)};
  const ScriptedStream none{.end = Away(), .opens = false};
  fake_.manager.streams = {Quiet({Synced(5)}), quiet, none, none, {{Changed(later)}, Away()}};
  passed_.stop_after = 2;
  const auto end = Follow({.name = "", .patience = absl::Seconds(10)});
  EXPECT_TRUE(end.ok()) << end.status();
  EXPECT_THAT(passed_.lines, ElementsAre("SYNCED @5", "CHANGED regions/a@6"));
}

TEST_F(RegionFollowerTest, PatienceEndsWhereAConnectionTakesLongToFail) {
  fake_.manager.streams.assign(100, {.end = Away(), .takes = absl::Seconds(5), .opens = false});
  const auto end = Follow({.name = "", .patience = absl::Seconds(10)});
  EXPECT_TRUE(absl::IsUnavailable(end.status())) << end.status();
}

TEST_F(RegionFollowerTest, AStreamThatTheManagerEndsAtOnceIsNoBusyLoop) {
  fake_.manager.streams.assign(1000, {{}, absl::OkStatus()});
  const auto end = Follow({.name = "", .limit = absl::Seconds(30)});
  ASSERT_TRUE(end.ok());
  EXPECT_LT(fake_.manager.watches.size(), 60u);
}

TEST_F(RegionFollowerTest, ARefusalIsNotTriedAgain) {
  fake_.manager.streams = {{{}, Refused(absl::StatusCode::kPermissionDenied, "NO")}};
  EXPECT_TRUE(absl::IsPermissionDenied(Follow({}).status()));
  EXPECT_EQ(fake_.manager.watches.size(), 1u);
}

}  // namespace
}  // namespace cxlpool::cli
