// The agent's way to the fabric manager: one session, and calls on behalf of applications.
//
// The link dials, sends Hello, reconnects with backoff and sends heartbeats; the core is informed
// of sessions and Offers and sends Reports. Messages of a session that ended are dropped by the
// link. Calls from the core's thread; handlers and completions come from any thread.
#ifndef CXLPOOL_HOST_AGENT_PORTS_MANAGER_LINK_H_
#define CXLPOOL_HOST_AGENT_PORTS_MANAGER_LINK_H_

#include <cstddef>

#include "absl/functional/any_invocable.h"
#include "cxlpool/v1/host_service.pb.h"
#include "cxlpool/v1/pool_service.pb.h"
#include "proto/support/executor.h"
#include "proto/support/refusal.h"

namespace cxlpool::agent {

// Whether dialling again soon is of no use after a session that ended so. SESSION_ACTIVE is not
// such: after a restart of the agent the manager may hold the old session for a while.
inline bool IsPermanent(const absl::Status& why) {
  switch (why.code()) {
    case absl::StatusCode::kFailedPrecondition:
      return ReasonOf(why) != "SESSION_ACTIVE";
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kUnimplemented:
      return true;
    default:
      return false;
  }
}

// Calls of a link that may be under way.
inline constexpr size_t kMaxManagerCalls = 256;

class ManagerLink {
 public:
  // What the link calls. Each may be called from any thread.
  struct Handlers {
    // A connection is about to be made: answer with what the host holds now.
    absl::AnyInvocable<void(DoneWith<v1::Hello>)> make_hello;
    // The manager accepted; every Offer that concerns the host is in it.
    absl::AnyInvocable<void(v1::Welcome)> on_welcome;
    absl::AnyInvocable<void(v1::Offer)> on_offer;
    absl::AnyInvocable<void(v1::Withdraw)> on_withdraw;
    absl::AnyInvocable<void(v1::EventsSeen)> on_events_seen;
    absl::AnyInvocable<void(v1::DeviceTask)> on_device_task;
    // The session is over; the link dials again by itself unless `permanent` (IsPermanent: with a
    // reason that only an operator can change; it then dials every few seconds).
    absl::AnyInvocable<void(absl::Status why, bool permanent)> on_lost;
  };

  virtual ~ManagerLink() = default;

  virtual void Start(Handlers handlers) = 0;

  // Ends the session and stops dialling; no handler runs after it returned.
  virtual void Stop() = 0;

  // Queues a Report on the current session; without one it is dropped (the next Hello has it all).
  virtual void Send(v1::Report report) = 0;

  // Likewise, what came of the DeviceTask of that id; without a session nothing waits for it any
  // more.
  virtual void Answer(uint64_t task_id, absl::StatusOr<v1::DeviceLook> look) = 0;

  // PoolService calls under the host's certificate. Deadline 30 s.
  // UNAVAILABLE/MANAGER_UNREACHABLE: retry with the same request_id. RESOURCE_EXHAUSTED/QUEUE_FULL:
  // kMaxManagerCalls are under way.
  virtual void Allocate(v1::AllocateRegionRequest request,
                        DoneWith<v1::AllocateRegionResponse> done) = 0;
  virtual void Release(v1::ReleaseRegionRequest request,
                       DoneWith<v1::ReleaseRegionResponse> done) = 0;
  virtual void Get(v1::GetRegionRequest request, DoneWith<v1::Region> done) = 0;
};

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_PORTS_MANAGER_LINK_H_
