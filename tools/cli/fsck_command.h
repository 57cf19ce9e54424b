// `cxlpool fsck DB [--repair]`: needs no manager, and that none has the database open.
//
// Its exit codes are its own: 0 sound, 1 there are findings (repaired, if that was asked for), 2 it
// could not be checked or repaired, and nothing was changed.
#ifndef CXLPOOL_TOOLS_CLI_FSCK_COMMAND_H_
#define CXLPOOL_TOOLS_CLI_FSCK_COMMAND_H_

#include "tools/cli/execute.h"
#include "tools/cli/invocation.h"

namespace cxlpool::cli {

inline constexpr int kFsckSound = 0;
inline constexpr int kFsckFindings = 1;
inline constexpr int kFsckCannotRun = 2;

// The exit code. JSON: {"database", "schema", "revision", "records", "set_aside_before",
// "repaired", "copy", "findings": [{"key", "what", "repair"}]}; 64-bit numbers are strings.
int Execute(const FsckCommand& command, Printer& printer);

}  // namespace cxlpool::cli

#endif  // CXLPOOL_TOOLS_CLI_FSCK_COMMAND_H_
