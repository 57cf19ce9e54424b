#include "absl/strings/str_cat.h"
#include "tools/cli/subcommands.h"

namespace cxlpool::cli {
namespace {

constexpr char kDefaultDir[] = "/etc/cxlpool/pki";
constexpr char kDirHelp[] = "Where the authority is kept (default /etc/cxlpool/pki)";

void AddInit(CLI::App* pki, Chosen& chosen) {
  auto* app = pki->add_subcommand("init", "Make the pool's certificate authority");
  auto command = std::make_shared<PkiInit>();
  command->dir = kDefaultDir;
  app->add_option("--dir", command->dir, kDirHelp)->type_name("DIR");
  app->add_flag("--force", command->force, "Replace it; certificates it issued are void");
  OnChosen(app, chosen, [command](Fields&) -> Command { return PkiCommand(*command); });
}

struct IssueFlags {
  std::string role;
  std::string name;
  PkiIssue command;
};

void AddIssue(CLI::App* pki, Chosen& chosen) {
  auto* app = pki->add_subcommand("issue", "Make a key and its certificate, for one year");
  auto flags = std::make_shared<IssueFlags>();
  flags->command.dir = kDefaultDir;
  app->add_option("ROLE", flags->role, "host, operator or manager")
      ->type_name("")
      ->required()
      ->check(CLI::IsMember({"host", "operator", "manager"}));
  app->add_option("NAME", flags->name, "Its name: cxlpool://ROLE/NAME")->type_name("")->required();
  app->add_option("--dir", flags->command.dir, kDirHelp)->type_name("DIR");
  app->add_option("--dns", flags->command.leaf.dns,
                  "Manager: a DNS name more (fm.cxlpool and localhost come by themselves)")
      ->type_name("DNS-NAME")
      ->allow_extra_args(false);
  app->add_option("--ip", flags->command.leaf.ips,
                  "Manager: an address more (127.0.0.1 and ::1 come by themselves)")
      ->type_name("IP")
      ->allow_extra_args(false);
  app->add_flag("--force", flags->command.leaf.force, "Replace one that is there");
  OnChosen(app, chosen, [flags](Fields& fields) -> Command {
    PkiIssue command = flags->command;
    command.leaf.role = flags->role == "host"       ? pki::LeafRole::kHost
                        : flags->role == "operator" ? pki::LeafRole::kOperator
                                                    : pki::LeafRole::kManager;
    const std::string collection = flags->role == "host" ? "hosts" : flags->role;
    fields.Name(collection, flags->name,
                [&](std::string name) { command.leaf.name = name.substr(collection.size() + 1); });
    return PkiCommand(command);
  });
}

}  // namespace

void AddPkiCommands(CLI::App& app, Chosen& chosen) {
  CLI::App* pki = app.add_subcommand("pki", "Make certificates; needs no manager");
  pki->require_subcommand(1);
  AddInit(pki, chosen);
  AddIssue(pki, chosen);
}

}  // namespace cxlpool::cli
