// `cxlpool run`: an unmodified program on pool memory of this host.
//
// Asks the host agent, as any application does, for a system-ram Region that this process owns,
// sets the memory policy (set_mempolicy(2)), which exec and children keep, and goes on as the
// program. The Region goes when that has ended, in whatever way. It connects to no manager.
//
// With --as-file the Region is devdax, and the program is given its path instead. The connection to
// the agent stays open across exec: so the path is there until the program, and the last of its
// children, has ended.
#ifndef CXLPOOL_TOOLS_CLI_RUN_COMMAND_H_
#define CXLPOOL_TOOLS_CLI_RUN_COMMAND_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tools/cli/invocation.h"

namespace cxlpool::cli {

// Goes on as the program; returns where it cannot. Errors as cxlpool_allocate and cxlpool_open, and
// NOT_FOUND/NO_PROGRAM; FAILED_PRECONDITION/NOT_SYSTEM_RAM; INTERNAL/NUMA_FAILED, EXEC_FAILED.
absl::Status Execute(const RunCommand& command);

// The program's words, each {} among its arguments replaced.
std::vector<std::string> WithPath(std::vector<std::string> words, const std::string& path);

// The nodes that a policy names, each once and in order: the pool's, and with kInterleave those of
// the host's processors.
std::vector<int> PolicyNodes(RunPolicy policy, std::vector<int> pool_nodes,
                             const std::vector<int>& own_nodes);

// "0-1,4" as a kernel writes lists of nodes; nothing where it is none.
std::vector<int> ParseNodeList(absl::string_view text);

}  // namespace cxlpool::cli

#endif  // CXLPOOL_TOOLS_CLI_RUN_COMMAND_H_
