// An Executor and Clock that a test drives by hand: nothing runs, and no time passes, unless the
// test says so. One thread.
#ifndef CXLPOOL_PROTO_SUPPORT_MANUAL_EXECUTOR_H_
#define CXLPOOL_PROTO_SUPPORT_MANUAL_EXECUTOR_H_

#include <cstdint>
#include <deque>
#include <map>
#include <utility>

#include "proto/support/executor.h"

namespace cxlpool {

class ManualExecutor : public Executor, public Clock {
 public:
  void Post(Task task) override;
  void PostAfter(absl::Duration delay, Task task) override;
  absl::Time Now() const override;
  absl::Duration Elapsed() const override { return elapsed_; }

  // Runs tasks that are due now, and those that they post, until none is left. Returns how many
  // ran. Aborts after a million: something posts itself for ever.
  int RunReady();

  // Lets time pass by `step`, running each task at its moment.
  void Advance(absl::Duration step);

  // A crash: drops everything that is queued, and runs nothing more.
  void Halt();

 private:
  std::deque<Task> ready_;
  std::map<std::pair<absl::Duration, uint64_t>, Task> timers_;
  uint64_t order_ = 0;
  absl::Duration elapsed_ = absl::Hours(1);
  bool halted_ = false;
};

}  // namespace cxlpool

#endif  // CXLPOOL_PROTO_SUPPORT_MANUAL_EXECUTOR_H_
