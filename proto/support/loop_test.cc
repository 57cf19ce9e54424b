#include "proto/support/loop.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <thread>
#include <vector>

namespace cxlpool {
namespace {

TEST(LoopTest, RunsTasksInOrderOnItsThread) {
  std::vector<int> seen;
  std::thread::id ran_on;
  {
    Loop loop("test");
    for (int i = 0; i < 100; ++i) loop.Post([&seen, i] { seen.push_back(i); });
    loop.Post([&] { ran_on = std::this_thread::get_id(); });
  }
  ASSERT_EQ(seen.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(seen[i], i);
  EXPECT_NE(ran_on, std::thread::id());
  EXPECT_NE(ran_on, std::this_thread::get_id());
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

TEST(LoopTest, AnIdleLoopRunsOnTheCallersThreadAndNeverTwoTasksAtOnce) {
  std::atomic<int> inside{0};
  int ran = 0;  // Guarded by the loop itself.
  std::atomic<bool> overlapped{false};
  {
    Loop loop("test");
    const auto task = [&] {
      if (inside.fetch_add(1) != 0) overlapped = true;
      ++ran;
      inside.fetch_sub(1);
    };
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < 5000; ++i) {
          if (i % 7 == 0) loop.PostAfter(absl::Microseconds(i % 50), [] {});
          t % 2 == 0 ? loop.RunOrPost(task) : loop.Post(task);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_FALSE(overlapped);
  EXPECT_EQ(ran, 20000);

  Loop idle("test");
  const std::thread::id test_thread = std::this_thread::get_id();
  bool here = false;
  bool nested_later = false;
  idle.RunOrPost([&] {
    here = std::this_thread::get_id() == test_thread;
    idle.RunOrPost([&] { nested_later = true; });
    EXPECT_FALSE(nested_later) << "a task within a task waits its turn";
  });
  EXPECT_TRUE(here);
  // A timer is not forgotten because a task ran elsewhere meanwhile.
  std::promise<void> fired;
  idle.PostAfter(absl::Milliseconds(5), [&] { fired.set_value(); });
  for (int i = 0; i < 100; ++i) idle.RunOrPost([] {});
  EXPECT_EQ(fired.get_future().wait_for(std::chrono::seconds(10)), std::future_status::ready);
  idle.Stop();
  EXPECT_TRUE(nested_later);
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
