#include "tools/cli/region_flags.h"

namespace cxlpool::cli {
namespace {

struct AllocateFlags : RegionFlags {
  Flag sharing, tenant, device, policy, granularity, lifetime, ttl, batch, isolation;
  uint32_t interleave_ways = 0;
  std::vector<std::string> isolate_from;
  std::vector<std::string> open_to;
};

// The manager checks which of these flags go with which policy.
void AddPlacement(CLI::App* app, AllocateFlags& flags) {
  app->add_option("--device", flags.device, "Place it only on this device")->type_name("DEVICE");
  flags.AddMaxExtents(app, "Let it be in so many pieces (default 1)");
  app->add_option("--policy", flags.policy,
                  "pack, spread, bandwidth, latency or isolate (default: the pool's)")
      ->type_name(ChoiceType("POLICY"));
  app->add_option("--interleave-ways", flags.interleave_ways,
                  "bandwidth: stripe over 2, 4, 8 or 16 devices (default: as many as there are)")
      ->check(CLI::IsMember({2, 4, 8, 16}));
  app->add_option("--interleave-granularity", flags.granularity,
                  "bandwidth: bytes a stripe, 256 to 16KiB (default 256)")
      ->type_name("SIZE");
  app->add_option("--isolate-from", flags.isolate_from,
                  "isolate: share no failure domain with this Region; may be given again")
      ->type_name("REGION")
      ->allow_extra_args(false);
  app->add_option("--lifetime", flags.lifetime,
                  "How long it is expected to stay, 90s, 12h or 30d (default: not known)")
      ->type_name("DURATION");
}

// With --batch everything else comes from the file.
void ExcludeAll(CLI::App* app, CLI::Option* batch) {
  for (CLI::Option* option : app->get_options()) {
    if (option != batch && option != app->get_help_ptr()) batch->excludes(option);
  }
}

void ReadPlacement(const AllocateFlags& flags, Fields& fields, v1::AllocateRegionRequest& request) {
  fields.Name("devices", flags.device, [&](std::string name) { request.set_device(name); });
  request.set_max_extents(flags.max_extents);
  fields.Policy(flags.policy, [&](v1::PlacementPolicy policy) { request.set_policy(policy); });
  request.set_interleave_ways(flags.interleave_ways);
  fields.Size(flags.granularity, [&](uint64_t bytes) {
    // The manager refuses the largest value just as it would refuse the one that does not fit.
    request.set_interleave_granularity_bytes(
        static_cast<uint32_t>(std::min<uint64_t>(bytes, UINT32_MAX)));
  });
  for (const std::string& name : flags.isolate_from) {
    fields.Name("regions", name, [&](std::string full) { request.add_isolate_from(full); });
  }
  fields.Term("--lifetime", flags.lifetime, [&](const google::protobuf::Duration& lifetime) {
    *request.mutable_expected_lifetime() = lifetime;
  });
  fields.Term("--ttl", flags.ttl,
              [&](const google::protobuf::Duration& ttl) { *request.mutable_ttl() = ttl; });
}

// With --batch there are no other flags (ExcludeAll).
Command ReadAllocate(const AllocateFlags& flags, const Chosen& chosen, Fields& fields) {
  if (flags.batch.has_value()) return PoolCommand(AllocateBatch{*flags.batch});
  AllocateRegion command;
  v1::AllocateRegionRequest& request = command.request;
  fields.RequestId(chosen.request_id, [&](std::string id) { request.set_request_id(id); });
  fields.NewRegionId(flags.name, [&](std::string id) { request.set_region_id(id); });
  fields.Size(flags.size, [&](uint64_t bytes) { request.set_size_bytes(bytes); });
  flags.ReadUse(fields, request);
  fields.Sharing(flags.sharing, [&](v1::Sharing sharing) { request.set_sharing(sharing); });
  fields.Name("tenants", flags.tenant, [&](std::string name) { request.set_tenant(name); });
  ReadPlacement(flags, fields, request);
  fields.Isolation(flags.isolation,
                   [&](v1::Enforcer enforcer) { request.set_isolation(enforcer); });
  if (!flags.open_to.empty()) fields.OpenTo(flags.open_to, *request.mutable_open_to());
  command.wait = flags.wait.Read(fields);
  return PoolCommand(command);
}

}  // namespace

// Of one Region, from flags, or of many, from the lines of a file: --batch excludes the flags.
void AddAllocateCommand(CLI::App* region, Chosen& chosen) {
  auto* app = region->add_subcommand("allocate", "Set pool memory aside, and attach it to a host");
  auto flags = std::make_shared<AllocateFlags>();
  app->add_option("NAME", flags->name, "Its name (default: made by the manager)")->type_name("");
  auto* size = app->add_option("--size", flags->size, "512MiB, 1.5GiB, 4G (powers of two) or bytes")
                   ->type_name("SIZE");
  auto* host = app->add_option("--host", flags->host, "Attach it there at once")->type_name("HOST");
  flags->AddUse(app);
  app->get_option("--mode")->needs(host);
  app->get_option("--access")->needs(host);
  app->add_option("--sharing", flags->sharing, "exclusive (default), single-writer or multi-writer")
      ->type_name(ChoiceType("SHARING"));
  app->add_option("--tenant", flags->tenant, "Who owns it (default: default)")->type_name("TENANT");
  AddPlacement(app, *flags);
  app->add_option("--open-to", flags->open_to,
                  "Which users of its hosts may open it: uid=N, gid=N or everybody; may be given "
                  "again (default: root)")
      ->type_name("WHOM")
      ->allow_extra_args(false);
  app->add_option("--isolation", flags->isolation,
                  "fabric: only if the fabric itself keeps other hosts from it, now and later; any "
                  "(default): as the tenant has it")
      ->type_name(ChoiceType("WHOSE"));
  app->add_option(
         "--ttl", flags->ttl,
         "Release it by itself after so long unless renewed, 10s to 3652d (default: never)")
      ->type_name("DURATION");
  flags->AddDryRun(app, flags->wait.Add(app, "Wait until it is allocated, and online on --host"));
  auto* batch = app->add_option("--batch", flags->batch,
                                "Allocate many: a JSON request a line (\"-\": standard input)")
                    ->type_name("FILE");
  ExcludeAll(app, batch);
  OnChosen(app, chosen, [flags, size, batch, &chosen](Fields& fields) -> Command {
    // An option group of CLI11 would ask for one of the two in words that name its whole syntax.
    if (size->count() == 0 && batch->count() == 0) throw CLI::RequiredError("--size");
    return ReadAllocate(*flags, chosen, fields);
  });
}

}  // namespace cxlpool::cli
