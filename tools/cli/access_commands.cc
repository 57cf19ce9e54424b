// cxlpool access: which identity has which role.

#include "tools/cli/subcommands.h"

namespace cxlpool::cli {
namespace {

struct AccessFlags {
  Flag identity, role, term, reason;
  std::vector<std::string> tenants;
};

void AddIdentity(CLI::App* app, AccessFlags& flags) {
  app->add_option("IDENTITY", flags.identity,
                  "URI in a certificate, or NAME for cxlpool://operator/NAME")
      ->type_name("")
      ->required();
}

// A name that is no URI is the one that `cxlpool pki issue operator NAME` was given.
std::string FullIdentity(const std::string& text) {
  return text.find(':') == std::string::npos ? "cxlpool://operator/" + text : text;
}

void AddGrant(CLI::App* access, Chosen& chosen) {
  auto* app = access->add_subcommand("grant", "Give an identity a role, in place of its own");
  auto flags = std::make_shared<AccessFlags>();
  AddIdentity(app, *flags);
  app->add_option("--role", flags->role, "What it may do")
      ->type_name(ChoiceType("RIGHTS"))
      ->required();
  app->add_option("--tenant", flags->tenants,
                  "Whose Regions a tenant or a scheduler has; again for each")
      ->type_name("NAME")
      ->allow_extra_args(false);
  app->add_option("--for", flags->term, "For how long: 8h, 30d (default: for good)")
      ->type_name("DURATION");
  app->add_option("--reason", flags->reason, "Why, for the list and the audit record")
      ->type_name("TEXT")
      ->required();
  OnChosen(app, chosen, [flags, &chosen](Fields& fields) -> Command {
    GrantAccess command;
    v1::SetRoleBindingRequest& request = command.request;
    v1::RoleBinding& binding = *request.mutable_role_binding();
    fields.RequestId(chosen.request_id, [&](std::string id) { request.set_request_id(id); });
    fields.Text("IDENTITY", flags->identity,
                [&](std::string text) { binding.set_identity(FullIdentity(text)); });
    fields.Role(flags->role, [&](v1::Role role) { binding.set_role(role); });
    for (const std::string& tenant : flags->tenants) {
      fields.Name("tenants", tenant, [&](std::string name) { binding.add_tenants(name); });
    }
    fields.Term("--for", flags->term,
                [&](google::protobuf::Duration term) { command.term = term; });
    fields.Text("--reason", flags->reason, [&](std::string text) { binding.set_reason(text); });
    return PoolCommand(command);
  });
}

void AddRevokeRole(CLI::App* access, Chosen& chosen) {
  auto* app =
      access->add_subcommand("revoke", "Take an identity's role away; its calls end at once");
  auto flags = std::make_shared<AccessFlags>();
  AddIdentity(app, *flags);
  OnChosen(app, chosen, [flags, &chosen](Fields& fields) -> Command {
    RevokeAccess command;
    fields.RequestId(chosen.request_id,
                     [&](std::string id) { command.request.set_request_id(id); });
    fields.Text("IDENTITY", flags->identity,
                [&](std::string text) { command.request.set_identity(FullIdentity(text)); });
    return PoolCommand(command);
  });
}

}  // namespace

void AddAccessCommands(CLI::App& app, Chosen& chosen) {
  CLI::App* access =
      app.add_subcommand("access", "Who may do what: list, grant and revoke roles, whoami");
  access->require_subcommand(1);
  AddBare<ListAccess>(access, "list", "List the roles that identities have", chosen)->alias("ls");
  AddGrant(access, chosen);
  AddRevokeRole(access, chosen);
  AddBare<ShowSelf>(access, "whoami", "Who the manager takes you for", chosen);
}

}  // namespace cxlpool::cli
