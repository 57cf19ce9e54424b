// cxlpool event and cxlpool audit: who did what, and whether the account of it was altered.

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "tools/cli/subcommands.h"

namespace cxlpool::cli {
namespace {

// What the events are of, as the trail has it: a resource with its kind before its name, or one of
// the things that are no resource, as column OF of the list shows them. Anything else would match
// no event, and an empty list would look as if nothing had been done.
std::string Resource(Fields& fields, const Flag& text) {
  std::string resource;
  if (!text.has_value()) return resource;
  for (const char* other : {"roleBindings/", "revocations/", "topology/"}) {
    if (absl::StartsWith(*text, other)) {
      fields.Text("--of", text, [&](std::string whole) { resource = whole; });
    }
  }
  fields.NameWithKind({"regions", "hosts", "devices", "tenants"}, text,
                      [&](std::string full) { resource = full; });
  if (resource.empty() && fields.status().ok()) {
    throw CLI::ValidationError("--of", absl::StrCat("\"", *text,
                                                    "\" has no kind: give region/NAME, host/NAME, "
                                                    "device/NAME or tenant/NAME"));
  }
  return resource;
}

// What the manager and fsck did by themselves has no identity.
bool HasNoIdentity(absl::string_view who) { return who == "manager" || who == "fsck"; }

// `verb`: list, or watch, which is a list that is watched.
CLI::App* AddEvents(CLI::App* event, const char* verb, const char* help, const char* last,
                    uint64_t most, Chosen& chosen) {
  struct EventFlags {
    Flag what, who, most;
  };
  auto* app = event->add_subcommand(verb, help);
  auto flags = std::make_shared<EventFlags>();
  app->add_option("--of", flags->what, "Only of region/NAME, host/NAME, device/NAME or tenant/NAME")
      ->type_name("RESOURCE");
  app->add_option("--by", flags->who,
                  "Only by this identity (URI, or NAME for cxlpool://operator/NAME), or manager")
      ->type_name("IDENTITY");
  app->add_option("--limit", flags->most, last)->type_name("N");
  OnChosen(app, chosen, [flags, most](Fields& fields) -> Command {
    ListEvents command{.request = {}, .most = most};
    command.request.set_resource(Resource(fields, flags->what));
    fields.Text("--by", flags->who, [&](const std::string& who) {
      command.request.set_who(HasNoIdentity(who) ? who : FullIdentity(who));
    });
    fields.Number("--limit", flags->most, [&](uint64_t number) { command.most = number; });
    return PoolCommand(command);
  });
  return app;
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
  CLI::App* event = app.add_subcommand("event", "Who did what in the pool: list, watch");
  event->require_subcommand(1);
  CLI::App* list =
      AddEvents(event, "list", "List what was changed, by whom and why, the newest last",
                "The last so many (default 100; 0: all that are kept)", 100, chosen);
  list->alias("ls");
  list->add_flag("-w,--watch", chosen.watch, "Then print what happens, until interrupted");
  AddEvents(event, "watch", "Print what is changed, by whom and why, as it happens",
            "Begin with the last so many (default 10; 0: all that are kept)", 10, chosen)
      ->parse_complete_callback([&chosen] { chosen.watch = true; });
  CLI::App* audit =
      app.add_subcommand("audit", "The audit trail, which events are read from: verify");
  audit->require_subcommand(1);
  AddVerify(audit, chosen);
}

}  // namespace cxlpool::cli
