// The one place that retries. A call that could not reach the manager, or that the manager was too
// busy for, is made again with backoff until it succeeds or `timeout` is over. Of several managers
// each is tried before there is a pause.
//
// The request stays the same message, request_id and all, so the manager knows a repeated one.
// One thread.
#ifndef CXLPOOL_TOOLS_CLI_CONNECTION_H_
#define CXLPOOL_TOOLS_CLI_CONNECTION_H_

#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tools/cli/manager_stub.h"
#include "tools/cli/pacer.h"

namespace cxlpool::cli {

// Whether the same call may be worth making again: UNAVAILABLE, RESOURCE_EXHAUSTED/QUEUE_FULL.
bool IsTransient(const absl::Status& status);

// Hears of what goes on behind an answer.
class CallListener {
 public:
  virtual ~CallListener() = default;
  // A change under this request_id is about to be asked for, for the first time.
  virtual void OnChange(const std::string& /*request_id*/) {}
  // A call is about to be made again, why, and how long that may go on.
  virtual void OnRetry(const absl::Status& status, absl::Duration left) = 0;
};

class Connection {
 public:
  // `timeout` bounds a call with all its retries; with `fail_fast` there are none, but each manager
  // is tried. The others must outlive this.
  Connection(ManagerStub& stub, Pacer& pacer, CallListener& listener, absl::Duration timeout,
             bool fail_fast = false)
      : stub_(stub), pacer_(pacer), listener_(listener), timeout_(timeout), fail_fast_(fail_fast) {}

  // connection.Call(&ManagerStub::AllocateRegion, request). The last error, once `timeout` is
  // over, says how long it tried and how to repeat the call safely.
  template <typename Request, typename Response>
  absl::StatusOr<Response> Call(absl::StatusOr<Response> (ManagerStub::*method)(const Request&,
                                                                                absl::Duration),
                                const Request& request) {
    std::string request_id;
    if constexpr (requires { request.request_id(); }) request_id = request.request_id();
    if (!request_id.empty()) listener_.OnChange(request_id);
    std::string repeat_by = request_id.empty() ? "" : "--request-id " + request_id;
    // Of what was asked about the etag is the one that was shown, and by now it may be another: the
    // same call has the same.
    if constexpr (requires { request.etag(); }) {
      if (!request_id.empty() && !request.etag().empty()) repeat_by += " --etag " + request.etag();
    }
    if constexpr (requires { request.requests(0).request_id(); }) {
      for (const auto& item : request.requests()) listener_.OnChange(item.request_id());
    }
    absl::StatusOr<Response> answer = absl::UnknownError("not tried");
    const absl::Status status = Retry(repeat_by, [&](absl::Duration left) {
      answer = (stub_.*method)(request, left);
      return answer.status();
    });
    if (!status.ok()) return status;  // Which says more than the last answer.
    return answer;
  }

  // The same, chosen by the request's type: each call has a request of its own.
#define CXLPOOL_SEND(service, method, request_type, response_type)          \
  absl::StatusOr<v1::response_type> Send(const v1::request_type& request) { \
    return Call(&ManagerStub::method, request);                             \
  }
  CXLPOOL_MANAGER_METHODS(CXLPOOL_SEND)
#undef CXLPOOL_SEND

  // What Call does, for a stream: makes `attempt` as often as it takes. `left`: of `timeout`.
  // `repeat_by`: the options by which the same call is made again; empty: it changes nothing.
  absl::Status Retry(const std::string& repeat_by,
                     absl::FunctionRef<absl::Status(absl::Duration left)> attempt);

  ManagerStub& stub() { return stub_; }
  Pacer& pacer() { return pacer_; }
  CallListener& listener() { return listener_; }
  absl::Duration timeout() const { return timeout_; }
  bool fail_fast() const { return fail_fast_; }

 private:
  ManagerStub& stub_;
  Pacer& pacer_;
  CallListener& listener_;
  const absl::Duration timeout_;
  const bool fail_fast_;
};

}  // namespace cxlpool::cli

#endif  // CXLPOOL_TOOLS_CLI_CONNECTION_H_
