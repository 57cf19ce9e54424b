// The subcommands, each added to the parser with what makes it a Command. Internal to the parser.
//
// CLI11 calls back after everything is read, so a maker sees all flags.
#ifndef CXLPOOL_TOOLS_CLI_SUBCOMMANDS_H_
#define CXLPOOL_TOOLS_CLI_SUBCOMMANDS_H_

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "tools/cli/fields.h"
#include "tools/cli/invocation.h"

namespace cxlpool::cli {

using Command = decltype(Invocation::command);

// What the parser found.
struct Chosen {
  Flag request_id;
  bool watch = false;
  bool wants_version = false;
  bool wants_man = false;                              // The man page's part that is made here.
  std::optional<std::string> wants_script_for;         // A shell.
  std::optional<std::vector<std::string>> wants_help;  // Of the command that the words name.
  absl::StatusOr<Command> command = absl::InvalidArgumentError("no command");
};

// Calls `make(fields)` when `app` is chosen, and keeps its answer, or the first bad field instead.
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

// What a command names: how its help calls it, and the collection that the name is in.
struct Noun {
  const char* word;
  const char* collection;
  const char* help;
};
inline constexpr Noun kRegion = {"NAME", "regions", "Region, by name or tag"};
inline constexpr Noun kHost = {"HOST", "hosts", "Its name"};
inline constexpr Noun kDevice = {"DEVICE", "devices", "Its name"};
inline constexpr Noun kTenant = {"TENANT", "tenants", "Its name"};

// --yes and --dry-run, for commands that destroy.
inline void AddConsent(CLI::App* app, Consent& consent) {
  auto* yes = app->add_flag("-y,--yes", consent.yes, "Do not ask, whatever it takes along");
  app->add_flag("--dry-run", consent.dry_run, "List what it takes along and change nothing")
      ->excludes(yes);
}

// A command that is one call and needs nothing besides its request: the name of `noun`, and
// whichever of request_id, reason and consent it has. `reason`: why one is wanted.
template <typename Call>
CLI::App* AddCall(CLI::App* parent, const char* verb, const char* help, const Noun& noun,
                  Chosen& chosen, const char* reason = "Why, for the audit record") {
  struct Words {
    Flag name, reason;
    Consent consent;
  };
  auto* app = parent->add_subcommand(verb, help);
  auto words = std::make_shared<Words>();
  using Request = decltype(Call::request);
  constexpr bool kHasReason = requires(Request r) { r.set_reason(std::string()); };
  constexpr bool kAsks = requires(Call c) { c.consent; };
  app->add_option(noun.word, words->name, noun.help)->type_name("")->required();
  if (kHasReason) {
    app->add_option("--reason", words->reason, reason)->type_name("TEXT")->required();
  }
  if (kAsks) AddConsent(app, words->consent);
  OnChosen(app, chosen, [words, &noun, &chosen](Fields& fields) -> Command {
    Call command;
    Request& request = command.request;
    if constexpr (requires { request.set_request_id(std::string()); }) {
      fields.RequestId(chosen.request_id, [&](std::string id) { request.set_request_id(id); });
    }
    fields.Name(noun.collection, words->name, [&](std::string name) {
      if constexpr (requires { request.set_host(name); }) {
        request.set_host(name);
      } else if constexpr (requires { request.set_device(name); }) {
        request.set_device(name);
      } else {
        request.set_name(name);
      }
    });
    if constexpr (kHasReason) {
      fields.Text("--reason", words->reason, [&](std::string text) { request.set_reason(text); });
    }
    if constexpr (kAsks) command.consent = words->consent;
    return PoolCommand(command);
  });
  return app;
}

// --watch, of a command that lists.
inline void AddWatchFlag(CLI::App* app, Chosen& chosen,
                         const char* when = "every 2s, if it changed") {
  app->add_flag("-w,--watch", chosen.watch,
                absl::StrCat("Print it again ", when, ", until interrupted"));
}

// A command without words of its own.
template <typename Bare>
CLI::App* AddBare(CLI::App* parent, const char* verb, const char* help, Chosen& chosen) {
  auto* app = parent->add_subcommand(verb, help);
  OnChosen(app, chosen, [](Fields&) -> Command { return PoolCommand(Bare{}); });
  return app;
}

// One that lists, in order of name.
template <typename List>
void AddBareList(CLI::App* parent, const char* help, Chosen& chosen) {
  CLI::App* app = AddBare<List>(parent, "list", help, chosen)->alias("ls");
  AddWatchFlag(app, chosen);
}

void AddRegionCommands(CLI::App& app, Chosen& chosen);
void AddInventoryCommands(CLI::App& app, Chosen& chosen);
void AddAccessCommands(CLI::App& app, Chosen& chosen);
void AddEventCommands(CLI::App& app, Chosen& chosen);
void AddContextCommands(CLI::App& app, Chosen& chosen);
void AddPkiCommands(CLI::App& app, Chosen& chosen);
void AddFsckCommand(CLI::App& app, Chosen& chosen);
void AddQuickstartCommand(CLI::App& app, Chosen& chosen);
void AddRunCommand(CLI::App& app, Chosen& chosen);
void AddSlurmCommands(CLI::App& app, Chosen& chosen);

}  // namespace cxlpool::cli

#endif  // CXLPOOL_TOOLS_CLI_SUBCOMMANDS_H_
