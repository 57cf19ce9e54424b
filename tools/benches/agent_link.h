// A ManagerLink without a manager: its owner plays one, and waits for what is reported.
//
// Handlers are the core's and post to its executor. Thread-safe.
#ifndef CXLPOOL_TOOLS_BENCHES_AGENT_LINK_H_
#define CXLPOOL_TOOLS_BENCHES_AGENT_LINK_H_

#include <condition_variable>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "host-agent/ports/manager_link.h"
#include "proto/support/loop.h"
#include "proto/support/mutex.h"

namespace cxlpool::bench {

class AgentLink : public agent::ManagerLink {
 public:
  void Start(Handlers handlers) override;
  void Stop() override {}
  void Send(v1::Report report) override;
  void Answer(uint64_t, absl::StatusOr<v1::DeviceLook>) override {}
  // The bench asks for nothing: UNIMPLEMENTED.
  void Allocate(v1::AllocateRegionRequest request,
                DoneWith<v1::AllocateRegionResponse> done) override;
  void Release(v1::ReleaseRegionRequest request, DoneWith<v1::ReleaseRegionResponse> done) override;
  void Get(v1::GetRegionRequest request, DoneWith<v1::Region> done) override;

  // A session without Offers, once the core has prepared the host and looked at it.
  // DEADLINE_EXCEEDED: it has not; else what its Hello failed by.
  absl::Status Connect(absl::Duration limit);

  // Offers one segment and waits until it is reported in `state` for that Offer's generation: how
  // long that took, from the Offer's being handed over to the Report's being sent. INTERNAL: an
  // error was reported first, and which. DEADLINE_EXCEEDED. One call at a time.
  absl::StatusOr<absl::Duration> Offer(v1::Offer offer, v1::SegmentState state,
                                       absl::Duration limit);

  void Withdraw(v1::Withdraw withdraw);

 private:
  // Until somebody sets `done` under the lock; false: not before `limit`.
  bool Wait(MutexLock& lock, absl::Duration limit, const bool& done);

  SystemClock clock_;
  Handlers handlers_;  // Set once, before `started_`.
  Mutex mutex_;
  std::condition_variable news_;
  bool started_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t generation_ ABSL_GUARDED_BY(mutex_) = 0;  // 0: nobody waits.
  v1::SegmentState wanted_ ABSL_GUARDED_BY(mutex_) = v1::SEGMENT_STATE_UNSPECIFIED;
  absl::Duration offered_ ABSL_GUARDED_BY(mutex_);  // By clock_.
  bool answered_ ABSL_GUARDED_BY(mutex_) = false;
  absl::StatusOr<absl::Duration> took_ ABSL_GUARDED_BY(mutex_) = absl::ZeroDuration();
};

}  // namespace cxlpool::bench

#endif  // CXLPOOL_TOOLS_BENCHES_AGENT_LINK_H_
