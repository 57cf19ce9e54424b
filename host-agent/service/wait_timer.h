// Wakes who waits for deadlines, with few timers however many waits come and go.
//
// An Executor's timer cannot be taken back: one for each wait would stay for as long as that was to
// last, up to ten minutes after its connection hung up. So the next timer is at most kStep away,
// and none is set where another one comes no later. What is left behind is gone within kStep.
//
// On the core's thread only; nothing is called after this is gone.
#ifndef CXLPOOL_HOST_AGENT_SERVICE_WAIT_TIMER_H_
#define CXLPOOL_HOST_AGENT_SERVICE_WAIT_TIMER_H_

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "proto/support/executor.h"
#include "proto/support/mutant.h"

namespace cxlpool::agent {

class WaitTimer {
 public:
  static constexpr absl::Duration kStep = absl::Seconds(1);

  // `serve` answers those whose time is up, perhaps none, and returns the earliest deadline of
  // those that still wait: infinite where none does. The executor and the clock outlive this.
  WaitTimer(Executor* executor, Clock* clock, absl::AnyInvocable<absl::Duration()> serve)
      : executor_(executor), clock_(clock), serve_(std::move(serve)) {}

  // One waits until `deadline`, on the clock's Elapsed: `serve` is called then, at the latest.
  void By(absl::Duration deadline) {
    if (deadline == absl::InfiniteDuration()) return;
    const absl::Duration now = clock_->Elapsed();
    const bool each = CXLPOOL_MUTANT("a-timer-for-each-wait");
    const absl::Duration due = each ? deadline : std::min(deadline, now + kStep);
    if (due >= due_ && !each) return;
    due_ = due;
    executor_->PostAfter(due - now, [this, alive = std::weak_ptr<bool>(alive_), due] {
      if (alive.expired() || due_ != due) return;  // An earlier one came instead.
      due_ = absl::InfiniteDuration();
      By(serve_());
    });
  }

 private:
  Executor* const executor_;
  Clock* const clock_;
  absl::AnyInvocable<absl::Duration()> serve_;
  absl::Duration due_ = absl::InfiniteDuration();  // Of the timer that counts; infinite: none.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_SERVICE_WAIT_TIMER_H_
