// Ends leases: a Region whose lease ran out is released as if by its owner, detaching all. Its
// bytes go to nobody before the usual proofs.
//
// Terms are counted on the clock that never jumps and goes on while suspended; what is stored is
// wall time, and a restart grants every lease its full term again. A lease that ran out is a reason
// to take memory back, never a proof that its user let go.
//
// Runs wholly on the executor.
#ifndef CXLPOOL_FABRIC_MANAGER_SERVICE_LEASE_KEEPER_H_
#define CXLPOOL_FABRIC_MANAGER_SERVICE_LEASE_KEEPER_H_

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "fabric-manager/service/writer.h"
#include "proto/support/executor.h"

namespace cxlpool::fm {

class LeaseKeeper {
 public:
  LeaseKeeper(Executor* executor, Clock* clock, Writer* writer);

  // Takes up every lease of the state, and begins to look.
  void Start();

  void OnCommitted(const std::vector<Change>& changes);

  size_t size() const { return leases_.size(); }

 private:
  struct Lease {
    absl::Time expire_time;   // As recorded: tells one term from the next.
    absl::Duration deadline;  // Of Clock::Elapsed.
    bool ending = false;      // A release for it is not answered yet.
  };

  void Keep(const Region& region, absl::Duration term);
  void Forget(Key region);
  void Tick();

  Executor* const executor_;
  Clock* const clock_;
  Writer* const writer_;
  std::map<Key, Lease> leases_;
  std::set<std::pair<absl::Duration, Key>> by_deadline_;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_SERVICE_LEASE_KEEPER_H_
