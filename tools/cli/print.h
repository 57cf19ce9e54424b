// One answer, as a table or as JSON, whichever was asked for.
#ifndef CXLPOOL_TOOLS_CLI_PRINT_H_
#define CXLPOOL_TOOLS_CLI_PRINT_H_

#include <google/protobuf/message.h>

#include <string>

#include "absl/status/status.h"
#include "tools/cli/execute.h"

namespace cxlpool::cli {

// Writes and flushes. INTERNAL/OUTPUT_LOST if `out` cannot be written (a full disk).
absl::Status Write(Printer& printer, const std::string& text);

// `table` for people, `message` for programs.
absl::Status Print(Printer& printer, const google::protobuf::Message& message,
                   const std::string& table);

}  // namespace cxlpool::cli

#endif  // CXLPOOL_TOOLS_CLI_PRINT_H_
