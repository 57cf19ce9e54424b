#include "host-agent/service/backoff.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace cxlpool::agent {
namespace {

constexpr absl::Duration kMin = absl::Milliseconds(200);
constexpr absl::Duration kMax = absl::Seconds(5);

TEST(BackoffTest, StaysWithinItsBounds) {
  RandomBackoff backoff(kMin, kMax, 1);
  for (int i = 0; i < 1000; ++i) {
    const absl::Duration wait = backoff.Next();
    EXPECT_GE(wait, kMin);
    EXPECT_LE(wait, kMax);
  }
}

TEST(BackoffTest, GrowsWithFailuresAndStartsAgainAfterASuccess) {
  RandomBackoff backoff(kMin, kMax, 1);
  EXPECT_LE(backoff.Next(), 2 * kMin);
  absl::Duration longest;
  for (int i = 0; i < 100; ++i) longest = std::max(longest, backoff.Next());
  EXPECT_GT(longest, absl::Seconds(3));
  backoff.Reset();
  EXPECT_LE(backoff.Next(), 2 * kMin);
}

TEST(BackoffTest, AgentsDoNotDialInStep) {
  RandomBackoff one(kMin, kMax, 1), two(kMin, kMax, 2);
  EXPECT_NE(one.Next(), two.Next());
}

}  // namespace
}  // namespace cxlpool::agent
