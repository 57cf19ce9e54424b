// What the region subcommands have in common: their flags as text, and reading them into requests.
// Internal to the parser.
#ifndef CXLPOOL_TOOLS_CLI_REGION_FLAGS_H_
#define CXLPOOL_TOOLS_CLI_REGION_FLAGS_H_

#include <string>
#include <vector>

#include "tools/cli/subcommands.h"

namespace cxlpool::cli {

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
  Flag name, host, size, mode, zone, access, etag;
  uint32_t max_extents = 0;
  bool dry_run = false;
  WaitFlags wait;

  CLI::Option* AddName(CLI::App* app) {
    return app->add_option("NAME", name, "Region, by name or tag")->type_name("")->required();
  }
  void AddUse(CLI::App* app) {
    CLI::Option* option = app->add_option("--mode", mode, "devdax (default) or system-ram")
                              ->type_name(ChoiceType("MODE"));
    app->add_option(
           "--zone", zone,
           "Of system-ram: movable (default), or kernel, from where it may never come back")
        ->type_name(ChoiceType("ZONE"))
        ->needs(option);
    app->add_option("--access", access, "rw (default) or ro")->type_name(ChoiceType("ACCESS"));
  }
  void AddEtag(CLI::App* app) {
    app->add_option("--etag", etag, "Only if it is still as `region show` said")->type_name("ETAG");
  }
  void AddMaxExtents(CLI::App* app, const char* help) {
    app->add_option("--max-extents", max_extents, help)->check(CLI::Range(1u, 16u));
  }
  void AddDryRun(CLI::App* app, CLI::Option* wait_option) {
    app->add_flag("--dry-run", dry_run, "Say what would be done and change nothing")
        ->excludes(wait_option);
  }

  // Name, etag and request_id, whichever the request has.
  template <typename Request>
  void ReadTarget(const Chosen& chosen, Fields& fields, Request& request) const {
    fields.RequestId(chosen.request_id, [&](std::string id) { request.set_request_id(id); });
    fields.Name("regions", name, [&](std::string full) { request.set_name(full); });
    fields.Text("--etag", etag, [&](std::string text) { request.set_etag(text); });
  }
  template <typename Request>
  void ReadUse(Fields& fields, Request& request) const {
    fields.Name("hosts", host, [&](std::string full) { request.set_host(full); });
    fields.Mode(mode, [&](v1::AttachmentMode value) { request.set_mode(value); });
    fields.Zone(zone, [&](v1::MemoryZone value) { request.set_zone(value); });
    fields.Access(access, [&](v1::Access value) { request.set_access(value); });
    request.set_validate_only(dry_run);
  }
};

void AddAllocateCommand(CLI::App* region, Chosen& chosen);
void AddReleaseCommand(CLI::App* region, Chosen& chosen);
void AddEditCommands(CLI::App* region, Chosen& chosen);  // Resize, rename, renew.

}  // namespace cxlpool::cli

#endif  // CXLPOOL_TOOLS_CLI_REGION_FLAGS_H_
