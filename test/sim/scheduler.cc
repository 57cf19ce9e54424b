#include "test/sim/scheduler.h"

#include <algorithm>
#include <limits>

namespace cxlpool::sim {
namespace {

constexpr int64_t kWindow_us = 50'000;
constexpr int64_t kEver = std::numeric_limits<int64_t>::max();

}  // namespace

LifeId Scheduler::Begin() {
  lives_.emplace_back();
  return static_cast<LifeId>(lives_.size() - 1);
}

void Scheduler::End(LifeId life) { lives_[life].alive = false; }

void Scheduler::Pause(LifeId life, int64_t until_us) {
  lives_[life].paused_until_us = std::max(lives_[life].paused_until_us, until_us);
}

void Scheduler::At(LifeId life, int64_t delay_us, Task task) {
  if (free_.empty()) free_.push_back(&events_.emplace_back());
  Event* const event = free_.back();
  free_.pop_back();
  event->order = order_++;
  event->life = life;
  event->task = std::move(task);
  if (delay_us <= 0) {
    ready_.push_back(event);
  } else {
    Put(now_us_ + delay_us, event);
  }
}

void Scheduler::Put(int64_t at_us, Event* event) {
  if (at_us >= horizon_us_) return late_.push_back({at_us, event->order, event});
  soon_.push_back({at_us, event->order, event});
  std::push_heap(soon_.begin(), soon_.end());
}

void Scheduler::MoveHorizon() {
  horizon_us_ = kWindow_us + std::max_element(late_.begin(), late_.end())->at_us;
  const auto soon = std::partition(late_.begin(), late_.end(),
                                   [this](const Due& due) { return due.at_us >= horizon_us_; });
  soon_.assign(soon, late_.end());
  late_.erase(soon, late_.end());
  std::make_heap(soon_.begin(), soon_.end());
}

Scheduler::Event* Scheduler::TakeEarliest() {
  std::pop_heap(soon_.begin(), soon_.end());
  Event* const event = soon_.back().event;
  soon_.pop_back();
  return event;
}

bool Scheduler::RunOne() {
  // What became due comes before what is posted while it runs.
  if (AnyDue(now_us_)) ready_.push_back(TakeEarliest());
  if (!ready_.empty()) {
    Event* const event = ready_.front();
    ready_.pop_front();
    Run(event);
    return true;
  }
  if (!AnyDue(kEver)) return false;
  now_us_ = std::max(now_us_, soon_.front().at_us);
  Run(TakeEarliest());
  return true;
}

void Scheduler::Run(Event* event) {
  const LifeState& life = lives_[event->life];
  if (life.alive && life.paused_until_us > now_us_) return Put(life.paused_until_us, event);
  if (life.alive) {
    ++run_;
    std::move(event->task)();
  }
  event->task = nullptr;
  free_.push_back(event);
}

void Scheduler::RunUntil(int64_t until_us) {
  while (!ready_.empty() || AnyDue(until_us)) RunOne();
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
