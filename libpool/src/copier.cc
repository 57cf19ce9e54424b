#include "libpool/src/copier.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <new>
#include <system_error>
#include <utility>

#include "libpool/src/own_thread.h"
#include "libpool/src/text.h"
#include "proto/support/mutant.h"

namespace cxlpool::libpool {
namespace {

Status Cancelled() {
  return Refuse(Code::kCancelled, "COPY_CANCELLED",
                "the copy was cancelled, or its copier stopped, before all was copied",
                "submit it again if it is still wanted");
}

Status ForkedChild() {
  return Refuse(Code::kFailedPrecondition, "FORKED",
                "this copier is another process's: this process was forked from it",
                "start a copier in the child");
}

// Adds 1 to an eventfd. Not where that would block: a counter that is full wakes its reader anyway.
void Signal(int eventfd) {
  pollfd ready = {.fd = eventfd, .events = POLLOUT, .revents = 0};
  const uint64_t one = 1;
  if (::poll(&ready, 1, 0) == 1 && ::write(eventfd, &one, sizeof one) < 0) return;
}

}  // namespace

Copier::Copier(CopierOptions options)
    : options_(std::move(options)),
      process_(::getpid()),
      was_cancelled_(Cancelled()),
      no_memory_(NoMemory()) {
  running_.reserve(options_.threads * 2);  // Each ends a cancelled one besides its own.
}

StatusOr<std::shared_ptr<Copier>> Copier::Start(CopierOptions options) {
  std::shared_ptr<Copier> copier(new Copier(std::move(options)));
  try {
    copier->threads_.reserve(copier->options_.threads);
    for (uint32_t i = 0; i < copier->options_.threads; ++i) {
      copier->threads_.emplace_back([raw = copier.get()] { raw->Run(); });
    }
  } catch (const std::system_error& error) {
    copier->Stop();
    return NoThread("the copier", error);
  } catch (...) {  // No memory: those that run are ended first.
    copier->Stop();
    throw;
  }
  return copier;
}

void Copier::Stop() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    for (const auto& op : running_) CancelLocked(*op);
    // Cancelling moves a copy to the front.
    while (!waiting_.empty() && !std::prev(waiting_.end())->second->cancelled_) {
      CancelLocked(*std::prev(waiting_.end())->second);
    }
  }
  work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

// `hand_out` stores the handle while the lock is held: a thread could otherwise finish the copy,
// and its callback free the handle, before the caller has it.
StatusOr<std::shared_ptr<Copier::Op>> Copier::Submit(
    Request request, const std::function<void(const std::shared_ptr<Op>&)>& hand_out) {
  if (Forked()) return ForkedChild();
  if (Status status = CheckCopy(*request.map, request.copy); !status.ok()) return status;
  const int32_t priority = request.priority;
  std::shared_ptr<Op> op(new Op(shared_from_this(), std::move(request)));
  {
    const MutexLock lock(mutex_);
    if (stopping_) return was_cancelled_;
    if (waiting_.size() >= options_.max_waiting && !CXLPOOL_MUTANT("copies-without-limit")) {
      return Refuse(Code::kResourceExhausted, "QUEUE_FULL",
                    Concat(waiting_.size(), " copies wait already, and no more may"),
                    "wait for one of them, or start the copier with more threads");
    }
    const uint64_t age = next_age_++;
    op->rank_ = {true, -int64_t{priority}, CXLPOOL_MUTANT("youngest-copy-first") ? ~age : age};
    op->is_waiting_ = true;
    waiting_.emplace(op->rank_, op);
    // No thread takes it before the lock is free.
    if (hand_out && !CXLPOOL_MUTANT("copy-handed-out-late")) hand_out(op);
  }
  work_.notify_one();
  if (hand_out && CXLPOOL_MUTANT("copy-handed-out-late")) {
    (void)op->Wait(Duration(1000));
    hand_out(op);
  }
  return op;
}

// A thread of the copier: one copy after the other, until it is stopped and nothing waits.
void Copier::Run() {
  TakeFaultsOnly();
  while (const std::shared_ptr<Op> op = TakeNext()) CarryOutWhole(*op);
}

// Waits for the next copy, without end: Stop ends it. Nothing: it is stopped, and none waits.
std::shared_ptr<Copier::Op> Copier::TakeNext() {
  MutexLock lock(mutex_);
  while (waiting_.empty() && !stopping_) work_.wait(lock.native());
  if (waiting_.empty()) return nullptr;
  std::shared_ptr<Op> op = std::move(waiting_.begin()->second);
  waiting_.erase(waiting_.begin());
  op->is_waiting_ = false;
  if (op->cancelled_) --cancelled_waiting_;
  running_.push_back(op);
  return op;
}

// The first of what waits, if that is cancelled.
std::shared_ptr<Copier::Op> Copier::TakeCancelled() {
  if (cancelled_waiting_.load() == 0 || CXLPOOL_MUTANT("cancelled-copy-waits-its-turn")) {
    return nullptr;
  }
  const MutexLock lock(mutex_);
  if (waiting_.empty() || !waiting_.begin()->second->cancelled_) return nullptr;
  std::shared_ptr<Op> op = std::move(waiting_.begin()->second);
  waiting_.erase(waiting_.begin());
  op->is_waiting_ = false;
  --cancelled_waiting_;
  running_.push_back(op);
  return op;
}

// Chunk by chunk, until the end, the first that fails, or a cancel.
void Copier::CarryOutWhole(Op& op) {
  const Copy& whole = op.request_.copy;
  End end;
  for (size_t done = 0; done < whole.bytes && end.status.ok();) {
    // Who cancelled a copy that waits does not wait for all of this one.
    while (const std::shared_ptr<Op> other = TakeCancelled())
      Finish(*other, {.status = was_cancelled_});
    if (options_.before_chunk) options_.before_chunk(done);
    if (op.cancelled_) {
      end.status = was_cancelled_;
      if (CXLPOOL_MUTANT("cancelled-copy-told-twice")) Finish(op, end);
      break;
    }
    Copy chunk = whole;
    chunk.offset += done;
    if (chunk.memory != nullptr) chunk.memory = static_cast<std::byte*>(chunk.memory) + done;
    chunk.bytes = std::min(whole.bytes - done, kChunkBytes);
    try {
      end.status = CarryOut(*op.request_.map, chunk, &end.lost);
    } catch (const std::bad_alloc&) {  // Of the words of an error.
      end.status = no_memory_;
    }
    if (CXLPOOL_MUTANT("lost-chunk-is-done")) end.status = Status();
    done += chunk.bytes;
  }
  Finish(op, end);
}

// Ends a copy that was taken from the queue. The order matters: the map is let go first, so that
// code that is notified of the end may count on that; then the end becomes visible (ended_); then
// on_end is called. An eventfd gets its 1 together with the end, so that a thread that it wakes
// finds that there is nothing to wait for.
void Copier::Finish(Op& op, const End& end) {
  op.request_.map.reset();
  {
    const MutexLock lock(mutex_);
    op.end_ = end;
    op.ended_.store(true, std::memory_order_release);
    op.notifying_ = std::this_thread::get_id();
    if (op.request_.eventfd >= 0) Signal(op.request_.eventfd);
    if (op.request_.on_end == nullptr) op.notified_ = true;
  }
  if (op.request_.on_end != nullptr) op.request_.on_end(end);
  const MutexLock lock(mutex_);
  op.notified_ = true;
  op.notifying_ = {};
  std::erase_if(running_,
                [&op](const std::shared_ptr<Op>& running) { return running.get() == &op; });
  op.changed_.notify_all();
}

void Copier::CancelLocked(Op& op) {
  if (op.ended_ || op.cancelled_) return;
  op.cancelled_ = true;
  if (!op.is_waiting_) return;
  // To the front, for the thread that next looks.
  auto node = waiting_.extract(op.rank_);
  std::get<0>(op.rank_) = false;
  node.key() = op.rank_;
  waiting_.insert(std::move(node));
  ++cancelled_waiting_;
}

Copier::End Copier::Op::Wait(Duration timeout) {
  if (copier_->Forked()) return {.status = ForkedChild()};
  const Deadline deadline = After(timeout);
  MutexLock lock(copier_->mutex_);
  while (!notified_ && notifying_ != std::this_thread::get_id()) {
    if (changed_.wait_until(lock.native(), deadline) == std::cv_status::timeout && !notified_) {
      return {.status = Refuse(Code::kDeadlineExceeded, "COPY_UNDER_WAY",
                               Concat("the copy has not ended within ", timeout.count(), " ms"),
                               "wait for it longer, or cancel it")};
    }
  }
  return end_;
}

void Copier::Op::Cancel() {
  if (copier_->Forked()) return;
  const MutexLock lock(copier_->mutex_);
  copier_->CancelLocked(*this);
}

void Copier::Op::CancelAndWait() {
  if (copier_->Forked()) return;
  MutexLock lock(copier_->mutex_);
  copier_->CancelLocked(*this);
  while (!notified_ && notifying_ != std::this_thread::get_id()) changed_.wait(lock.native());
}

}  // namespace cxlpool::libpool
