// Carries out one command: sends its requests, waits where asked to, prints the answer.
//
// Results go to `out`, remarks for people to `err`. Errors are returned, never printed. One thread.
#ifndef CXLPOOL_TOOLS_CLI_EXECUTE_H_
#define CXLPOOL_TOOLS_CLI_EXECUTE_H_

#include "absl/status/status.h"
#include "tools/cli/connection.h"
#include "tools/cli/invocation.h"
#include "tools/cli/print.h"

namespace cxlpool::cli {

// Requests that change something and have no request_id get one here, once.
absl::Status Execute(PoolCommand command, Connection& connection, Printer& printer);

absl::Status Execute(const PkiCommand& command, Printer& printer);

}  // namespace cxlpool::cli

#endif  // CXLPOOL_TOOLS_CLI_EXECUTE_H_
