// `cxlpool slurm`: what Slurm's burst_buffer.lua and a timer call.
//
// slurmctld holds its locks while it calls `validate`, `paths` and, as it starts, `pools`: the
// first two read files only, and `pools` answers within a second, whatever the manager does. The
// others run in processes of their own, and take as long as the setting `wait` says.
#ifndef CXLPOOL_TOOLS_CLI_SLURM_HOOKS_H_
#define CXLPOOL_TOOLS_CLI_SLURM_HOOKS_H_

#include <functional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/cli/connection.h"
#include "tools/cli/invocation.h"
#include "tools/cli/print.h"
#include "tools/cli/settings_file.h"
#include "tools/cli/slurm/slurm_cluster.h"

namespace cxlpool::cli {

// Makes the connection when it is first asked for: some hooks need no manager.
using Connect = absl::FunctionRef<absl::StatusOr<Connection*>()>;

// Of one call with all its tries, for hooks that a lock waits for.
inline constexpr absl::Duration kQuickCall = absl::Milliseconds(700);

// Whether somebody waits for it who must not wait longer than a second.
bool IsQuick(const SlurmCommand& command);

// A refusal is answered to be printed by OneLine. Pools always has an answer: the manager's, else
// the last one, else 0 bytes.
absl::Status Execute(const SlurmCommand& command, const SlurmSettings& settings, Connect connect,
                     SlurmCluster& cluster, Printer& printer);

// False: somebody else has the right to answer, and ends this process when that is done.
using Claim = std::function<bool()>;

// If nobody has claimed the answer within a second, gives it, without the manager, and ends this
// process. For IsQuick, before anything that may take time.
Claim AnswerInASecond(const SlurmCommand& command, const SlurmSettings& settings);

// A refusal on one line, as Slurm shows it to the job's owner: what, the remedy, the reason.
std::string OneLine(const absl::Status& status);

}  // namespace cxlpool::cli

#endif  // CXLPOOL_TOOLS_CLI_SLURM_HOOKS_H_
