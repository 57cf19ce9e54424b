#include "host-agent/config.h"

#include <gtest/gtest.h>

#include "absl/strings/str_replace.h"
#include "proto/support/refusal.h"

namespace cxlpool::agent {
namespace {

constexpr char kEmulated[] = R"(
host = "host-a"
adapter = "emulated"
[manager]
address = "unix:/run/cxlpool/fm.sock"
insecure = true
[applications]
socket = "/tmp/agent.sock"
tenant = "blue"
allowed_uids = [1000, 1001]
[emulated]
root = "/var/lib/cxlpool/fabric"
[[emulated.bridge]]
name = "ACPI0016:00"
slots = [1, 2]
[[emulated.bridge]]
name = "ACPI0016:01"
slots = [3]
max_regions = 2
window = "1GiB"
)";

constexpr char kLinux[] = R"(
host = "host-a"
adapter = "linux"
[manager]
address = "10.0.2.100:7443"
[tls]
ca = "/ca"
cert = "/cert"
key = "/key"
)";

TEST(AgentConfigTest, ReadsAnEmulatedHost) {
  const auto config = ParseAgentConfig(kEmulated, "agent.toml");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->host, "host-a");
  EXPECT_EQ(config->adapter, AgentConfig::Adapter::kEmulated);
  EXPECT_FALSE(config->tls.has_value());
  EXPECT_EQ(config->policy.tenant, "tenants/blue");
  EXPECT_EQ(config->policy.allowed_uids, (std::vector<uint32_t>{1000, 1001}));
  ASSERT_EQ(config->emulated_bridges.size(), 2u);
  EXPECT_EQ(config->emulated_bridges[0].max_regions, 4u);
  EXPECT_EQ(config->emulated_bridges[0].slots, (std::vector<uint32_t>{1, 2}));
  EXPECT_EQ(config->emulated_bridges[1].max_regions, 2u);
  EXPECT_EQ(config->emulated_bridges[1].window_bytes, uint64_t{1} << 30);
}

TEST(AgentConfigTest, ReadsAHostOfSharedDevices) {
  const std::string text = absl::StrReplaceAll(kLinux, {{"\"linux\"", "\"shared\""}});
  auto config = ParseAgentConfig(text, "agent.toml");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->adapter, AgentConfig::Adapter::kShared);
  EXPECT_TRUE(config->shared_devices.empty());
  EXPECT_TRUE(config->is_real_host());
  config =
      ParseAgentConfig(text + "[shared]\ndevices = [\"region0\", \"region1\"]\n", "agent.toml");
  EXPECT_EQ(config->shared_devices, (std::vector<std::string>{"region0", "region1"}));
  config = ParseAgentConfig(text + "[shared]\nfiles = [\"/srv/cmm-0\"]\n", "agent.toml");
  EXPECT_EQ(config->shared_files, std::vector<std::string>{"/srv/cmm-0"});
  EXPECT_FALSE(config->is_real_host());
  for (const char* bad : {"files = [\"cmm-0\"]", "files = [\"/a\"]\ndevices = [\"b\"]",
                          "files = \"/a\"", "devices = [1]", "device = [\"a\"]"}) {
    const auto refused = ParseAgentConfig(text + "[shared]\n" + bad + "\n", "agent.toml");
    EXPECT_EQ(ReasonOf(refused.status()), "BAD_CONFIG") << bad;
  }
  EXPECT_FALSE(
      ParseAgentConfig(std::string(kLinux) + "[shared]\nfiles = [\"/a\"]\n", "agent.toml").ok());
}

TEST(AgentConfigTest, ReadsALinuxHostWithDefaults) {
  const auto config = ParseAgentConfig(kLinux, "agent.toml");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->adapter, AgentConfig::Adapter::kLinux);
  ASSERT_TRUE(config->tls.has_value());
  EXPECT_EQ(config->tls->server_name, "fm.cxlpool");
  EXPECT_EQ(config->socket, "/run/cxlpool/agent.sock");
  EXPECT_EQ(config->policy.tenant, "tenants/default");
  EXPECT_EQ(config->observe_interval, absl::Seconds(2));
  EXPECT_EQ(config->offline_deadline, absl::Seconds(10));
  EXPECT_EQ(config->drain_hook, "");
}

TEST(AgentConfigTest, ReadsTheDrainHook) {
  const auto config = ParseAgentConfig(
      absl::StrReplaceAll(kEmulated, {{"[manager]",
                                       "[release]\ndrain_hook = \"/usr/local/sbin/drain\"\n"
                                       "drain_timeout = \"10m\"\n[manager]"}}),
      "agent.toml");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->drain_hook, "/usr/local/sbin/drain");
  EXPECT_EQ(config->drain_timeout, absl::Minutes(10));
}

TEST(AgentConfigTest, ReadsTheRulesOfUsersInOrder) {
  const std::string text = absl::StrReplaceAll(kEmulated, {{"[emulated]", R"([[applications.user]]
uids = [1000]
gids = [50, 60]
tenant = "ml"
max_bytes = "8GiB"
max_regions = 4
[[applications.user]]
gids = [70]
may_allocate = false
persistent = true
may_open = "tenant"
[[applications.user]]
uids = [9]
may_release = "own"
[emulated])"},
                                                           {"[applications]", R"([applications]
may_release = "tenant")"}});
  const auto config = ParseAgentConfig(text, "agent.toml");
  ASSERT_TRUE(config.ok()) << config.status();
  ASSERT_EQ(config->policy.users.size(), 3u);
  EXPECT_EQ(config->policy.may_open, Reach::kOwn) << "safe, where nothing is said";
  EXPECT_EQ(config->policy.may_release, Reach::kTenant);
  const UserRule& first = config->policy.users[0];
  EXPECT_EQ(first.uids, std::vector<uint32_t>{1000});
  EXPECT_EQ(first.gids, (std::vector<uint32_t>{50, 60}));
  EXPECT_EQ(first.tenant, "tenants/ml");
  EXPECT_TRUE(first.may_allocate);
  EXPECT_FALSE(first.persistent);
  EXPECT_EQ(first.max_bytes, uint64_t{8} << 30);
  EXPECT_EQ(first.max_regions, 4u);
  const UserRule& second = config->policy.users[1];
  EXPECT_TRUE(second.uids.empty());
  EXPECT_EQ(second.tenant, "tenants/blue");  // That of [applications].
  EXPECT_FALSE(second.may_allocate);
  EXPECT_TRUE(second.persistent);
  EXPECT_EQ(second.max_bytes, std::nullopt);
  EXPECT_EQ(second.max_regions, std::nullopt);
  EXPECT_EQ(second.may_open, Reach::kTenant);
  EXPECT_EQ(second.may_release, Reach::kTenant) << "as in [applications]";
  EXPECT_EQ(config->policy.users[2].may_open, Reach::kOwn);
  EXPECT_EQ(config->policy.users[2].may_release, Reach::kOwn);
}

TEST(AgentConfigTest, RegionsAreTheirMakersUnlessItIsSaidOtherwise) {
  const auto config = ParseAgentConfig(kLinux, "agent.toml");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->policy.may_open, Reach::kOwn);
  EXPECT_EQ(config->policy.may_release, Reach::kOwn);
  const auto wrong = ParseAgentConfig(
      absl::StrReplaceAll(kEmulated, {{"[applications]", "[applications]\nmay_open = \"all\""}}),
      "agent.toml");
  EXPECT_NE(wrong.status().message().find("may_open"), absl::string_view::npos) << wrong.status();
}

TEST(AgentConfigTest, ReadsTiering) {
  EXPECT_TRUE(ParseAgentConfig(kLinux, "agent.toml")->tiering.empty());
  auto config = ParseAgentConfig(std::string(kLinux) + R"(
[tiering]
demotion = true
numa_balancing = "tiering"
local_weight = 255
pool_weight = 1
)",
                                 "agent.toml");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->tiering.demotion, true);
  EXPECT_EQ(config->tiering.numa_balancing, TieringConfig::NumaBalancing::kTiering);
  EXPECT_EQ(config->tiering.local_weight, 255u);
  EXPECT_EQ(config->tiering.pool_weight, 1u);
  config = ParseAgentConfig(
      std::string(kLinux) + "[tiering]\ndemotion = false\nnuma_balancing = \"off\"\n",
      "agent.toml");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->tiering.demotion, false);
  EXPECT_EQ(config->tiering.numa_balancing, TieringConfig::NumaBalancing::kOff);
  EXPECT_EQ(config->tiering.local_weight, std::nullopt);
  EXPECT_EQ(config->tiering.pool_weight, std::nullopt);
}

TEST(AgentConfigTest, TieringThatCannotBeIsAnError) {
  for (const auto& [line, key] : std::vector<std::pair<std::string, std::string>>{
           {"demotion = 1", "demotion"},
           {"numa_balancing = \"2\"", "numa_balancing"},
           {"numa_balancing = true", "numa_balancing"},
           {"local_weight = 0", "local_weight"},
           {"pool_weight = 256", "pool_weight"},
           {"weight = 1", "weight"}}) {
    const absl::Status status =
        ParseAgentConfig(std::string(kLinux) + "[tiering]\n" + line + "\n", "agent.toml").status();
    EXPECT_EQ(ReasonOf(status), "BAD_CONFIG") << line;
    EXPECT_NE(status.message().find(key), absl::string_view::npos) << status;
  }
  const absl::Status status =
      ParseAgentConfig(std::string(kEmulated) + "[tiering]\ndemotion = true\n", "agent.toml")
          .status();
  EXPECT_EQ(ReasonOf(status), "BAD_CONFIG");
  EXPECT_NE(status.message().find("emulated"), absl::string_view::npos) << status;
}

TEST(AgentConfigTest, ErrorsNameFileKeyAndRemedy) {
  struct Row {
    const char* replace;
    const char* by;
    const char* key;
  };
  const Row kTable[] = {
      {"host = \"host-a\"", "", "host"},
      {"\"host-a\"", "\"Host A\"", "host"},
      {"\"host-a\"", "\"\"", "host"},
      {"\"/var/lib/cxlpool/fabric\"", "\"\"", "root"},
      {"\"ACPI0016:01\"", "\"\"", "name"},
      {"\"emulated\"", "\"magic\"", "adapter"},
      {"insecure = true", "", "tls"},
      {"address = \"unix:/run/cxlpool/fm.sock\"", "", "address"},
      {"address = \"unix:/run/cxlpool/fm.sock\"", "address = 5", "address"},
      {"unix:/run/cxlpool/fm.sock", "unix:/fm.sock,", "none beside a comma"},
      {"unix:/run/cxlpool/fm.sock", "unix:/fm.sock, unix:/fm.sock", "stands twice"},
      {"unix:/run/cxlpool/fm.sock", "unix:/fm.sock,10.0.2.100:7443", "without TLS"},
      {"\"/tmp/agent.sock\"", "\"agent.sock\"", "socket"},
      {"\"blue\"", "\"tenants/blue\"", "tenant"},
      {"[1000, 1001]", "[]", "allowed_uids"},
      {"[1000, 1001]", "[4294967295]", "allowed_uids"},
      {"\"/var/lib/cxlpool/fabric\"", "\"fabric\"", "root"},
      {"slots = [3]", "slots = [2]", "slots"},
      {"slots = [3]", "slots = []", "slots"},
      {"\"ACPI0016:01\"", "\"ACPI0016:00\"", "name"},
      {"max_regions = 2", "max_regions = 0", "max_regions"},
      {"window = \"1GiB\"", "window = \"2048GiB\"", "window"},
      {"max_regions = 2", "max_region = 2", "max_region"},
      {"tenant = \"blue\"", "max_connections = 0", "max_connections"},
      {"host = \"host-a\"", "host = \"host-a\"\nobserve_interval = \"1ms\"", "observe_interval"},
      {"[manager]", "[release]\noffline_deadline = \"999ms\"\n[manager]", "offline_deadline"},
      {"[manager]", "[release]\noffline_deadline = \"61s\"\n[manager]", "offline_deadline"},
      {"[manager]", "[release]\ndeadline = \"5s\"\n[manager]", "deadline"},
      {"[manager]", "[release]\ndrain_hook = \"drain\"\n[manager]", "drain_hook"},
      {"[manager]", "[release]\ndrain_timeout = \"5s\"\n[manager]", "drain_timeout"},
      {"[manager]", "[release]\ndrain_hook = \"/d\"\ndrain_timeout = \"0s\"\n[manager]",
       "drain_timeout"},
      {"[manager]", "[release]\ndrain_hook = \"/d\"\ndrain_timeout = \"11m\"\n[manager]",
       "drain_timeout"},
      {"[emulated]", "[[applications.user]]\ntenant = \"a\"\n[emulated]", "uids"},
      {"[emulated]", "[[applications.user]]\nuids = []\n[emulated]", "uids"},
      {"[emulated]", "[[applications.user]]\ngids = [-1]\n[emulated]", "gids"},
      {"[emulated]", "[[applications.user]]\nuids = [1]\ntenant = \"A\"\n[emulated]", "tenant"},
      {"[emulated]", "[[applications.user]]\nuids = [1]\nmax_bytes = \"0\"\n[emulated]",
       "max_bytes"},
      {"[emulated]", "[[applications.user]]\nuids = [1]\nmax_regions = 0\n[emulated]",
       "max_regions"},
      {"[emulated]", "[[applications.user]]\nuids = [1]\nmay_release = true\n[emulated]",
       "may_release"},
      {"[emulated]",
       "[[applications.user]]\nuids = [1]\npersistent = true\nmax_regions = 1\n[emulated]",
       "persistent"},
  };
  for (const Row& row : kTable) {
    const std::string text = absl::StrReplaceAll(kEmulated, {{row.replace, row.by}});
    SCOPED_TRACE(row.by);
    const absl::Status status = ParseAgentConfig(text, "agent.toml").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(ReasonOf(status), "BAD_CONFIG");
    EXPECT_EQ(status.message().find("agent.toml:"), 0u) << status;
    EXPECT_NE(status.message().find(row.key), absl::string_view::npos) << status;
    EXPECT_FALSE(RefusalOf(status)->remedy.empty());
  }
}

TEST(AgentConfigTest, SeveralManagersStandInOneText) {
  const std::string text =
      absl::StrReplaceAll(kLinux, {{"10.0.2.100:7443", "10.0.2.100:7443, 10.0.2.101:7443"}});
  const auto config = ParseAgentConfig(text, "agent.toml");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->managers, (std::vector<std::string>{"10.0.2.100:7443", "10.0.2.101:7443"}));
}

TEST(AgentConfigTest, InsecureAndTlsContradict) {
  const std::string text = absl::StrReplaceAll(kLinux, {{"[tls]", "insecure = true\n[tls]"}});
  const absl::Status status = ParseAgentConfig(text, "agent.toml").status();
  EXPECT_NE(status.message().find("contradicts"), absl::string_view::npos) << status;
}

TEST(AgentConfigTest, SaysWhichFileIsMissing) {
  const absl::Status status = LoadAgentConfig("/nowhere/agent.toml").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_NE(status.message().find("/nowhere/agent.toml"), absl::string_view::npos);
}

}  // namespace
}  // namespace cxlpool::agent
