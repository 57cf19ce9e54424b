// The use cases of operators, schedulers and applications: each plans on the pool's state, makes
// the intent durable and answers. What follows is the reconciler's.
//
// Calls from any thread. Completions: on the executor, but QUEUE_FULL on the caller's thread.
#ifndef CXLPOOL_FABRIC_MANAGER_SERVICE_POOL_SERVICE_H_
#define CXLPOOL_FABRIC_MANAGER_SERVICE_POOL_SERVICE_H_

#include <functional>
#include <string>
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

  // Planned in order in one group, and answered in order once all of it is durable: each item with
  // its own outcome. An error where a spec could not be made may stand in its place: it is passed
  // through. At most kMaxBatch items (the caller checks).
  void AllocateBatch(std::vector<absl::StatusOr<AllocateSpec>> specs, bool validate_only,
                     OutcomesDone done);
  // A release that is to fence is BAD_FENCE here.
  void ReleaseBatch(std::vector<absl::StatusOr<ReleaseSpec>> specs, OutcomesDone done);

  // Errors as in inventory_service.proto. Each judges its caller first (Right::kRunPool), on the
  // core; the audit says who it was.
  void Enrol(const Caller& caller, EnrolSpec spec, Done done);
  void Retire(const Caller& caller, const std::string& host, Done done);
  void RemoveHost(const Caller& caller, const std::string& host, Done done);
  void Fence(const Caller& caller, const std::string& host, const std::string& reason, Done done);
  // Nothing of it is the pool's, and nothing is changed.
  void DiscoverDevices(const Caller& caller, const std::string& host, DoneWith<SeenDevices> done);
  void AddDevice(const Caller& caller, const std::string& device, Done done);
  // What the pool is made of. Each is answered once the fabric has been asked for what is new.
  void PutDevice(const Caller& caller, DeviceEntry device, Done done);
  void PutHost(const Caller& caller, HostEntry host, Done done);
  void ApplyTopology(const Caller& caller, TopologyTables wanted, bool validate_only,
                     DoneWith<std::vector<TopologyStep>> done);
  void DrainDevice(const Caller& caller, const std::string& device, Done done);
  void RemoveDevice(const Caller& caller, const std::string& device, Done done);
  void FailDevice(const Caller& caller, const std::string& device, const std::string& reason,
                  Done done);
  void SetTenant(const Caller& caller, const Tenant& tenant, Done done);
  void RemoveTenant(const Caller& caller, const std::string& tenant, Done done);
  // Sessions of what is revoked have ended before `done`.
  void Revoke(const Caller& caller, Revocation revocation, Done done);
  void Restore(const Caller& caller, const std::string& subject, Done done);

 private:
  using PlanChange = std::function<absl::StatusOr<Change>(const PoolState&, PlanContext&)>;
  // What only those may do who run the pool: the caller is judged on the state that is planned on.
  void SubmitChange(const Caller& caller, const std::string& method, const std::string& reason,
                    PlanChange plan, Done done);
  // Likewise, for what the reconciler does: runs `act` on the core.
  void Act(const Caller& caller, Done done, absl::AnyInvocable<void(Done) &&> act);
  // Has the driver go by what was changed before `done`. What is durable is done, whatever the
  // fabric says to it.
  Done Following(Done done);
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
