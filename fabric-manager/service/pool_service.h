// The use cases of operators, schedulers and applications: each plans on the pool's state, makes
// the intent durable and answers. What follows is the reconciler's.
//
// Calls from any thread. Completions: on the executor, but QUEUE_FULL on the caller's thread.
#ifndef CXLPOOL_FABRIC_MANAGER_SERVICE_POOL_SERVICE_H_
#define CXLPOOL_FABRIC_MANAGER_SERVICE_POOL_SERVICE_H_

#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "fabric-manager/model/plans/planner.h"
#include "fabric-manager/service/host_sessions.h"
#include "fabric-manager/service/reconciler.h"
#include "fabric-manager/service/writer.h"

namespace cxlpool::fm {

inline constexpr size_t kMaxBatch = 1000;  // Items of one batch.

// Ids in a plan that is thrown away begin here: nothing ever has them.
inline constexpr uint64_t kDryRunIds = uint64_t{1} << 48;

// A change of what the pool itself consists of, planned for the caller, whom the plan judges.
using PoolPlan =
    std::function<absl::StatusOr<Change>(const PoolState&, const Caller&, PlanContext&)>;

// One of the planner's functions, with what it is to be about.
template <typename What>
PoolPlan PlanFor(absl::StatusOr<Change> (*plan)(const PoolState&, const Caller&, const What&,
                                                PlanContext&),
                 std::type_identity_t<What> what) {
  return [plan, what = std::move(what)](const PoolState& state, const Caller& caller,
                                        PlanContext& context) {
    return plan(state, caller, what, context);
  };
}

// How the audit names it, and when it is answered.
struct PoolCall {
  std::string method;  // Of inventory_service.proto.
  std::string reason = {};
  // Answered once the fabric has been asked for what is new. What is durable is done, whatever the
  // fabric says to it.
  bool fabric_follows = false;
};

class PoolService {
 public:
  PoolService(Executor* executor, Writer* writer, Reconciler* reconciler, HostSessions* sessions);

  // Errors as in pool_service.proto, as Refusals. `validate_only`: plans and changes nothing.
  void Allocate(AllocateSpec spec, bool validate_only, DoneWith<Committed> done);
  void Attach(AttachSpec spec, bool validate_only, DoneWith<Committed> done);
  void Detach(DetachSpec spec, DoneWith<Committed> done);
  // With spec.fence the hosts that have it are fenced first, one after the other, each as by Fence;
  // only where nothing else stands in the release's way. An error of a fence is the answer: the
  // Region stays as it is, and hosts that were fenced before stay fenced. With spec.validate_only
  // nothing is fenced: FENCE_REQUIRED names who would be.
  void Release(ReleaseSpec spec, DoneWith<Committed> done);
  void Resize(ResizeSpec spec, bool validate_only, DoneWith<Committed> done);
  void Rename(RenameSpec spec, DoneWith<Committed> done);
  void Renew(RenewSpec spec, DoneWith<Committed> done);

  // Planned in order, and answered in order once all of it is durable: each item with its own
  // outcome. One commit where the store takes that much at once, else several
  // (Writer::SubmitBatch). An error where a spec could not be made may stand in its place: it is
  // passed through. At most kMaxBatch items (the caller checks).
  void AllocateBatch(std::vector<absl::StatusOr<AllocateSpec>> specs, bool validate_only,
                     OutcomesDone done);
  // A release that is to fence is BAD_FENCE here.
  void ReleaseBatch(std::vector<absl::StatusOr<ReleaseSpec>> specs, OutcomesDone done);

  // Changes what the pool itself consists of. Errors of `plan`, which judges the caller, and of
  // Writer::Submit. Sessions of agents that may not speak for their host any more have ended before
  // `done`.
  void ChangePool(const Caller& caller, PoolCall call, PoolPlan plan, Done done);
  // As ChangePool with PlanTopology. `validate_only`: says the steps, and takes none.
  void ApplyTopology(const Caller& caller, TopologyTables wanted, bool validate_only,
                     DoneWith<std::vector<TopologyStep>> done);

  // What the reconciler does for those who run the pool. Errors as in inventory_service.proto.
  void Fence(const Caller& caller, const std::string& host, const std::string& reason, Done done);
  void FailDevice(const Caller& caller, const std::string& device, const std::string& reason,
                  Done done);
  // Nothing of it is the pool's, and nothing is changed.
  void DiscoverDevices(const Caller& caller, const std::string& host, DoneWith<SeenDevices> done);

  // As Scrubs::LeftBytes. Any thread.
  uint64_t LeftToClear(Key region) const { return reconciler_->LeftToClear(region); }

  // For Read.
  const AuditTrail& trail() const { return writer_->trail(); }
  // Calls that were refused for want of a right, into the audit trail. Any thread.
  void RecordRefusals(std::vector<AuditEntry> refusals);
  // A commit that changes nothing: Writer::Listener::on_space hears whether the store takes it. Any
  // thread.
  void TryStore();

 private:
  // Runs `act` on the core, where the caller may run the pool.
  template <typename DoneT>
  void Act(const Caller& caller, Right right, DoneT done, absl::AnyInvocable<void(DoneT) &&> act);
  // `fenced`: hosts that this release has fenced, in order.
  void ReleaseWithFence(ReleaseSpec spec, std::vector<std::string> fenced,
                        DoneWith<Committed> done);

  Executor* const executor_;
  Writer* const writer_;
  Reconciler* const reconciler_;
  HostSessions* const sessions_;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_SERVICE_POOL_SERVICE_H_
