#include "test/sim/region_history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace cxlpool::sim {
namespace {

using ::testing::HasSubstr;

// A history in the making. Calls come one after the other, 10 us each, unless said otherwise.
class History {
 public:
  ClientOp& Add(ClientOp::Kind kind, int64_t from = -1, int64_t to = -1) {
    ClientOp op;
    op.kind = kind;
    op.region_id = "kv";
    op.request = ops_.size();
    op.invoke_us = from >= 0 ? from : now_;
    op.return_us = to >= 0 ? to : op.invoke_us + 5;
    now_ = std::max(now_, op.return_us == kNever ? op.invoke_us : op.return_us) + 5;
    ops_.push_back(op);
    return ops_.back();
  }

  ClientOp& Refused(ClientOp::Kind kind, const std::string& reason, int64_t from = -1,
                    int64_t to = -1) {
    ClientOp& op = Add(kind, from, to);
    op.outcome = ClientOp::kRefused;
    op.reason = reason;
    return op;
  }

  ClientOp& Unknown(ClientOp::Kind kind, int64_t from = -1) {
    ClientOp& op = Add(kind, from, kNever);
    op.outcome = ClientOp::kUnknown;
    return op;
  }

  struct Answer {
    std::string tag = "a";
    uint64_t revision = 1;
    std::string state = "ALLOCATED";
    uint64_t granules = 4;
    std::vector<HostSeen> hosts = {};
    bool resizing = false;
    uint64_t generation = 1;
  };
  ClientOp& Ok(ClientOp::Kind kind, const Answer& answer, int64_t from = -1, int64_t to = -1) {
    ClientOp& op = Add(kind, from, to);
    op.outcome = ClientOp::kOk;
    op.tag = answer.tag;
    op.generation = answer.generation;
    op.revision = answer.revision;
    op.state = answer.state;
    op.answered_granules = answer.granules;
    op.resizing = answer.resizing;
    op.hosts = answer.hosts;
    if (kind == ClientOp::kAllocate || kind == ClientOp::kResize) {
      op.size_granules = answer.granules;
    }
    return op;
  }

  // The first: 4 granules, no host, tag a, revision 1.
  ClientOp& Allocated() { return Ok(ClientOp::kAllocate, {}); }

  std::string Why(const RegionModelOptions& model = {}) const {
    const RegionHistoryResult result = CheckRegionHistory(ops_, {.model = model});
    EXPECT_EQ(result.gave_up, 0u);
    return result.why;
  }

  std::vector<ClientOp> ops_;

 private:
  int64_t now_ = 0;
};

constexpr RegionModelOptions kCalm = {.attachments_fail = false, .devices_fail = false};

TEST(RegionHistoryTest, AWholeLifeFits) {
  History h;
  h.Ok(ClientOp::kAllocate, {.state = "RESERVED", .hosts = {{"h1"}}}).host = "h1";
  h.Refused(ClientOp::kAttach, "REGION_NOT_READY").host = "h2";
  h.Ok(ClientOp::kGet, {.revision = 4, .hosts = {{"h1"}}});
  h.Ok(ClientOp::kResize, {.revision = 5, .hosts = {{"h1"}}, .resizing = true}).size_granules = 6;
  h.Refused(ClientOp::kResize, "RESIZE_IN_PROGRESS");
  h.Ok(ClientOp::kGet, {.revision = 9, .granules = 6, .hosts = {{"h1"}}});
  h.Refused(ClientOp::kRelease, "REGION_ATTACHED");
  h.Ok(ClientOp::kDetach, {.revision = 10, .granules = 6, .hosts = {{"h1", true}}}).host = "h1";
  h.Refused(ClientOp::kAttach, "DETACH_IN_PROGRESS").host = "h1";
  h.Ok(ClientOp::kGet, {.revision = 14, .granules = 6});
  h.Ok(ClientOp::kAttach, {.revision = 15, .granules = 6, .hosts = {{"h2"}}}).host = "h2";
  h.Ok(ClientOp::kAttach, {.revision = 15, .granules = 6, .hosts = {{"h2"}}}).host = "h2";
  h.Ok(ClientOp::kRenew, {.revision = 16, .granules = 6, .hosts = {{"h2"}}}).lease = true;
  h.Ok(ClientOp::kRelease,
       {.revision = 17, .state = "RELEASING", .granules = 6, .hosts = {{"h2", true}}})
      .detach_all = true;
  h.Refused(ClientOp::kRenew, "REGION_RELEASING");
  h.Refused(ClientOp::kAllocate, "REGION_EXISTS");
  h.Ok(ClientOp::kGet, {.revision = 20, .state = "SCRUBBING", .granules = 6});
  h.Refused(ClientOp::kGet, "UNKNOWN_REGION");
  h.Ok(ClientOp::kAllocate, {.tag = "b", .revision = 30, .generation = 2});
  EXPECT_EQ(h.Why(kCalm), "");
}

TEST(RegionHistoryTest, AStaleReadDoesNotFit) {
  History h;
  h.Allocated();
  h.Ok(ClientOp::kAttach, {.revision = 2, .hosts = {{"h1"}}}).host = "h1";
  h.Ok(ClientOp::kGet, {.revision = 1});
  EXPECT_THAT(h.Why(), HasSubstr("earlier revision"));
  // It is no better where the revision hides it.
  h.ops_.back().revision = 3;
  EXPECT_EQ(h.Why(), "");  // The host may have lost it.
  EXPECT_THAT(h.Why(kCalm), HasSubstr("a host that nobody detached is not attached"));
  h.ops_.back().revision = 2;
  EXPECT_THAT(h.Why(), HasSubstr("two answers of one revision differ"));
}

TEST(RegionHistoryTest, ALostUpdateDoesNotFit) {
  History h;
  h.Allocated();
  h.Ok(ClientOp::kResize, {.revision = 2, .granules = 6});
  h.Ok(ClientOp::kGet, {.revision = 3, .granules = 4});
  EXPECT_THAT(h.Why(), HasSubstr("its size is not what it was made"));
}

TEST(RegionHistoryTest, AGrowthIsSeenOrUndone) {
  for (const bool joined : {true, false}) {
    History h;
    h.Ok(ClientOp::kAllocate, {.state = "RESERVED", .hosts = {{"h1"}}}).host = "h1";
    h.Ok(ClientOp::kResize, {.revision = 5, .hosts = {{"h1"}}, .resizing = true}).size_granules = 7;
    h.Ok(ClientOp::kGet, {.revision = 6, .hosts = {{"h1"}}, .resizing = true});
    h.Ok(ClientOp::kGet, {.revision = 9, .granules = joined ? 7u : 4u, .hosts = {{"h1"}}});
    EXPECT_EQ(h.Why(kCalm), "");
    h.Ok(ClientOp::kGet, {.revision = 10, .granules = joined ? 4u : 7u, .hosts = {{"h1"}}});
    EXPECT_NE(h.Why(), "");
  }
}

TEST(RegionHistoryTest, AShrinkGivesBackAtOnceAndAReleaseCountsTheTail) {
  History h;
  h.Ok(ClientOp::kAllocate, {.granules = 8});
  h.Ok(ClientOp::kResize, {.revision = 2, .granules = 5, .resizing = true}).size_granules = 4;
  h.Ok(ClientOp::kRelease, {.revision = 3, .state = "RELEASING", .granules = 8});
  EXPECT_EQ(h.Why(kCalm), "");
  h.ops_.back().answered_granules = 4;
  EXPECT_NE(h.Why(), "");
}

TEST(RegionHistoryTest, OneNameIsNotAllocatedTwice) {
  History h;
  h.Allocated();
  h.Ok(ClientOp::kAllocate, {.tag = "b", .revision = 2, .generation = 2});
  EXPECT_THAT(h.Why(), HasSubstr("the Region is there, and nobody released it"));
  // Also where the two overlap.
  h.ops_[0].return_us = h.ops_[1].return_us;
  EXPECT_NE(h.Why(), "");
  h.ops_[0].lease = true;  // It may have run out.
  EXPECT_EQ(h.Why(), "");
}

TEST(RegionHistoryTest, WhatWasReleasedDoesNotComeBack) {
  History h;
  h.Allocated();
  h.Ok(ClientOp::kRelease, {.revision = 2, .state = "RELEASING"});
  h.Ok(ClientOp::kGet, {.revision = 3});
  EXPECT_THAT(h.Why(), HasSubstr("it was released"));
  h.ops_.pop_back();
  h.Refused(ClientOp::kGet, "UNKNOWN_REGION");
  EXPECT_EQ(h.Why(), "");
  h.Ok(ClientOp::kGet, {.revision = 3, .state = "SCRUBBING"});
  EXPECT_THAT(h.Why(), HasSubstr("there is no such Region"));
  h.ops_.pop_back();
  h.Unknown(ClientOp::kAllocate).size_granules = 4;
  h.Ok(ClientOp::kGet, {.revision = 9, .generation = 2});
  EXPECT_THAT(h.Why(), HasSubstr("a Region that was gone is back"));
  h.ops_.back().tag = "b";
  EXPECT_EQ(h.Why(), "");
}

TEST(RegionHistoryTest, AnAllocatedRegionIsNotUnknown) {
  History h;
  h.Allocated();
  h.Refused(ClientOp::kGet, "UNKNOWN_REGION");
  EXPECT_THAT(h.Why(), HasSubstr("the Region is there, and nobody released it"));
}

TEST(RegionHistoryTest, ARefusalHasNoEffect) {
  History h;
  h.Allocated();
  h.Refused(ClientOp::kAttach, "NO_FREE_PORT").host = "h1";
  h.Ok(ClientOp::kGet, {.revision = 3, .hosts = {{"h1"}}});
  EXPECT_THAT(h.Why(), HasSubstr("a host has it that nobody attached"));
  // Unless an earlier copy of the call came later.
  h.ops_[1].sends = 2;
  EXPECT_EQ(h.Why(), "");
}

TEST(RegionHistoryTest, ARefusalSaysHowTheRegionIs) {
  const struct {
    ClientOp::Kind kind;
    const char* reason;
  } kNotSo[] = {
      {ClientOp::kAllocate, "POOL_FULL"},        {ClientOp::kAttach, "REGION_NOT_READY"},
      {ClientOp::kResize, "RESIZE_IN_PROGRESS"}, {ClientOp::kRelease, "REGION_ATTACHED"},
      {ClientOp::kAttach, "REGION_RELEASING"},   {ClientOp::kRelease, "REGION_QUARANTINED"},
      {ClientOp::kAttach, "DETACH_IN_PROGRESS"}, {ClientOp::kDetach, "UNKNOWN_REGION"},
  };
  for (const auto& [kind, reason] : kNotSo) {
    History h;
    h.Allocated();
    h.Refused(kind, reason).host = "h1";
    EXPECT_NE(h.Why(kCalm), "") << reason;
  }
  for (const char* reason :
       {"QUEUE_FULL", "STORE_FULL", "BAD_SIZE", "POOL_FULL", "ETAG_MISMATCH"}) {
    History h;
    h.Allocated();
    h.Refused(ClientOp::kResize, reason);
    EXPECT_EQ(h.Why(kCalm), "") << reason;
  }
}

TEST(RegionHistoryTest, AnUnknownOutcomeMayTakeEffectLate) {
  History h;
  h.Unknown(ClientOp::kAllocate).size_granules = 4;
  h.Refused(ClientOp::kGet, "UNKNOWN_REGION");
  h.Ok(ClientOp::kGet, {.revision = 5});
  EXPECT_EQ(h.Why(), "");
  h.Refused(ClientOp::kGet, "UNKNOWN_REGION");
  EXPECT_NE(h.Why(), "");
  h.Unknown(ClientOp::kRelease, 3);
  EXPECT_EQ(h.Why(), "");
}

TEST(RegionHistoryTest, AFailedStoreSaysNothing) {
  History h;
  h.Refused(ClientOp::kAllocate, "STORE_FAILED").size_granules = 4;
  h.Ok(ClientOp::kGet, {.revision = 5});
  EXPECT_EQ(h.Why(), "");
}

TEST(RegionHistoryTest, AnUnknownResizeShowsItsSizeOrNothing) {
  for (const uint64_t granules : {4u, 6u, 7u, 5u}) {
    History h;
    h.Allocated();
    h.Unknown(ClientOp::kResize).size_granules = 6;
    h.Ok(ClientOp::kGet, {.revision = granules == 4 ? 1u : 3u, .granules = granules});
    EXPECT_EQ(h.Why() == "", granules != 5) << granules;
  }
}

TEST(RegionHistoryTest, ARetryIsAnsweredWithWhatTheRegionIsByThen) {
  History h;
  ClientOp& allocate = h.Ok(ClientOp::kAllocate, {.revision = 6, .state = "RELEASING"}, 0, 100);
  allocate.size_granules = 4;
  h.Ok(ClientOp::kRelease, {.revision = 6, .state = "RELEASING"}, 20, 30);
  EXPECT_NE(h.Why(), "");
  h.ops_[0].sends = 2;
  EXPECT_EQ(h.Why(), "");
}

TEST(RegionHistoryTest, ARetryIsAnsweredAlsoWhenTheRegionIsGone) {
  History h;
  ClientOp& attach = h.Ok(ClientOp::kAttach, {.revision = 9, .state = "SCRUBBING"}, 10, 100);
  attach.host = "h1";
  attach.sends = 3;
  h.Ok(ClientOp::kAllocate, {}, 0, 5);
  h.Ok(ClientOp::kRelease, {.revision = 5, .state = "RELEASING", .hosts = {{"h1", true}}}, 20, 30)
      .detach_all = true;
  h.Refused(ClientOp::kGet, "UNKNOWN_REGION", 40, 45);
  h.Ok(ClientOp::kAllocate, {.tag = "b", .revision = 20, .generation = 2}, 50, 60);
  EXPECT_EQ(h.Why(kCalm), "");
}

TEST(RegionHistoryTest, ARetryOfAResizeToTheSameSizeDoesNothing) {
  History h;
  h.Ok(ClientOp::kAllocate, {.state = "RESERVED", .hosts = {{"h1"}}}).host = "h1";
  h.Ok(ClientOp::kDetach, {.revision = 7, .hosts = {{"h1", true}}}).host = "h1";
  h.Ok(ClientOp::kResize, {.revision = 7, .hosts = {{"h1", true}}}).sends = 2;
  EXPECT_EQ(h.Why(), "");
}

// Its first copy was recorded under the old name, and the last is answered with the new one.
TEST(RegionHistoryTest, ARetryOfARenameToTheSameNameDoesNothing) {
  const History::Answer renamed = {.revision = 2, .generation = 7};
  History h;
  h.Allocated();
  h.Ok(ClientOp::kRename, renamed, 10, 100).new_region_id = "kw";
  h.Ok(ClientOp::kRename, renamed, 10, 100).new_region_id = "kv";
  EXPECT_THAT(h.Why(), HasSubstr("there is no such Region"));
  h.ops_.back().sends = 2;
  EXPECT_EQ(h.Why(), "");
  h.ops_[1].return_us = 20;
  h.ops_[2].invoke_us = 30;
  EXPECT_THAT(h.Why(), HasSubstr("there is no such Region")) << "it had left the name before";
}

TEST(RegionHistoryTest, ARetryTakesEffectOnce) {
  // The second copy attached it anew after it had been detached.
  History h;
  h.Allocated();
  ClientOp& attach = h.Ok(ClientOp::kAttach, {.revision = 2, .hosts = {{"h1"}}});
  attach.host = "h1";
  attach.sends = 2;
  h.Ok(ClientOp::kDetach, {.revision = 5, .hosts = {{"h1", true}}}).host = "h1";
  h.Ok(ClientOp::kGet, {.revision = 8});
  EXPECT_EQ(h.Why(), "");
  h.Ok(ClientOp::kGet, {.revision = 9, .hosts = {{"h1"}}});
  EXPECT_THAT(h.Why(), HasSubstr("a host has it that nobody attached"));
}

TEST(RegionHistoryTest, AFirstAttachmentThatFailsUndoesTheRegion) {
  History h;
  h.Ok(ClientOp::kAllocate, {.state = "RESERVED", .hosts = {{"h1"}}}).host = "h1";
  h.Refused(ClientOp::kRenew, "REGION_RELEASING");
  h.Ok(ClientOp::kRelease, {.revision = 3, .state = "RESERVED", .hosts = {{"h1", true}}});
  h.Ok(ClientOp::kGet, {.revision = 5, .state = "FAILED"});
  h.Refused(ClientOp::kGet, "UNKNOWN_REGION");
  EXPECT_EQ(h.Why(), "");
  EXPECT_NE(h.Why(kCalm), "");
  h.ops_.resize(2);
  h.Ok(ClientOp::kGet, {.revision = 5, .hosts = {{"h1"}}});
  EXPECT_NE(h.Why(), "") << "it was being released";
}

TEST(RegionHistoryTest, QuarantineIsLeftByForceAlone) {
  History h;
  h.Allocated();
  h.Refused(ClientOp::kRelease, "REGION_QUARANTINED");
  h.Ok(ClientOp::kGet, {.revision = 2, .state = "QUARANTINED"});
  h.Ok(ClientOp::kRelease, {.revision = 3, .state = "RELEASING"});
  EXPECT_NE(h.Why(), "");
  h.ops_.back().force = true;
  EXPECT_EQ(h.Why(), "");
  EXPECT_NE(h.Why(kCalm), "");
}

TEST(RegionHistoryTest, ARenamedRegionLeavesOneNameForTheOther) {
  History h;
  h.Allocated();
  h.Ok(ClientOp::kRename, {.revision = 2, .generation = 7}).new_region_id = "kw";
  h.Refused(ClientOp::kGet, "UNKNOWN_REGION");
  h.Ok(ClientOp::kGet, {.revision = 2, .generation = 7}).region_id = "kw";
  EXPECT_EQ(h.Why(), "");
  h.Ok(ClientOp::kGet, {.revision = 2, .generation = 7});
  EXPECT_NE(h.Why(), "") << "under the old name too";
  h.ops_.pop_back();
  h.Refused(ClientOp::kGet, "UNKNOWN_REGION").region_id = "kw";
  h.ops_.back().invoke_us = 30;
  EXPECT_NE(h.Why(), "") << "nobody released it";
}

TEST(RegionHistoryTest, AnUnknownRenameLeavesBothNamesOpen) {
  History h;
  h.Allocated();
  h.Unknown(ClientOp::kRename).new_region_id = "kw";
  h.Ok(ClientOp::kGet, {});
  h.Refused(ClientOp::kGet, "UNKNOWN_REGION");
  h.Ok(ClientOp::kGet, {.revision = 4, .generation = 2}).region_id = "kw";
  EXPECT_EQ(h.Why(), "");
  h.Ok(ClientOp::kGet, {.revision = 5});
  EXPECT_NE(h.Why(), "");
}

TEST(RegionHistoryTest, TheReportReadsLineByLine) {
  History h;
  h.Allocated();
  h.Ok(ClientOp::kResize, {.revision = 2, .granules = 6});
  h.Ok(ClientOp::kGet, {.revision = 3, .granules = 4, .hosts = {{"h1", true}}});
  EXPECT_EQ(h.Why(),
            "regions/kv: no order of what was done fits the answers\n"
            "  in this order they fit:\n"
            "    0..5 us client=0 request=0 allocate kv granules=4 -> ALLOCATED granules=4 tag=a "
            "generation=1 revision=1\n"
            "    10..15 us client=0 request=1 resize kv granules=6 -> ALLOCATED granules=6 tag=a "
            "generation=1 revision=2\n"
            "  then none of these fits:\n"
            "    20..25 us client=0 request=2 get kv -> ALLOCATED granules=4 h1(detaching) tag=a "
            "generation=1 revision=3\n"
            "      its size is not what it was made\n");
}

TEST(RegionHistoryTest, OpenQuestionsAreGivenUpAndCounted) {
  History h;
  for (int i = 0; i < 24; ++i) {
    h.Unknown(ClientOp::kAttach, 0).host = "h" + std::to_string(i);
    h.Unknown(ClientOp::kDetach, 0).host = "h" + std::to_string(i);
  }
  h.Allocated();
  h.Refused(ClientOp::kResize, "RESIZE_IN_PROGRESS");
  const auto result = CheckRegionHistory(h.ops_, {.max_states = 1000});
  EXPECT_EQ(result.why, "");
  EXPECT_EQ(result.names, 1u);
  EXPECT_EQ(result.gave_up, 1u);
}

}  // namespace
}  // namespace cxlpool::sim
