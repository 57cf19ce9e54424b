// The subcommands, each added to the parser with what makes it a Command. Internal to the parser.
//
// CLI11 calls back after everything is read, so a maker sees all flags.
#ifndef CXLPOOL_TOOLS_CLI_SUBCOMMANDS_H_
#define CXLPOOL_TOOLS_CLI_SUBCOMMANDS_H_

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <utility>
#include <variant>

#include "absl/status/statusor.h"
#include "tools/cli/fields.h"
#include "tools/cli/invocation.h"

namespace cxlpool::cli {

using Command = std::variant<PoolCommand, PkiCommand, FsckCommand>;

// What the parser found.
struct Chosen {
  Flag request_id;
  absl::StatusOr<Command> command = absl::InvalidArgumentError("no command");
};

// Calls `make(fields, request_id)` when `app` is chosen, and keeps its answer, or the first bad
// field instead.
template <typename Make>
void OnChosen(CLI::App* app, Chosen& chosen, Make make) {
  app->callback([&chosen, make = std::move(make)] {
    Fields fields;
    Command command = make(fields);
    if (fields.status().ok()) {
      chosen.command = std::move(command);
    } else {
      chosen.command = fields.status();
    }
  });
}

void AddRegionCommands(CLI::App& app, Chosen& chosen);
void AddInventoryCommands(CLI::App& app, Chosen& chosen);
void AddPkiCommands(CLI::App& app, Chosen& chosen);
void AddFsckCommand(CLI::App& app, Chosen& chosen);

}  // namespace cxlpool::cli

#endif  // CXLPOOL_TOOLS_CLI_SUBCOMMANDS_H_
