// cxlpool event and cxlpool audit: who did what, and whether the account of it was altered.

#include "tools/cli/subcommands.h"

namespace cxlpool::cli {
namespace {

void AddEvents(CLI::App* event, Chosen& chosen) {
  struct EventFlags {
    Flag what, who, most;
  };
  auto* app =
      event->add_subcommand("list", "List what was changed, by whom and why, the newest last")
          ->alias("ls");
  auto flags = std::make_shared<EventFlags>();
  app->add_option("--of", flags->what, "Only of this resource: regions/NAME, devices/NAME, ...")
      ->type_name("RESOURCE");
  app->add_option("--by", flags->who, "Only of this identity, or of manager")
      ->type_name("IDENTITY");
  app->add_option("--limit", flags->most, "The last so many (default 100; 0: all that are kept)")
      ->type_name("N");
  AddWatchFlag(app, chosen);
  OnChosen(app, chosen, [flags](Fields& fields) -> Command {
    ListEvents command;
    fields.Text("--of", flags->what, [&](std::string text) { command.request.set_resource(text); });
    fields.Text("--by", flags->who, [&](std::string text) { command.request.set_who(text); });
    fields.Number("--limit", flags->most, [&](uint64_t most) { command.most = most; });
    return PoolCommand(command);
  });
}

void AddVerify(CLI::App* audit, Chosen& chosen) {
  auto* app = audit->add_subcommand(
      "verify", "Check that nobody has altered the audit trail; prints its end, an anchor to keep");
  auto anchor = std::make_shared<Flag>();
  app->add_option("--anchor", *anchor, "An end that was kept: the trail still has to have it")
      ->type_name("ROW:HASH");
  OnChosen(app, chosen, [anchor](Fields& fields) -> Command {
    VerifyAudit command;
    fields.Text("--anchor", *anchor, [&](std::string text) { command.request.set_anchor(text); });
    return PoolCommand(command);
  });
}

}  // namespace

void AddEventCommands(CLI::App& app, Chosen& chosen) {
  CLI::App* event = app.add_subcommand("event", "Who did what in the pool: list");
  event->require_subcommand(1);
  AddEvents(event, chosen);
  CLI::App* audit =
      app.add_subcommand("audit", "The audit trail, which events are read from: verify");
  audit->require_subcommand(1);
  AddVerify(audit, chosen);
}

}  // namespace cxlpool::cli
