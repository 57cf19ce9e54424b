// Reports to applications the lost bytes of their Regions, and the sizes: the LocalFaults of
// local.proto.
//
// A request waits until there is something to report, or until its time is up. On the core's thread
// only; who asks learns only of Regions that it may open.
#ifndef CXLPOOL_HOST_AGENT_SERVICE_FAULT_SERVICE_H_
#define CXLPOOL_HOST_AGENT_SERVICE_FAULT_SERVICE_H_

#include <cstdint>
#include <map>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "cxlpool/v1/local.pb.h"
#include "host-agent/service/agent_core.h"
#include "host-agent/service/wait_timer.h"

namespace cxlpool::agent {

inline constexpr absl::Duration kMaxFaultsWait = absl::Minutes(1);
inline constexpr int kMaxFaultsAnAnswer = 256;       // Sizes among them.
inline constexpr size_t kMaxFaultsBytes = 48 << 10;  // A packet has 64 KiB.

class FaultService {
 public:
  using MayOpen = absl::AnyInvocable<bool(const v1::Offer&) const>;
  using FaultsDone = absl::AnyInvocable<void(v1::LocalFaultsResponse) &&>;

  // All outlive this.
  FaultService(const AgentCore* core, Executor* executor, Clock* clock)
      : core_(core), clock_(clock), timer_(executor, clock, [this] { return Serve(); }) {}

  // `done` is called on the core's thread, perhaps before this returns; never after Forget. The
  // connection has no other request that waits.
  void Ask(uint64_t connection, const v1::LocalFaultsRequest& request, MayOpen may_open,
           FaultsDone done);

  bool Waits(uint64_t connection) const { return waiting_.contains(connection); }
  void Forget(uint64_t connection) { waiting_.erase(connection); }

  // Answers those for whom something has come, and returns the earliest deadline of the others.
  absl::Duration Serve();

 private:
  struct Waiting {
    uint64_t after = 0;
    MayOpen may_open;
    FaultsDone done;
    absl::Duration deadline;
  };

  // What is reported under one number: a fault, or a size.
  struct News {
    uint64_t sequence = 0;
    const AttachmentKey* key = nullptr;
    const FaultTable::Fault* fault = nullptr;  // Null: it is a size.
    uint64_t size_bytes = 0;
  };

  // In order of their numbers.
  std::vector<News> After(uint64_t sequence) const;
  v1::LocalFaultsResponse Collect(const Waiting& waiting) const;
  // True if answered.
  bool TryToFinish(Waiting& waiting);

  const AgentCore* const core_;
  Clock* const clock_;
  std::map<uint64_t, Waiting> waiting_;  // By connection.
  WaitTimer timer_;
};

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_SERVICE_FAULT_SERVICE_H_
