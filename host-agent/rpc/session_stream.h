// One HostService.Session call: the stream itself; what its messages mean is not its matter.
//
// All methods and all events are on one Executor, the link's thread. gRPC's callbacks only post to
// it. The object keeps itself until the call is over, also where its user lets go of it before.
#ifndef CXLPOOL_HOST_AGENT_RPC_SESSION_STREAM_H_
#define CXLPOOL_HOST_AGENT_RPC_SESSION_STREAM_H_

#include <grpcpp/client_context.h>
#include <grpcpp/support/client_callback.h>

#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "cxlpool/v1/host_service.grpc.pb.h"
#include "proto/support/executor.h"

namespace cxlpool::agent {

class SessionStream : private grpc::ClientBidiReactor<v1::AgentMessage, v1::ManagerMessage>,
                      public std::enable_shared_from_this<SessionStream> {
 public:
  struct Events {
    std::function<void(v1::ManagerMessage)> on_message;  // One at a time, in order.
    std::function<void(absl::Status)> on_done;           // The last event.
    std::function<void()> on_gone;  // Any thread: gRPC is through with this object.
  };

  static constexpr size_t kMaxQueued = 256;

  static std::shared_ptr<SessionStream> Start(v1::HostService::Stub* stub, std::string peer,
                                              Executor* executor, v1::AgentMessage first,
                                              Events events);

  // Queues a message. When kMaxQueued are waiting the manager does not read: the call is ended.
  void Send(v1::AgentMessage message);

  // Whether everything that was queued has been handed to the network.
  bool idle() const { return !writing_; }

  // So many messages have been handed to the network.
  uint64_t written() const { return written_; }

  // Ends the call; on_done follows with `why`, or with the status that the manager sent before.
  void Cancel(absl::Status why);

 private:
  SessionStream(std::string peer, Executor* executor, Events events)
      : peer_(std::move(peer)), executor_(executor), events_(std::move(events)) {}

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

  void WriteNext();
  void LetGo();

  const std::string peer_;
  Executor* const executor_;
  Events events_;
  grpc::ClientContext context_;
  std::shared_ptr<SessionStream> self_;  // While gRPC may call.

  // Written by gRPC between StartRead and OnReadDone, by the executor otherwise.
  v1::ManagerMessage incoming_;
  v1::AgentMessage outgoing_;

  // The executor's.
  std::deque<v1::AgentMessage> queue_;
  bool writing_ = false;
  uint64_t written_ = 0;
  bool broken_ = false;  // A write has failed: nothing more is written.
  bool over_ = false;    // Nothing may be started any more.
  absl::Status why_;     // Given to Cancel.
};

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_RPC_SESSION_STREAM_H_
