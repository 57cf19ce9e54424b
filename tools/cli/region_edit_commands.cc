#include "tools/cli/region_flags.h"

namespace cxlpool::cli {
namespace {

void AddResize(CLI::App* region, Chosen& chosen) {
  auto* app = region->add_subcommand("resize", "Grow or shrink a Region by whole Extents");
  auto flags = std::make_shared<RegionFlags>();
  flags->AddName(app);
  app->add_option("SIZE", flags->size, "What it is to have: 512MiB, 1.5GiB, 4G or bytes")
      ->type_name("")
      ->required();
  flags->AddMaxExtents(app, "Growing: let what is new be in so many pieces (default 1)");
  flags->AddEtag(app);
  flags->AddDryRun(app, flags->wait.Add(app, "Wait until it has the size everywhere"));
  OnChosen(app, chosen, [flags, &chosen](Fields& fields) -> Command {
    ResizeRegion command;
    flags->ReadTarget(chosen, fields, command.request);
    fields.Size(flags->size, [&](uint64_t bytes) { command.request.set_size_bytes(bytes); });
    command.request.set_max_extents(flags->max_extents);
    command.request.set_validate_only(flags->dry_run);
    command.wait = flags->wait.Read(fields);
    return PoolCommand(command);
  });
}

struct RenameFlags : RegionFlags {
  Flag new_name;
};

void AddRename(CLI::App* region, Chosen& chosen) {
  auto* app = region->add_subcommand("rename", "Give a Region another name; bytes and tag stay");
  auto flags = std::make_shared<RenameFlags>();
  flags->AddName(app);
  app->add_option("NEW", flags->new_name, "What it is to be called")->type_name("")->required();
  flags->AddEtag(app);
  OnChosen(app, chosen, [flags, &chosen](Fields& fields) -> Command {
    RenameRegion command;
    flags->ReadTarget(chosen, fields, command.request);
    fields.NewRegionId(flags->new_name,
                       [&](std::string id) { command.request.set_new_region_id(id); });
    return PoolCommand(command);
  });
}

struct RenewFlags : RegionFlags {
  Flag ttl;
};

void AddRenew(CLI::App* region, Chosen& chosen) {
  auto* app = region->add_subcommand("renew", "Put the end of a Region's lease off");
  auto flags = std::make_shared<RenewFlags>();
  flags->AddName(app);
  app->add_option("--ttl", flags->ttl, "From now on so long, 10s to 3652d (default: its term)")
      ->type_name("DURATION");
  flags->AddEtag(app);
  OnChosen(app, chosen, [flags, &chosen](Fields& fields) -> Command {
    RenewRegion command;
    flags->ReadTarget(chosen, fields, command.request);
    fields.Term("--ttl", flags->ttl, [&](const google::protobuf::Duration& ttl) {
      *command.request.mutable_ttl() = ttl;
    });
    return PoolCommand(command);
  });
}

}  // namespace

void AddEditCommands(CLI::App* region, Chosen& chosen) {
  AddResize(region, chosen);
  AddRename(region, chosen);
  AddRenew(region, chosen);
}

}  // namespace cxlpool::cli
