#include "test/rigs/manual_executor.h"

#include <gtest/gtest.h>

#include <vector>

namespace cxlpool {
namespace {

TEST(ManualExecutorTest, TimePassesOnlyWhenTold) {
  ManualExecutor executor;
  std::vector<int> seen;
  executor.PostAfter(absl::Seconds(2), [&] { seen.push_back(2); });
  executor.PostAfter(absl::Seconds(1), [&] {
    seen.push_back(1);
    executor.PostAfter(absl::Milliseconds(500), [&] { seen.push_back(15); });
  });
  executor.Post([&] { seen.push_back(0); });
  EXPECT_EQ(executor.RunReady(), 1);
  const absl::Duration start = executor.Elapsed();
  executor.Advance(absl::Seconds(3));
  EXPECT_EQ(seen, (std::vector<int>{0, 1, 15, 2}));
  EXPECT_EQ(executor.Elapsed() - start, absl::Seconds(3));
}

}  // namespace
}  // namespace cxlpool
