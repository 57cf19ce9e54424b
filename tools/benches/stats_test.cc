#include "tools/benches/stats.h"

#include <gtest/gtest.h>

#include "tools/benches/report.h"

namespace cxlpool::bench {
namespace {

std::vector<Round> Rounds(size_t count, double ratio, double control) {
  return std::vector<Round>(count, Round{.ours_first = 2 * ratio / (1 + control),
                                         .peer_first = 1,
                                         .peer_last = 1,
                                         .ours_last = 2 * ratio * control / (1 + control)});
}

TEST(MedianTest, IsTheMiddleWhateverTheOrder) {
  EXPECT_EQ(Median({3, 1, 2}), 2);
  EXPECT_EQ(Median({4, 1, 2, 3}), 2.5);
  EXPECT_EQ(Median({7}), 7);
  EXPECT_EQ(Median({}), 0);
}

TEST(BootstrapTest, SameSeedSameInterval) {
  const std::vector<double> values = {1, 5, 2, 8, 3, 9, 4, 7, 6};
  const Interval one = BootstrapMedian(values, 1), again = BootstrapMedian(values, 1);
  EXPECT_EQ(one.low, again.low);
  EXPECT_EQ(one.high, again.high);
}

TEST(BootstrapTest, HoldsTheMedianWithinTheValues) {
  const std::vector<double> values = {1, 5, 2, 8, 3, 9, 4, 7, 6};
  const Interval interval = BootstrapMedian(values, 42);
  EXPECT_GE(interval.low, 1);
  EXPECT_LE(interval.low, 5);
  EXPECT_GE(interval.high, 5);
  EXPECT_LE(interval.high, 9);
  // The exact interval of a median of nine is its 2nd to 8th value (96 %).
  EXPECT_NEAR(interval.low, 2, 1);
  EXPECT_NEAR(interval.high, 8, 1);
}

TEST(BootstrapTest, EqualValuesHaveNoSpread) {
  const Interval interval = BootstrapMedian({3, 3, 3}, 7);
  EXPECT_EQ(interval.low, 3);
  EXPECT_EQ(interval.high, 3);
  EXPECT_EQ(BootstrapMedian({}, 7).high, 0);
}

TEST(RoundTest, AnEvenDriftCancels) {
  // Everything gets slower by 10 a slice; ours is as fast as the peer.
  const Round round{.ours_first = 100, .peer_first = 90, .peer_last = 80, .ours_last = 70};
  EXPECT_DOUBLE_EQ(round.Ratio(), 1);
  EXPECT_DOUBLE_EQ(round.Control(), 0.7);
}

TEST(SummaryTest, TheTargetDecidesWhenTheControlIsQuiet) {
  EXPECT_EQ(Summarise(Rounds(9, 0.86, 1), 0.85, 1).verdict, Verdict::kMet);
  EXPECT_EQ(Summarise(Rounds(9, 0.84, 1), 0.85, 1).verdict, Verdict::kMissed);
  EXPECT_NEAR(Summarise(Rounds(9, 0.84, 1.02), 0.85, 1).ratio, 0.84, 1e-9);
}

TEST(SummaryTest, ACostMustNotPassItsTarget) {
  EXPECT_EQ(Summarise(Rounds(9, 1.6, 1), 1.7, 1, Aim::kAtMost).verdict, Verdict::kMet);
  EXPECT_EQ(Summarise(Rounds(9, 1.8, 1), 1.7, 1, Aim::kAtMost).verdict, Verdict::kMissed);
}

TEST(SummaryTest, ANoisyControlIsInconclusive) {
  EXPECT_EQ(Summarise(Rounds(9, 2, 0.94), 0.85, 1).verdict, Verdict::kInconclusive);
  EXPECT_EQ(Summarise(Rounds(9, 2, 1.06), 0.85, 1).verdict, Verdict::kInconclusive);
}

TEST(SummaryTest, FewRoundsAreInconclusive) {
  EXPECT_EQ(Summarise(Rounds(8, 2, 1), 0.85, 1).verdict, Verdict::kInconclusive);
  EXPECT_EQ(Summarise({}, 0.85, 1).verdict, Verdict::kInconclusive);
}

TEST(ReportTest, JsonHasEveryKey) {
  Row row{.number = 2, .name = "n", .unit = "u", .target = 0.85, .summary = {}};
  row.summary = {.ours = 1.25,
                 .peer = 2.5,
                 .ratio = 0.5,
                 .ratio_95 = {0.4, 0.6},
                 .control_95 = {0.99, 1.01},
                 .verdict = Verdict::kMissed};
  EXPECT_EQ(ToJson({row}),
            "{\"rows\":[{\"row\":2,\"name\":\"n\",\"unit\":\"u\",\"ours\":1.25,\"peer\":2.5,"
            "\"ratio\":0.5000,\"ci\":[0.4000,0.6000],\"aa\":[0.9900,1.0100],\"target\":0.85,"
            "\"aim\":\"at least\",\"met\":false,\"verdict\":\"missed\"}]}\n");
}

TEST(ReportTest, TheManagerMayBeALittleBehindTheOneBefore) {
  const auto verdict = [](double ratio, Aim aim) {
    const Row row = MakeRowBefore(2, "calls", "calls/s", aim, Rounds(9, ratio, 1));
    EXPECT_EQ(row.name, "calls by the manager before");
    return row.summary.verdict;
  };
  EXPECT_EQ(verdict(0.975, Aim::kAtLeast), Verdict::kMet);
  EXPECT_EQ(verdict(0.965, Aim::kAtLeast), Verdict::kMissed);
  EXPECT_EQ(verdict(1.025, Aim::kAtMost), Verdict::kMet);
  EXPECT_EQ(verdict(1.035, Aim::kAtMost), Verdict::kMissed);
}

TEST(StatsTest, ALowerFigureMeetsItsTargetFromBelow) {
  const std::vector<Round> rounds(kMinRounds, Round{2, 2, 2, 2});
  EXPECT_EQ(Summarise(rounds, 1.1, 1, Aim::kAtMost).verdict, Verdict::kMet);
  EXPECT_EQ(Summarise(rounds, 0.9, 1, Aim::kAtMost).verdict, Verdict::kMissed);
}

TEST(StatsTest, QuantilesAreValuesOfTheSet) {
  std::vector<float> values;
  for (int i = 1; i <= 100; ++i) values.push_back(static_cast<float>(101 - i));
  EXPECT_EQ(Quantile(values, 0.5), 51);
  EXPECT_EQ(Quantile(values, 0.99), 100);
  EXPECT_EQ(Quantile({}, 0.5), 0);
  EXPECT_EQ(Quantile({7}, 1), 7);
}

}  // namespace
}  // namespace cxlpool::bench
