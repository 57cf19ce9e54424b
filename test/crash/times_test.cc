#include "test/crash/times.h"

#include <gtest/gtest.h>

namespace cxlpool::crash {
namespace {

Times Hundred(int late) {
  Times times;
  for (int i = 0; i < 100; ++i) times.Add(absl::Milliseconds(i < late ? 2001 : 1530));
  return times;
}

TEST(TimesTest, OneOfAHundredMayBeLate) {
  EXPECT_EQ("", Hundred(0).Late("takeovers", absl::Seconds(2)));
  EXPECT_EQ("", Hundred(1).Late("takeovers", absl::Seconds(2)));
  EXPECT_EQ("2 of 100 takeovers were longer than 2000 ms; ",
            Hundred(2).Late("takeovers", absl::Seconds(2)));
}

TEST(TimesTest, OfFewNoneMayBeLate) {
  Times times;
  EXPECT_EQ("", times.Late("takeovers", absl::Seconds(2)));
  times.Add(absl::Seconds(3));
  EXPECT_EQ("1 of 1 takeovers were longer than 2000 ms; ",
            times.Late("takeovers", absl::Seconds(2)));
}

TEST(TimesTest, TheyAreShownWithWhatTheyAreMeasuredBy) {
  EXPECT_EQ("never", Times().Text());
  EXPECT_EQ("100 times, p50 1530 ms, p99 1530 ms, at most 2001 ms", Hundred(1).Text());
  EXPECT_EQ("100 times, p50 1530 ms (1.02 T), p99 1530 ms (1.02 T), at most 2001 ms (1.33 T)",
            Hundred(1).TextBy("T", absl::Milliseconds(1500)));
}

}  // namespace
}  // namespace cxlpool::crash
