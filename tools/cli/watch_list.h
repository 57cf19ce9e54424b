// --watch: an answer printed again each time it changes, until somebody interrupts it. Events are
// printed once: those that come later follow.
//
// On a terminal each table takes the place of the one before; elsewhere an empty line is between
// two. JSON is one document a line, YAML begins each with `---`. Regions are followed by the
// manager's Watch; for the rest there is none, and the manager is asked every kPollInterval.
// One thread.
#ifndef CXLPOOL_TOOLS_CLI_WATCH_LIST_H_
#define CXLPOOL_TOOLS_CLI_WATCH_LIST_H_

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "tools/cli/connection.h"
#include "tools/cli/invocation.h"
#include "tools/cli/print.h"

namespace cxlpool::cli {

inline constexpr absl::Duration kPollInterval = absl::Seconds(2);

// Ends only with an error: as Execute, and UNAVAILABLE once the manager stays away for longer than
// the connection's timeout.
absl::Status ExecuteAndWatch(const PoolCommand& command, Connection& connection, Printer& printer);

}  // namespace cxlpool::cli

#endif  // CXLPOOL_TOOLS_CLI_WATCH_LIST_H_
