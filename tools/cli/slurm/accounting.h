// What is whose between Slurm and the pool: the names of jobs' Regions, the figure that Slurm
// counts with, and which Regions a sweep keeps or lets go.
//
// Pure functions, any thread.
#ifndef CXLPOOL_TOOLS_CLI_SLURM_ACCOUNTING_H_
#define CXLPOOL_TOOLS_CLI_SLURM_ACCOUNTING_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "cxlpool/v1/pool_service.pb.h"
#include "tools/cli/settings_file.h"

namespace cxlpool::cli {

// One Region of a job. `node`: which of the job's nodes it is for, with per=node.
struct JobRegion {
  uint32_t job = 0;
  std::optional<uint32_t> node = std::nullopt;

  bool operator==(const JobRegion&) const = default;
};

// "slurm-5", or "slurm-5-0" for the first node; with a tenant "ml.slurm-5".
std::string JobRegionId(const SlurmSettings& settings, const JobRegion& which);

// The inverse, of a Region of the pool: only what a setup makes, which always has a lease. Nothing:
// it is somebody else's, and is left alone.
std::optional<JobRegion> FindJobRegion(const SlurmSettings& settings, const v1::Region& region);

// Those of one job, in order of node.
std::vector<v1::Region> RegionsOfJob(const SlurmSettings& settings,
                                     const v1::ListRegionsResponse& regions, uint32_t job);

// The pool as Slurm has to see it. Slurm takes off what its jobs have, so the figure is what is
// free and what its jobs have; what others use is in neither.
uint64_t BytesForSlurm(const SlurmSettings& settings, const v1::Capacity& capacity,
                       const v1::ListRegionsResponse& regions);

// The same as slurm_bb_pools answers it, in whole granules: a pool's quantity is a number of them.
std::string PoolsJson(const SlurmSettings& settings, uint64_t bytes);

// Rounded up to a whole granule.
uint64_t WholeGranules(const SlurmSettings& settings, uint64_t bytes);

// Whether a job in this state, as squeue names it, may still use its memory.
bool MayUseMemory(absl::string_view job_state);

// The jobs of `squeue --format="%A %T"` that may use their memory. UNAVAILABLE/SLURM_UNKNOWN: a
// line is something else, so the list cannot be believed.
absl::StatusOr<std::set<uint32_t>> ReadJobs(absl::string_view listing);

// Whether the user `uid` sees everybody's jobs, by `scontrol show config`: one who does not must
// not conclude that a job is gone. FAILED_PRECONDITION/SLURM_HIDES_JOBS.
absl::Status CheckSeesAllJobs(absl::string_view config, uid_t uid);

// What a sweep does.
struct SweepPlan {
  std::vector<v1::Region> renew;    // Their job lives, and a quarter of the lease is over.
  std::vector<v1::Region> release;  // Their job is gone.
};

// `regions` must have been listed before `live_jobs`: then the job of each Region had been
// submitted when the jobs were listed.
SweepPlan PlanSweep(const SlurmSettings& settings, const v1::ListRegionsResponse& regions,
                    const std::set<uint32_t>& live_jobs, absl::Time now);

}  // namespace cxlpool::cli

#endif  // CXLPOOL_TOOLS_CLI_SLURM_ACCOUNTING_H_
