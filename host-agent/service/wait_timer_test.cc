#include "host-agent/service/wait_timer.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "test/rigs/manual_executor.h"

namespace cxlpool::agent {
namespace {

// Somebody waits until `deadline`, since the test began.
struct TimedWait {
  ManualExecutor executor;
  const absl::Duration began = executor.Elapsed();
  absl::Duration deadline = absl::InfiniteDuration();
  std::vector<absl::Duration> served;
  std::unique_ptr<WaitTimer> timer =
      std::make_unique<WaitTimer>(&executor, &executor, [this] { return Serve(); });

  absl::Duration Serve() {
    served.push_back(executor.Elapsed() - began);
    if (served.back() >= deadline) deadline = absl::InfiniteDuration();
    return began + deadline;
  }
  void Until(absl::Duration wanted) {
    deadline = wanted;
    timer->By(began + wanted);
  }
};

TEST(WaitTimerTest, ServesAtTheDeadlineAndThenNoMore) {
  TimedWait wait;
  wait.Until(absl::Milliseconds(2500));
  wait.executor.Advance(absl::Milliseconds(2499));
  EXPECT_EQ(wait.served.size(), 2u) << "after each step";
  wait.executor.Advance(absl::Milliseconds(1));
  ASSERT_EQ(wait.served.size(), 3u);
  EXPECT_EQ(wait.served.back(), absl::Milliseconds(2500));
  wait.executor.Advance(absl::Minutes(10));
  EXPECT_EQ(wait.served.size(), 3u);
  wait.Until(absl::Minutes(11));
  wait.executor.Advance(absl::Minutes(1));
  EXPECT_EQ(wait.served.back(), absl::Minutes(11)) << "and it can be used again";
}

TEST(WaitTimerTest, AnEarlierDeadlineComesFirst) {
  TimedWait wait;
  wait.Until(absl::Minutes(10));
  wait.Until(absl::Milliseconds(300));
  wait.executor.Advance(absl::Milliseconds(300));
  ASSERT_EQ(wait.served.size(), 1u);
  EXPECT_EQ(wait.served.back(), absl::Milliseconds(300));
  wait.executor.Advance(absl::Seconds(10));
  EXPECT_EQ(wait.served.size(), 1u) << "the timer of the later one serves nobody";
}

TEST(WaitTimerTest, NothingIsCalledOnceItIsGone) {
  TimedWait wait;
  wait.Until(absl::Milliseconds(300));
  wait.timer.reset();
  wait.executor.Advance(absl::Seconds(10));
  EXPECT_TRUE(wait.served.empty());
}

}  // namespace
}  // namespace cxlpool::agent
