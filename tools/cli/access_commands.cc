// cxlpool access and cxlpool token: which identity has which role.

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "proto/support/token.h"
#include "tools/cli/render/words.h"
#include "tools/cli/subcommands.h"

namespace cxlpool::cli {
namespace {

struct AccessFlags {
  Flag identity, role, term, reason;
  std::vector<std::string> tenants;
};

// The positional that names whose role it is.
void AddIdentity(CLI::App* app, AccessFlags& flags) {
  app->add_option("IDENTITY", flags.identity,
                  "URI in a certificate, or NAME for cxlpool://operator/NAME")
      ->type_name("")
      ->required();
}

// What a role is given by: grant and token create have the same.
void AddRole(CLI::App* app, AccessFlags& flags) {
  app->add_option("--role", flags.role, "What it may do")
      ->type_name(ChoiceType("RIGHTS"))
      ->required();
  app->add_option("--tenant", flags.tenants,
                  "Whose Regions a tenant or a scheduler has; again for each")
      ->type_name("NAME")
      ->allow_extra_args(false);
}

void AddReason(CLI::App* app, AccessFlags& flags) {
  app->add_option("--reason", flags.reason, "Why, for the list and the audit record")
      ->type_name("TEXT")
      ->required();
}

// All but whose it is and for how long.
void FillBinding(Fields& fields, const Chosen& chosen, const AccessFlags& flags,
                 v1::SetRoleBindingRequest& request) {
  v1::RoleBinding& binding = *request.mutable_role_binding();
  fields.RequestId(chosen.request_id, [&](std::string id) { request.set_request_id(id); });
  fields.Role(flags.role, [&](v1::Role role) { binding.set_role(role); });
  for (const std::string& tenant : flags.tenants) {
    fields.Name("tenants", tenant, [&](std::string name) { binding.add_tenants(name); });
  }
  fields.Text("--reason", flags.reason, [&](std::string text) { binding.set_reason(text); });
}

// Without --for it is for good. The manager refuses what would leave nobody an admin.
void AddGrant(CLI::App* access, Chosen& chosen) {
  auto* app = access->add_subcommand("grant", "Give an identity a role, in place of its own");
  auto flags = std::make_shared<AccessFlags>();
  AddIdentity(app, *flags);
  AddRole(app, *flags);
  app->add_option("--for", flags->term, "For how long: 8h, 30d (default: for good)")
      ->type_name("DURATION");
  AddReason(app, *flags);
  OnChosen(app, chosen, [flags, &chosen](Fields& fields) -> Command {
    GrantAccess command;
    FillBinding(fields, chosen, *flags, command.request);
    fields.Text("IDENTITY", flags->identity, [&](std::string text) {
      command.request.mutable_role_binding()->set_identity(FullIdentity(text));
    });
    fields.Term("--for", flags->term,
                [&](google::protobuf::Duration term) { command.term = term; });
    return PoolCommand(command);
  });
}

// The short name is taken as grant takes it, so that what was granted can be revoked in the same
// words.
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

// A token is a binding of cxlpool://token/NAME: what gives, lists and takes back roles does the
// same of tokens.
void AddTokenCommands(CLI::App& app, Chosen& chosen) {
  CLI::App* token = app.add_subcommand(
      "token", "What programs show that have no certificate: create, list and revoke tokens");
  token->require_subcommand(1);
  auto* create = token->add_subcommand(
      "create", "Make a token and print it, this once: the pool keeps no more than its hash");
  auto flags = std::make_shared<AccessFlags>();
  create->add_option("NAME", flags->identity, "Name of the token")->type_name("")->required();
  AddRole(create, *flags);
  create->add_option("--ttl", flags->term, "For how long: 8h, 30d; at most a year")
      ->type_name("DURATION")
      ->required();
  AddReason(create, *flags);
  OnChosen(create, chosen, [flags, &chosen](Fields& fields) -> Command {
    CreateToken command;
    FillBinding(fields, chosen, *flags, command.request);
    fields.Name("tokens", flags->identity, [&](std::string name) {
      command.name = ShortName(name);
      command.request.mutable_role_binding()->set_identity(
          absl::StrCat(kTokenIdentity, command.name));
    });
    fields.Term("--ttl", flags->term,
                [&](google::protobuf::Duration term) { command.term = term; });
    return PoolCommand(command);
  });
  AddBareList<ListTokens>(token, "List the tokens and what they may do", chosen);
  // Its name alone: an identity that is no token's is `access revoke`'s.
  auto* revoke = token->add_subcommand("revoke", "End a token; the calls that show it end at once");
  auto name = std::make_shared<Flag>();
  revoke->add_option("NAME", *name, "Name of the token")->type_name("")->required();
  OnChosen(revoke, chosen, [name, &chosen](Fields& fields) -> Command {
    RevokeAccess command;
    fields.RequestId(chosen.request_id,
                     [&](std::string id) { command.request.set_request_id(id); });
    // Also as lists have it.
    const Flag plain = std::string(absl::StripPrefix(name->value_or(""), kTokenIdentity));
    fields.Name("tokens", plain, [&](std::string full) {
      command.request.set_identity(absl::StrCat(kTokenIdentity, ShortName(full)));
    });
    return PoolCommand(command);
  });
}

}  // namespace

void AddAccessCommands(CLI::App& app, Chosen& chosen) {
  CLI::App* access =
      app.add_subcommand("access", "Who may do what: list, grant and revoke roles, whoami");
  access->require_subcommand(1);
  AddBareList<ListAccess>(access, "List the roles that identities have", chosen);
  AddGrant(access, chosen);
  AddRevokeRole(access, chosen);
  AddBare<ShowSelf>(access, "whoami", "Who the manager takes you for", chosen);
  AddTokenCommands(app, chosen);
}

}  // namespace cxlpool::cli
