// Carries out one command: sends its requests, waits where asked to, prints the answer.
//
// Results go to `out`, remarks for people to `err`. Errors are returned, never printed. One thread.
#ifndef CXLPOOL_TOOLS_CLI_EXECUTE_H_
#define CXLPOOL_TOOLS_CLI_EXECUTE_H_

#include <istream>
#include <ostream>

#include "absl/status/status.h"
#include "tools/cli/connection.h"
#include "tools/cli/invocation.h"

namespace cxlpool::cli {

struct Printer {
  std::ostream& out;
  std::ostream& err;
  OutputFormat format = OutputFormat::kTable;
  bool progress = false;  // Tell `err` what a wait sees.
  bool headers = true;    // Begin a table with the names of its columns.
  // Where a person at a terminal answers what `err` asks; null: there is nobody to ask.
  std::istream* answers = nullptr;
};

// Requests that change something and have no request_id get one here, once.
absl::Status Execute(PoolCommand command, Connection& connection, Printer& printer);

absl::Status Execute(const PkiCommand& command, Printer& printer);

}  // namespace cxlpool::cli

#endif  // CXLPOOL_TOOLS_CLI_EXECUTE_H_
