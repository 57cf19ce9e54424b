#include "fabric-manager/rpc/host_rpc.h"

#include <deque>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cxlpool/v1/host_service.pb.h"
#include "proto/support/mutant.h"
#include "proto/support/mutex.h"
#include "proto/support/peer_identity.h"
#include "proto/support/refusal.h"
#include "proto/support/status_wire.h"

namespace cxlpool::fm {
namespace {

// What an agent has not read yet of what it was sent.
constexpr size_t kMaxQueue = 16384;
constexpr size_t kMaxQueueBytes = size_t{8} << 20;
// What one message may have: as many segments and slots as HostSessions takes.
constexpr RequestLimits kMessageLimits{.max_bytes = size_t{4} << 20, .max_elements = 131072};

absl::Status TooSlow() {
  return Refuse(absl::StatusCode::kResourceExhausted, "AGENT_TOO_SLOW",
                "the agent does not read what it is sent", "nothing: it dials again");
}

absl::Status NoHello() {
  return Refuse(
      absl::StatusCode::kDeadlineExceeded, "BAD_HELLO",
      absl::StrCat("the agent said no hello within ", absl::FormatDuration(HostRpc::kHelloTime)),
      "nothing: it dials again");
}

// Who the agent is, by its certificate where it has one: a revoked serial is refused, and when the
// certificate ends is shown beside the host.
SessionIdentity SessionIdentityOf(const Caller& caller, const grpc::ServerContextBase& context) {
  SessionIdentity identity{caller.identity(), caller.is_local()};
  const std::optional<CertificateFacts> shown = CertificateOf(*context.auth_context());
  if (shown.has_value()) {
    identity.serial = shown->serial;
    identity.end = shown->not_after;
  }
  return identity;
}

using Reactor = grpc::ServerGenericBidiReactor;

// The part that outlives the stream: HostSessions may hold it after gRPC let go.
class Peer : public SessionPeer {
 public:
  Peer(Reactor* reactor, grpc::CallbackServerContext* context)
      : reactor_(reactor), context_(context), address_(context->peer()) {}

  // Queues it. An agent that does not read is not waited for: its session ends, and the next one
  // gets every Offer anew, so that nothing is lost with the queue.
  void Send(v1::ManagerMessage message) override {
    MutexLock lock(mutex_);
    if (reactor_ == nullptr || closing_) return;
    grpc::ByteBuffer bytes = ToBytes(message);
    if (queue_.size() >= kMaxQueue || queued_bytes_ + bytes.Length() > kMaxQueueBytes) {
      CloseLocked(TooSlow());
      return;
    }
    queued_bytes_ += bytes.Length();
    queue_.push_back(std::move(bytes));
    WriteLocked();
  }

  void Close(const absl::Status& status) override {
    MutexLock lock(mutex_);
    CloseLocked(status);
  }

  std::string address() const override { return address_; }

  // From the timer of kHelloTime. Whoever says nothing would keep a place for ever.
  void EndUnlessGreeted() {
    MutexLock lock(mutex_);
    if (!greeted_) CloseLocked(NoHello());
  }

  // What Close was called with; OK: it was not.
  absl::Status closed() {
    MutexLock lock(mutex_);
    return closed_;
  }

  // From the reactor: a message came. True: it is the first.
  bool OnHeard() {
    MutexLock lock(mutex_);
    return !std::exchange(greeted_, true);
  }
  // From the reactor: the write ended. Not ok: the stream is broken, and what is queued goes
  // nowhere.
  void OnWritten(bool ok) {
    MutexLock lock(mutex_);
    writing_ = false;
    if (!ok) ForgetQueue();
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
  // gRPC takes one write at a time, and nothing after Finish: the next message, or, once there is
  // none and the stream is to end, its end.
  void WriteLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (reactor_ == nullptr || writing_ || finished_) return;
    if (!queue_.empty()) {
      message_.Swap(&queue_.front());
      queue_.pop_front();
      queued_bytes_ -= message_.Length();
      writing_ = true;
      reactor_->StartWrite(&message_);
    } else if (closing_) {
      finished_ = true;
      reactor_->Finish(end_);
    }
  }

  // The first reason stands. What is queued is not sent any more: it is of a session that is over.
  void CloseLocked(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (reactor_ == nullptr || closing_) return;
    closing_ = true;
    closed_ = status;
    end_ = ToWire(status, *context_);
    ForgetQueue();
    // A write that the agent does not take would hold the end back for as long as it lives.
    if (writing_) context_->TryCancel();
    WriteLocked();
  }

  void ForgetQueue() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    queue_.clear();
    queued_bytes_ = 0;
  }

  Mutex mutex_;
  Reactor* reactor_ ABSL_GUARDED_BY(mutex_);  // Null once the stream is over.
  grpc::CallbackServerContext* const context_;
  const std::string address_;
  std::deque<grpc::ByteBuffer> queue_ ABSL_GUARDED_BY(mutex_);
  size_t queued_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  grpc::ByteBuffer message_ ABSL_GUARDED_BY(mutex_);
  bool greeted_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::Status end_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status closed_ ABSL_GUARDED_BY(mutex_);
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

// One agent's stream, from its opening to OnDone, which deletes it. Its callbacks come on gRPC's
// threads; what they ask of HostSessions runs on the executor, which sees the Peer only.
class Stream : public Reactor {
 public:
  Stream(Admitted admitted, Executor* executor, HostSessions* sessions,
         const HostRpc::OnRefused* refused)
      : executor_(executor),
        sessions_(sessions),
        refused_(refused),
        place_(std::move(admitted.place)),
        identity_(SessionIdentityOf(admitted.caller, *admitted.context)),
        peer_(std::make_shared<Peer>(this, admitted.context)) {
    if (!CXLPOOL_MUTANT("no-hello-deadline")) {
      executor_->PostAfter(HostRpc::kHelloTime, [weak = std::weak_ptr<Peer>(peer_)] {
        if (const auto peer = weak.lock()) peer->EndUnlessGreeted();
      });
    }
    StartRead(&bytes_);
  }

 private:
  // Takes one message: a hello first, and never again. Whatever is not sound ends the stream.
  void OnReadDone(bool ok) override {
    if (!ok) {
      peer_->Close(absl::CancelledError("the agent ended the stream"));
      return;
    }
    v1::AgentMessage message;
    if (absl::Status status = ParseRequest(bytes_, kMessageLimits, &message); !status.ok()) {
      peer_->Close(status);
      return;
    }
    const bool hello = peer_->OnHeard();
    if (hello != message.has_hello()) {
      peer_->Close(Refuse(absl::StatusCode::kInvalidArgument, "BAD_HELLO",
                          "a session begins with one hello, and has no other",
                          "update cxlpool-agent"));
      return;
    }
    // Not by way of the executor: while that is busy, agents that live must not look dead.
    if (message.has_heartbeat()) {
      sessions_->OnHeartbeat(*peer_, message.session());
      peer_->Read([this] { StartRead(&bytes_); });
      return;
    }
    // The next message is read once this one was dealt with: an agent cannot flood the executor.
    executor_->Post([this, sessions = sessions_, refused = refused_, peer = peer_,
                     identity = identity_, message = std::move(message), hello] {
      if (hello) {
        sessions->OnHello(peer, identity, message.hello());
        // Refused by a rule of ours, not because the connection broke: `cxlpool doctor` shows it.
        if (const absl::Status why = peer->closed(); RefusalOf(why).has_value()) {
          (*refused)(peer->address(), why);
        }
      } else {
        sessions->OnMessage(peer.get(), message);
      }
      peer->Read([this] { StartRead(&bytes_); });
    });
  }

  void OnWriteDone(bool ok) override { peer_->OnWritten(ok); }

  void OnCancel() override { peer_->Close(absl::CancelledError("the connection is gone")); }

  // The last callback. HostSessions may still hold the Peer, and is told on its own thread.
  void OnDone() override {
    peer_->Detach();
    executor_->Post([sessions = sessions_, peer = peer_] { sessions->OnClosed(peer.get()); });
    delete this;
  }

  Executor* const executor_;
  HostSessions* const sessions_;
  const HostRpc::OnRefused* const refused_;
  const Place place_;
  const SessionIdentity identity_;
  const std::shared_ptr<Peer> peer_;
  grpc::ByteBuffer bytes_;
};

}  // namespace

HostRpc::HostRpc(Executor* executor, HostSessions* sessions, OnRefused refused)
    : executor_(executor), sessions_(sessions), refused_(std::move(refused)) {}

void HostRpc::AddTo(Calls& calls) {
  calls.Add("/cxlpool.v1.HostService/Session", Admission::Kind::kSession,
            [this](Admitted admitted) -> grpc::ServerGenericBidiReactor* {
              return new Stream(std::move(admitted), executor_, sessions_, &refused_);
            });
  calls.AddUnary("/cxlpool.v1.HostService/CheckSession", this, &HostRpc::CheckSession,
                 kMessageLimits);
}

// What a session of this host would be answered. Nothing begins.
void HostRpc::CheckSession(UnaryCall<v1::CheckSessionRequest, v1::CheckSessionResponse>& call) {
  executor_->Post([this, &call] {
    absl::StatusOr<v1::CheckSessionResponse> answer =
        sessions_->Check(SessionIdentityOf(call.caller(), *call.context()), call.request().hello());
    if (answer.ok()) *call.response() = *std::move(answer);
    call.Finish(answer.status());
  });
}

}  // namespace cxlpool::fm
