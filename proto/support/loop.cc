#include "proto/support/loop.h"

#include <pthread.h>
#include <time.h>

#include <utility>

#include "absl/time/clock.h"

namespace cxlpool {

absl::Time SystemClock::Now() const { return absl::Now(); }

absl::Duration SystemClock::Elapsed() const {
  timespec now;
  clock_gettime(CLOCK_BOOTTIME, &now);
  return absl::DurationFromTimespec(now);
}

Loop::Loop(const std::string& name) : thread_([this] { Run(); }) {
  pthread_setname_np(thread_.native_handle(), name.substr(0, 15).c_str());
}

Loop::~Loop() { Stop(); }

void Loop::Post(Task task) {
  MutexLock lock(mutex_);
  if (stopping_) return;
  ready_.push_back(std::move(task));
  if (!running_) wake_.notify_one();  // Who runs now looks again when it is through.
}

void Loop::RunOrPost(Task task) {
  {
    MutexLock lock(mutex_);
    if (stopping_) return;
    if (running_ || !ready_.empty()) {
      ready_.push_back(std::move(task));
      if (!running_) wake_.notify_one();
      return;
    }
    running_ = true;
  }
  std::move(task)();
  MutexLock lock(mutex_);
  running_ = false;
  if (!ready_.empty() || stopping_) wake_.notify_one();
}

void Loop::PostAfter(absl::Duration delay, Task task) {
  const absl::Duration due = clock_.Elapsed() + delay;
  MutexLock lock(mutex_);
  if (stopping_) return;
  timers_.push(Timer{due, order_++, std::move(task)});
  wake_.notify_one();
}

void Loop::Stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    wake_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

// Runs all tasks that are ready in one go, then looks again. At Stop what is ready is still run.
void Loop::Run() {
  std::deque<Task> batch;
  while (true) {
    {
      MutexLock lock(mutex_);
      while (true) {
        const absl::Duration now = clock_.Elapsed();
        while (!stopping_ && !timers_.empty() && timers_.top().due <= now) {
          ready_.push_back(std::move(timers_.top().task));
          timers_.pop();
        }
        // Where another thread runs a task, it wakes this one if there is more.
        if (!running_ && (!ready_.empty() || stopping_)) break;
        if (timers_.empty()) {
          wake_.wait(lock.native());
        } else {
          wake_.wait_for(lock.native(), absl::ToChronoNanoseconds(timers_.top().due - now));
        }
      }
      if (ready_.empty()) return;
      running_ = true;
      batch.swap(ready_);
    }
    for (Task& task : batch) std::move(task)();
    batch.clear();
    MutexLock lock(mutex_);
    running_ = false;
  }
}

}  // namespace cxlpool
