#include "tools/cli/subcommands.h"

namespace cxlpool::cli {
namespace {

// Raw words live as long as the callbacks that read them.
struct WaitFlags {
  bool wait = false;
  Flag limit;

  CLI::Option* Add(CLI::App* app, const char* until) {
    CLI::Option* option = app->add_flag("--wait", wait, until);
    app->add_option("--wait-timeout", limit, "How long --wait may take (default 5m)")
        ->type_name("DURATION")
        ->needs(option);
    return option;
  }
  WaitOptions Read(Fields& fields) const {
    WaitOptions options;
    options.wait = wait;
    fields.Period("--wait-timeout", limit, options.limit);
    return options;
  }
};

struct RegionFlags {
  Flag name, host, size, mode, access, sharing, tenant, device, etag, period, from_revision;
  uint32_t max_extents = 0;
  bool dry_run = false;
  bool detach_all = false;
  WaitFlags wait;

  void AddUse(CLI::App* app) {
    app->add_option("--mode", mode, "devdax (default) or system-ram")->type_name("MODE");
    app->add_option("--access", access, "rw (default) or ro")->type_name("ACCESS");
  }
  void AddDryRun(CLI::App* app, CLI::Option* wait_option) {
    app->add_flag("--dry-run", dry_run, "Say what would be done and change nothing")
        ->excludes(wait_option);
  }
};

template <typename Request>
void ReadUse(const RegionFlags& flags, Fields& fields, Request& request) {
  fields.Name("hosts", flags.host, [&](std::string name) { request.set_host(name); });
  fields.Mode(flags.mode, [&](v1::AttachmentMode mode) { request.set_mode(mode); });
  fields.Access(flags.access, [&](v1::Access access) { request.set_access(access); });
  request.set_validate_only(flags.dry_run);
}

template <typename Request>
void ReadName(const RegionFlags& flags, Fields& fields, Request& request) {
  fields.Name("regions", flags.name, [&](std::string name) { request.set_name(name); });
}

template <typename Request>
void ReadRequestId(const Chosen& chosen, Fields& fields, Request& request) {
  fields.RequestId(chosen.request_id, [&](std::string id) { request.set_request_id(id); });
}

CLI::Option* AddRequiredName(CLI::App* app, RegionFlags& flags) {
  return app->add_option("NAME", flags.name, "Region, by name or tag")->type_name("")->required();
}

void AddAllocate(CLI::App* region, Chosen& chosen) {
  auto* app = region->add_subcommand("allocate", "Set pool memory aside, and attach it to a host");
  auto flags = std::make_shared<RegionFlags>();
  app->add_option("NAME", flags->name, "Its name (default: made by the manager)")->type_name("");
  app->add_option("--size", flags->size, "512MiB, 1.5GiB, 4G (powers of two) or bytes")
      ->type_name("SIZE")
      ->required();
  auto* host = app->add_option("--host", flags->host, "Attach it there at once")->type_name("HOST");
  flags->AddUse(app);
  app->get_option("--mode")->needs(host);
  app->get_option("--access")->needs(host);
  app->add_option("--sharing", flags->sharing, "exclusive (default), single-writer or multi-writer")
      ->type_name("SHARING");
  app->add_option("--tenant", flags->tenant, "Who owns it (default: default)")->type_name("TENANT");
  app->add_option("--device", flags->device, "Place it only on this device")->type_name("DEVICE");
  app->add_option("--max-extents", flags->max_extents, "Let it be in so many pieces (default 1)")
      ->check(CLI::Range(1u, 16u));
  flags->AddDryRun(app, flags->wait.Add(app, "Wait until it is allocated, and online on --host"));
  OnChosen(app, chosen, [flags, &chosen](Fields& fields) -> Command {
    AllocateRegion command;
    v1::AllocateRegionRequest& request = command.request;
    ReadRequestId(chosen, fields, request);
    fields.NewRegionId(flags->name, [&](std::string id) { request.set_region_id(id); });
    fields.Size(flags->size, [&](uint64_t bytes) { request.set_size_bytes(bytes); });
    ReadUse(*flags, fields, request);
    fields.Sharing(flags->sharing, [&](v1::Sharing sharing) { request.set_sharing(sharing); });
    fields.Name("tenants", flags->tenant, [&](std::string name) { request.set_tenant(name); });
    fields.Name("devices", flags->device, [&](std::string name) { request.set_device(name); });
    request.set_max_extents(flags->max_extents);
    command.wait = flags->wait.Read(fields);
    return PoolCommand(command);
  });
}

void AddList(CLI::App* region, Chosen& chosen) {
  auto* app = region->add_subcommand("list", "List Regions, in order of name");
  auto flags = std::make_shared<RegionFlags>();
  app->add_option("--host", flags->host, "Only those attached there")->type_name("HOST");
  OnChosen(app, chosen, [flags](Fields& fields) -> Command {
    ListRegions command;
    fields.Name("hosts", flags->host, [&](std::string name) { command.request.set_host(name); });
    return PoolCommand(command);
  });
}

void AddShow(CLI::App* region, Chosen& chosen) {
  auto* app = region->add_subcommand("show", "Show one Region, its Extents and its Attachments");
  auto flags = std::make_shared<RegionFlags>();
  AddRequiredName(app, *flags);
  OnChosen(app, chosen, [flags](Fields& fields) -> Command {
    ShowRegion command;
    ReadName(*flags, fields, command.request);
    return PoolCommand(command);
  });
}

void AddAttach(CLI::App* region, Chosen& chosen) {
  auto* app = region->add_subcommand("attach", "Let a host use a Region");
  auto flags = std::make_shared<RegionFlags>();
  AddRequiredName(app, *flags);
  app->add_option("--host", flags->host, "Which host")->type_name("HOST")->required();
  flags->AddUse(app);
  flags->AddDryRun(app, flags->wait.Add(app, "Wait until it is online there"));
  OnChosen(app, chosen, [flags, &chosen](Fields& fields) -> Command {
    AttachRegion command;
    ReadRequestId(chosen, fields, command.request);
    ReadName(*flags, fields, command.request);
    ReadUse(*flags, fields, command.request);
    command.wait = flags->wait.Read(fields);
    return PoolCommand(command);
  });
}

void AddDetach(CLI::App* region, Chosen& chosen) {
  auto* app = region->add_subcommand("detach", "Take a Region from a host; the bytes stay");
  auto flags = std::make_shared<RegionFlags>();
  AddRequiredName(app, *flags);
  app->add_option("--host", flags->host, "Which host")->type_name("HOST")->required();
  flags->wait.Add(app, "Wait until the host has let go");
  OnChosen(app, chosen, [flags, &chosen](Fields& fields) -> Command {
    DetachRegion command;
    ReadRequestId(chosen, fields, command.request);
    ReadName(*flags, fields, command.request);
    fields.Name("hosts", flags->host, [&](std::string name) { command.request.set_host(name); });
    command.wait = flags->wait.Read(fields);
    return PoolCommand(command);
  });
}

void AddRelease(CLI::App* region, Chosen& chosen) {
  auto* app = region->add_subcommand("release", "Give the bytes back: detach, scrub, free");
  auto flags = std::make_shared<RegionFlags>();
  AddRequiredName(app, *flags);
  app->add_flag("--detach-all", flags->detach_all, "Detach it everywhere instead of refusing");
  app->add_option("--etag", flags->etag, "Only if it is still as `region show` said")
      ->type_name("ETAG");
  flags->wait.Add(app, "Wait until the bytes are scrubbed and free");
  OnChosen(app, chosen, [flags, &chosen](Fields& fields) -> Command {
    ReleaseRegion command;
    ReadRequestId(chosen, fields, command.request);
    ReadName(*flags, fields, command.request);
    command.request.set_detach_all(flags->detach_all);
    fields.Text("--etag", flags->etag, [&](std::string etag) { command.request.set_etag(etag); });
    command.wait = flags->wait.Read(fields);
    return PoolCommand(command);
  });
}

void AddWatch(CLI::App* region, Chosen& chosen) {
  auto* app = region->add_subcommand("watch", "Print Regions as they are, then each change");
  auto flags = std::make_shared<RegionFlags>();
  app->add_option("NAME", flags->name, "Only this Region")->type_name("");
  app->add_option("--from-revision", flags->from_revision, "Only changes after this revision")
      ->type_name("REVISION");
  app->add_option("--for", flags->period, "Stop after so long (default: when interrupted)")
      ->type_name("DURATION");
  OnChosen(app, chosen, [flags](Fields& fields) -> Command {
    WatchRegions command;
    ReadName(*flags, fields, command.request);
    fields.Number("--from-revision", flags->from_revision,
                  [&](uint64_t revision) { command.request.set_start_revision(revision); });
    fields.Period("--for", flags->period, command.limit);
    return PoolCommand(command);
  });
}

}  // namespace

void AddRegionCommands(CLI::App& app, Chosen& chosen) {
  CLI::App* region = app.add_subcommand("region", "Allocate, attach, detach, release, look, watch");
  region->require_subcommand(1);
  AddAllocate(region, chosen);
  AddList(region, chosen);
  AddShow(region, chosen);
  AddAttach(region, chosen);
  AddDetach(region, chosen);
  AddRelease(region, chosen);
  AddWatch(region, chosen);
}

}  // namespace cxlpool::cli
