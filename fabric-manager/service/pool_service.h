// The use cases of operators, schedulers and applications: each plans on the pool's state, makes
// the intent durable and answers. What follows is the reconciler's.
//
// Calls from any thread; completions on the executor.
#ifndef CXLPOOL_FABRIC_MANAGER_SERVICE_POOL_SERVICE_H_
#define CXLPOOL_FABRIC_MANAGER_SERVICE_POOL_SERVICE_H_

#include <string>

#include "fabric-manager/model/planner.h"
#include "fabric-manager/service/host_sessions.h"
#include "fabric-manager/service/reconciler.h"
#include "fabric-manager/service/writer.h"

namespace cxlpool::fm {

class PoolService {
 public:
  PoolService(Executor* executor, Writer* writer, Reconciler* reconciler, HostSessions* sessions);

  // Errors as in pool_service.proto, as Refusals. `validate_only`: plans and changes nothing.
  void Allocate(AllocateSpec spec, bool validate_only, DoneWith<Committed> done);
  void Attach(AttachSpec spec, bool validate_only, DoneWith<Committed> done);
  void Detach(DetachSpec spec, DoneWith<Committed> done);
  void Release(ReleaseSpec spec, DoneWith<Committed> done);

  // Errors as in inventory_service.proto. `principal`: identity URI of the caller, for the audit.
  void Enrol(const std::string& principal, const std::string& host, const std::string& identity,
             Done done);
  void Retire(const std::string& principal, const std::string& host, Done done);
  void Fence(const std::string& principal, const std::string& host, const std::string& reason,
             Done done);

 private:
  Executor* const executor_;
  Writer* const writer_;
  Reconciler* const reconciler_;
  HostSessions* const sessions_;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_SERVICE_POOL_SERVICE_H_
