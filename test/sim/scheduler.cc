#include "test/sim/scheduler.h"

#include <algorithm>

namespace cxlpool::sim {

LifeId Scheduler::Begin() {
  lives_.emplace_back();
  return static_cast<LifeId>(lives_.size() - 1);
}

void Scheduler::End(LifeId life) { lives_[life].alive = false; }

void Scheduler::Pause(LifeId life, int64_t until_us) {
  lives_[life].paused_until_us = std::max(lives_[life].paused_until_us, until_us);
}

void Scheduler::At(LifeId life, int64_t delay_us, Task task) {
  if (delay_us <= 0) {
    ready_.push_back({now_us_, order_++, life, std::move(task)});
    return;
  }
  later_.push_back({now_us_ + delay_us, order_++, life, std::move(task)});
  std::push_heap(later_.begin(), later_.end());
}

bool Scheduler::RunOne() {
  // What became due comes before what is posted while it runs.
  if (!later_.empty() && later_.front().at_us <= now_us_) {
    std::pop_heap(later_.begin(), later_.end());
    ready_.push_back(std::move(later_.back()));
    later_.pop_back();
  }
  if (!ready_.empty()) {
    Event event = std::move(ready_.front());
    ready_.pop_front();
    Run(std::move(event));
    return true;
  }
  if (later_.empty()) return false;
  std::pop_heap(later_.begin(), later_.end());
  Event event = std::move(later_.back());
  later_.pop_back();
  now_us_ = std::max(now_us_, event.at_us);
  Run(std::move(event));
  return true;
}

void Scheduler::Run(Event event) {
  const LifeState& life = lives_[event.life];
  if (!life.alive) return;
  if (life.paused_until_us > now_us_) {
    later_.push_back({life.paused_until_us, event.order, event.life, std::move(event.task)});
    std::push_heap(later_.begin(), later_.end());
    return;
  }
  ++events_;
  std::move(event.task)();
}

void Scheduler::RunUntil(int64_t until_us) {
  while (!ready_.empty() || (!later_.empty() && later_.front().at_us <= until_us)) RunOne();
  now_us_ = std::max(now_us_, until_us);
}

void SimExecutor::PostAfter(absl::Duration delay, Task task) {
  scheduler_->At(life_, std::max<int64_t>(1, absl::ToInt64Microseconds(delay)), std::move(task));
}

absl::Time SimExecutor::Now() const {
  return absl::FromUnixSeconds(1'700'000'000) +
         absl::Microseconds(scheduler_->now_us() + wall_skew_us_);
}

// An hour has passed when it begins: nothing may take 0 for "never".
absl::Duration SimExecutor::Elapsed() const {
  return absl::Hours(1) + absl::Microseconds(scheduler_->now_us());
}

}  // namespace cxlpool::sim
