#include "tools/cli/region_flags.h"

namespace cxlpool::cli {
namespace {

struct ReleaseFlags : RegionFlags {
  std::vector<std::string> names;
  Flag reason;
  bool detach_all = false;
  bool force = false;
  bool fence = false;
  Consent consent;

  void Read(Fields& fields, const std::string& which, v1::ReleaseRegionRequest& request) const {
    fields.Name("regions", which, [&](std::string full) { request.set_name(full); });
    request.set_detach_all(detach_all);
    request.set_force(force);
    request.set_fence(fence);
    fields.Text("--reason", reason, [&](std::string text) { request.set_reason(text); });
    fields.Text("--etag", etag, [&](std::string text) { request.set_etag(text); });
  }
};

}  // namespace

// One name is one call; several are a batch, in which each has an outcome of its own. An etag and a
// fence are about one Region.
void AddReleaseCommand(CLI::App* region, Chosen& chosen) {
  auto* app = region->add_subcommand("release", "Give the bytes back: detach, scrub, free")
                  ->alias("delete")
                  ->alias("rm");
  auto flags = std::make_shared<ReleaseFlags>();
  app->add_option("NAME", flags->names, "Regions, by name or tag: at most 1000")
      ->type_name("")
      ->required();
  app->add_flag("--detach-all", flags->detach_all, "Detach it everywhere instead of refusing");
  auto* force =
      app->add_flag("--force", flags->force, "On your word, where proof cannot be had; audited");
  auto* reason = app->add_option("--reason", flags->reason, "Why, for the audit record")
                     ->type_name("TEXT")
                     ->needs(force);
  force->needs(reason);
  app->add_flag("--fence", flags->fence, "With --force: fence the hosts that have it first")
      ->needs(force);
  flags->AddEtag(app);
  auto* wait = flags->wait.Add(app, "Wait until the bytes are scrubbed and free");
  AddConsent(app, flags->consent);
  app->get_option("--dry-run")->excludes(wait);
  OnChosen(app, chosen, [flags, &chosen](Fields& fields) -> Command {
    const WaitOptions wait = flags->wait.Read(fields);
    if (flags->names.size() == 1) {
      ReleaseRegion command;
      fields.RequestId(chosen.request_id,
                       [&](std::string id) { command.request.set_request_id(id); });
      flags->Read(fields, flags->names[0], command.request);
      command.wait = wait;
      command.consent = flags->consent;
      return PoolCommand(command);
    }
    if (flags->names.size() > 1000) throw CLI::ValidationError("NAME", "at most 1000 at a time");
    if (flags->etag.has_value())
      throw CLI::ValidationError("--etag", "goes with one Region at a time");
    if (flags->fence) throw CLI::ValidationError("--fence", "goes with one Region at a time");
    ReleaseBatch command;
    for (const std::string& name : flags->names) {
      flags->Read(fields, name, *command.request.add_requests());
    }
    command.wait = wait;
    command.consent = flags->consent;
    return PoolCommand(command);
  });
}

}  // namespace cxlpool::cli
