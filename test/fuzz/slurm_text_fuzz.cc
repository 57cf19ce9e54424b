// What Slurm's commands print, and what a user writes into the script of a job.

#include <string>

#include "absl/time/time.h"
#include "test/fuzz/fuzz_target.h"
#include "tools/cli/slurm/accounting.h"
#include "tools/cli/slurm/directive.h"
#include "tools/cli/slurm/slurm_cluster.h"

namespace cxlpool::fuzz {
namespace {

CXLPOOL_FUZZ(slurm_text) {
  Require(cli::ReadTimeLimit(bytes) >= absl::ZeroDuration());
  if (const auto jobs = cli::ReadJobs(bytes); jobs.ok()) Require(jobs->size() <= bytes.size());
  if (const auto job = cli::ReadJob(bytes, 12); job.has_value()) {
    Require(job->limit >= absl::ZeroDuration());
  }
  (void)cli::CheckSeesAllJobs(bytes, 1000);
  if (const auto request = cli::ReadDirective(bytes); request.ok() && request->has_value()) {
    Require(!(*request)->pool.empty() && (*request)->capacity_bytes > 0);
  }
}

}  // namespace
}  // namespace cxlpool::fuzz
