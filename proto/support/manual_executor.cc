#include "proto/support/manual_executor.h"

#include <algorithm>

#include "proto/support/check.h"

namespace cxlpool {

void ManualExecutor::Post(Task task) {
  if (!halted_) ready_.push_back(std::move(task));
}

void ManualExecutor::PostAfter(absl::Duration delay, Task task) {
  if (halted_) return;
  timers_.emplace(std::pair(elapsed_ + std::max(delay, absl::ZeroDuration()), order_++),
                  std::move(task));
}

absl::Time ManualExecutor::Now() const { return absl::FromUnixSeconds(1'700'000'000) + elapsed_; }

void ManualExecutor::Halt() {
  halted_ = true;
  ready_.clear();
  timers_.clear();
}

int ManualExecutor::RunReady() {
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

void ManualExecutor::Advance(absl::Duration step) {
  const absl::Duration end = elapsed_ + step;
  RunReady();
  while (!timers_.empty() && timers_.begin()->first.first <= end) {
    elapsed_ = std::max(elapsed_, timers_.begin()->first.first);
    RunReady();
  }
  elapsed_ = end;
  RunReady();
}

}  // namespace cxlpool
