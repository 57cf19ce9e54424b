// An Executor and Clock that a test drives by hand: nothing runs, and no time passes, unless the
// test says so. One thread.
#ifndef CXLPOOL_TEST_RIGS_MANUAL_EXECUTOR_H_
#define CXLPOOL_TEST_RIGS_MANUAL_EXECUTOR_H_

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <utility>

#include "proto/support/check.h"
#include "proto/support/executor.h"

namespace cxlpool {

class ManualExecutor : public Executor, public Clock {
 public:
  void Post(Task task) override {
    if (!halted_) ready_.push_back(std::move(task));
  }
  void PostAfter(absl::Duration delay, Task task) override {
    if (halted_) return;
    timers_.emplace(std::pair(elapsed_ + std::max(delay, absl::ZeroDuration()), order_++),
                    std::move(task));
  }
  absl::Time Now() const override { return absl::FromUnixSeconds(1'700'000'000) + elapsed_; }
  absl::Duration Elapsed() const override { return elapsed_; }

  // Runs tasks that are due now, and those that they post, until none is left. Returns how many
  // ran. Aborts after a million: something posts itself for ever.
  int RunReady() {
    constexpr int kTooMany = 1'000'000;
    int ran = 0;
    while (true) {
      while (!timers_.empty() && timers_.begin()->first.first <= elapsed_) {
        ready_.push_back(std::move(timers_.begin()->second));
        timers_.erase(timers_.begin());
      }
      if (ready_.empty()) return ran;
      Task task = std::move(ready_.front());
      ready_.pop_front();
      std::move(task)();
      CXLPOOL_CHECK(++ran < kTooMany, "tasks post each other without end");
    }
  }

  // Lets time pass by `step`, running each task at its moment.
  void Advance(absl::Duration step) {
    const absl::Duration end = elapsed_ + step;
    RunReady();
    while (!timers_.empty() && timers_.begin()->first.first <= end) {
      elapsed_ = std::max(elapsed_, timers_.begin()->first.first);
      RunReady();
    }
    elapsed_ = end;
    RunReady();
  }

  // A crash: drops everything that is queued, and runs nothing more.
  void Halt() {
    halted_ = true;
    ready_.clear();
    timers_.clear();
  }

 private:
  std::deque<Task> ready_;
  std::map<std::pair<absl::Duration, uint64_t>, Task> timers_;
  uint64_t order_ = 0;
  absl::Duration elapsed_ = absl::Hours(1);
  bool halted_ = false;
};

}  // namespace cxlpool

#endif  // CXLPOOL_TEST_RIGS_MANUAL_EXECUTOR_H_
