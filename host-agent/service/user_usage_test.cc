#include "host-agent/service/user_usage.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "proto/support/refusal.h"
#include "test/rigs/core_rig.h"

namespace cxlpool::agent {
namespace {

constexpr uint32_t kAnn = 1000;
constexpr uint32_t kBob = 1001;
constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr absl::Duration kNow = absl::Hours(1);

class UserUsageTest : public testing::Test {
 protected:
  // One segment, owned by a process of `uid`.
  void Offer(uint64_t number, uint32_t uid) {
    v1::Offer offer =
        MakeOffer(number, v1::Offer::WANT_ONLINE, {{static_cast<uint32_t>(number), 0x50 + number}});
    offer.mutable_owner()->set_uid(uid);
    ASSERT_TRUE(offers_.Put(std::move(offer)).ok());
    table_.Saw(offers_);
  }
  void Begin(const std::string& id, uint32_t uid, uint64_t bytes, absl::Duration now = kNow) {
    ASSERT_TRUE(table_.Begin({uid, id}, bytes, now).ok());
  }
  static v1::AllocateRegionResponse Got(const std::string& tag, uint64_t bytes) {
    v1::AllocateRegionResponse response;
    response.mutable_region()->set_tag(tag);
    response.mutable_region()->set_size_bytes(bytes);
    return response;
  }
  UserUsage Of(uint32_t uid, const std::string& id = "another", const std::string& name = "",
               absl::Duration now = kNow) const {
    return table_.Of({uid, id}, name, offers_, now);
  }

  UserUsageTable table_;
  AttachmentTable offers_;
};

TEST_F(UserUsageTest, EachUserHasWhatItsOwnProcessesOwn) {
  Offer(1, kAnn);
  Offer(2, kAnn);
  Offer(3, kBob);
  EXPECT_EQ(Of(kAnn).regions, 2u);
  EXPECT_EQ(Of(kAnn).bytes, 2 * kTestLength);
  EXPECT_EQ(Of(kBob).regions, 1u);
  EXPECT_EQ(Of(7).regions, 0u);
}

TEST_F(UserUsageTest, WhatIsUnderWayCountsUntilItsOfferIsThereAndThenOnce) {
  Begin("one", kAnn, 64 * kMiB);
  EXPECT_EQ(Of(kAnn).bytes, 64 * kMiB);
  // The manager rounded it up.
  table_.End({kAnn, "one"}, Got("tag-1", 96 * kMiB), kNow);
  EXPECT_EQ(Of(kAnn).bytes, 96 * kMiB);
  Offer(1, kAnn);
  EXPECT_EQ(Of(kAnn).regions, 1u);
  EXPECT_EQ(Of(kAnn).bytes, kTestLength);
  // And released: it is not under way again.
  offers_.KeepOnly({});
  EXPECT_EQ(Of(kAnn).regions, 0u);
}

TEST_F(UserUsageTest, AnOfferThatNeverComesIsForgotten) {
  Begin("one", kAnn, kMiB);
  table_.End({kAnn, "one"}, Got("elsewhere", kMiB), kNow);
  const absl::Duration last = kNow + UserUsageTable::kOfferComes;
  EXPECT_EQ(Of(kAnn, "x", "", last - absl::Seconds(1)).regions, 1u);
  EXPECT_EQ(Of(kAnn, "x", "", last).regions, 0u);
}

TEST_F(UserUsageTest, ARetryDoesNotStandInItsOwnWay) {
  Begin("one", kAnn, kMiB);
  EXPECT_EQ(Of(kAnn, "one").regions, 0u);
  EXPECT_EQ(Of(kAnn, "two").regions, 1u);
  Offer(4, kAnn);
  EXPECT_EQ(Of(kAnn, "one").regions, 1u);
  EXPECT_EQ(Of(kAnn, "one", "regions/r4").regions, 0u);  // It asks for the one that came of it.
}

TEST_F(UserUsageTest, ARefusalGivesTheRoomBackAtOnceAndNoAnswerAfterAWhile) {
  Begin("refused", kAnn, kMiB);
  table_.End({kAnn, "refused"}, absl::ResourceExhaustedError("POOL_FULL"), kNow);
  EXPECT_EQ(Of(kAnn).regions, 0u);
  Begin("lost", kAnn, kMiB);
  table_.End({kAnn, "lost"}, absl::UnavailableError("gone"), kNow);
  const absl::Duration last = kNow + UserUsageTable::kOutcomeUnknown;
  EXPECT_EQ(Of(kAnn, "x", "", last - absl::Seconds(1)).regions, 1u);
  EXPECT_EQ(Of(kAnn, "x", "", last).regions, 0u);
  table_.End({kAnn, "never begun"}, absl::UnavailableError("gone"), kNow);
}

TEST_F(UserUsageTest, OneUserTakesNoPlaceFromAnother) {
  for (size_t i = 0; i < UserUsageTable::kMaxUnderWayOfUser; ++i) Begin(absl::StrCat(i), kAnn, 1);
  const absl::Status full = table_.Begin({kAnn, "more"}, 1, kNow);
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(full), "QUEUE_FULL");
  Begin("more", kBob, 1);
  table_.End({kAnn, "7"}, absl::UnavailableError("gone"), kNow);
  Begin("more", kAnn, 1, kNow + UserUsageTable::kOutcomeUnknown);  // Forgotten by then.
}

TEST_F(UserUsageTest, WhatWasOfferedTakesNoPlace) {
  for (uint64_t i = 1; i <= 3 * UserUsageTable::kMaxUnderWayOfUser; ++i) {
    Begin(absl::StrCat(i), kAnn, 1);
    table_.End({kAnn, absl::StrCat(i)}, Got(absl::StrCat("tag-", i), 1), kNow);
    Offer(i, kAnn);
  }
  EXPECT_EQ(Of(kAnn).regions, 3 * UserUsageTable::kMaxUnderWayOfUser);
  Begin("more", kAnn, 1);
  Begin("more", kBob, 1);
  // Nor does what is gone again, within the same minute.
  offers_.KeepOnly({});
  table_.Saw(offers_);
  EXPECT_EQ(Of(kAnn).regions, 1u);
}

TEST_F(UserUsageTest, ASecondCallWhileOneIsUnderWayIsRefusedAndTakesNothingAway) {
  Begin("one", kAnn, 64 * kMiB);
  const absl::Status second = table_.Begin({kAnn, "one"}, 1, kNow);
  EXPECT_EQ(second.code(), absl::StatusCode::kUnavailable) << "a client retries it";
  EXPECT_EQ(ReasonOf(second), "REQUEST_UNDER_WAY");
  EXPECT_EQ(Of(kAnn).bytes, 64 * kMiB);
  table_.End({kAnn, "one"}, absl::UnavailableError("lost"), kNow);
  Begin("one", kAnn, 64 * kMiB);  // It is answered: a retry.
}

TEST_F(UserUsageTest, ARetryThatIsRefusedTakesNothingFromWhatWasGranted) {
  const absl::Status refusals[] = {absl::InvalidArgumentError("REQUEST_ID_REUSED"),
                                   absl::ResourceExhaustedError("QUEUE_FULL"),
                                   absl::UnavailableError("lost")};
  Begin("one", kAnn, 64 * kMiB);
  table_.End({kAnn, "one"}, Got("tag-1", 64 * kMiB), kNow);
  for (const absl::Status& refusal : refusals) {
    Begin("one", kAnn, 1);
    EXPECT_EQ(Of(kAnn).bytes, 64 * kMiB) << refusal;
    table_.End({kAnn, "one"}, refusal, kNow);
    EXPECT_EQ(Of(kAnn).bytes, 64 * kMiB) << refusal;
  }
  // Nor is it counted for longer, or twice.
  EXPECT_EQ(Of(kAnn, "x", "", kNow + UserUsageTable::kOfferComes).regions, 0u);
  Offer(1, kAnn);
  EXPECT_EQ(Of(kAnn).regions, 1u);
  offers_.KeepOnly({});
  table_.Saw(offers_);
  EXPECT_EQ(Of(kAnn).regions, 0u);
}

TEST_F(UserUsageTest, TheSameIdOfAnotherUserIsAnotherCall) {
  Begin("one", kAnn, 64 * kMiB);
  Begin("one", kBob, kMiB);
  EXPECT_EQ(Of(kAnn).bytes, 64 * kMiB);
  EXPECT_EQ(Of(kBob).bytes, kMiB);
  table_.End({kBob, "one"}, absl::ResourceExhaustedError("POOL_FULL"), kNow);
  EXPECT_EQ(Of(kAnn).bytes, 64 * kMiB) << "his refusal is not hers";
  EXPECT_EQ(Of(kBob).bytes, 0u);
}

}  // namespace
}  // namespace cxlpool::agent
