// The Regions of one Slurm job at the manager: allocate, attach, release.
//
// One thread. Each call ends by `deadline`, a time of the connection's pacer.
#ifndef CXLPOOL_TOOLS_CLI_SLURM_MEMORY_H_
#define CXLPOOL_TOOLS_CLI_SLURM_MEMORY_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tools/cli/connection.h"
#include "tools/cli/region_wait.h"
#include "tools/cli/settings_file.h"
#include "tools/cli/slurm/accounting.h"
#include "tools/cli/slurm/directive.h"
#include "tools/cli/slurm/slurm_cluster.h"

namespace cxlpool::cli {

class JobMemory {
 public:
  JobMemory(const SlurmSettings& settings, Connection& connection, absl::Duration deadline)
      : settings_(settings), connection_(connection), deadline_(deadline) {}

  // One Region, whole granules, which the job's user may open; after an error there is none.
  // ALREADY_EXISTS/REGION_EXISTS: there was one of that name before, which stays.
  absl::StatusOr<v1::Region> Allocate(const JobRegion& which, const MemoryRequest& request,
                                      const SlurmJob& job, uint64_t bytes);

  // The one of that name, if a setup made it; else REGION_EXISTS: a person did.
  absl::StatusOr<v1::Region> FindOwn(const JobRegion& which);

  // To one of the job's nodes, READ_ONLY where there is one that writes already; answers without
  // waiting. REGION_EXISTS: no setup made what has the name, or a host has it that is no node of
  // the job.
  absl::Status Attach(const JobRegion& which, const std::vector<std::string>& nodes, size_t node,
                      v1::AttachmentMode mode, bool first);
  // Until that is done.
  absl::Status AwaitOnline(const std::string& region_id, const std::string& node);

  // Until its bytes are free. Whatever was made of its name meanwhile stays: it goes by the tag.
  absl::Status Release(const v1::Region& region);
  // All Regions of the job. None there: OK.
  absl::Status ReleaseAll(uint32_t job);

  // Those of this Slurm.
  absl::StatusOr<v1::ListRegionsResponse> List();

  absl::Duration Left() const { return deadline_ - connection_.pacer().Elapsed(); }

 private:
  absl::StatusOr<v1::Region> Await(const WaitGoal& goal, const v1::Region& region,
                                   uint64_t revision);

  const SlurmSettings& settings_;
  Connection& connection_;
  const absl::Duration deadline_;
};

}  // namespace cxlpool::cli

#endif  // CXLPOOL_TOOLS_CLI_SLURM_MEMORY_H_
