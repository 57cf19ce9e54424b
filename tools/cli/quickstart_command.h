// `cxlpool quickstart`: from the installed package to memory that is online, on one machine.
//
// Here its options are read; the work is a script of the package (packaging/quickstart), for it is
// a list of commands that a person could type.
#ifndef CXLPOOL_TOOLS_CLI_QUICKSTART_COMMAND_H_
#define CXLPOOL_TOOLS_CLI_QUICKSTART_COMMAND_H_

#include "absl/status/status.h"
#include "tools/cli/invocation.h"

namespace cxlpool::cli {

// As BecomeScript.
absl::Status Execute(const QuickstartCommand& command);

}  // namespace cxlpool::cli

#endif  // CXLPOOL_TOOLS_CLI_QUICKSTART_COMMAND_H_
