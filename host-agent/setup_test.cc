// Every key of the configuration reaches the part that it is for, and certificates are judged.
#include "host-agent/setup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "proto/support/refusal.h"
#include "tools/pki/pki.h"

namespace cxlpool::agent {
namespace {

using ::testing::HasSubstr;

class CredentialsTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "cxlpool-credentials-XXXXXX").string();
    directory_ = mkdtemp(pattern.data());
    ASSERT_TRUE(pki::InitAuthority(directory_, false).ok());
    Issue(pki::LeafRole::kHost, "host-a");
    Issue(pki::LeafRole::kHost, "host-b");
    Issue(pki::LeafRole::kOperator, "alice");
    Issue(pki::LeafRole::kManager, "fm");
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  void Issue(pki::LeafRole role, const std::string& name) {
    pki::LeafRequest leaf;
    leaf.role = role;
    leaf.name = name;
    ASSERT_TRUE(pki::IssueLeaf(directory_, leaf).ok());
  }

  // Of host-a, with the certificate and key of this stem.
  absl::StatusOr<std::shared_ptr<TlsSource>> Load(const std::string& stem) {
    const auto config = ParseAgentConfig(
        "host = \"host-a\"\nadapter = \"linux\"\n[manager]\naddress = \"fm:7600\"\n[tls]\nca = \"" +
            directory_ + "/ca.pem\"\ncert = \"" + directory_ + "/" + stem + ".pem\"\nkey = \"" +
            directory_ + "/" + stem + ".key\"\n",
        "agent.toml");
    EXPECT_TRUE(config.ok()) << config.status();
    return LoadTlsOf(*config);
  }

  std::string directory_;
};

TEST_F(CredentialsTest, TheHostsOwnCertificateWillDo) {
  const auto source = Load("host-host-a");
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ((*source)->current()->cert_file, directory_ + "/host-host-a.pem");
}

TEST_F(CredentialsTest, AnothersWillNotAndIsToldWithItsPlace) {
  for (const char* stem : {"host-host-b", "operator-alice", "manager-fm"}) {
    const absl::Status status = Load(stem).status();
    EXPECT_EQ(ReasonOf(status), "TLS_WRONG_ROLE") << stem;
    EXPECT_THAT(std::string(status.message()), HasSubstr("agent.toml:7: tls.cert: ")) << stem;
    EXPECT_THAT(std::string(status.message()), HasSubstr("cxlpool pki issue host host-a")) << stem;
  }
  const absl::Status missing = Load("host-host-c").status();
  EXPECT_EQ(ReasonOf(missing), "TLS_FILE");
}

TEST(CredentialsOfNobodyTest, WithoutTlsThereAreNone) {
  const auto source = LoadTlsOf(AgentConfig());
  ASSERT_TRUE(source.ok());
  EXPECT_EQ(*source, nullptr);
}

// --- Every key reaches its part.

constexpr char kEveryKey[] = R"(
host = "host-a"
adapter = "emulated"
observe_interval = "3s"
log_level = "error"
[manager]
address = "fm:7600,fm-2:7600"
[tls]
ca = "/ca"
cert = "/cert"
key = "/key"
server_name = "fm.site"
[applications]
socket = "/run/agent/agent.sock"
tenant = "blue"
allowed_uids = [1000, 1001]
may_open = "tenant"
may_release = "tenant"
max_connections = 100
max_connections_per_uid = 7
[[applications.user]]
uids = [1000]
gids = [100]
tenant = "ml"
may_allocate = true
persistent = true
[[applications.user]]
uids = [1001]
may_allocate = false
max_bytes = "8GiB"
max_regions = 4
may_open = "own"
may_release = "own"
[metrics]
listen = "[::1]:9465"
[release]
offline_deadline = "11s"
drain_hook = "/usr/sbin/drain"
drain_timeout = "31s"
[emulated]
root = "/fabric"
[[emulated.bridge]]
name = "ACPI0016:00"
slots = [1, 2]
max_regions = 3
window = "2GiB"
[[emulated.bridge]]
name = "ACPI0016:01"
slots = [5]
)";

AgentConfig EveryKey() {
  const auto config = ParseAgentConfig(kEveryKey, "agent.toml");
  EXPECT_TRUE(config.ok()) << config.status();
  return config.value_or(AgentConfig());
}

TEST(AgentSetupTest, EveryKeyReachesItsPart) {
  const AgentConfig config = EveryKey();
  // A person who adds a field names it here, and says below whom it reaches. main.cc hands on the
  // drain hook with its time, and [tiering] whole.
  const auto& [host, adapter, observe_interval, log_level, managers, tls, socket, policy,
               max_connections, max_connections_per_uid, offline_deadline, drain_hook,
               drain_timeout, tiering, shared_devices, shared_files, emulated_root,
               emulated_bridges, metrics, where] = config;
  EXPECT_EQ(metrics.listen.port, 9465);
  EXPECT_EQ(adapter, AgentConfig::Adapter::kEmulated);
  EXPECT_EQ(log_level, LogLevel::kError);
  EXPECT_EQ(drain_hook, "/usr/sbin/drain");
  EXPECT_EQ(drain_timeout, absl::Seconds(31));
  EXPECT_TRUE(
      tiering.empty());  // AgentConfigTest.ReadsTiering: a host of the Linux adapter has it.

  EXPECT_TRUE(shared_devices.empty());  // AgentConfigTest.ReadsAHostOfSharedDevices.
  EXPECT_TRUE(shared_files.empty());

  const AgentOptions core = CoreOptionsOf(config, {"boot-1", "agent-1", "6.12"});
  const auto& [core_host, incarnation, agent_id, version, release, observe, deadline] = core;
  EXPECT_EQ(core_host, "hosts/host-a");
  EXPECT_EQ(incarnation, "boot-1");
  EXPECT_EQ(agent_id, "agent-1");
  EXPECT_EQ(version, CXLPOOL_VERSION);
  EXPECT_EQ(release, "6.12");
  EXPECT_EQ(observe, absl::Seconds(3));
  EXPECT_EQ(deadline, absl::Seconds(11));

  const GrpcLinkOptions link = LinkOptionsOf(config, nullptr, "boot-1");
  EXPECT_EQ(link.addresses, (std::vector<std::string>{"fm:7600", "fm-2:7600"}));
  EXPECT_EQ(link.server_name, "fm.site");
  EXPECT_EQ(link.epoch_path, "/run/agent/epoch");
  EXPECT_EQ(link.boot_id, "boot-1");
  EXPECT_EQ(link.backoff_max, absl::Seconds(1)) << "a takeover has ended by then";
  AgentConfig single = config;
  single.managers.resize(1);
  EXPECT_EQ(LinkOptionsOf(single, nullptr, "boot-1").backoff_max, absl::Seconds(5));

  const LocalServerOptions local = ServerOptionsOf(config);
  const auto& [path, connections, of_one_uid, idle_timeout, send_timeout] = local;
  EXPECT_EQ(path, "/run/agent/agent.sock");
  EXPECT_EQ(connections, 100u);
  EXPECT_EQ(of_one_uid, 7u);
  EXPECT_EQ(LinuxOptionsOf(config).known_regions_file, "/run/agent/known-regions");
  EXPECT_EQ(KernelPolicyFileOf(config), "/run/agent/kernel-policy");
  EXPECT_EQ(PiecesFileOf(config), "/run/agent/pieces");
  EXPECT_EQ(PathsFolderOf(config), "/run/agent/paths");
  AgentConfig real = config;
  real.adapter = AgentConfig::Adapter::kLinux;
  EXPECT_EQ(PathsFolderOf(real), "/dev/cxlpool");
  EXPECT_EQ(SharedOptionsOf(config, "boot-1").grants_path, "/run/agent/grants");
  EXPECT_EQ(SharedOptionsOf(config, "boot-1").boot_id, "boot-1");
}

TEST(AgentSetupTest, EveryKeyOfAnEmulatedHostReachesIt) {
  const AgentConfig config = EveryKey();
  const auto& [root, host, bridges, power_on_timeout] = EmulatedOptionsOf(config);
  EXPECT_EQ(root, "/fabric");
  EXPECT_EQ(host, "host-a");
  ASSERT_EQ(bridges.size(), 2u);
  const auto& [name, slots, max_regions, window_bytes] = bridges[0];
  EXPECT_EQ(name, "ACPI0016:00");
  EXPECT_EQ(slots, (std::vector<uint32_t>{1, 2}));
  EXPECT_EQ(max_regions, 3u);
  EXPECT_EQ(window_bytes, uint64_t{2} << 30);
  const auto& [events_root, events_host, events_slots, interval] = EmulatedEventsOptionsOf(config);
  EXPECT_EQ(events_root, "/fabric");
  EXPECT_EQ(events_host, "host-a");
  EXPECT_EQ(events_slots, (std::vector<uint32_t>{1, 2, 5})) << "of every bridge";
}

TEST(AgentSetupTest, EveryKeyOfTheUsersReachesTheirPolicy) {
  const LocalPolicy policy = PolicyOf(EveryKey(), 990);
  const auto& [tenant, may_open, may_release, allowed_uids, agent_uid, users] = policy;
  EXPECT_EQ(tenant, "tenants/blue");
  EXPECT_EQ(may_open, Reach::kTenant);
  EXPECT_EQ(may_release, Reach::kTenant);
  EXPECT_EQ(allowed_uids, (std::vector<uint32_t>{1000, 1001}));
  EXPECT_EQ(agent_uid, 990u);
  ASSERT_EQ(users.size(), 2u);
  const auto& [uids, gids, own_tenant, may_allocate, persistent, max_bytes, max_regions, open,
               release] = users[0];
  EXPECT_EQ(uids, std::vector<uint32_t>{1000});
  EXPECT_EQ(gids, std::vector<uint32_t>{100});
  EXPECT_EQ(own_tenant, "tenants/ml");
  EXPECT_TRUE(may_allocate);
  EXPECT_TRUE(persistent);
  EXPECT_EQ(max_bytes, std::nullopt);
  EXPECT_EQ(max_regions, std::nullopt);
  EXPECT_EQ(open, Reach::kTenant);
  EXPECT_EQ(release, Reach::kTenant);
  EXPECT_FALSE(users[1].may_allocate);
  EXPECT_FALSE(users[1].persistent);
  EXPECT_EQ(users[1].tenant, "tenants/blue");
  EXPECT_EQ(users[1].max_bytes, uint64_t{8} << 30);
  EXPECT_EQ(users[1].max_regions, 4u);
  EXPECT_EQ(users[1].may_open, Reach::kOwn);
  EXPECT_EQ(users[1].may_release, Reach::kOwn);
}

}  // namespace
}  // namespace cxlpool::agent
