// Where a core's work runs, and what time it is: the two ports that every core here shares.
//
// A core owns no thread and never blocks. It runs wholly on one Executor, one task after the other;
// whatever takes time (disk, fabric, kernel, network) is asked for through a port and answers by a
// completion that the asker posts back to that Executor. main.cc supplies a thread (loop.h); a
// simulator supplies a seeded queue.
#ifndef CXLPOOL_PROTO_SUPPORT_EXECUTOR_H_
#define CXLPOOL_PROTO_SUPPORT_EXECUTOR_H_

#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace cxlpool {

// Runs once, on the Executor it was posted to. Never throws.
using Task = absl::AnyInvocable<void() &&>;

// How a port answers. Called exactly once, from any thread and possibly before the call that
// took it returns; the receiver posts to its own Executor before it touches its state.
using Done = absl::AnyInvocable<void(absl::Status) &&>;
template <typename T>
using DoneWith = absl::AnyInvocable<void(absl::StatusOr<T>) &&>;

class Executor {
 public:
  virtual ~Executor() = default;

  // Runs `task` after everything posted before it. Any thread.
  virtual void Post(Task task) = 0;

  // As Post; but where nothing runs or waits, at once and on the caller's thread, so that no thread
  // has to be woken. For a caller that holds no lock and may do a little of the core's work.
  virtual void RunOrPost(Task task) { Post(std::move(task)); }

  // Runs `task` once `delay` has passed, never earlier. Any thread. There is no cancel: a task
  // that is no longer wanted finds that out by itself.
  virtual void PostAfter(absl::Duration delay, Task task) = 0;
};

class Clock {
 public:
  virtual ~Clock() = default;

  // Wall time, for records that people read. May jump. Any thread.
  virtual absl::Time Now() const = 0;

  // Time since some fixed moment; never jumps and counts while suspended (CLOCK_BOOTTIME).
  // For leases, deadlines and backoff. Any thread.
  virtual absl::Duration Elapsed() const = 0;
};

}  // namespace cxlpool

#endif  // CXLPOOL_PROTO_SUPPORT_EXECUTOR_H_
