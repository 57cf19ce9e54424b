// One thread that runs posted tasks in order: the Executor and Clock of a running program.
#ifndef CXLPOOL_PROTO_SUPPORT_LOOP_H_
#define CXLPOOL_PROTO_SUPPORT_LOOP_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <queue>
#include <string>
#include <thread>
#include <vector>

#include "proto/support/executor.h"
#include "proto/support/mutex.h"

namespace cxlpool {

class SystemClock : public Clock {
 public:
  absl::Time Now() const override;
  absl::Duration Elapsed() const override;
};

class Loop : public Executor {
 public:
  // Starts the thread; `name` (15 characters at most) is what ps shows.
  explicit Loop(const std::string& name);

  // As Stop.
  ~Loop() override;

  void Post(Task task) override;
  void RunOrPost(Task task) override;
  void PostAfter(absl::Duration delay, Task task) override;

  // Runs what was posted before, drops what is delayed, and joins. Tasks posted afterwards are
  // dropped. Not from the loop's own thread. Again: no effect.
  void Stop();

 private:
  struct Timer {
    absl::Duration due;
    uint64_t order;
    mutable Task task;  // Moved out when due.
    bool operator>(const Timer& other) const {
      return due != other.due ? due > other.due : order > other.order;
    }
  };

  void Run();

  SystemClock clock_;
  Mutex mutex_;
  std::condition_variable wake_;
  std::deque<Task> ready_ ABSL_GUARDED_BY(mutex_);
  std::priority_queue<Timer, std::vector<Timer>, std::greater<>> timers_ ABSL_GUARDED_BY(mutex_);
  uint64_t order_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool running_ ABSL_GUARDED_BY(mutex_) = false;  // A task is, on whichever thread.
  std::thread thread_;
};

}  // namespace cxlpool

#endif  // CXLPOOL_PROTO_SUPPORT_LOOP_H_
