// `cxlpool context`: the managers that a configuration file names, and which of them counts. It
// calls none of them.
#ifndef CXLPOOL_TOOLS_CLI_CONTEXT_COMMAND_H_
#define CXLPOOL_TOOLS_CLI_CONTEXT_COMMAND_H_

#include "absl/status/status.h"
#include "tools/cli/invocation.h"
#include "tools/cli/print.h"
#include "tools/cli/settings.h"

namespace cxlpool::cli {

// Errors: of the file, UNKNOWN_CONTEXT, CANNOT_EDIT; FAILED_PRECONDITION/NO_ACCESS: it cannot be
// written.
absl::Status Execute(const ContextCommand& command, const ConnectionFlags& flags,
                     const Environment& environment, Printer& printer);

}  // namespace cxlpool::cli

#endif  // CXLPOOL_TOOLS_CLI_CONTEXT_COMMAND_H_
