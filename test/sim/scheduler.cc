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
  Event event{order_++, life, std::move(task)};
  if (delay_us <= 0) {
    ready_.push_back(std::move(event));
  } else {
    Put(now_us_ + delay_us, std::move(event));
  }
}

void Scheduler::Put(int64_t at_us, Event event) {
  const uint64_t order = event.order;
  size_t place = waiting_.size();
  if (free_places_.empty()) {
    waiting_.push_back(std::move(event));
  } else {
    place = free_places_.back();
    free_places_.pop_back();
    waiting_[place] = std::move(event);
  }
  later_.push_back({at_us, order, place});
  std::push_heap(later_.begin(), later_.end());
}

Scheduler::Event Scheduler::TakeEarliest() {
  std::pop_heap(later_.begin(), later_.end());
  const size_t place = later_.back().place;
  later_.pop_back();
  free_places_.push_back(place);
  return std::move(waiting_[place]);
}

bool Scheduler::RunOne() {
  // What became due comes before what is posted while it runs.
  if (!later_.empty() && later_.front().at_us <= now_us_) ready_.push_back(TakeEarliest());
  if (!ready_.empty()) {
    Event event = std::move(ready_.front());
    ready_.pop_front();
    Run(std::move(event));
    return true;
  }
  if (later_.empty()) return false;
  now_us_ = std::max(now_us_, later_.front().at_us);
  Run(TakeEarliest());
  return true;
}

void Scheduler::Run(Event event) {
  const LifeState& life = lives_[event.life];
  if (!life.alive) return;
  if (life.paused_until_us > now_us_) return Put(life.paused_until_us, std::move(event));
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
