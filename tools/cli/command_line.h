// The command line: words in, an Invocation out. Nothing is read or sent yet.
#ifndef CXLPOOL_TOOLS_CLI_COMMAND_LINE_H_
#define CXLPOOL_TOOLS_CLI_COMMAND_LINE_H_

#include <string>
#include <variant>

#include "absl/status/statusor.h"
#include "tools/cli/completion.h"
#include "tools/cli/invocation.h"

namespace cxlpool::cli {

// --help or --version: print it and be done.
struct PrintText {
  std::string text;
};

using CommandLine = std::variant<Invocation, PrintText, Candidates>;

// INVALID_ARGUMENT: USAGE (unknown words, with what was probably meant, or missing ones; the remedy
// names the --help to read),
// BAD_NAME, BAD_SIZE, BAD_DURATION, BAD_VALUE, BAD_UUID. `argv[0]` is not looked at.
absl::StatusOr<CommandLine> ParseCommandLine(int argc, const char* const* argv);

// The format that the line asks for, also of one that cannot be parsed: its error has it, too.
OutputFormat WantedFormat(int argc, const char* const* argv);

}  // namespace cxlpool::cli

#endif  // CXLPOOL_TOOLS_CLI_COMMAND_LINE_H_
