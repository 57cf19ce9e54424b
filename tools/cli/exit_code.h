// How the command ends, for scripts: one number for each thing that a caller does about it.
//
// Pure functions, any thread. The numbers are part of the interface: never renumbered.
#ifndef CXLPOOL_TOOLS_CLI_EXIT_CODE_H_
#define CXLPOOL_TOOLS_CLI_EXIT_CODE_H_

#include <string>

#include "absl/status/status.h"

namespace cxlpool::cli {

enum class ExitCode : int {
  kOk = 0,
  kInternal = 1,
  kUsage = 2,
  kNotFound = 3,
  kRefused = 4,
  kExhausted = 5,
  kUnavailable = 6,
  kDenied = 7,
  kTimedOut = 8,
  kFailed = 9,
};

// ABORTED is what a wait answers when the thing waited for failed and was undone: kFailed.
ExitCode ExitCodeOf(const absl::Status& status);

// The table that --help ends with.
std::string ExitCodeHelp();

}  // namespace cxlpool::cli

#endif  // CXLPOOL_TOOLS_CLI_EXIT_CODE_H_
