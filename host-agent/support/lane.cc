#include "host-agent/support/lane.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/support/mutex.h"
#include "proto/support/refusal.h"

namespace cxlpool::agent {
namespace {

// How long after its deadline a running job may still answer itself, before it is answered for: its
// own answer is more exact.
constexpr std::chrono::seconds kGrace(5);
constexpr std::chrono::seconds kStopTimeout(10);

absl::Status TimedOut(const std::string& what, absl::Duration timeout, bool started) {
  return Refuse(absl::StatusCode::kDeadlineExceeded, "KERNEL_TIMEOUT",
                absl::StrCat(what,
                             started ? " is still under way in the kernel after "
                                     : " was not begun: an earlier call took all of ",
                             absl::FormatDuration(timeout)),
                "look at the kernel's log for what hangs; it is tried again");
}

}  // namespace

struct Lane::Job {
  std::string what;
  Turn turn;
  absl::Duration timeout;
  Deadline deadline;
  Work work;
  std::optional<Done> done;  // Guarded by Shared::mutex; taken by the thread that answers.
};

struct Lane::Shared {
  Mutex mutex;
  std::condition_variable changed;
  std::deque<std::shared_ptr<Job>> waiting ABSL_GUARDED_BY(mutex);
  std::shared_ptr<Job> running ABSL_GUARDED_BY(mutex);
  bool stopping ABSL_GUARDED_BY(mutex) = false;
  bool worker_left ABSL_GUARDED_BY(mutex) = false;
};

Lane::Lane()
    : shared_(std::make_shared<Shared>()),
      worker_([shared = shared_] { WorkOff(shared); }),
      keeper_([shared = shared_] { KeepTime(shared); }) {}

void Lane::Run(std::string what, absl::Duration timeout, Work work, Done done, Turn turn) {
  auto job = std::make_shared<Job>(
      Job{std::move(what), turn, timeout, Deadline::In(timeout), std::move(work), std::move(done)});
  {
    MutexLock lock(shared_->mutex);
    if (shared_->waiting.size() < kMaxWaiting) {
      auto at = shared_->waiting.end();
      if (turn == Turn::kNext) {
        at = std::find_if(shared_->waiting.begin(), shared_->waiting.end(),
                          [](const auto& other) { return other->turn == Turn::kLast; });
      }
      shared_->waiting.insert(at, std::move(job));
      shared_->changed.notify_all();
      return;
    }
  }
  std::move (*job->done)(
      Refuse(absl::StatusCode::kResourceExhausted, "TOO_MANY_CALLS",
             absl::StrCat(job->what, " refused: ", kMaxWaiting, " calls wait already"),
             "try again later"));
}

// The worker: one job after the other. A job whose time has passed while it waited is not begun.
// The thread of the two that takes `done` out of the job answers, so each is answered once.
void Lane::WorkOff(const std::shared_ptr<Shared>& shared) {
  while (true) {
    std::shared_ptr<Job> job;
    {
      MutexLock lock(shared->mutex);
      while (shared->waiting.empty() && !shared->stopping) shared->changed.wait(lock.native());
      if (shared->stopping) {
        shared->worker_left = true;
        shared->changed.notify_all();
        return;
      }
      job = std::move(shared->waiting.front());
      shared->waiting.pop_front();
      shared->running = job;
      shared->changed.notify_all();
    }
    absl::Status status = job->deadline.passed() ? TimedOut(job->what, job->timeout, false)
                                                 : std::move(job->work)(job->deadline);
    std::optional<Done> done;
    {
      MutexLock lock(shared->mutex);
      shared->running.reset();
      done = std::exchange(job->done, std::nullopt);
    }
    if (done.has_value()) (*std::move(done))(std::move(status));
  }
}

// The clock: answers a running job that does not come back (the worker stays with it) and jobs that
// wait behind it, each at its deadline. Answers are given without the lock, and the queue is looked
// at again after them.
void Lane::KeepTime(const std::shared_ptr<Shared>& shared) {
  while (true) {
    std::vector<std::pair<Done, absl::Status>> answers;
    {
      MutexLock lock(shared->mutex);
      if (shared->stopping) return;
      const auto now = std::chrono::steady_clock::now();
      auto next = std::chrono::steady_clock::time_point::max();
      if (shared->running != nullptr && shared->running->done.has_value()) {
        Job& job = *shared->running;
        if (job.deadline.when() + kGrace <= now) {
          answers.emplace_back(*std::exchange(job.done, std::nullopt),
                               TimedOut(job.what, job.timeout, true));
        } else {
          next = std::min(next, job.deadline.when() + kGrace);
        }
      }
      for (auto it = shared->waiting.begin(); it != shared->waiting.end();) {
        Job& job = **it;
        if (job.deadline.when() <= now) {
          answers.emplace_back(*std::exchange(job.done, std::nullopt),
                               TimedOut(job.what, job.timeout, false));
          it = shared->waiting.erase(it);
        } else {
          next = std::min(next, job.deadline.when());
          ++it;
        }
      }
      if (answers.empty()) {
        if (next == std::chrono::steady_clock::time_point::max()) {
          shared->changed.wait(lock.native());
        } else {
          shared->changed.wait_until(lock.native(), next);
        }
      }
    }
    for (auto& [done, status] : answers) std::move(done)(std::move(status));
  }
}

// Every job that was not answered is CANCELLED. A worker that does not come back within
// kStopTimeout is left behind: it has only `shared_`, which lives as long as it does.
Lane::~Lane() {
  std::vector<Done> cancelled;
  bool left = false;
  {
    MutexLock lock(shared_->mutex);
    shared_->stopping = true;
    for (const auto& job : shared_->waiting) {
      cancelled.push_back(*std::exchange(job->done, std::nullopt));
    }
    shared_->waiting.clear();
    shared_->changed.notify_all();
    const auto until = std::chrono::steady_clock::now() + kStopTimeout;
    while (!shared_->worker_left &&
           shared_->changed.wait_until(lock.native(), until) != std::cv_status::timeout) {
    }
    left = shared_->worker_left;
    if (!left && shared_->running != nullptr && shared_->running->done.has_value()) {
      cancelled.push_back(*std::exchange(shared_->running->done, std::nullopt));
    }
  }
  keeper_.join();
  if (left) {
    worker_.join();
  } else {
    worker_.detach();
  }
  for (Done& done : cancelled) std::move(done)(absl::CancelledError("the host agent is stopping"));
}

}  // namespace cxlpool::agent
