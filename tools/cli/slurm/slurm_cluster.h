// What Slurm knows of its jobs and nodes, asked by its own commands.
#ifndef CXLPOOL_TOOLS_CLI_SLURM_SLURM_CLUSTER_H_
#define CXLPOOL_TOOLS_CLI_SLURM_SLURM_CLUSTER_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace cxlpool::cli {

struct SlurmJob {
  bool operator==(const SlurmJob&) const = default;

  std::string state = {};                           // RUNNING
  uint32_t user = 0;                                // Its uid.
  std::string account = {};                         // Empty: it has none.
  uint32_t nodes = 1;                               // Of a pending job: how many it wants at least.
  absl::Duration limit = absl::InfiniteDuration();  // How long it may run.
  std::string node_list = {};                       // "n[1-3],m7"; empty: none are chosen yet.
};

// Each call has a deadline. Errors: UNAVAILABLE/SLURM_UNKNOWN, with what the command said.
class SlurmCluster {
 public:
  virtual ~SlurmCluster() = default;

  // Of all jobs that may still use their memory (MayUseMemory). FAILED_PRECONDITION/
  // SLURM_HIDES_JOBS: not all are shown to this user.
  virtual absl::StatusOr<std::set<uint32_t>> LiveJobs() = 0;

  // Nothing: there is no such job any more.
  virtual absl::StatusOr<std::optional<SlurmJob>> FindJob(uint32_t job) = 0;

  // The single names of a list of nodes.
  virtual absl::StatusOr<std::vector<std::string>> NodeNames(const std::string& list) = 0;

  // Of all nodes.
  virtual absl::StatusOr<std::vector<std::string>> AllNodes() = 0;

  // `scontrol show burst`.
  virtual absl::StatusOr<std::string> BurstBuffers() = 0;
};

// The one that this machine's Slurm commands reach.
class SystemSlurm : public SlurmCluster {
 public:
  absl::StatusOr<std::set<uint32_t>> LiveJobs() override;
  absl::StatusOr<std::optional<SlurmJob>> FindJob(uint32_t job) override;
  absl::StatusOr<std::vector<std::string>> NodeNames(const std::string& list) override;
  absl::StatusOr<std::vector<std::string>> AllNodes() override;
  absl::StatusOr<std::string> BurstBuffers() override;
};

// "5:00", "3:04:05" or "1-03:04:05", as Slurm writes how long a job may run; everything else is
// InfiniteDuration().
absl::Duration ReadTimeLimit(absl::string_view text);

// The line of `squeue --format="%A|%T|%U|%a|%D|%l|%N"` that is about `job`.
std::optional<SlurmJob> ReadJob(absl::string_view listing, uint32_t job);

}  // namespace cxlpool::cli

#endif  // CXLPOOL_TOOLS_CLI_SLURM_SLURM_CLUSTER_H_
