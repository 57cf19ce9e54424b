// The simulated machine room's time: one queue of events in one thread, and a seeded source of
// chance. Nothing else in a simulation may know what time it is or throw dice.
//
// A Life is one process from its start to its end. What a process asked for may take effect after
// it died; that it hears so may not. So an event says whose it is: kWorld, which never dies, or a
// Life, and an event of a Life that is over is dropped.
#ifndef CXLPOOL_TEST_SIM_SCHEDULER_H_
#define CXLPOOL_TEST_SIM_SCHEDULER_H_

#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "proto/support/executor.h"

namespace cxlpool::sim {

// Chance: SplitMix64. The same seed gives the same numbers on every machine.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t Next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  // 0 to `below` - 1; `below` > 0.
  uint64_t Below(uint64_t below) { return Next() % below; }
  // `low` to `high`, both included.
  int64_t Between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(Below(static_cast<uint64_t>(high - low + 1)));
  }
  bool OneIn(uint64_t n) { return n > 0 && Below(n) == 0; }
  bool Percent(uint32_t percent) { return Below(100) < percent; }

 private:
  uint64_t state_;
};

using LifeId = uint32_t;
inline constexpr LifeId kWorld = 0;

class Scheduler {
 public:
  // How long calls wait for their answers: the one delay that so many have.
  static constexpr int64_t kDeadline_us = 1'200'000;

  Scheduler() : lives_(1) {}

  LifeId Begin();         // A new process.
  void End(LifeId life);  // It is gone: no event of it will run.
  bool Alive(LifeId life) const { return lives_[life].alive; }

  // Until `until` (of now_us) no event of `life` runs: the machine it runs on is paused. They run
  // after that, in order.
  void Pause(LifeId life, int64_t until_us);
  bool IsPaused(LifeId life) const { return lives_[life].paused_until_us > now_us_; }
  int64_t PausedUntil(LifeId life) const { return lives_[life].paused_until_us; }
  // How long it stood still so far, with the pause that it is in.
  int64_t PausedFor(LifeId life) const { return lives_[life].paused_us; }

  void At(LifeId life, int64_t delay_us, Task&& task);

  // Microseconds since the simulation began.
  int64_t now_us() const { return now_us_; }

  // Runs the next event. False: none is left.
  bool RunOne();
  // Runs what comes up to and with `until_us`; then it is that time.
  void RunUntil(int64_t until_us);

  uint64_t events() const { return run_; }

 private:
  struct LifeState {
    bool alive = true;
    int64_t paused_until_us = 0;
    int64_t paused_us = 0;  // In all.
  };
  // Stays where it was put until it ran: a task is dear to move.
  struct Event {
    uint64_t order = 0;
    LifeId life = kWorld;
    Task task;
  };
  // When an event comes up.
  struct Due {
    int64_t at_us;
    Event* event;
    bool operator<(const Due& other) const {
      return at_us != other.at_us ? at_us < other.at_us : event->order < other.event->order;
    }
  };

  void Run(Event* event);
  void Put(int64_t at_us, Event* event);
  bool AnyDue(int64_t until_us) const {
    return (!due_.empty() && due_.back().at_us <= until_us) ||
           (!deadlines_.empty() && deadlines_.front().at_us <= until_us);
  }
  Due TakeEarliest();  // After AnyDue.

  std::vector<LifeState> lives_;
  std::deque<Event> events_;  // All that there ever were at a time.
  std::vector<Event*> free_;  // Of them, to be used again.
  std::deque<Event*> ready_;  // Of now, in order: what was posted without a delay.
  // In order, the earliest last: most of what is put among them comes up next.
  std::vector<Due> due_;
  std::deque<Due> deadlines_;  // In order, as they came.
  uint64_t order_ = 0;
  uint64_t run_ = 0;
  int64_t now_us_ = 0;
};

// The Executor and Clock of one process. Its clock of the wall may be wrong.
class SimExecutor : public Executor, public Clock {
 public:
  SimExecutor(Scheduler* scheduler, LifeId life, int64_t wall_skew_us = 0)
      : scheduler_(scheduler), life_(life), wall_skew_us_(wall_skew_us) {}

  void Post(Task task) override {
    if (std::exchange(lent_, false)) return std::move(task)();
    scheduler_->At(life_, 0, std::move(task));
  }
  // Runs `call` as a port's own thread would, which posts something and waits for it: there is one
  // thread here, so that what it posts first runs at once. Only from an event of this process.
  template <typename Call>
  void AsThreadThatWaits(Call call) {
    lent_ = true;
    call();
    lent_ = false;
  }
  void PostAfter(absl::Duration delay, Task task) override;
  absl::Time Now() const override;
  absl::Duration Elapsed() const override;

  void SetWallSkew(int64_t skew_us) { wall_skew_us_ = skew_us; }
  LifeId life() const { return life_; }

 private:
  Scheduler* const scheduler_;
  const LifeId life_;
  int64_t wall_skew_us_;
  bool lent_ = false;
};

}  // namespace cxlpool::sim

#endif  // CXLPOOL_TEST_SIM_SCHEDULER_H_
