#include "tools/cli/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "proto/support/refusal.h"
#include "tools/cli/run_command.h"

namespace cxlpool::cli {
namespace {

using testing::HasSubstr;

constexpr char kId[] = "00000000-0000-4000-8000-00000000000a";

auto Parse(std::vector<const char*> words) {
  words.insert(words.begin(), "cxlpool");
  return ParseCommandLine(static_cast<int>(words.size()), words.data());
}

Invocation Parsed(std::vector<const char*> words) {
  const auto parsed = Parse(std::move(words));
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  if (!parsed.ok() || !std::holds_alternative<Invocation>(*parsed)) return {};
  return std::get<Invocation>(*parsed);
}

template <typename Chosen>
Chosen Pool(std::vector<const char*> words) {
  const Invocation invocation = Parsed(std::move(words));
  const auto* pool = std::get_if<PoolCommand>(&invocation.command);
  const auto* chosen = pool == nullptr ? nullptr : std::get_if<Chosen>(pool);
  EXPECT_NE(chosen, nullptr);
  return chosen == nullptr ? Chosen{} : *chosen;
}

std::string ReasonFor(std::vector<const char*> words) {
  const auto parsed = Parse(std::move(words));
  EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument) << parsed.status();
  return ReasonOf(parsed.status());
}

std::string TextOf(std::vector<const char*> words) {
  const auto parsed = Parse(std::move(words));
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  return parsed.ok() ? std::get<PrintText>(*parsed).text : "";
}

TEST(CommandLineTest, AGrantBecomesItsRequest) {
  const auto grant = Pool<GrantAccess>({"access", "grant", "alice", "--role", "operator", "--for",
                                        "1h", "--reason", "on duty", "--request-id", kId});
  EXPECT_EQ(grant.request.role_binding().identity(), "cxlpool://operator/alice");
  EXPECT_EQ(grant.request.role_binding().role(), v1::OPERATOR);
  EXPECT_EQ(grant.request.role_binding().reason(), "on duty");
  EXPECT_EQ(grant.request.request_id(), kId);
  ASSERT_TRUE(grant.term.has_value());
  EXPECT_EQ(grant.term->seconds(), 3600);
  const auto revoke = Pool<RevokeAccess>({"access", "revoke", "spiffe://site/ci"});
  EXPECT_EQ(revoke.request.identity(), "spiffe://site/ci");
  EXPECT_EQ(ReasonFor({"access", "grant", "alice", "--role", "king", "--reason", "x"}),
            "BAD_VALUE");
  EXPECT_EQ(ReasonFor({"access", "grant", "alice", "--role", "admin"}), "USAGE");
}

TEST(CommandLineTest, ATokenIsABindingOfItsName) {
  const auto create = Pool<CreateToken>({"token", "create", "ci", "--role", "tenant", "--tenant",
                                         "ml", "--ttl", "8h", "--reason", "tests"});
  EXPECT_EQ(create.name, "ci");
  EXPECT_EQ(create.request.role_binding().identity(), "cxlpool://token/ci");
  EXPECT_EQ(create.request.role_binding().tenants(0), "tenants/ml");
  EXPECT_EQ(create.term.seconds(), 8 * 3600);
  EXPECT_EQ(Pool<RevokeAccess>({"token", "revoke", "ci"}).request.identity(), "cxlpool://token/ci");
  EXPECT_EQ(
      ReasonFor({"token", "create", "C I", "--role", "viewer", "--ttl", "1h", "--reason", "x"}),
      "BAD_NAME");
  EXPECT_EQ(ReasonFor({"token", "create", "ci", "--role", "viewer", "--reason", "x"}), "USAGE");
  // Its text is printed this once: whoever wants the name alone would lose it.
  EXPECT_EQ(ReasonFor({"token", "create", "ci", "--role", "viewer", "--ttl", "1h", "--reason", "x",
                       "-o", "name"}),
            "USAGE");
}

TEST(CommandLineTest, EventsAndTheirTrailBecomeRequests) {
  const auto list =
      Pool<ListEvents>({"event", "list", "--of", "regions/kv", "--by", "manager", "--limit", "7"});
  EXPECT_EQ(list.request.resource(), "regions/kv");
  EXPECT_EQ(list.request.who(), "manager");
  EXPECT_EQ(list.most, 7u);
  EXPECT_EQ(Pool<ListEvents>({"event", "ls"}).most, 100u);
  const auto of = [](const char* what) {
    return Pool<ListEvents>({"event", "list", "--of", what}).request.resource();
  };
  EXPECT_EQ(of("region/kv"), "regions/kv");
  EXPECT_EQ(of("host/host-a"), "hosts/host-a");
  EXPECT_EQ(of("device/cmm-0"), "devices/cmm-0");
  EXPECT_EQ(of("tenants/ml"), "tenants/ml");
  EXPECT_EQ(of("roleBindings/cxlpool://operator/alice"), "roleBindings/cxlpool://operator/alice");
  EXPECT_EQ(of("topology/device cmm-9"), "topology/device cmm-9");
  for (const char* bare : {"kv", "regions", "zone/a", "cxlpool://operator/alice"}) {
    EXPECT_EQ(ReasonFor({"event", "list", "--of", bare}), "USAGE") << bare;
  }
  EXPECT_THAT(Parse({"event", "list", "--of", "kv"}).status().message(), HasSubstr("region/NAME"));
  EXPECT_EQ(ReasonFor({"event", "list", "--of", "region/"}), "BAD_NAME");
  const auto by = [](const char* who) {
    return Pool<ListEvents>({"event", "list", "--by", who}).request.who();
  };
  EXPECT_EQ(by("alice"), "cxlpool://operator/alice");
  EXPECT_EQ(by("spiffe://site/ci"), "spiffe://site/ci");
  EXPECT_EQ(by("fsck"), "fsck");
  EXPECT_EQ(Pool<VerifyAudit>({"audit", "verify", "--anchor", "1:00"}).request.anchor(), "1:00");
  EXPECT_EQ(ReasonFor({"event", "list", "--limit", "x"}), "BAD_VALUE");
}

TEST(CommandLineTest, AllocateBecomesItsRequest) {
  const auto command = Pool<AllocateRegion>({"region",    "allocate",     "kv",
                                             "--size",    "1.5GiB",       "--host",
                                             "host-a",    "--mode",       "system-ram",
                                             "--access",  "rw",           "--sharing",
                                             "exclusive", "--tenant",     "blue",
                                             "--device",  "cmm-0",        "--max-extents",
                                             "3",         "--wait",       "--wait-timeout",
                                             "90s",       "--request-id", kId});
  const auto& request = command.request;
  EXPECT_EQ(request.region_id(), "kv");
  EXPECT_EQ(request.size_bytes(), uint64_t{3} << 29);
  EXPECT_EQ(request.host(), "hosts/host-a");
  EXPECT_EQ(request.mode(), v1::SYSTEM_RAM);
  EXPECT_EQ(request.access(), v1::READ_WRITE);
  EXPECT_EQ(request.sharing(), v1::EXCLUSIVE);
  EXPECT_EQ(request.tenant(), "tenants/blue");
  EXPECT_EQ(request.device(), "devices/cmm-0");
  EXPECT_EQ(request.max_extents(), 3u);
  EXPECT_EQ(request.request_id(), kId);
  EXPECT_FALSE(request.validate_only());
  EXPECT_TRUE(command.wait.wait);
  EXPECT_EQ(command.wait.limit, absl::Seconds(90));
}

TEST(CommandLineTest, WhatIsNotGivenStaysUnset) {
  const auto command = Pool<AllocateRegion>({"region", "allocate", "--size", "4G"});
  v1::AllocateRegionRequest expected;
  expected.set_size_bytes(uint64_t{4} << 30);
  EXPECT_EQ(command.request.SerializeAsString(), expected.SerializeAsString());
  EXPECT_FALSE(command.wait.wait);
  EXPECT_EQ(command.wait.limit, absl::Minutes(5));
}

TEST(CommandLineTest, ShortAndFullNamesMeanTheSame) {
  for (const char* name : {"kv", "regions/kv"}) {
    EXPECT_EQ(Pool<ShowRegion>({"region", "show", name}).request.name(), "regions/kv");
    EXPECT_EQ(
        Pool<AllocateRegion>({"region", "allocate", name, "--size", "1G"}).request.region_id(),
        "kv");
  }
  for (const char* host : {"host-a", "hosts/host-a"}) {
    EXPECT_EQ(Pool<RetireHost>({"host", "retire", host}).request.host(), "hosts/host-a");
    EXPECT_EQ(Pool<ListRegions>({"region", "list", "--host", host}).request.host(), "hosts/host-a");
  }
  EXPECT_EQ(Pool<ShowRegion>({"region", "show", kId}).request.name(),
            std::string("regions/") + kId);
}

TEST(CommandLineTest, TheOtherRegionCommands) {
  EXPECT_EQ(Pool<ListHolders>({"region", "holders", "kv"}).request.name(), "regions/kv");
  EXPECT_EQ(ReasonFor({"region", "holders"}), "USAGE");
  EXPECT_EQ(ReasonFor({"region", "holders", "kv", "-o", "name"}), "USAGE");

  const auto attach = Pool<AttachRegion>(
      {"region", "attach", "kv", "--host", "host-b", "--access", "ro", "--dry-run"});
  EXPECT_EQ(attach.request.name(), "regions/kv");
  EXPECT_EQ(attach.request.host(), "hosts/host-b");
  EXPECT_EQ(attach.request.access(), v1::READ_ONLY);
  EXPECT_TRUE(attach.request.validate_only());

  const auto detach = Pool<DetachRegion>({"region", "detach", "kv", "--host", "host-b", "--wait"});
  EXPECT_EQ(detach.request.host(), "hosts/host-b");
  EXPECT_TRUE(detach.wait.wait);

  const auto release =
      Pool<ReleaseRegion>({"region", "release", "kv", "--detach-all", "--etag", "e1"});
  EXPECT_TRUE(release.request.detach_all());
  EXPECT_EQ(release.request.etag(), "e1");

  const auto watch = Pool<WatchRegions>(
      {"region", "watch", "kv", "--from-revision", "18446744073709551615", "--for", "2m"});
  EXPECT_EQ(watch.request.name(), "regions/kv");
  EXPECT_EQ(watch.request.start_revision(), 18446744073709551615u);
  EXPECT_EQ(watch.limit, absl::Minutes(2));
  EXPECT_EQ(Pool<WatchRegions>({"region", "watch"}).limit, absl::InfiniteDuration());
}

TEST(CommandLineTest, AllocateSaysWhereTheBytesGo) {
  const auto request =
      Pool<AllocateRegion>({"region", "allocate", "kv", "--size", "1G", "--policy", "bandwidth",
                            "--interleave-ways", "4", "--interleave-granularity", "4KiB",
                            "--lifetime", "90m", "--ttl", "30d", "--dry-run"})
          .request;
  EXPECT_EQ(request.policy(), v1::BANDWIDTH);
  EXPECT_EQ(request.interleave_ways(), 4u);
  EXPECT_EQ(request.interleave_granularity_bytes(), 4096u);
  EXPECT_EQ(request.expected_lifetime().seconds(), 5400);
  EXPECT_EQ(request.ttl().seconds(), 30 * 86400);
  EXPECT_TRUE(request.validate_only());
  const auto apart =
      Pool<AllocateRegion>({"region", "allocate", "--size", "1G", "--policy", "isolate",
                            "--isolate-from", "a", "--isolate-from", "regions/b"})
          .request;
  EXPECT_THAT(apart.isolate_from(), testing::ElementsAre("regions/a", "regions/b"));
  EXPECT_EQ(Pool<AllocateBatch>({"region", "allocate", "--batch", "-"}).file, "-");
  EXPECT_EQ(ReasonFor({"region", "allocate", "--batch", "f", "--size", "1G"}), "USAGE");
  EXPECT_EQ(ReasonFor({"region", "allocate", "kv", "--batch", "f"}), "USAGE");
  EXPECT_EQ(ReasonFor({"region", "allocate", "--batch", "f", "--request-id", kId}), "USAGE");
  EXPECT_EQ(ReasonFor({"region", "allocate", "--size", "1G", "--interleave-ways", "3"}), "USAGE");
  EXPECT_EQ(ReasonFor({"region", "allocate", "--size", "1G", "--policy", "best"}), "BAD_VALUE");
  EXPECT_EQ(ReasonFor({"region", "allocate", "--size", "1G", "--ttl", "4000d"}), "BAD_DURATION");
  EXPECT_EQ(ReasonFor({"region", "allocate", "--size", "1G", "--ttl", "1w"}), "BAD_DURATION");
}

TEST(CommandLineTest, RegionsAreEdited) {
  const auto resize = Pool<ResizeRegion>(
      {"region", "resize", "kv", "2GiB", "--max-extents", "2", "--etag", "e1", "--wait"});
  EXPECT_EQ(resize.request.name(), "regions/kv");
  EXPECT_EQ(resize.request.size_bytes(), uint64_t{2} << 30);
  EXPECT_EQ(resize.request.max_extents(), 2u);
  EXPECT_EQ(resize.request.etag(), "e1");
  EXPECT_TRUE(resize.wait.wait);
  const auto rename = Pool<RenameRegion>({"region", "rename", "kv", "kv2", "--etag", "e1"});
  EXPECT_EQ(rename.request.name(), "regions/kv");
  EXPECT_EQ(rename.request.new_region_id(), "kv2");
  const auto renew = Pool<RenewRegion>({"region", "renew", "kv", "--ttl", "60"});
  EXPECT_EQ(renew.request.ttl().seconds(), 60);
  EXPECT_FALSE(Pool<RenewRegion>({"region", "renew", "kv"}).request.has_ttl());
  EXPECT_EQ(
      Pool<AttachRegion>({"region", "attach", "kv", "--host", "a", "--etag", "e1"}).request.etag(),
      "e1");
  EXPECT_EQ(
      Pool<DetachRegion>({"region", "detach", "kv", "--host", "a", "--etag", "e1"}).request.etag(),
      "e1");
  EXPECT_EQ(ReasonFor({"region", "resize", "kv"}), "USAGE");
  EXPECT_EQ(ReasonFor({"region", "rename", "kv", "KV"}), "BAD_NAME");
}

TEST(CommandLineTest, OneIsReleasedByItselfAndManyAtOnce) {
  const auto forced =
      Pool<ReleaseRegion>({"region", "release", "kv", "--force", "--reason", "the host burned"});
  EXPECT_TRUE(forced.request.force());
  EXPECT_FALSE(forced.request.fence());
  EXPECT_EQ(forced.request.reason(), "the host burned");
  const auto many = Pool<ReleaseBatch>({"region", "release", "a", "b", "--detach-all", "--wait"});
  ASSERT_EQ(many.request.requests_size(), 2);
  EXPECT_EQ(many.request.requests(1).name(), "regions/b");
  EXPECT_TRUE(many.request.requests(1).detach_all());
  EXPECT_TRUE(many.wait.wait);
  EXPECT_EQ(ReasonFor({"region", "release"}), "USAGE");
  EXPECT_EQ(ReasonFor({"region", "release", "kv", "--force"}), "USAGE");
  EXPECT_EQ(ReasonFor({"region", "release", "kv", "--reason", "x"}), "USAGE");
  const auto fenced = Pool<ReleaseRegion>(
      {"region", "release", "kv", "--force", "--fence", "--reason", "it hangs"});
  EXPECT_TRUE(fenced.request.fence());
  EXPECT_EQ(ReasonFor({"region", "release", "kv", "--fence"}), "USAGE");
  EXPECT_EQ(ReasonFor({"region", "release", "a", "b", "--force", "--fence", "--reason", "x"}),
            "USAGE");
  EXPECT_EQ(ReasonFor({"region", "release", "a", "b", "--etag", "e1"}), "USAGE");
  EXPECT_EQ(ReasonFor({"region", "release", "a", "B"}), "BAD_NAME");
}

TEST(CommandLineTest, TheHooksOfSlurm) {
  const auto hook = [](std::initializer_list<const char*> words) {
    return std::get<SlurmCommand>(Parsed(words).command);
  };
  const SlurmCommand setup = hook({"slurm", "setup", "5", "1000", "67108864", "/script"});
  EXPECT_EQ(setup.verb, SlurmCommand::Verb::kSetup);
  EXPECT_EQ(setup.job, 5u);
  EXPECT_EQ(setup.user, 1000u);
  EXPECT_EQ(setup.size_bytes, 64u << 20);
  EXPECT_EQ(setup.script, "/script");
  EXPECT_EQ(hook({"slurm", "paths", "5", "/script", "/path"}).path_file, "/path");
  EXPECT_EQ(hook({"slurm", "sweep"}).verb, SlurmCommand::Verb::kSweep);
  EXPECT_EQ(ReasonFor({"slurm"}), "USAGE");
  EXPECT_EQ(ReasonFor({"slurm", "teardown"}), "USAGE");
  EXPECT_NE(ReasonFor({"slurm", "teardown", "five"}), "");
}

TEST(CommandLineTest, ListsAreFilteredAndOrdered) {
  const auto request = Pool<ListRegions>({"region", "list", "--filter", "tenant = ml", "--order-by",
                                          "size_bytes desc"})
                           .request;
  EXPECT_EQ(request.filter(), "tenant = ml");
  EXPECT_EQ(request.order_by(), "size_bytes desc");
}

TEST(CommandLineTest, DevicesTenantsAndBackup) {
  EXPECT_EQ(Pool<DrainDevice>({"device", "drain", "cmm-0"}).request.device(), "devices/cmm-0");
  EXPECT_EQ(Pool<AddDevice>({"device", "add", "devices/cmm-0"}).request.device(), "devices/cmm-0");
  EXPECT_FALSE(Pool<AddDevice>({"device", "add", "cmm-0"}).request.has_settings());
  const auto device =
      Pool<AddDevice>({"device", "add", "cmm-9", "--capacity", "2GiB", "--granule", "2MiB",
                       "--serial", "S9", "--path", "/pool/9", "--latency-ns", "170",
                       "--bandwidth-mib", "24000", "--heads", "2", "--failure-domain", "shelf"})
          .request.settings();
  EXPECT_EQ(device.ShortDebugString(),
            "serial: \"S9\" capacity_bytes: 2147483648 granule_bytes: 2097152 path: \"/pool/9\" "
            "latency_ns: 170 bandwidth_mib_per_second: 24000 heads: 2 failure_domain: \"shelf\"");
  const auto found = Pool<AddDevice>({"device", "add", "cmm-9", "--path", "host-a/dax0.0"});
  EXPECT_EQ(found.request.settings().ShortDebugString(), "path: \"host-a/dax0.0\"");
  EXPECT_EQ(ReasonFor({"device", "add", "cmm-9", "--granule", "1GiB"}), "USAGE");
  EXPECT_EQ(Pool<DiscoverDevices>({"device", "discover"}).request.host(), "");
  EXPECT_EQ(Pool<DiscoverDevices>({"device", "discover", "--host", "host-a"}).request.host(),
            "hosts/host-a");
  const auto host = Pool<AddHost>({"host", "add", "host-c", "--slots", "1,2,17", "--uid", "0"});
  EXPECT_EQ(host.request.host(), "hosts/host-c");
  EXPECT_EQ(host.request.settings().ShortDebugString(), "slots: 1 slots: 2 slots: 17 agent_uid: 0");
  const auto behind = Pool<AddHost>({"host", "add", "--slots", "1,2", "host-c", "--uid", "7"});
  EXPECT_EQ(behind.request.host(), "hosts/host-c");
  EXPECT_EQ(behind.request.settings().ShortDebugString(), "slots: 1 slots: 2 agent_uid: 7");
  EXPECT_EQ(Pool<AddHost>({"host", "add", "h", "--qmp", "/q"}).request.settings().qmp_socket(),
            "/q");
  Pool<ShowTopology>({"topology"});
  Pool<ShowTopology>({"topology", "show"});
  const auto apply = Pool<ApplyTopology>({"topology", "apply", "rack.toml", "--dry-run"});
  EXPECT_EQ(apply.file, "rack.toml");
  EXPECT_TRUE(apply.request.validate_only());
  EXPECT_EQ(Pool<RemoveDevice>({"device", "remove", "cmm-0"}).request.device(), "devices/cmm-0");
  EXPECT_EQ(Pool<FailDevice>({"device", "fail", "cmm-0", "--reason", "smoke"}).request.reason(),
            "smoke");
  EXPECT_EQ(ReasonFor({"device", "fail", "cmm-0"}), "USAGE");

  const auto set = Pool<SetTenant>(
      {"tenant", "set", "ml", "--quota", "5GiB", "--reserved", "none", "--request-id", kId});
  EXPECT_EQ(set.request.tenant().name(), "tenants/ml");
  EXPECT_EQ(set.request.request_id(), kId);
  EXPECT_EQ(set.quota_bytes, uint64_t{5} << 30);
  EXPECT_EQ(set.reserved_bytes, 0u);
  EXPECT_EQ(set.host_cap_bytes, std::nullopt);
  EXPECT_EQ(Pool<ShowTenant>({"tenant", "get", "ml"}).request.name(), "tenants/ml");
  EXPECT_EQ(Pool<RemoveTenant>({"tenant", "remove", "ml"}).request.name(), "tenants/ml");
  Pool<ListTenants>({"tenant", "list"});
  EXPECT_EQ(ReasonFor({"tenant", "set", "ml", "--quota", "much"}), "BAD_SIZE");
  EXPECT_EQ(set.isolation, std::nullopt);
  EXPECT_EQ(Pool<SetTenant>({"tenant", "set", "ml", "--isolation", "fabric"}).isolation,
            v1::FABRIC);
  EXPECT_EQ(Pool<SetTenant>({"tenant", "set", "ml", "--isolation", "any"}).isolation,
            v1::ENFORCER_UNSPECIFIED);
  EXPECT_EQ(ReasonFor({"tenant", "set", "ml", "--isolation", "agent"}), "BAD_VALUE");
  EXPECT_EQ(
      Pool<AllocateRegion>({"region", "allocate", "kv", "--size", "1GiB", "--isolation", "fabric"})
          .request.isolation(),
      v1::FABRIC);

  EXPECT_EQ(Pool<Backup>({"backup", "pool.db"}).file, "pool.db");
  EXPECT_EQ(ReasonFor({"backup"}), "USAGE");
}

TEST(CommandLineTest, NumbersThatDoNotFitAreRefused) {
  const auto add = [](const char* uid) {
    return Pool<AddHost>({"host", "add", "host-a", "--uid", uid}).request.settings().agent_uid();
  };
  EXPECT_EQ(add("4294967295"), 4294967295u);
  EXPECT_EQ(ReasonFor({"host", "add", "host-a", "--uid", "4294967296"}), "BAD_VALUE");
  EXPECT_EQ(ReasonFor({"host", "add", "host-a", "--slots", "1,4294967297"}), "BAD_VALUE");
  EXPECT_EQ(
      ReasonFor({"device", "add", "cmm-0", "--capacity", "1GiB", "--latency-ns", "4294967296"}),
      "BAD_VALUE");
}

TEST(CommandLineTest, ForWhomARegionIs) {
  const v1::OpenTo open_to =
      Pool<AllocateRegion>({"region", "allocate", "kv", "--size", "1GiB", "--open-to",
                            "uid=1000,gid=100", "--open-to", "everybody"})
          .request.open_to();
  EXPECT_EQ(open_to.ShortDebugString(), "uids: 1000 gids: 100 everybody: true");
  EXPECT_FALSE(
      Pool<AllocateRegion>({"region", "allocate", "kv", "--size", "1GiB"}).request.has_open_to());
  for (const char* nobody : {"alice", "uid=alice", "uid=", "gid=-1", "uid=4294967296", ""}) {
    EXPECT_EQ(ReasonFor({"region", "allocate", "kv", "--size", "1GiB", "--open-to", nobody}),
              "BAD_VALUE")
        << nobody;
  }
}

TEST(CommandLineTest, TheInventoryCommands) {
  EXPECT_EQ(
      Pool<EnrolHost>({"host", "enrol", "host-a", "--identity", "spiffe://x/a"}).request.identity(),
      "spiffe://x/a");
  const v1::EnrolHostRequest enrol =
      Pool<EnrolHost>({"host", "enrol", "host-a", "--tenant", "ml", "--tenant", "default"}).request;
  EXPECT_EQ(enrol.host(), "hosts/host-a");
  ASSERT_EQ(enrol.tenants_size(), 2);
  EXPECT_EQ(enrol.tenants(0), "tenants/ml");
  EXPECT_EQ(enrol.tenants(1), "tenants/default");
  EXPECT_EQ(
      Pool<FenceHost>({"host", "fence", "host-a", "--reason", "hung since noon"}).request.reason(),
      "hung since noon");
  Pool<ListHosts>({"host", "list"});
  Pool<ListDevices>({"device", "list"});
  Pool<ShowCapacity>({"capacity"});
  EXPECT_EQ(Pool<Explain>({"doctor"}).request.name(), "");
  EXPECT_EQ(Pool<Explain>({"explain", "region/kv"}).request.name(), "regions/kv");
  EXPECT_EQ(Pool<Explain>({"explain", "hosts/host-a"}).request.name(), "hosts/host-a");
  EXPECT_EQ(Pool<Explain>({"explain", "device/cmm-0"}).request.name(), "devices/cmm-0");
  EXPECT_EQ(ReasonFor({"explain"}), "USAGE");
  EXPECT_EQ(ReasonFor({"explain", "kv"}), "USAGE");
  EXPECT_EQ(ReasonFor({"explain", "tenant/ml"}), "USAGE");
  EXPECT_EQ(ReasonFor({"explain", "region/"}), "BAD_NAME");
  Pool<ShowTopology>({"topology"});
}

TEST(CommandLineTest, ThePkiCommands) {
  const Invocation init = Parsed({"pki", "init", "--dir", "d", "--force"});
  EXPECT_EQ(std::get<PkiInit>(std::get<PkiCommand>(init.command)).dir, "d");
  EXPECT_TRUE(std::get<PkiInit>(std::get<PkiCommand>(init.command)).force);
  const Invocation issue = Parsed({"pki", "issue", "manager", "fm", "--dns", "fm.example", "--dns",
                                   "fm2.example", "--ip", "10.0.0.1"});
  const auto& leaf = std::get<PkiIssue>(std::get<PkiCommand>(issue.command)).leaf;
  EXPECT_EQ(leaf.role, pki::LeafRole::kManager);
  EXPECT_EQ(leaf.name, "fm");
  EXPECT_THAT(leaf.dns, testing::ElementsAre("fm.example", "fm2.example"));
  EXPECT_THAT(leaf.ips, testing::ElementsAre("10.0.0.1"));
  EXPECT_EQ(leaf.days, 365);
  EXPECT_EQ(std::get<PkiIssue>(std::get<PkiCommand>(issue.command)).dir, std::nullopt);
  const Invocation week = Parsed({"pki", "issue", "host", "host-a", "--days", "7"});
  EXPECT_EQ(std::get<PkiIssue>(std::get<PkiCommand>(week.command)).leaf.days, 7);
  const Invocation renew =
      Parsed({"pki", "renew", "operator", "alice", "--dir", "d", "--days", "30"});
  const auto& renewed = std::get<PkiRenew>(std::get<PkiCommand>(renew.command));
  EXPECT_EQ(renewed.role, pki::LeafRole::kOperator);
  EXPECT_EQ(renewed.name, "alice");
  EXPECT_EQ(renewed.dir, "d");
  EXPECT_EQ(renewed.days, 30);
  const Invocation show = Parsed({"pki", "show", "alice.pem"});
  EXPECT_EQ(std::get<PkiShow>(std::get<PkiCommand>(show.command)).file, "alice.pem");
  EXPECT_EQ(ReasonFor({"pki", "issue", "host", "host-a", "--days", "soon"}), "BAD_VALUE");
  EXPECT_EQ(ReasonFor({"pki", "issue", "manager", "../fm"}), "BAD_NAME");
  EXPECT_EQ(ReasonFor({"pki", "issue", "butler", "fm"}), "USAGE");
}

TEST(CommandLineTest, Quickstart) {
  const Invocation most =
      Parsed({"quickstart", "--file", "/srv/cmm-0", "--size", "2G", "--host", "one", "--erase"});
  EXPECT_THAT(std::get<QuickstartCommand>(most.command).words,
              testing::ElementsAre("--file", "/srv/cmm-0", "--size", "2147483648", "--host", "one",
                                   "--region", "first", "--region-size", "256MiB", "--erase"));
  EXPECT_EQ(ReasonFor({"quickstart", "--size", "2G"}), "USAGE");
  EXPECT_EQ(ReasonFor({"quickstart", "--host", "a host"}), "BAD_NAME");
  EXPECT_EQ(ReasonFor({"quickstart", "--region-size", "much"}), "BAD_SIZE");
  for (const char* file : {"cmm-0", "/srv/", "/srv/a b", "/srv/\"x\"", "/srv/$(reboot)", "/cmm-0",
                           "/srv/100%/cmm-0", "/srv/*"}) {
    EXPECT_EQ(ReasonFor({"quickstart", "--file", file}), "BAD_VALUE") << file;
  }
}

TEST(CommandLineTest, Run) {
  const RunCommand most = std::get<RunCommand>(
      Parsed({"run", "--size", "2G", "--name", "kv", "--strict", "--wait", "3s", "--socket", "/s",
              "--", "redis-server", "--port", "1", "-o", "json", "--", "x"})
          .command);
  EXPECT_EQ(most.size_bytes, uint64_t{2} << 30);
  EXPECT_EQ(most.name, "kv");
  EXPECT_EQ(most.policy, RunPolicy::kStrict);
  EXPECT_EQ(most.wait, absl::Seconds(3));
  EXPECT_EQ(most.socket, "/s");
  EXPECT_THAT(most.program,
              testing::ElementsAre("redis-server", "--port", "1", "-o", "json", "--", "x"));
  const RunCommand other =
      std::get<RunCommand>(Parsed({"run", "--region", "kv", "--interleave", "true"}).command);
  EXPECT_EQ(other.region, "regions/kv");
  EXPECT_EQ(other.policy, RunPolicy::kInterleave);
  EXPECT_EQ(other.wait, absl::Minutes(2));
  EXPECT_FALSE(most.as_file || other.as_file);
  const RunCommand file = std::get<RunCommand>(
      Parsed({"run", "--region", "kv", "--as-file", "--read-only", "--", "cat", "{}"}).command);
  EXPECT_TRUE(file.as_file);
  EXPECT_TRUE(file.read_only);
  EXPECT_THAT(file.program, testing::ElementsAre("cat", "{}"));
  for (const char* policy : {"--strict", "--prefer", "--interleave"}) {
    EXPECT_EQ(ReasonFor({"run", "--size", "1G", "--as-file", policy, "--", "true"}), "USAGE");
  }
  EXPECT_EQ(ReasonFor({"run", "--size", "1G", "--as-file", "--read-only", "--", "true"}), "USAGE");
  EXPECT_EQ(ReasonFor({"run", "--region", "kv", "--read-only", "--", "true"}), "USAGE");
  EXPECT_EQ(ReasonFor({"run", "--", "true"}), "USAGE");
  EXPECT_EQ(ReasonFor({"run", "--size", "1G"}), "USAGE");
  EXPECT_EQ(ReasonFor({"run", "--size", "1G", "--region", "kv", "--", "true"}), "USAGE");
  EXPECT_EQ(ReasonFor({"run", "--size", "1G", "--strict", "--prefer", "--", "true"}), "USAGE");
  EXPECT_EQ(ReasonFor({"run", "--size", "much", "--", "true"}), "BAD_SIZE");
  EXPECT_EQ(ReasonFor({"run", "--size", "1G", "--wait", "11m", "--", "true"}), "BAD_DURATION");
}

TEST(RunCommandTest, ThePathStandsForBraces) {
  EXPECT_THAT(WithPath({"{}", "--at", "{}", "{}/x", "{\"a\": {}}", "{}"}, "/dev/cxlpool/kv/dax1.0"),
              testing::ElementsAre("{}", "--at", "/dev/cxlpool/kv/dax1.0", "{}/x", "{\"a\": {}}",
                                   "/dev/cxlpool/kv/dax1.0"));
}

TEST(RunCommandTest, NodesOfAPolicy) {
  EXPECT_EQ(ParseNodeList("0-1,4"), (std::vector<int>{0, 1, 4}));
  for (const char* bad : {"", "x", "1-2-3", "-1", "0-5000", "0,,x"}) {
    EXPECT_TRUE(ParseNodeList(bad).empty()) << bad;
  }
  EXPECT_EQ(PolicyNodes(RunPolicy::kStrict, {2}, {0, 1}), std::vector<int>{2});
  EXPECT_EQ(PolicyNodes(RunPolicy::kStrict, {3, 2}, {0, 1}), (std::vector<int>{2, 3}));
  EXPECT_EQ(PolicyNodes(RunPolicy::kPrefer, {2}, {0, 1}), std::vector<int>{2});
  EXPECT_EQ(PolicyNodes(RunPolicy::kPrefer, {3, 2}, {0, 1}), (std::vector<int>{2, 3}));
  EXPECT_EQ(PolicyNodes(RunPolicy::kInterleave, {1}, {0, 1, 2}), (std::vector<int>{0, 1, 2}));
}

TEST(CommandLineTest, GlobalFlagsStandAnywhere) {
  for (const Invocation& invocation :
       {Parsed({"-o", "json", "--manager", "m:1", "--timeout", "3", "region", "list"}),
        Parsed({"region", "list", "-o", "json", "--manager", "m:1", "--timeout", "3s"})}) {
    EXPECT_EQ(invocation.output, OutputFormat::kJson);
    EXPECT_EQ(invocation.connection.manager, "m:1");
    EXPECT_EQ(invocation.timeout, absl::Seconds(3));
  }
  EXPECT_EQ(Parsed({"capacity"}).timeout, absl::Seconds(10));
}

TEST(CommandLineTest, RefusesWhatItDoesNotUnderstand) {
  EXPECT_EQ(ReasonFor({}), "USAGE");
  EXPECT_EQ(ReasonFor({"region"}), "USAGE");
  EXPECT_EQ(ReasonFor({"nonsense"}), "USAGE");
  EXPECT_EQ(ReasonFor({"region", "allocate", "kv"}), "USAGE");
  EXPECT_EQ(ReasonFor({"region", "allocate", "kv", "kv2", "--size", "1G"}), "USAGE");
  EXPECT_EQ(ReasonFor({"region", "allocate", "--size", "1G", "--max-extents", "17"}), "USAGE");
  EXPECT_EQ(ReasonFor({"region", "allocate", "--size", "1G", "--max-extents", "-1"}), "USAGE");
  EXPECT_EQ(ReasonFor({"region", "allocate", "--size", "1G", "--mode", "devdax"}), "USAGE");
  EXPECT_EQ(ReasonFor({"region", "allocate", "--size", "1G", "--wait-timeout", "1s"}), "USAGE");
  EXPECT_EQ(ReasonFor({"region", "allocate", "--size", "1G", "--wait", "--dry-run"}), "USAGE");
  EXPECT_EQ(ReasonFor({"region", "attach", "kv"}), "USAGE");
  EXPECT_EQ(ReasonFor({"host", "fence", "host-a"}), "USAGE");
  EXPECT_EQ(ReasonFor({"capacity", "-o", "xml"}), "USAGE");
  EXPECT_EQ(ReasonFor({"capacity", "--insecure", "--ca", "x"}), "USAGE");
  EXPECT_EQ(ReasonFor({"capacity", "--request-id", kId}), "USAGE");
}

TEST(CommandLineTest, RefusesBadValuesByName) {
  EXPECT_EQ(ReasonFor({"region", "allocate", "kv", "--size", "4 gigs"}), "BAD_SIZE");
  EXPECT_EQ(ReasonFor({"region", "allocate", "kv", "--size", "0"}), "BAD_SIZE");
  EXPECT_EQ(ReasonFor({"region", "allocate", "KV", "--size", "1G"}), "BAD_NAME");
  EXPECT_EQ(ReasonFor({"region", "allocate", "", "--size", "1G"}), "BAD_NAME");
  EXPECT_EQ(ReasonFor({"region", "show", "hosts/kv"}), "BAD_NAME");
  EXPECT_EQ(ReasonFor({"region", "attach", "kv", "--host", "host_a"}), "BAD_NAME");
  EXPECT_EQ(ReasonFor({"region", "attach", "kv", "--host", "a", "--mode", "dax"}), "BAD_VALUE");
  EXPECT_EQ(ReasonFor({"region", "attach", "kv", "--host", "a", "--access", "wo"}), "BAD_VALUE");
  EXPECT_EQ(ReasonFor({"region", "allocate", "--size", "1G", "--sharing", "all"}), "BAD_VALUE");
  EXPECT_EQ(ReasonFor({"host", "fence", "host-a", "--reason", ""}), "BAD_VALUE");
  EXPECT_EQ(ReasonFor({"host", "fence", "host-a", "--reason", "a\x1b[2J"}), "BAD_VALUE");
  EXPECT_EQ(ReasonFor({"region", "watch", "--from-revision", "-1"}), "BAD_VALUE");
  EXPECT_EQ(ReasonFor({"region", "watch", "--from-revision", "18446744073709551616"}), "BAD_VALUE");
  EXPECT_EQ(ReasonFor({"region", "watch", "--for", "soon"}), "BAD_DURATION");
  EXPECT_EQ(ReasonFor({"region", "watch", "--for", "inf"}), "BAD_DURATION");
  EXPECT_EQ(ReasonFor({"capacity", "--timeout", "0"}), "BAD_DURATION");
  EXPECT_EQ(ReasonFor({"capacity", "--timeout", "25h"}), "BAD_DURATION");
  EXPECT_EQ(ReasonFor({"region", "release", "kv", "--request-id", "1"}), "BAD_UUID");
}

TEST(CommandLineTest, AUsageErrorNamesTheHelpToRead) {
  const auto parsed = Parse({"region", "allocate", "kv"});
  EXPECT_EQ(RefusalOf(parsed.status())->remedy, "read `cxlpool region allocate --help`");
  EXPECT_THAT(RefusalOf(parsed.status())->message, HasSubstr("--size"));
}

TEST(CommandLineTest, AnUnknownWordIsNamedWithTheOneThatWasMeant) {
  const auto said = [](std::vector<const char*> words) {
    const auto refusal = RefusalOf(Parse(std::move(words)).status());
    return refusal.has_value() ? refusal->message : "";
  };
  EXPECT_EQ(said({"regoin", "list"}), "unknown command \"regoin\"; did you mean \"region\"?");
  EXPECT_EQ(said({"-o", "json", "regoin", "list"}),
            "unknown command \"regoin\"; did you mean \"region\"?");
  EXPECT_EQ(said({"region", "lsit"}), "unknown command \"lsit\"; did you mean \"list\"?");
  EXPECT_EQ(said({"region", "describe", "kv"}),
            "unknown command \"describe\"; did you mean \"show\"?");
  EXPECT_EQ(said({"region", "create", "kv"}),
            "unknown command \"create\"; did you mean \"allocate\"?");
  EXPECT_EQ(said({"host", "enroll", "a"}), "unknown command \"enroll\"; did you mean \"enrol\"?");
  EXPECT_EQ(said({"bogus", "bash"}), "unknown command \"bogus\"");
  EXPECT_EQ(said({"region", "allocate", "--szie", "1G"}),
            "unknown option \"--szie\"; did you mean \"--size\"?");
  EXPECT_EQ(said({"capacity", "--manger=x"}),
            "unknown option \"--manger=x\"; did you mean \"--manager\"?");
  EXPECT_EQ(said({"regoin", "--help"}), "unknown command \"regoin\"; did you mean \"region\"?");
  EXPECT_THAT(said({"region", "show", "kv", "kw"}), HasSubstr("kw"));
  // What is named may be called as a command is.
  EXPECT_EQ(Pool<ShowRegion>({"region", "show", "host"}).request.name(), "regions/host");
}

TEST(CommandLineTest, WordsOfOtherProgramsWork) {
  EXPECT_EQ(Pool<ShowRegion>({"region", "get", "kv"}).request.name(), "regions/kv");
  EXPECT_EQ(Pool<ReleaseRegion>({"region", "rm", "kv"}).request.name(), "regions/kv");
  EXPECT_EQ(Pool<ReleaseRegion>({"region", "delete", "kv"}).request.name(), "regions/kv");
  Pool<ListRegions>({"region", "ls"});
  Pool<ListHosts>({"host", "ls"});
  EXPECT_EQ(Pool<ShowHost>({"host", "get", "host-a"}).name, "hosts/host-a");
  EXPECT_EQ(Pool<ShowDevice>({"device", "show", "cmm-0"}).name, "devices/cmm-0");
  EXPECT_EQ(Pool<ShowTenant>({"tenant", "show", "ml"}).request.name(), "tenants/ml");
}

TEST(CommandLineTest, WhatDestroysTakesConsent) {
  EXPECT_TRUE(Pool<FenceHost>({"host", "fence", "a", "--reason", "x", "--yes"}).consent.yes);
  EXPECT_TRUE(Pool<FailDevice>({"device", "fail", "a", "--reason", "x", "-y"}).consent.yes);
  EXPECT_TRUE(Pool<RemoveDevice>({"device", "remove", "a", "--dry-run"}).consent.dry_run);
  EXPECT_TRUE(Pool<RetireHost>({"host", "retire", "a", "--dry-run"}).consent.dry_run);
  EXPECT_TRUE(Pool<RemoveHost>({"host", "rm", "a", "--yes"}).consent.yes);
  EXPECT_TRUE(Pool<ReleaseRegion>({"region", "release", "kv", "--dry-run"}).consent.dry_run);
  EXPECT_TRUE(Pool<ReleaseBatch>({"region", "release", "a", "b", "-y"}).consent.yes);
  EXPECT_EQ(ReasonFor({"region", "release", "kv", "--dry-run", "--wait"}), "USAGE");
  EXPECT_EQ(ReasonFor({"device", "remove", "a", "--dry-run", "--yes"}), "USAGE");
  EXPECT_EQ(ReasonFor({"region", "show", "kv", "--yes"}), "USAGE");
}

TEST(CommandLineTest, OutputIsForPeopleForProgramsOrNames) {
  EXPECT_EQ(Parsed({"region", "list", "-o", "name"}).output, OutputFormat::kName);
  EXPECT_FALSE(Parsed({"region", "list", "--no-headers"}).headers);
  EXPECT_TRUE(Parsed({"region", "list", "--fail-fast"}).fail_fast);
  EXPECT_FALSE(Parsed({"region", "list"}).verbose);
  EXPECT_TRUE(Parsed({"region", "list", "--verbose"}).verbose);
  for (const char* kind :
       {"region", "host", "device", "tenant", "certificate", "access", "token", "event"}) {
    EXPECT_TRUE(Parsed({kind, "list", "-w"}).watch) << kind;
  }
  EXPECT_EQ(ReasonFor({"event", "list", "-o", "name"}), "USAGE");
  EXPECT_TRUE(Parsed({"event", "watch", "--of", "host/a"}).watch);
  EXPECT_EQ(Pool<ListEvents>({"event", "watch"}).most, 10u);
  EXPECT_EQ(ReasonFor({"event", "watch", "-o", "name"}), "USAGE");
  EXPECT_EQ(ReasonFor({"audit", "verify", "-o", "name"}), "USAGE");
  for (const char* kind : {"access", "token"}) {
    EXPECT_EQ(ReasonFor({kind, "revoke", "ci", "-o", "name"}), "USAGE") << kind;
  }
  EXPECT_EQ(ReasonFor({"certificate", "restore", "cxlpool://host/a", "-o", "name"}), "USAGE");
  EXPECT_TRUE(Parsed({"capacity", "--watch"}).watch);
  EXPECT_TRUE(Parsed({"top", "--watch"}).watch);
  EXPECT_EQ(Pool<ShowTop>({"top"}).most, 10u);
  EXPECT_EQ(Pool<ShowTop>({"top", "--limit", "0"}).most, 0u);
  EXPECT_EQ(ReasonFor({"report", "-o", "name"}), "USAGE");
  EXPECT_EQ(ReasonFor({"region", "show", "kv", "--watch"}), "USAGE");
  for (const char* command : {"capacity", "topology"}) {
    EXPECT_EQ(ReasonFor({command, "-o", "name"}), "USAGE");
  }
  EXPECT_EQ(ReasonFor({"backup", "f", "-o", "name"}), "USAGE");
  EXPECT_EQ(ReasonFor({"backup", "-"}), "USAGE");
  const char* const json[] = {"cxlpool", "region", "-o", "json", "nonsense"};
  EXPECT_EQ(WantedFormat(5, json), OutputFormat::kJson);
  EXPECT_EQ(WantedFormat(2, json), OutputFormat::kTable);
  const char* const yaml[] = {"cxlpool", "nonsense", "-oyaml"};
  EXPECT_EQ(WantedFormat(3, yaml), OutputFormat::kYaml);
}

TEST(CommandLineTest, HelpIsForOneCommandAndSaysWhereTheRestIs) {
  EXPECT_THAT(TextOf({"--help"}), HasSubstr("Exit codes:\n  0  done\n"));
  const std::string help = TextOf({"region", "allocate", "--help"});
  EXPECT_THAT(help, HasSubstr("--max-extents"));
  EXPECT_THAT(help, HasSubstr("Options for all commands (-o json, --manager,"));
  EXPECT_THAT(help, testing::Not(HasSubstr("Exit codes:")));
  EXPECT_EQ(TextOf({"help", "region", "resize"}), TextOf({"region", "resize", "--help"}));
  EXPECT_THAT(TextOf({"help"}), HasSubstr("Exit codes:\n  0  done\n"));
  EXPECT_EQ(ReasonFor({"help", "regoin"}), "USAGE");
  for (const char* version : {"--version", "-v", "version"}) {
    EXPECT_THAT(TextOf({version}), testing::StartsWith("cxlpool "));
  }
}

}  // namespace
}  // namespace cxlpool::cli
