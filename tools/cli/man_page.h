// The part of cxlpool(1) that lists commands, options and exit codes, from what --help says. The
// build puts it into packaging/man/cxlpool.1.in, which has the prose. Pure.
#ifndef CXLPOOL_TOOLS_CLI_MAN_PAGE_H_
#define CXLPOOL_TOOLS_CLI_MAN_PAGE_H_

#include <string>

namespace CLI {
class App;
}

namespace cxlpool::cli {

// What a positional is called that takes all words behind --, which are another program's.
inline constexpr char kProgramWords[] = "PROGRAM";

// COMMANDS, GLOBAL OPTIONS and EXIT STATUS in roff, of a parser that all commands have been added
// to. What the help hides is left out, and so is what the help of each command ends with.
std::string ManSections(const CLI::App& app, const std::string& common_footer);

}  // namespace cxlpool::cli

#endif  // CXLPOOL_TOOLS_CLI_MAN_PAGE_H_
