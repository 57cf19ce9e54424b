#include "test/sim/scheduler.h"

#include <algorithm>
#include <limits>

namespace cxlpool::sim {
namespace {

constexpr int64_t kEver = std::numeric_limits<int64_t>::max();
constexpr int64_t kBegins_us = 1'700'000'000'000'000;  // By the wall.
constexpr int64_t kHour_us = 3'600'000'000;

}  // namespace

LifeId Scheduler::Begin() {
  lives_.emplace_back();
  return static_cast<LifeId>(lives_.size() - 1);
}

void Scheduler::End(LifeId life) { lives_[life].alive = false; }

void Scheduler::Pause(LifeId life, int64_t until_us) {
  LifeState& state = lives_[life];
  const int64_t from_us = std::max(now_us_, state.paused_until_us);
  if (until_us <= from_us) return;
  state.paused_us += until_us - from_us;
  state.paused_until_us = until_us;
}

void Scheduler::At(LifeId life, int64_t delay_us, Task&& task) {
  if (free_.empty()) free_.push_back(&events_.emplace_back());
  Event* const event = free_.back();
  free_.pop_back();
  event->order = order_++;
  event->life = life;
  event->task = std::move(task);
  if (delay_us <= 0) {
    ready_.push_back(event);
  } else if (delay_us == kDeadline_us) {
    deadlines_.push_back({now_us_ + delay_us, event});
  } else {
    Put(now_us_ + delay_us, event);
  }
}

void Scheduler::Put(int64_t at_us, Event* event) {
  const Due due{at_us, event};
  due_.insert(std::upper_bound(due_.begin(), due_.end(), due,
                               [](const Due& a, const Due& b) { return b < a; }),
              due);
}

Scheduler::Due Scheduler::TakeEarliest() {
  if (due_.empty() || (!deadlines_.empty() && deadlines_.front() < due_.back())) {
    const Due first = deadlines_.front();
    deadlines_.pop_front();
    return first;
  }
  const Due first = due_.back();
  due_.pop_back();
  return first;
}

bool Scheduler::RunOne() {
  // What became due comes before what is posted while it runs.
  if (AnyDue(now_us_)) ready_.push_back(TakeEarliest().event);
  if (!ready_.empty()) {
    Event* const event = ready_.front();
    ready_.pop_front();
    Run(event);
    return true;
  }
  if (!AnyDue(kEver)) return false;
  const Due next = TakeEarliest();
  now_us_ = std::max(now_us_, next.at_us);
  Run(next.event);
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
  return absl::FromUnixMicros(kBegins_us + scheduler_->now_us() + wall_skew_us_);
}

// An hour has passed when it begins: nothing may take 0 for "never".
absl::Duration SimExecutor::Elapsed() const {
  return absl::Microseconds(kHour_us + scheduler_->now_us());
}

}  // namespace cxlpool::sim
