#include "libpool/src/fault_watch.h"

#include <algorithm>
#include <new>
#include <system_error>
#include <utility>

#include "libpool/src/reply.h"
#include "proto/support/mutant.h"

namespace cxlpool::libpool {
namespace {

constexpr uint32_t kWaitMs = 30'000;  // For the next fault or size, in one request.
constexpr Duration kFirstPause = std::chrono::milliseconds(100);
constexpr Duration kLongestPause = std::chrono::seconds(5);
// An agent that restarts reports all again. Beyond this some are forgotten, and reported once more.
constexpr size_t kMaxRemembered = 16'384;
// Above any offset and length of a Region: sums of two do not wrap.
constexpr uint64_t kMaxBytes = uint64_t{1} << 56;

}  // namespace

FaultWatcher::~FaultWatcher() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    if (connection_.has_value()) connection_->Interrupt();
  }
  stopped_.notify_all();
  if (thread_.joinable()) thread_.join();
}

Status FaultWatcher::Start() {
  StatusOr<LocalFaultsResponse> first = Ask(0);
  if (!first.ok()) return first.status();
  try {
    thread_ = std::thread([this, first = *std::move(first)] { Run(first); });
  } catch (const std::system_error& error) {
    return NoThread("the watch", error);
  }
  return Status();
}

Status FaultWatcher::Check() const {
  if (Forked()) {
    return Refuse(Code::kFailedPrecondition, "FORKED",
                  "this watch is another process's: this process was forked from it",
                  "start a watch in the child");
  }
  const MutexLock lock(mutex_);
  return status_;
}

// Asks and reports, until it is stopped. After an error, of the conversation or for want of memory,
// it begins at the beginning on another connection: what was reported already is left out then.
void FaultWatcher::Run(const LocalFaultsResponse& first) {
  TakeFaultsOnly();
  Status status = TryDeliver(first);
  Duration pause = kFirstPause;
  while (true) {
    if (status.ok()) {
      const StatusOr<LocalFaultsResponse> answer = TryAsk();
      {
        const MutexLock lock(mutex_);
        if (stopping_) return;
        status_ = answer.status();
      }
      status = answer.ok() ? TryDeliver(*answer) : answer.status();
    }
    if (status.ok()) {
      pause = kFirstPause;
      continue;
    }
    MutexLock lock(mutex_);
    status_ = status;
    // A new connection begins at the beginning: another agent counts from the start.
    connection_.reset();
    if (!CXLPOOL_MUTANT("faults-since-the-last-agent")) after_ = 0;
    const Deadline until = After(pause);
    while (!stopping_ && RemainingMs(until, 1) > 0) stopped_.wait_until(lock.native(), until);
    if (stopping_) return;
    pause = std::min(2 * pause, kLongestPause);
    status = Status();
  }
}

StatusOr<LocalFaultsResponse> FaultWatcher::TryAsk() {
  try {
    return Ask(kWaitMs);
  } catch (const std::bad_alloc&) {
    if (CXLPOOL_MUTANT("watch-without-memory-ends-all")) throw;
    return no_memory_;
  }
}

Status FaultWatcher::TryDeliver(const LocalFaultsResponse& answer) {
  try {
    Deliver(answer);
    return Status();
  } catch (const std::bad_alloc&) {
    return no_memory_;
  }
}

// Only this thread, or Start before there is one, replaces the connection; the destructor may
// interrupt it meanwhile.
StatusOr<LocalFaultsResponse> FaultWatcher::Ask(uint32_t wait_ms) {
  const Deadline deadline = After(timeout_ + Duration(wait_ms));
  if (!connection_.has_value()) {
    StatusOr<Connection> connection =
        Connection::Connect(path_, After(std::min(timeout_, kLongestPause)));
    if (!connection.ok()) return connection.status();
    const MutexLock lock(mutex_);
    connection_ = *std::move(connection);
    if (stopping_) connection_->Interrupt();
  }
  LocalRequest request;
  request.faults = {.after = after_, .wait_ms = wait_ms};
  if (Status status = connection_->Send(request, deadline); !status.ok()) return status;
  StatusOr<Reply> reply = connection_->Receive(deadline);
  if (!reply.ok()) return reply.status();
  if (Status status = StatusOf(reply->message); !status.ok()) return status;
  if (!reply->message.faults.has_value()) return BadReply("the answer to another question");
  after_ = reply->message.faults->last;
  return *std::move(reply->message.faults);
}

// Reports all that an answer has, unless the watch is being stopped.
void FaultWatcher::Deliver(const LocalFaultsResponse& answer) {
  for (const LocalFault& fault : answer.faults) {
    if (Stopping()) return;
    DeliverFault(fault);
  }
  for (const LocalSize& size : answer.sizes) {
    if (Stopping()) return;
    DeliverSize(size);
  }
}

void FaultWatcher::DeliverFault(const LocalFault& fault) {
  if (fault.length_bytes == 0 || fault.length_bytes > kMaxBytes ||
      fault.region_offset_bytes > kMaxBytes) {
    return;  // No fault that a Region can have.
  }
  if (reported_.size() >= kMaxRemembered) reported_.clear();
  if (!reported_.emplace(fault.tag, fault.region_offset_bytes, fault.length_bytes).second) return;
  if (on_fault_) on_fault_(fault);
}

// An agent that restarts sends every size again, so that a growth during its absence is reported,
// too. A size that was reported before is left out.
void FaultWatcher::DeliverSize(const LocalSize& size) {
  if (size.size_bytes > kMaxBytes) return;  // No size that a Region can have.
  if (sizes_.size() >= kMaxRemembered) sizes_.clear();
  const auto [known, is_new] = sizes_.try_emplace(size.tag, size.size_bytes);
  if (!is_new && (known->second == size.size_bytes || CXLPOOL_MUTANT("growth-is-told-once"))) {
    return;
  }
  known->second = size.size_bytes;
  if (on_size_) on_size_(size);
}

bool FaultWatcher::Stopping() const {
  const MutexLock lock(mutex_);
  return stopping_;
}

}  // namespace cxlpool::libpool
