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

  CLI::App* device = app.add_subcommand("device", "List the pool's memory devices");
  device->require_subcommand(1);
  AddBare<ListDevices>(device->add_subcommand("list", "List devices, in order of name"), chosen);

  AddBare<ShowCapacity>(app.add_subcommand("capacity", "Bytes free and held, and what would fit"),
                        chosen);
  AddBare<ShowTopology>(
      app.add_subcommand("topology", "Devices, hosts, bridges and slots as a tree"), chosen);
}

}  // namespace cxlpool::cli
