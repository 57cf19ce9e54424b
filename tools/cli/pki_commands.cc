#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tools/cli/subcommands.h"

namespace cxlpool::cli {
namespace {

// pki init. Without --force an authority that is there stays.
void AddInit(CLI::App* pki, Chosen& chosen) {
  auto* app = pki->add_subcommand("init", "Make the pool's certificate authority");
  auto command = std::make_shared<PkiInit>();
  command->dir = "/etc/cxlpool/pki";
  app->add_option("--dir", command->dir, "Where to keep it (default /etc/cxlpool/pki)")
      ->type_name("DIR");
  app->add_flag("--force", command->force, "Replace it; certificates it issued are void");
  OnChosen(app, chosen, [command](Fields&) -> Command { return PkiCommand(*command); });
}

// What `issue` and `renew` are given. The callback that makes the command outlives the function
// that adds it, so flags are shared.
struct IssueFlags {
  std::string role;
  std::string name;
  Flag days;
  PkiIssue command;
};

// ROLE and NAME, --dir and --days: for whom a certificate is, where it is kept and for how long.
void AddLeaf(CLI::App* app, const std::shared_ptr<IssueFlags>& flags) {
  app->add_option("ROLE", flags->role, "host, operator or manager")
      ->type_name("")
      ->required()
      ->check(CLI::IsMember({"host", "operator", "manager"}));
  app->add_option("NAME", flags->name, "Its name: cxlpool://ROLE/NAME")->type_name("")->required();
  app->add_option(
         "--dir", flags->command.dir,
         "Where the authority is kept (default /etc/cxlpool/authority if it is there, else "
         "/etc/cxlpool/pki)")
      ->type_name("DIR");
  app->add_option("--days", flags->days, "How long it is valid from now, 1 to 3650 (default 365)")
      ->type_name("N");
}

// Reads them into `flags.command.leaf`.
void ReadLeaf(Fields& fields, IssueFlags& flags) {
  pki::LeafRequest& leaf = flags.command.leaf;
  leaf.role = flags.role == "host"       ? pki::LeafRole::kHost
              : flags.role == "operator" ? pki::LeafRole::kOperator
                                         : pki::LeafRole::kManager;
  // As the API calls them: only hosts are a collection of it. Name() puts it before the name.
  const std::string collection = flags.role == "host" ? "hosts" : flags.role;
  fields.Name(collection, flags.name,
              [&](std::string name) { leaf.name = name.substr(collection.size() + 1); });
  // Beyond what a certificate may have it is refused there, with the limits.
  fields.Number("--days", flags.days, [&](uint64_t days) {
    leaf.days = static_cast<int>(std::min<uint64_t>(days, pki::kMaxLeafDays + 1));
  });
}

// pki issue. --dns and --ip may be given several times, with one value each: what follows is not
// taken for another value (allow_extra_args).
void AddIssue(CLI::App* pki, Chosen& chosen) {
  auto* app = pki->add_subcommand("issue", "Make a key and its certificate");
  auto flags = std::make_shared<IssueFlags>();
  AddLeaf(app, flags);
  app->add_option("--dns", flags->command.leaf.dns,
                  "Manager: a DNS name more (fm.cxlpool and localhost come by themselves)")
      ->type_name("DNS-NAME")
      ->allow_extra_args(false);
  app->add_option("--ip", flags->command.leaf.ips,
                  "Manager: an address more (127.0.0.1 and ::1 come by themselves)")
      ->type_name("IP")
      ->allow_extra_args(false);
  app->add_flag("--force", flags->command.leaf.force,
                "Replace one that is there. The old one is believed until it ends or is revoked");
  OnChosen(app, chosen, [flags](Fields& fields) -> Command {
    ReadLeaf(fields, *flags);
    return PkiCommand(flags->command);
  });
}

// pki renew. Names and addresses are those of the certificate that is replaced: none are asked for.
void AddPkiRenew(CLI::App* pki, Chosen& chosen) {
  auto* app = pki->add_subcommand(
      "renew", "Replace a certificate by one that ends later, with the same names and key");
  auto flags = std::make_shared<IssueFlags>();
  AddLeaf(app, flags);
  OnChosen(app, chosen, [flags](Fields& fields) -> Command {
    ReadLeaf(fields, *flags);
    const pki::LeafRequest& leaf = flags->command.leaf;
    return PkiCommand(PkiRenew{flags->command.dir, leaf.role, leaf.name, leaf.days});
  });
}

// pki show, of any certificate file; no authority is needed.
void AddPkiShow(CLI::App* pki, Chosen& chosen) {
  auto* app = pki->add_subcommand("show", "Say for whom a certificate is, and until when");
  auto command = std::make_shared<PkiShow>();
  app->add_option("FILE", command->file, "The certificate, PEM")->type_name("")->required();
  OnChosen(app, chosen, [command](Fields&) -> Command { return PkiCommand(*command); });
}

}  // namespace

void AddPkiCommands(CLI::App& app, Chosen& chosen) {
  CLI::App* pki = app.add_subcommand("pki", "Make certificates; needs no manager");
  pki->require_subcommand(1);
  AddInit(pki, chosen);
  AddIssue(pki, chosen);
  AddPkiRenew(pki, chosen);
  AddPkiShow(pki, chosen);
}

// context list, use and show. `show` without a name is about the context that counts now.
void AddContextCommands(CLI::App& app, Chosen& chosen) {
  CLI::App* context =
      app.add_subcommand("context", "Name the managers of several pools, and choose one");
  context->require_subcommand(1);
  using Verb = ContextCommand::Verb;
  const auto add = [&](const char* verb_word, const char* help, Verb verb, bool required) {
    auto* one = context->add_subcommand(verb_word, help);
    auto name = std::make_shared<Flag>();
    if (verb != Verb::kList) {
      one->add_option("CONTEXT", *name, "Its name")->type_name("")->required(required);
    }
    OnChosen(one, chosen, [name, verb](Fields&) -> Command { return ContextCommand{verb, *name}; });
    return one;
  };
  add("list", "List the contexts of the configuration file", Verb::kList, false)->alias("ls");
  add("use", "Make one the current one: it counts where --context names none", Verb::kUse, true);
  add("show", "Show one (default: the one that counts), and the file it is in", Verb::kShow, false)
      ->alias("get");
}

// fsck, which needs no manager. The anchor is read where it is used: a bad one then ends with
// fsck's own exit code.
void AddFsckCommand(CLI::App& app, Chosen& chosen) {
  CLI::App* fsck = app.add_subcommand("fsck", "Check a stopped manager's database, or a backup");
  auto command = std::make_shared<FsckCommand>();
  fsck->add_option("DB", command->database, "The database: the manager's store.path, or a backup")
      ->type_name("")
      ->required();
  fsck->add_flag("--repair", command->repair,
                 "Quarantine what is in conflict; the database before is kept as DB.before-fsck");
  fsck->add_option("--anchor", command->anchor,
                   "An end of the audit trail that was kept: it still has to have it")
      ->type_name("ROW:HASH");
  fsck->footer("Exit codes: 0 sound, 1 findings, 2 it could not be checked or repaired.");
  OnChosen(fsck, chosen, [command](Fields&) -> Command { return *command; });
}

}  // namespace cxlpool::cli
