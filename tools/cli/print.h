// One answer, as a table, as JSON, or as names, as was asked for.
#ifndef CXLPOOL_TOOLS_CLI_PRINT_H_
#define CXLPOOL_TOOLS_CLI_PRINT_H_

#include <google/protobuf/message.h>

#include <string>

#include "absl/status/status.h"
#include "tools/cli/execute.h"

namespace cxlpool::cli {

// Writes and flushes. INTERNAL/OUTPUT_LOST if `out` cannot be written (a full disk).
absl::Status Write(Printer& printer, const std::string& text);

// `text` for people, `message` for programs, and for -o name the short names that it holds.
absl::Status Print(Printer& printer, const google::protobuf::Message& message,
                   const std::string& text);

// The same of a table, whose first line goes where headers are not wanted.
absl::Status PrintTable(Printer& printer, const google::protobuf::Message& message,
                        const std::string& table);

}  // namespace cxlpool::cli

#endif  // CXLPOOL_TOOLS_CLI_PRINT_H_
