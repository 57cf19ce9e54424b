#include "tools/cli/region_flags.h"

namespace cxlpool::cli {
namespace {

struct ListFlags {
  Flag host, filter, order;
};

// Filter and order are sent as they are: the manager checks them.
void AddList(CLI::App* region, Chosen& chosen) {
  auto* app = region->add_subcommand("list", "List Regions")->alias("ls");
  auto flags = std::make_shared<ListFlags>();
  app->add_option("--host", flags->host, "Only those attached there")->type_name("HOST");
  app->add_option("--filter", flags->filter,
                  "Only those, for example: tenant = ml AND size_bytes >= 1GiB")
      ->type_name("FILTER");
  app->add_option("--order-by", flags->order,
                  "name (default), size_bytes, create_time or revision, \" desc\" after it")
      ->type_name("ORDER");
  AddWatchFlag(app, chosen, "at each change");
  OnChosen(app, chosen, [flags](Fields& fields) -> Command {
    ListRegions command;
    fields.Name("hosts", flags->host, [&](std::string name) { command.request.set_host(name); });
    fields.Text("--filter", flags->filter,
                [&](std::string filter) { command.request.set_filter(filter); });
    fields.Text("--order-by", flags->order,
                [&](std::string order) { command.request.set_order_by(order); });
    return PoolCommand(command);
  });
}

// As each function here: defines the flags, which live as long as the parser (`flags` is shared
// with the callback), and makes the command of them once it is chosen.
void AddAttach(CLI::App* region, Chosen& chosen) {
  auto* app = region->add_subcommand("attach", "Let a host use a Region");
  auto flags = std::make_shared<RegionFlags>();
  flags->AddName(app);
  app->add_option("--host", flags->host, "Which host")->type_name("HOST")->required();
  flags->AddUse(app);
  flags->AddEtag(app);
  flags->AddDryRun(app, flags->wait.Add(app, "Wait until it is online there"));
  OnChosen(app, chosen, [flags, &chosen](Fields& fields) -> Command {
    AttachRegion command;
    flags->ReadTarget(chosen, fields, command.request);
    flags->ReadUse(fields, command.request);
    command.wait = flags->wait.Read(fields);
    return PoolCommand(command);
  });
}

void AddDetach(CLI::App* region, Chosen& chosen) {
  auto* app = region->add_subcommand("detach", "Take a Region from a host; the bytes stay");
  auto flags = std::make_shared<RegionFlags>();
  flags->AddName(app);
  app->add_option("--host", flags->host, "Which host")->type_name("HOST")->required();
  flags->AddEtag(app);
  flags->wait.Add(app, "Wait until the host has let go");
  OnChosen(app, chosen, [flags, &chosen](Fields& fields) -> Command {
    DetachRegion command;
    flags->ReadTarget(chosen, fields, command.request);
    fields.Name("hosts", flags->host, [&](std::string name) { command.request.set_host(name); });
    command.wait = flags->wait.Read(fields);
    return PoolCommand(command);
  });
}

struct WatchFlags {
  Flag name, from_revision, period;
};

void AddWatch(CLI::App* region, Chosen& chosen) {
  auto* app = region->add_subcommand("watch", "Print Regions as they are, then each change");
  auto flags = std::make_shared<WatchFlags>();
  app->add_option("NAME", flags->name, "Only this Region")->type_name("");
  app->add_option("--from-revision", flags->from_revision, "Only changes after this revision")
      ->type_name("REVISION");
  app->add_option("--for", flags->period, "Stop after so long (default: when interrupted)")
      ->type_name("DURATION");
  OnChosen(app, chosen, [flags](Fields& fields) -> Command {
    WatchRegions command;
    fields.Name("regions", flags->name, [&](std::string name) { command.request.set_name(name); });
    fields.Number("--from-revision", flags->from_revision,
                  [&](uint64_t revision) { command.request.set_start_revision(revision); });
    fields.Period("--for", flags->period, command.limit);
    return PoolCommand(command);
  });
}

}  // namespace

// The help lists the commands in this order. The aliases are what other programs call them.
void AddRegionCommands(CLI::App& app, Chosen& chosen) {
  CLI::App* region = app.add_subcommand("region", "Allocate, attach, resize, release, look, watch");
  region->require_subcommand(1);
  AddAllocateCommand(region, chosen);
  AddList(region, chosen);
  AddCall<ShowRegion>(region, "show", "Show one Region, its Extents and its Attachments", kRegion,
                      chosen)
      ->alias("get");
  AddCall<ListHolders>(region, "holders",
                       "List the processes that have a Region open, on each host", kRegion, chosen);
  AddAttach(region, chosen);
  AddDetach(region, chosen);
  AddEditCommands(region, chosen);
  AddReleaseCommand(region, chosen);
  AddWatch(region, chosen);
}

}  // namespace cxlpool::cli
