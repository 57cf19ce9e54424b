// Completion in a shell: what may stand where the cursor is, and the script that has a shell ask.
#ifndef CXLPOOL_TOOLS_CLI_COMPLETION_H_
#define CXLPOOL_TOOLS_CLI_COMPLETION_H_

#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace cxlpool::cli {

// The command that the scripts call: `cxlpool __complete WORD...`, the words behind "cxlpool" up to
// the cursor, of which the last may be empty. Prints a candidate a line, and exits with 0, or with
// kFiles where a file's name is wanted.
inline constexpr char kCompleteCommand[] = "__complete";
inline constexpr int kFiles = 9;

struct Candidates {
  std::vector<std::string> words;  // That begin as the last word does.
  // What to list with `CMD list` for names that may stand there, too: "region", "host", "device",
  // "tenant" or "context"; empty: none.
  std::string names_of;
  bool files = false;                   // A file's name may stand there.
  std::string before;                   // Of each name: "region/", "--host=".
  std::string prefix;                   // As the last word begins.
  std::vector<std::string> connection;  // The options on the line that say where the manager is.
};

// The words that an option's value is chosen from, as its help lists them:
// "MODE:{devdax,system-ram}". None: any will do.
std::vector<std::string> ChoicesOf(const CLI::Option& option);

// Of a parser that all commands have been added to. `words` has at least one.
Candidates FindCandidates(const CLI::App& app, const std::vector<std::string>& words);

// For "bash", "zsh" or "fish"; empty for any other.
std::string CompletionScript(const std::string& shell);

}  // namespace cxlpool::cli

#endif  // CXLPOOL_TOOLS_CLI_COMPLETION_H_
