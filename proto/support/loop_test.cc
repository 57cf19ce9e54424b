#include "proto/support/loop.h"

#include <gtest/gtest.h>

#include <future>
#include <vector>

namespace cxlpool {
namespace {

TEST(LoopTest, RunsTasksInOrderOnItsThread) {
  std::vector<int> seen;
  bool on_thread = false;
  {
    Loop loop("test");
    for (int i = 0; i < 100; ++i) loop.Post([&seen, i] { seen.push_back(i); });
    loop.Post([&] { on_thread = loop.OnThread(); });
  }
  ASSERT_EQ(seen.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(seen[i], i);
  EXPECT_TRUE(on_thread);
}

TEST(LoopTest, DelayedTasksRunInOrderOfTimeAndNotEarly) {
  Loop loop("test");
  SystemClock clock;
  const absl::Duration start = clock.Elapsed();
  std::promise<absl::Duration> late;
  std::vector<int> order;
  loop.PostAfter(absl::Milliseconds(20), [&] {
    order.push_back(2);
    late.set_value(clock.Elapsed());
  });
  loop.PostAfter(absl::Milliseconds(1), [&] { order.push_back(1); });
  EXPECT_GE(late.get_future().get() - start, absl::Milliseconds(20));
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

TEST(LoopTest, StopDropsWhatIsDelayed) {
  bool ran = false;
  Loop loop("test");
  loop.PostAfter(absl::Hours(1), [&] { ran = true; });
  loop.Stop();
  loop.Post([&] { ran = true; });
  EXPECT_FALSE(ran);
}

}  // namespace
}  // namespace cxlpool
