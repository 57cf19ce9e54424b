// Copies in the background: a bounded queue of them, and a few threads that carry them out
// (cxlpool.h, "Copies").
//
// The rules:
// - Of the copies with the highest priority the oldest goes first. One that has begun is not
//   interrupted for another. It is carried out in chunks of kChunkBytes, and between two of them it
//   can be cancelled.
// - A copy ends once: done, failed or cancelled. From that moment nothing touches the memory, and
//   the copy holds its map no more. Then a thread of the copier reports the end, once. The end of a
//   copy that was cancelled before it began is reported by the first thread that has finished the
//   chunk that it is at.
// - Copies may outlive their copier, and the copier's handle its copies: each copy holds the
// copier.
//
// Thread-safe. No lock is held while bytes are copied or while an end is reported. In a forked
// child there are no such threads: everything answers FORKED, and nothing is waited for.
#ifndef CXLPOOL_LIBPOOL_SRC_COPIER_H_
#define CXLPOOL_LIBPOOL_SRC_COPIER_H_

#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "cxlpool/cxlpool.h"
#include "libpool/src/copy.h"
#include "libpool/src/deadline.h"
#include "libpool/src/map.h"
#include "libpool/src/status.h"
#include "proto/support/mutex.h"

namespace cxlpool::libpool {

struct CopierOptions {
  uint32_t threads = 1;
  uint32_t max_waiting = CXLPOOL_MAX_WAITING_COPIES;
  // For tests: called before each chunk by the thread that is about to copy it, with the number of
  // bytes that the copy has done.
  std::function<void(size_t done_bytes)> before_chunk = nullptr;
};

class Copier : public std::enable_shared_from_this<Copier> {
 public:
  static constexpr size_t kChunkBytes = size_t{1} << 20;

  // How a copy ended.
  struct End {
    Status status;
    cxlpool_lost lost = CXLPOOL_LOST_INIT;  // Of one that met lost bytes.
  };

  struct Request {
    std::shared_ptr<const Map> map;
    Copy copy;
    int32_t priority = 0;  // The larger goes first.
    // Called once, by a thread of the copier, when the copy has ended; may be null. It must not
    // throw.
    std::function<void(const End&)> on_end = nullptr;
    int eventfd = -1;  // Gets 1 when the copy has ended; -1: none.
  };

  class Op;

  // One whose threads run. RESOURCE_EXHAUSTED/NO_THREAD: the process may have no more of them.
  static StatusOr<std::shared_ptr<Copier>> Start(CopierOptions options);
  Copier(const Copier&) = delete;
  Copier& operator=(const Copier&) = delete;
  // After Stop.
  ~Copier() = default;

  // Cancels everything, reports the ends, and waits for the threads: each finishes its chunk.
  // Not from a thread of the copier. Nothing can be submitted any more.
  void Stop();

  // RESOURCE_EXHAUSTED/QUEUE_FULL; CANCELLED/COPY_CANCELLED: it is being stopped; and as CheckCopy.
  // `hand_out` is called with what was submitted before it can end, with the copier's lock held: it
  // stores it and does nothing else.
  StatusOr<std::shared_ptr<Op>> Submit(
      Request request, const std::function<void(const std::shared_ptr<Op>&)>& hand_out = nullptr);

  bool Forked() const { return ::getpid() != process_; }

 private:
  // Cancelled copies come first, then by priority, then by age.
  using Rank = std::tuple<bool, int64_t, uint64_t>;

  explicit Copier(CopierOptions options);
  void Run();
  std::shared_ptr<Op> TakeNext();
  std::shared_ptr<Op> TakeCancelled();
  void CarryOutWhole(Op& op);
  void CancelLocked(Op& op) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Finish(Op& op, const End& end);

  const CopierOptions options_;
  const pid_t process_;
  // Made beforehand: a thread has no caller to which it could report that there is no memory for
  // them.
  const Status was_cancelled_;
  const Status no_memory_;

  Mutex mutex_;
  std::condition_variable work_;  // For the threads: something waits, or it is being stopped.
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t next_age_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<Rank, std::shared_ptr<Op>> waiting_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<Op>> running_ ABSL_GUARDED_BY(mutex_);
  // How many of waiting_ are cancelled: looked at between chunks without the mutex.
  std::atomic<size_t> cancelled_waiting_ = 0;

  std::vector<std::thread> threads_;  // Of Start and Stop.
};

// One copy that was submitted. Any thread.
class Copier::Op {
 public:
  // Waits until it has ended and its end was reported: then its memory, context and descriptor are
  // the caller's again, and this answers how it ended. Called from within on_end it does not wait
  // for the report. DEADLINE_EXCEEDED/COPY_UNDER_WAY: not
  // ended in time. FAILED_PRECONDITION/FORKED.
  End Wait(Duration timeout);

  // Whether it has ended: its memory is touched no more, and Wait answers at once.
  bool Ended() const { return ended_.load(std::memory_order_acquire); }

  // Has no effect on one that has ended or has done its last chunk; else it ends with
  // CANCELLED/COPY_CANCELLED.
  void Cancel();

  // Cancels it, and waits until its memory is touched no more and its end was reported: for about
  // as long as a chunk takes. In a forked child nothing.
  void CancelAndWait();

 private:
  friend class Copier;
  Op(std::shared_ptr<Copier> copier, Request request)
      : copier_(std::move(copier)), request_(std::move(request)) {}

  const std::shared_ptr<Copier> copier_;
  Request request_;  // Its map: until it ends, by the thread that carries it out.

  std::atomic<bool> cancelled_ = false;  // Set with the copier's mutex held.
  std::atomic<bool> ended_ = false;      // Likewise.

  // With the copier's mutex held.
  Rank rank_ = {};
  bool is_waiting_ = false;
  End end_;                // Once it has ended.
  bool notified_ = false;  // Its end was reported.
  std::thread::id notifying_ = {};
  std::condition_variable changed_;
};

}  // namespace cxlpool::libpool

#endif  // CXLPOOL_LIBPOOL_SRC_COPIER_H_
