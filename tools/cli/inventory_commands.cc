#include "tools/cli/subcommands.h"

namespace cxlpool::cli {
namespace {

struct HostFlags {
  Flag host, identity, reason;
};

template <typename Request>
void ReadHost(const HostFlags& flags, const Chosen& chosen, Fields& fields, Request& request) {
  fields.RequestId(chosen.request_id, [&](std::string id) { request.set_request_id(id); });
  fields.Name("hosts", flags.host, [&](std::string name) { request.set_host(name); });
}

void AddEnrol(CLI::App* host, Chosen& chosen) {
  auto* app = host->add_subcommand("enrol", "Make a host known, or replace its certificate");
  auto flags = std::make_shared<HostFlags>();
  app->add_option("HOST", flags->host, "Its name")->type_name("")->required();
  app->add_option("--identity", flags->identity,
                  "URI in its agent's certificate (default cxlpool://host/HOST)")
      ->type_name("URI");
  OnChosen(app, chosen, [flags, &chosen](Fields& fields) -> Command {
    EnrolHost command;
    ReadHost(*flags, chosen, fields, command.request);
    fields.Text("--identity", flags->identity,
                [&](std::string uri) { command.request.set_identity(uri); });
    return PoolCommand(command);
  });
}

void AddRetire(CLI::App* host, Chosen& chosen) {
  auto* app = host->add_subcommand("retire", "Refuse a host's agent from now on");
  auto flags = std::make_shared<HostFlags>();
  app->add_option("HOST", flags->host, "Its name")->type_name("")->required();
  OnChosen(app, chosen, [flags, &chosen](Fields& fields) -> Command {
    RetireHost command;
    ReadHost(*flags, chosen, fields, command.request);
    return PoolCommand(command);
  });
}

void AddFence(CLI::App* host, Chosen& chosen) {
  auto* app = host->add_subcommand("fence",
                                   "Cut a host off for certain. Destroys what runs there; audited");
  auto flags = std::make_shared<HostFlags>();
  app->add_option("HOST", flags->host, "Its name")->type_name("")->required();
  app->add_option("--reason", flags->reason, "Why, for the audit record")
      ->type_name("TEXT")
      ->required();
  OnChosen(app, chosen, [flags, &chosen](Fields& fields) -> Command {
    FenceHost command;
    ReadHost(*flags, chosen, fields, command.request);
    fields.Text("--reason", flags->reason,
                [&](std::string reason) { command.request.set_reason(reason); });
    return PoolCommand(command);
  });
}

struct NameFlags {
  Flag name, reason;
};

// A change of one device: `command` and its words.
template <typename Change>
void AddDeviceChange(CLI::App* app, bool with_reason, Chosen& chosen) {
  auto flags = std::make_shared<NameFlags>();
  app->add_option("DEVICE", flags->name, "Its name")->type_name("")->required();
  if (with_reason) {
    app->add_option("--reason", flags->reason, "How one knows, for the audit record")
        ->type_name("TEXT")
        ->required();
  }
  OnChosen(app, chosen, [flags, &chosen](Fields& fields) -> Command {
    Change command;
    auto& request = command.request;
    fields.RequestId(chosen.request_id, [&](std::string id) { request.set_request_id(id); });
    fields.Name("devices", flags->name, [&](std::string name) { request.set_device(name); });
    if constexpr (requires { request.set_reason(std::string()); }) {
      fields.Text("--reason", flags->reason, [&](std::string text) { request.set_reason(text); });
    }
    return PoolCommand(command);
  });
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

// Shows or removes.
template <typename OfTenant>
void AddOfTenant(CLI::App* app, Chosen& chosen) {
  auto flags = std::make_shared<TenantFlags>();
  app->add_option("TENANT", flags->name, "Its name")->type_name("")->required();
  OnChosen(app, chosen, [flags, &chosen](Fields& fields) -> Command {
    OfTenant command;
    auto& request = command.request;
    if constexpr (requires { request.set_request_id(std::string()); }) {
      fields.RequestId(chosen.request_id, [&](std::string id) { request.set_request_id(id); });
    }
    fields.Name("tenants", flags->name, [&](std::string name) { request.set_name(name); });
    return PoolCommand(command);
  });
}

void AddBackup(CLI::App& app, Chosen& chosen) {
  auto* backup = app.add_subcommand("backup", "Copy the manager's database into a new file");
  auto command = std::make_shared<Backup>();
  backup->add_option("FILE", command->file, "Must not be there; no backup is ever overwritten")
      ->type_name("")
      ->required();
  OnChosen(backup, chosen, [command](Fields&) -> Command { return PoolCommand(*command); });
}

template <typename Bare>
void AddBare(CLI::App* app, Chosen& chosen) {
  OnChosen(app, chosen, [](Fields&) -> Command { return PoolCommand(Bare{}); });
}

}  // namespace

void AddInventoryCommands(CLI::App& app, Chosen& chosen) {
  CLI::App* host = app.add_subcommand("host", "List, enrol, retire and fence hosts");
  host->require_subcommand(1);
  AddBare<ListHosts>(host->add_subcommand("list", "List hosts, in order of name"), chosen);
  AddEnrol(host, chosen);
  AddRetire(host, chosen);
  AddFence(host, chosen);

  CLI::App* device = app.add_subcommand("device", "List, drain and remove memory devices");
  device->require_subcommand(1);
  AddBare<ListDevices>(device->add_subcommand("list", "List devices, in order of name"), chosen);
  AddDeviceChange<DrainDevice>(
      device->add_subcommand("drain", "Place nothing new there, and say who has bytes there"),
      false, chosen);
  AddDeviceChange<AddDevice>(
      device->add_subcommand("add", "Use a device again that was drained or removed"), false,
      chosen);
  AddDeviceChange<RemoveDevice>(
      device->add_subcommand("remove", "Take an empty device out of the pool"), false, chosen);
  AddDeviceChange<FailDevice>(
      device->add_subcommand("fail", "Say that a device is broken, for good; audited"), true,
      chosen);

  CLI::App* tenant = app.add_subcommand("tenant", "List, make, change and remove tenants");
  tenant->require_subcommand(1);
  AddBare<ListTenants>(tenant->add_subcommand("list", "List tenants, in order of name"), chosen);
  AddSetTenant(tenant, chosen);
  AddOfTenant<ShowTenant>(tenant->add_subcommand("get", "Show one tenant"), chosen);
  AddOfTenant<RemoveTenant>(tenant->add_subcommand("remove", "Forget a tenant without Regions"),
                            chosen);

  AddBare<ShowCapacity>(app.add_subcommand("capacity", "Bytes free and held, and what would fit"),
                        chosen);
  AddBare<ShowTopology>(
      app.add_subcommand("topology", "Devices, hosts, bridges, slots and paths as a tree"), chosen);
  AddBackup(app, chosen);
}

}  // namespace cxlpool::cli
