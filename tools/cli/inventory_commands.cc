// Hosts, devices, tenants, and the pool as a whole. Most commands are one call: a line each.

#include "tools/cli/subcommands.h"

namespace cxlpool::cli {
namespace {

void AddEnrol(CLI::App* host, Chosen& chosen) {
  struct Words {
    Flag host, identity;
    std::vector<std::string> tenants;
  };
  auto* app = host->add_subcommand("enrol", "Make a host known, or replace its certificate");
  auto words = std::make_shared<Words>();
  app->add_option("HOST", words->host, "Its name")->type_name("")->required();
  app->add_option("--identity", words->identity,
                  "URI in its agent's certificate (default cxlpool://host/HOST)")
      ->type_name("URI");
  app->add_option(
         "--tenant", words->tenants,
         "A tenant that it may allocate for; may be given again, and replaces those that it "
         "had (default: as it was; default for a new host)")
      ->type_name("TENANT")
      ->allow_extra_args(false);
  OnChosen(app, chosen, [words, &chosen](Fields& fields) -> Command {
    EnrolHost command;
    v1::EnrolHostRequest& request = command.request;
    fields.RequestId(chosen.request_id, [&](std::string id) { request.set_request_id(id); });
    fields.Name("hosts", words->host, [&](std::string name) { request.set_host(name); });
    fields.Text("--identity", words->identity, [&](std::string uri) { request.set_identity(uri); });
    for (const std::string& tenant : words->tenants) {
      fields.Name("tenants", tenant, [&](std::string name) { request.add_tenants(name); });
    }
    return PoolCommand(command);
  });
}

// Of hosts and devices there is a list and no call for one: what is shown is found in the list.
template <typename Show>
CLI::App* AddShow(CLI::App* parent, const char* help, const Noun& noun, Chosen& chosen) {
  auto* app = parent->add_subcommand("show", help);
  auto name = std::make_shared<Flag>();
  app->add_option(noun.word, *name, noun.help)->type_name("")->required();
  OnChosen(app, chosen, [name, &noun](Fields& fields) -> Command {
    Show command;
    fields.Name(noun.collection, *name, [&](std::string full) { command.name = full; });
    return PoolCommand(command);
  });
  return app;
}

struct TenantFlags {
  Flag name, quota, reserved, host_cap;
};

void AddSetTenant(CLI::App* tenant, Chosen& chosen) {
  auto* app = tenant->add_subcommand("set", "Make a tenant, or change its limits");
  auto flags = std::make_shared<TenantFlags>();
  app->add_option("TENANT", flags->name, "Its name")->type_name("")->required();
  app->add_option("--quota", flags->quota, "Held by all its Regions at most, or none")
      ->type_name("SIZE");
  app->add_option("--reserved", flags->reserved, "Kept free for it whatever others ask, or none")
      ->type_name("SIZE");
  app->add_option("--host-cap", flags->host_cap, "Attached to one host at most, or none")
      ->type_name("SIZE");
  app->footer("Limits that are not given stay as they are; of a new tenant: none.");
  OnChosen(app, chosen, [flags, &chosen](Fields& fields) -> Command {
    SetTenant command;
    fields.RequestId(chosen.request_id,
                     [&](std::string id) { command.request.set_request_id(id); });
    fields.Name("tenants", flags->name,
                [&](std::string name) { command.request.mutable_tenant()->set_name(name); });
    fields.Limit(flags->quota, command.quota_bytes);
    fields.Limit(flags->reserved, command.reserved_bytes);
    fields.Limit(flags->host_cap, command.host_cap_bytes);
    return PoolCommand(command);
  });
}

void AddBackup(CLI::App& app, Chosen& chosen) {
  auto* backup = app.add_subcommand("backup", "Copy the manager's database into a new file");
  auto command = std::make_shared<Backup>();
  backup->add_option("FILE", command->file, "Must not be there; no backup is ever overwritten")
      ->type_name("")
      ->required();
  OnChosen(backup, chosen, [command](Fields& fields) -> Command {
    if (command->file == "-") {
      throw CLI::ValidationError("FILE", "a backup is a database and goes to a file, not to -");
    }
    static_cast<void>(fields);
    return PoolCommand(*command);
  });
}

struct RevocationFlags {
  Flag subject, reason;
  bool yes = false;
};

void AddSubject(CLI::App* app, RevocationFlags& flags) {
  app->add_option("CERTIFICATE", flags.subject,
                  "Its serial number or its file (.pem); or an identity, whatever it shows")
      ->type_name("")
      ->required();
}

void AddRevoke(CLI::App* certificate, Chosen& chosen) {
  auto* app = certificate->add_subcommand(
      "revoke", "Believe a certificate no longer; its calls and sessions end at once");
  auto flags = std::make_shared<RevocationFlags>();
  AddSubject(app, *flags);
  app->add_option("--reason", flags->reason, "Why, for the list and the audit record")
      ->type_name("TEXT")
      ->required();
  app->add_flag("--yes", flags->yes, "Also if it is the one that this command is run with");
  OnChosen(app, chosen, [flags, &chosen](Fields& fields) -> Command {
    RevokeCertificate command;
    v1::RevokeCertificateRequest& request = command.request;
    fields.RequestId(chosen.request_id, [&](std::string id) { request.set_request_id(id); });
    fields.Text("CERTIFICATE", flags->subject,
                [&](std::string text) { request.set_subject(text); });
    fields.Text("--reason", flags->reason, [&](std::string text) { request.set_reason(text); });
    request.set_allow_own(flags->yes);
    return PoolCommand(command);
  });
}

void AddRestore(CLI::App* certificate, Chosen& chosen) {
  auto* app = certificate->add_subcommand("restore", "Believe it again");
  auto flags = std::make_shared<RevocationFlags>();
  AddSubject(app, *flags);
  OnChosen(app, chosen, [flags, &chosen](Fields& fields) -> Command {
    RestoreCertificate command;
    v1::RestoreCertificateRequest& request = command.request;
    fields.RequestId(chosen.request_id, [&](std::string id) { request.set_request_id(id); });
    fields.Text("CERTIFICATE", flags->subject,
                [&](std::string text) { request.set_subject(text); });
    return PoolCommand(command);
  });
}

}  // namespace

void AddInventoryCommands(CLI::App& app, Chosen& chosen) {
  CLI::App* host = app.add_subcommand("host", "List, show, enrol, retire and fence hosts");
  host->require_subcommand(1);
  AddBare<ListHosts>(host, "list", "List hosts, in order of name", chosen)->alias("ls");
  AddShow<ShowHost>(host, "Show one host, its slots and its bridges", kHost, chosen)->alias("get");
  AddEnrol(host, chosen);
  AddCall<RetireHost>(host, "retire", "Refuse a host's agent from now on", kHost, chosen);
  AddCall<RemoveHost>(host, "remove", "Forget a host that nothing is attached to", kHost, chosen)
      ->alias("rm")
      ->alias("delete");
  AddCall<FenceHost>(host, "fence", "Cut a host off for certain. Destroys what runs there; audited",
                     kHost, chosen);

  CLI::App* device = app.add_subcommand("device", "List, show, drain and remove memory devices");
  device->require_subcommand(1);
  AddBare<ListDevices>(device, "list", "List devices, in order of name", chosen)->alias("ls");
  AddShow<ShowDevice>(device, "Show one device, and the Regions with bytes there", kDevice, chosen)
      ->alias("get");
  AddCall<DrainDevice>(device, "drain", "Place nothing new there, and say who has bytes there",
                       kDevice, chosen);
  AddCall<AddDevice>(device, "add", "Use a device again that was drained or removed", kDevice,
                     chosen);
  AddCall<RemoveDevice>(device, "remove", "Take an empty device out of the pool", kDevice, chosen)
      ->alias("rm")
      ->alias("delete");
  AddCall<FailDevice>(device, "fail", "Say that a device is broken, for good; audited", kDevice,
                      chosen, "How one knows, for the audit record");

  CLI::App* tenant = app.add_subcommand("tenant", "List, make, change and remove tenants");
  tenant->require_subcommand(1);
  AddBare<ListTenants>(tenant, "list", "List tenants, in order of name", chosen)->alias("ls");
  AddSetTenant(tenant, chosen);
  AddCall<ShowTenant>(tenant, "get", "Show one tenant", kTenant, chosen)->alias("show");
  AddCall<RemoveTenant>(tenant, "remove", "Forget a tenant without Regions", kTenant, chosen)
      ->alias("rm")
      ->alias("delete");

  CLI::App* certificate =
      app.add_subcommand("certificate", "Revoke certificates, list and restore them");
  certificate->require_subcommand(1);
  AddBare<ListRevocations>(certificate, "list", "List what is revoked", chosen)->alias("ls");
  AddRevoke(certificate, chosen);
  AddRestore(certificate, chosen);

  AddBare<ShowCapacity>(&app, "capacity", "Bytes free and held, and what would fit", chosen);
  AddBare<ShowTopology>(&app, "topology", "Devices, hosts, bridges, slots and paths as a tree",
                        chosen);
  AddBackup(app, chosen);
}

}  // namespace cxlpool::cli
