// Makes durable what the Reconciler found out about a Region: the rung that was reached, a part
// that gave up or is gone, what a host says of itself. Each rung that is durable is a line in the
// log, with the request that it is for.
//
// One commit of a Region at a time: while Busy, the Region is not stepped, and nobody else may
// submit for it. An edit applies to the Region as it is when the Writer's turn comes, so each of
// them looks first whether it still makes sense, and is left out where it does not.
//
// Runs wholly on the executor.
#ifndef CXLPOOL_FABRIC_MANAGER_SERVICE_REGION_RECORDER_H_
#define CXLPOOL_FABRIC_MANAGER_SERVICE_REGION_RECORDER_H_

#include <functional>
#include <set>
#include <string>

#include "fabric-manager/service/active_regions.h"
#include "fabric-manager/service/probe.h"
#include "fabric-manager/service/writer.h"
#include "proto/support/log.h"
#include "proto/support/log_limit.h"

namespace cxlpool::fm {

class RegionRecorder {
 public:
  static constexpr int kMaxLines = 100;  // A second, of rungs in the log; the others are counted.

  RegionRecorder(Writer* writer, ActiveRegions* active, ProbePoints* probe, const Clock* clock)
      : writer_(writer), active_(active), probe_(probe), clock_(clock) {}

  // A commit of the Region is under way.
  bool Busy(Key region) const { return committing_.contains(region); }

  // Commits `edit` of the Attachment if it still is what `seen` was; `then` once it is durable.
  // `rung` is for the audit, the log and the probe ("before-commit-" and "after-commit-").
  void Record(const Region& region, const Attachment& seen, const std::string& rung,
              const std::string& reason,
              std::function<void(Region&, Attachment&, PlanContext&)> edit,
              std::function<void()> then = nullptr);

  // Commits what `edit` makes of the Region as it is then; false: nothing to do after all. A commit
  // that fails changes nothing, and the Region stays active: its next step tries again.
  void Submit(Key region, const std::string& rung, const std::string& reason,
              std::function<bool(Region&, PlanContext&)> edit,
              std::function<void()> then = nullptr);

  // Makes a Tombstone of a Region that no host has any more; `then` once that is durable. Its bad
  // extents are left behind as quarantined Regions, in the same change.
  void Bury(const Region& region, std::function<void()> then);

 private:
  // `about`: of the line in the log; no region in it: as the Region is once it is durable.
  void Commit(Key region, LogFields about, const std::string& rung, const std::string& reason,
              std::function<bool(Region&, PlanContext&)> edit, std::function<void()> then);
  void LogRung(LogFields about, const std::string& rung, const std::string& reason);

  Writer* const writer_;
  ActiveRegions* const active_;
  ProbePoints* const probe_;
  const Clock* const clock_;
  LogLimit limit_{kMaxLines};
  std::set<Key> committing_;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_FABRIC_MANAGER_SERVICE_REGION_RECORDER_H_
