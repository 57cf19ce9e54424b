#include "proto/support/manager_rotation.h"

#include <gtest/gtest.h>

#include "proto/support/refusal.h"

namespace cxlpool {
namespace {

absl::Status Gone() {
  return Refuse(absl::StatusCode::kUnavailable, "MANAGER_UNREACHABLE", "gone", "start it");
}
absl::Status NotLeader(const std::string& leader) {
  return Refuse(absl::StatusCode::kUnavailable, "NOT_LEADER", "a standby", "call the leader",
                {{"leader", leader}});
}

bool Turn(ManagerRotation& rotation, absl::Status why) { return rotation.Turn(why); }

TEST(ManagerRotationTest, EachIsTriedOnceAndThenThereIsAPause) {
  ManagerRotation rotation({"a", "b", "c"});
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(rotation.address(), "a");
    EXPECT_TRUE(Turn(rotation, Gone()));
    EXPECT_EQ(rotation.address(), "b");
    EXPECT_TRUE(Turn(rotation, Gone()));
    EXPECT_EQ(rotation.address(), "c");
    EXPECT_FALSE(Turn(rotation, Gone()));
  }
}

TEST(ManagerRotationTest, OneAloneIsCalledAgainAfterAPause) {
  ManagerRotation rotation({"a"});
  EXPECT_FALSE(Turn(rotation, Gone()));
  EXPECT_FALSE(Turn(rotation, NotLeader("a")));
  EXPECT_EQ(rotation.address(), "a");
}

TEST(ManagerRotationTest, TheHintComesFirst) {
  ManagerRotation rotation({"a", "b", "c"});
  EXPECT_TRUE(Turn(rotation, NotLeader("c")));
  EXPECT_EQ(rotation.address(), "c");
  EXPECT_TRUE(Turn(rotation, Gone())) << "b was not tried yet";
  EXPECT_EQ(rotation.address(), "b");
}

TEST(ManagerRotationTest, AHintThatIsNotInTheListLeadsNowhere) {
  for (const char* hint : {"evil:7600", "", "a", "b, c", "B"}) {
    ManagerRotation rotation({"a", "b", "c"});
    EXPECT_TRUE(Turn(rotation, NotLeader(hint))) << hint;
    EXPECT_EQ(rotation.address(), "b") << hint;
  }
}

TEST(ManagerRotationTest, AHintToOneThatWasTriedBeginsTheNextRound) {
  ManagerRotation rotation({"a", "b", "c"});
  EXPECT_TRUE(Turn(rotation, Gone()));          // a
  EXPECT_TRUE(Turn(rotation, NotLeader("a")));  // b
  EXPECT_EQ(rotation.address(), "c") << "two that name each other are no circle without a pause";
  EXPECT_FALSE(Turn(rotation, NotLeader("b")));
  EXPECT_EQ(rotation.address(), "b") << "the latest hint counts";
  EXPECT_TRUE(Turn(rotation, Gone()));
  EXPECT_TRUE(Turn(rotation, Gone()));
  EXPECT_FALSE(Turn(rotation, Gone()));
}

TEST(ManagerRotationTest, WhoAnsweredIsCalledFirstInTheNextRound) {
  ManagerRotation rotation({"a", "b"});
  EXPECT_TRUE(Turn(rotation, Gone()));
  rotation.Reached();
  EXPECT_EQ(rotation.address(), "b");
  EXPECT_TRUE(Turn(rotation, Gone()));
  EXPECT_EQ(rotation.address(), "a");
  EXPECT_FALSE(Turn(rotation, Gone()));
}

TEST(ManagerRotationTest, WhatIsWrongWithOneSaysMoreThanThatAnotherDoesNotLead) {
  ManagerRotation rotation({"a", "b", "c"});
  for (int round = 0; round < 2; ++round) {
    absl::Status first = NotLeader(""), second = Gone(), third = NotLeader("");
    EXPECT_TRUE(rotation.Turn(first));
    EXPECT_TRUE(rotation.Turn(second));
    EXPECT_FALSE(rotation.Turn(third));
    EXPECT_EQ(ReasonOf(third), "MANAGER_UNREACHABLE");
  }
  for (int i = 0; i < 3; ++i) {
    absl::Status why = NotLeader("");
    rotation.Turn(why);
    EXPECT_EQ(ReasonOf(why), "NOT_LEADER") << "of this round";
  }
}

TEST(ManagerRotationTest, ARefusalOfTheLeaderIsNotForOthersToAnswer) {
  for (const absl::Status& elsewhere :
       {Gone(), NotLeader(""), absl::UnavailableError("the connection ended"),
        Refuse(absl::StatusCode::kUnauthenticated, "MANAGER_NOT_TRUSTED", "expired", "renew it"),
        Refuse(absl::StatusCode::kUnauthenticated, "CERTIFICATE_REFUSED", "no", "renew it")}) {
    EXPECT_TRUE(ManagerRotation::MayAnswerElsewhere(elsewhere)) << elsewhere;
  }
  for (const absl::Status& here :
       {absl::OkStatus(), absl::DeadlineExceededError("late"), absl::InternalError("x"),
        Refuse(absl::StatusCode::kUnavailable, "HOST_UNREACHABLE", "x", "x"),
        Refuse(absl::StatusCode::kUnauthenticated, "NO_IDENTITY", "x", "x"),
        Refuse(absl::StatusCode::kResourceExhausted, "QUEUE_FULL", "x", "x")}) {
    EXPECT_FALSE(ManagerRotation::MayAnswerElsewhere(here)) << here;
  }
}

}  // namespace
}  // namespace cxlpool
