#include "fabric-manager/rpc/host_rpc.h"

#include <deque>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "fabric-manager/rpc/authorize.h"
#include "proto/support/mutex.h"
#include "proto/support/refusal.h"
#include "proto/support/status_wire.h"

namespace cxlpool::fm {
namespace {

constexpr size_t kMaxQueue = 16384;  // Messages that an agent has not read.
constexpr int kMaxStreams = 16384;

absl::Status TooSlow() {
  return Refusal{absl::StatusCode::kResourceExhausted,
                 "AGENT_TOO_SLOW",
                 "the agent does not read what it is sent",
                 "nothing: it dials again",
                 {}}
      .ToStatus();
}

using Reactor = grpc::ServerBidiReactor<v1::AgentMessage, v1::ManagerMessage>;

// The part that outlives the stream: HostSessions may hold it after gRPC let go.
class Peer : public SessionPeer {
 public:
  Peer(Reactor* reactor, grpc::CallbackServerContext* context)
      : reactor_(reactor), context_(context), address_(context->peer()) {}

  void Send(v1::ManagerMessage message) override {
    MutexLock lock(mutex_);
    if (reactor_ == nullptr || closing_) return;
    if (queue_.size() >= kMaxQueue) {
      CloseLocked(TooSlow());
      return;
    }
    queue_.push_back(std::move(message));
    WriteLocked();
  }

  void Close(const absl::Status& status) override {
    MutexLock lock(mutex_);
    CloseLocked(status);
  }

  std::string address() const override { return address_; }

  // From the reactor.
  void OnWritten(bool ok) {
    MutexLock lock(mutex_);
    writing_ = false;
    if (!ok) queue_.clear();
    WriteLocked();
  }

  // Calls `start`, which starts the reactor's next read, unless the stream is ending.
  template <typename Start>
  void Read(Start start) {
    MutexLock lock(mutex_);
    if (reactor_ != nullptr && !finished_) start();
  }

  // No call to the reactor after this returned.
  void Detach() {
    MutexLock lock(mutex_);
    reactor_ = nullptr;
  }

 private:
  void WriteLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (reactor_ == nullptr || writing_ || finished_) return;
    if (!queue_.empty()) {
      message_ = std::move(queue_.front());
      queue_.pop_front();
      writing_ = true;
      reactor_->StartWrite(&message_);
    } else if (closing_) {
      finished_ = true;
      reactor_->Finish(end_);
    }
  }

  void CloseLocked(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (reactor_ == nullptr || closing_) return;
    closing_ = true;
    end_ = ToWire(status, *context_);
    queue_.clear();
    // A write that the agent does not take would hold the end back for as long as it lives.
    if (writing_) context_->TryCancel();
    WriteLocked();
  }

  Mutex mutex_;
  Reactor* reactor_ ABSL_GUARDED_BY(mutex_);  // Null once the stream is over.
  grpc::CallbackServerContext* const context_;
  const std::string address_;
  std::deque<v1::ManagerMessage> queue_ ABSL_GUARDED_BY(mutex_);
  v1::ManagerMessage message_ ABSL_GUARDED_BY(mutex_);
  grpc::Status end_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

class Stream : public Reactor {
 public:
  Stream(grpc::CallbackServerContext* context, Executor* executor, HostSessions* sessions,
         std::atomic<int>* streams)
      : executor_(executor),
        sessions_(sessions),
        streams_(streams),
        peer_(std::make_shared<Peer>(this, context)) {
    const bool room = streams_->fetch_add(1) < kMaxStreams;
    auto caller = Authorize(*context, "Session");
    absl::Status status = caller.status();
    if (status.ok() && !room) {
      status = Refusal{
          absl::StatusCode::kResourceExhausted,
          "TOO_MANY_AGENTS",
          absl::StrCat(kMaxStreams, " agents are connected already"),
          "nothing: the agent dials again",
          {}}.ToStatus();
    }
    if (!status.ok()) {
      peer_->Close(status);
      return;
    }
    identity_ = {caller->identity.uri, caller->insecure_local};
    StartRead(&incoming_);
  }

 private:
  void OnReadDone(bool ok) override {
    if (!ok) {
      peer_->Close(absl::CancelledError("the agent ended the stream"));
      return;
    }
    const bool hello = !greeted_;
    greeted_ = true;
    if (hello != incoming_.has_hello()) {
      peer_->Close(Refusal{
          absl::StatusCode::kInvalidArgument,
          "BAD_HELLO",
          "a session begins with one hello, and has no other",
          "update cxlpool-agent",
          {}}.ToStatus());
      return;
    }
    if (incoming_.has_heartbeat()) {
      sessions_->OnHeartbeat(*peer_, incoming_.session());
      peer_->Read([this] { StartRead(&incoming_); });
      return;
    }
    // The next message is read once this one was dealt with: an agent cannot flood the executor.
    executor_->Post([this, sessions = sessions_, peer = peer_, identity = identity_,
                     message = std::move(incoming_), hello] {
      if (hello) {
        sessions->OnHello(peer, identity, message.hello());
      } else {
        sessions->OnMessage(peer.get(), message);
      }
      peer->Read([this] { StartRead(&incoming_); });
    });
  }

  void OnWriteDone(bool ok) override { peer_->OnWritten(ok); }

  void OnCancel() override { peer_->Close(absl::CancelledError("the connection is gone")); }

  void OnDone() override {
    peer_->Detach();
    executor_->Post([sessions = sessions_, peer = peer_] { sessions->OnClosed(peer.get()); });
    streams_->fetch_sub(1);
    delete this;
  }

  Executor* const executor_;
  HostSessions* const sessions_;
  std::atomic<int>* const streams_;
  const std::shared_ptr<Peer> peer_;
  SessionIdentity identity_;
  v1::AgentMessage incoming_;
  bool greeted_ = false;
};

}  // namespace

HostRpc::HostRpc(Executor* executor, HostSessions* sessions)
    : executor_(executor), sessions_(sessions) {}

grpc::ServerBidiReactor<v1::AgentMessage, v1::ManagerMessage>* HostRpc::Session(
    grpc::CallbackServerContext* context) {
  return new Stream(context, executor_, sessions_, &streams_);
}

}  // namespace cxlpool::fm
