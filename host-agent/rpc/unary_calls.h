// Calls that are under way, with a limit, a deadline each, and an end that waits for all of them.
//
// Any thread; completions run on gRPC's threads.
#ifndef CXLPOOL_HOST_AGENT_RPC_UNARY_CALLS_H_
#define CXLPOOL_HOST_AGENT_RPC_UNARY_CALLS_H_

#include <grpcpp/client_context.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "host-agent/ports/manager_link.h"
#include "proto/support/executor.h"
#include "proto/support/mutex.h"
#include "proto/support/status_wire.h"

namespace cxlpool::agent {

class UnaryCalls {
 public:
  explicit UnaryCalls(absl::Duration timeout) : timeout_(timeout) {}

  // `start(context, request, response, callback)` starts the call, to `peer`.
  // RESOURCE_EXHAUSTED/QUEUE_FULL, UNAVAILABLE/MANAGER_UNREACHABLE (stopped): it was not started.
  template <typename Request, typename Response, typename Start>
  void Call(std::string peer, Request request, DoneWith<Response> done, Start start) {
    struct State {
      std::string peer;
      grpc::ClientContext context;
      Request request;
      Response response;
      DoneWith<Response> done;
    };
    auto state = std::make_shared<State>();
    state->peer = std::move(peer);
    state->request = std::move(request);
    state->done = std::move(done);
    state->context.set_deadline(absl::ToChronoTime(absl::Now() + timeout_));
    // Shares the state: the context lives for as long as anybody may cancel it.
    const std::shared_ptr<grpc::ClientContext> context(state, &state->context);
    if (absl::Status refused = Enter(context); !refused.ok()) {
      std::move(state->done)(std::move(refused));
      return;
    }
    start(&state->context, &state->request, &state->response,
          [this, state](const grpc::Status& status) mutable {
            absl::Status end = FromWire(status, state->context, state->peer);
            if (end.ok()) {
              std::move(state->done)(std::move(state->response));
            } else {
              std::move(state->done)(std::move(end));
            }
            grpc::ClientContext* const left = &state->context;
            Leave(std::shared_ptr<grpc::ClientContext>(std::move(state), left));
          });
  }

  // Cancels what is under way, waits until it has been answered and its context is gone, and
  // refuses what comes after. The contexts hold the channel: the last one of a process must not end
  // in a callback, since gRPC then ends the thread that it runs on, and goes on in it.
  void Stop();

 private:
  static constexpr size_t kMaxCalls = kMaxManagerCalls;

  absl::Status Enter(const std::shared_ptr<grpc::ClientContext>& context);
  void Leave(std::shared_ptr<grpc::ClientContext> context);

  const absl::Duration timeout_;
  Mutex mutex_;
  std::condition_variable left_;
  std::set<std::shared_ptr<grpc::ClientContext>> under_way_ ABSL_GUARDED_BY(mutex_);
  size_t leaving_ ABSL_GUARDED_BY(mutex_) = 0;  // Answered; their contexts may be there still.
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_RPC_UNARY_CALLS_H_
