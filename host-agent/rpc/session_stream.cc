#include "host-agent/rpc/session_stream.h"

#include <utility>

#include "proto/support/mutant.h"
#include "proto/support/refusal.h"
#include "proto/support/status_wire.h"

namespace cxlpool::agent {

std::shared_ptr<SessionStream> SessionStream::Start(v1::HostService::Stub* stub, std::string peer,
                                                    Executor* executor, v1::AgentMessage first,
                                                    Events events) {
  std::shared_ptr<SessionStream> stream(
      new SessionStream(std::move(peer), executor, std::move(events)));
  stream->self_ = stream;
  stub->async()->Session(&stream->context_, stream.get());
  // Reads and writes are started from the executor, outside gRPC's callbacks: the hold keeps the
  // call from being over in between.
  stream->AddHold();
  stream->StartRead(&stream->incoming_);
  stream->Send(std::move(first));
  stream->StartCall();
  return stream;
}

void SessionStream::Send(v1::AgentMessage message) {
  if (over_ || broken_) return;
  if (queue_.size() >= kMaxQueued) {
    Cancel(Refuse(absl::StatusCode::kUnavailable, "MANAGER_UNREACHABLE",
                  "the fabric manager has stopped reading", "look at its log"));
    return;
  }
  queue_.push_back(std::move(message));
  if (!writing_) WriteNext();
}

void SessionStream::WriteNext() {
  writing_ = !queue_.empty();
  if (!writing_) return;
  outgoing_ = std::move(queue_.front());
  queue_.pop_front();
  StartWrite(&outgoing_);
}

void SessionStream::Cancel(absl::Status why) {
  if (why_.ok()) why_ = std::move(why);
  context_.TryCancel();
  LetGo();
}

void SessionStream::LetGo() {
  if (std::exchange(over_, true)) return;
  queue_.clear();
  RemoveHold();
}

void SessionStream::OnReadDone(bool ok) {
  executor_->Post([self = shared_from_this(), ok] {
    if (!ok) return self->LetGo();
    if (self->over_) return;
    v1::ManagerMessage message = std::exchange(self->incoming_, v1::ManagerMessage());
    self->events_.on_message(std::move(message));
    if (!self->over_) self->StartRead(&self->incoming_);
  });
}

// After a write that failed the call is over, and gRPC gives its status once all has been read that
// the manager had sent before: so reading goes on, and its end is the end.
void SessionStream::OnWriteDone(bool ok) {
  executor_->Post([self = shared_from_this(), ok] {
    if (!ok) {
      self->broken_ = true;
      self->queue_.clear();
      if (CXLPOOL_MUTANT("reads-no-more-after-a-failed-write")) self->LetGo();
      return;
    }
    ++self->written_;
    if (!self->over_) self->WriteNext();
  });
}

void SessionStream::OnDone(const grpc::Status& status) {
  absl::Status end = FromWire(status, context_, peer_);
  executor_->Post([self = self_, end = std::move(end)]() mutable {
    const bool by_us = absl::IsCancelled(end) && !self->why_.ok();
    self->events_.on_done(by_us ? self->why_ : std::move(end));
  });
  const std::function<void()> gone = events_.on_gone;
  self_.reset();
  gone();
}

}  // namespace cxlpool::agent
