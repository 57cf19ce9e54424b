// Every key of the configuration reaches the part that it is for, and what the configuration names
// is judged before anything is done.
#include "fabric-manager/setup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "fabric-manager/fabric_drivers.h"
#include "fabric-manager/service/agent_tasks.h"
#include "proto/support/refusal.h"
#include "tools/pki/pki.h"

namespace cxlpool::fm {
namespace {

using ::testing::HasSubstr;

constexpr char kRest[] = R"(
log_level = "warning"
[[listen]]
address = "[::1]:7600"

[[listen]]
address = "unix:DIR/fm.sock"
insecure = true

[tls]
ca = "DIR/pki/ca.pem"
cert = "DIR/pki/manager-fm.pem"
key = "DIR/pki/manager-fm.key"
server_name = "localhost"

[access]
admins = ["cxlpool://operator/breakglass", "spiffe://site/safe"]

[audit]
max_rows = 200000
max_bytes = "64MiB"

[store]
path = "DIR/store/pool.db"

[metrics]
listen = "127.0.0.1:9464"

[placement]
default = "latency"

[sessions]
heartbeat = "3s"
lease = "31s"

[reconciler]
attach_timeout = "62s"
discover_period = "13s"

[[link]]
from = "host-a"
to = "cmm-0"
)";

constexpr char kEmulated[] = R"(
[fabric]
driver = "emulated"
root = "DIR/fabric"
fence_program = "/usr/bin/true"
fence_timeout = "17s"

[[device]]
id = "cmm-0"
serial = "S0"
capacity = "2GiB"
granule = "512MiB"

[[host]]
id = "host-a"
slots = [3, 4]
uid = 1234
)";

constexpr char kQemu[] = R"(
[fabric]
driver = "qemu"
state = "DIR/state"
fence_program = "/usr/bin/true"
fence_timeout = "17s"

[[device]]
id = "cmm-0"
serial = "S0"
capacity = "2GiB"
granule = "512MiB"
path = "DIR/cmm-0"

[[host]]
id = "host-a"
qmp = "DIR/qmp"
)";

constexpr char kShared[] = R"(
[fabric]
driver = "shared"
state = "DIR/shared"

[[device]]
id = "cmm-0"
capacity = "2GiB"

[[host]]
id = "host-a"
)";

class SetupTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "cxlpool-setup-XXXXXX").string();
    directory_ = mkdtemp(pattern.data());
    ASSERT_TRUE(pki::InitAuthority(directory_ + "/pki", false).ok());
    Issue(pki::LeafRole::kManager, "fm");
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  void Issue(pki::LeafRole role, const std::string& name, int days = 365) {
    pki::LeafRequest leaf;
    leaf.role = role;
    leaf.name = name;
    leaf.days = days;
    leaf.force = true;
    ASSERT_TRUE(pki::IssueLeaf(directory_ + "/pki", leaf).ok());
  }

  FmConfig Parse(const std::string& fabric,
                 const std::vector<std::pair<std::string, std::string>>& edits = {}) {
    std::string text = std::string(kRest) + fabric;
    for (const auto& [from, to] : edits) {
      EXPECT_THAT(text, HasSubstr(from));
      text = absl::StrReplaceAll(text, {{from, to}});
    }
    const auto config =
        ParseFmConfig(absl::StrReplaceAll(text, {{"DIR", directory_}}), "fm.toml", FabricDrivers());
    EXPECT_TRUE(config.ok()) << config.status();
    return config.value_or(FmConfig());
  }

  absl::Status Tls(const std::string& from, const std::string& to) {
    return LoadTlsOf(Parse(kEmulated, {{from, to}})).status();
  }

  std::string directory_;
};

TEST_F(SetupTest, EveryKeyOfEtcdReachesTheStore) {
  FmConfig config;
  config.etcd = {.endpoints = {"a:1", "b:1"},
                 .prefix = "/pool/",
                 .ca = "/ca",
                 .cert = "/cert",
                 .key = "/key",
                 .advertise = "fm-a:7600",
                 .takeover = absl::Seconds(3),
                 .max_bytes = uint64_t{5} << 30};
  const EtcdStoreOptions options = EtcdOptionsOf(config);
  EXPECT_EQ(options.etcd.endpoints, config.etcd.endpoints);
  EXPECT_EQ(options.etcd.ca, "/ca");
  EXPECT_EQ(options.etcd.cert, "/cert");
  EXPECT_EQ(options.etcd.key, "/key");
  EXPECT_EQ(options.prefix, "/pool/");
  EXPECT_EQ(options.address, "fm-a:7600");
  EXPECT_EQ(options.takeover, absl::Seconds(3));
  EXPECT_EQ(options.max_bytes, uint64_t{5} << 30);
  EXPECT_EQ(FmConfig().etcd.max_bytes, EtcdStoreOptions().max_bytes);
}

TEST_F(SetupTest, EveryKeyReachesItsPart) {
  const FmConfig config = Parse(kEmulated);
  // A person who adds a field names it here, and says below whom it reaches.
  const auto& [listen, tls, metrics, store, store_path, etcd, fence, settings, admins, audit,
               tables, file, log_level, default_policy, heartbeat, lease, attach_timeout,
               discover_period, where] = config;
  FabricCapabilities fabric;
  fabric.driver = "fake";
  fabric.isolates = true;

  const Writer::Options writer = WriterOptionsOf(config);
  EXPECT_EQ(writer.default_policy, Policy::kLatency);
  EXPECT_EQ(writer.audit.max_rows, 200'000u);
  EXPECT_EQ(writer.audit.max_bytes, 64u << 20);
  EXPECT_TRUE(writer.fabric.slots);
  EXPECT_NE(writer.fabric.check_host, nullptr);
  EXPECT_EQ(writer.fabric.check_host, settings.rules.check_host);
  EXPECT_EQ(fence.path, "/usr/bin/true");
  EXPECT_EQ(fence.timeout, absl::Seconds(17));
  const HostSessions::Options sessions = SessionOptionsOf(config);
  EXPECT_EQ(sessions.heartbeat, absl::Seconds(3));
  EXPECT_EQ(sessions.lease, absl::Seconds(31));
  const Reconciler::Options reconciler = ReconcilerOptionsOf(config);
  EXPECT_EQ(reconciler.attach_timeout, absl::Seconds(62));
  EXPECT_EQ(reconciler.discover_period, absl::Seconds(13));
  EXPECT_EQ(StoreOptionsOf(config).path, directory_ + "/store/pool.db");
  EXPECT_EQ(metrics.listen.port, 9464);

  const auto source = LoadTlsOf(config);
  ASSERT_TRUE(source.ok()) << source.status();
  const ServerOptions server = ServerOptionsOf(config, fabric, *source);
  ASSERT_EQ(server.listen.size(), 2u);
  EXPECT_EQ(server.listen[0].address, "[::1]:7600");
  EXPECT_FALSE(server.listen[0].insecure);
  EXPECT_EQ(server.listen[1].address, "unix:" + directory_ + "/fm.sock");
  EXPECT_TRUE(server.listen[1].insecure);
  EXPECT_EQ(server.tls, *source);
  EXPECT_EQ(server.fabric.driver, "fake");
  EXPECT_TRUE(server.fabric.isolates);
  EXPECT_EQ(server.store_directory, directory_ + "/store");
  EXPECT_EQ(server.database, directory_ + "/store/pool.db");
  EXPECT_THAT(server.admins,
              testing::ElementsAre("cxlpool://operator/breakglass", "spiffe://site/safe"));
  EXPECT_EQ(admins, server.admins);
  EXPECT_EQ(log_level, LogLevel::kWarning);
  EXPECT_EQ((*source)->current()->cert_file, tls->cert);

  const Topology topology = Topology::Create(SpecOf(tables)).value();
  EXPECT_NE(topology.Find("host-a", "cmm-0"), nullptr);
  EXPECT_FALSE(topology.connects_all());
  EXPECT_EQ(file, "fm.toml");
}

TEST_F(SetupTest, AServerThatIsStartedAfterAReloadHasTheAdminsOfThen) {
  FmConfig config = Parse(kEmulated);
  FmConfig read_again = Parse(kEmulated, {{"DIR/store/pool.db", "DIR/store/other.db"}});
  read_again.admins = {"cxlpool://operator/guard"};
  read_again.log_level = LogLevel::kError;
  TakeReloaded(read_again, config);
  EXPECT_THAT(ServerOptionsOf(config, {}, nullptr).admins,
              testing::ElementsAre("cxlpool://operator/guard"));
  EXPECT_EQ(config.log_level, LogLevel::kError);
  EXPECT_EQ(config.store_path, directory_ + "/store/pool.db");
}

TEST_F(SetupTest, EachDriverIsOpenedByItsName) {
  const std::map<std::string, std::string> fabrics = {
      {"emulated", kEmulated}, {"qemu", kQemu}, {"shared", kShared}};
  ASSERT_EQ(fabrics.size(), FabricDrivers().size());
  for (const auto& [name, text] : fabrics) {
    const FmConfig config = Parse(text);
    SessionTasks tasks;
    const auto driver = config.fabric.open(&tasks);
    ASSERT_TRUE(driver.ok()) << driver.status();
    EXPECT_EQ((*driver)->capabilities().driver, name);
    EXPECT_EQ((*driver)->capabilities().claims_hosts, config.fabric.claims_hosts);
    tasks.Stop();
  }
}

TEST_F(SetupTest, SharedRecordsAreForDriversThatClaimHosts) {
  FmConfig config =
      Parse(kEmulated, {{"path = \"DIR/store/pool.db\"",
                         "kind = \"etcd\"\nendpoints = [\"127.0.0.1:1\"]\nadvertise = \"a:1\""}});
  EXPECT_TRUE(CheckPaths(config).ok()) << CheckPaths(config);
  config.fabric.claims_hosts = false;
  const absl::Status refused = CheckPaths(config);
  EXPECT_EQ(ReasonOf(refused), "HOSTS_NOT_CLAIMED");
  EXPECT_THAT(std::string(refused.message()), HasSubstr(": store.kind: "));
  // A store that one process alone can open says that the former manager has ended.
  config = Parse(kEmulated);
  config.fabric.claims_hosts = false;
  EXPECT_TRUE(CheckPaths(config).ok()) << CheckPaths(config);
}

TEST_F(SetupTest, CertificatesForEtcdAreKnownByTheirEnds) {
  EXPECT_TRUE(EtcdCertificatesOf(Parse(kEmulated)).value().empty());
  Issue(pki::LeafRole::kOperator, "fm-a", 20);
  FmConfig config = Parse(kEmulated);
  config.store = FmConfig::StoreKind::kEtcd;
  EXPECT_TRUE(EtcdCertificatesOf(config).value().empty());  // At loopback addresses.
  config.etcd.ca = directory_ + "/pki/ca.pem";
  config.etcd.cert = directory_ + "/pki/operator-fm-a.pem";
  config.etcd.key = directory_ + "/pki/operator-fm-a.key";
  const auto ends = EtcdCertificatesOf(config);
  ASSERT_TRUE(ends.ok()) << ends.status();
  ASSERT_EQ(ends->size(), 2u);
  EXPECT_THAT(ends->front().what, HasSubstr(config.etcd.cert));
  EXPECT_THAT(ends->back().what, HasSubstr(config.etcd.ca));
  for (const CertificateEnd& end : *ends) EXPECT_FALSE(end.is_reloaded) << end.what;
  const auto warnings = ExpiryWarnings(*ends, absl::Now());
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_THAT(warnings[0], HasSubstr("restart"));
  config.etcd.key = directory_ + "/pki/manager-fm.key";
  EXPECT_EQ(ReasonOf(EtcdCertificatesOf(config).status()), "TLS_KEY_MISMATCH");
}

TEST_F(SetupTest, BackupsOfEtcdAreMadeWhereTheUnitKeepsState) {
  const FmConfig config =
      Parse(kEmulated, {{"path = \"DIR/store/pool.db\"",
                         "kind = \"etcd\"\nendpoints = [\"127.0.0.1:1\"]\nadvertise = \"a:1\""}});
  ::unsetenv("STATE_DIRECTORY");
  EXPECT_EQ(ServerOptionsOf(config, {}, nullptr).store_directory, "/var/lib/cxlpool");
  ::setenv("STATE_DIRECTORY", directory_.c_str(), 1);
  EXPECT_EQ(ServerOptionsOf(config, {}, nullptr).store_directory, directory_);
  EXPECT_EQ(ServerOptionsOf(config, {}, nullptr).database, "");
  ::unsetenv("STATE_DIRECTORY");
  EXPECT_NE(EtcdOptionsOf(config).write_backup, nullptr);
}

// Whether a process that may raise its limit of descriptors to 512 does, and lets no more
// connections in than that. It cannot take the limit back.
bool LeavesDescriptors(const FmConfig& config) {
  const rlimit few = {256, 512};
  if (::setrlimit(RLIMIT_NOFILE, &few) != 0) return false;
  const ConnectionLimits limits = ServerOptionsOf(config, {}, nullptr).connections;
  rlimit now = {};
  if (::getrlimit(RLIMIT_NOFILE, &now) != 0 || now.rlim_cur != 512) return false;
  return limits.waiting + limits.handshaking + limits.established < 512;
}

// Of a leader's server and of a standby's.
TEST_F(SetupTest, ConnectionsLeaveDescriptorsToTheStore) {
  const FmConfig config = Parse(kEmulated);
  EXPECT_EXIT(::_exit(LeavesDescriptors(config) ? 0 : 1), testing::ExitedWithCode(0), "");
}

TEST_F(SetupTest, AMemoryStoreHasNoDirectory) {
  const FmConfig config = Parse(kEmulated, {{"path = \"DIR/store/pool.db\"", "kind = \"memory\""}});
  EXPECT_EQ(ServerOptionsOf(config, {}, nullptr).store_directory, "");
  EXPECT_TRUE(CheckPaths(config).ok());
}

TEST_F(SetupTest, ACertificateThatNoClientWouldBelieveIsRefusedWithItsKey) {
  EXPECT_TRUE(LoadTlsOf(Parse(kEmulated)).ok());
  Issue(pki::LeafRole::kOperator, "alice");
  const absl::Status role = Tls("manager-fm", "operator-alice");
  EXPECT_EQ(ReasonOf(role), "TLS_WRONG_ROLE");
  EXPECT_THAT(std::string(role.message()), HasSubstr("fm.toml:12: tls.cert: "));
  EXPECT_THAT(std::string(role.message()), HasSubstr("cxlpool pki issue manager fm"));
  EXPECT_EQ(ReasonOf(Tls("\"localhost\"", "\"fm.elsewhere\"")), "TLS_WRONG_NAME");
  const absl::Status missing = Tls("manager-fm.key", "absent.key");
  EXPECT_EQ(ReasonOf(missing), "TLS_FILE");
  EXPECT_THAT(std::string(missing.message()), HasSubstr("fm.toml:13: tls.key: "));
  const absl::Status authority = Tls("ca.pem", "absent.pem");
  EXPECT_THAT(std::string(authority.message()), HasSubstr("fm.toml:11: tls.ca: "));
  chmod((directory_ + "/pki/manager-fm.key").c_str(), 0644);
  EXPECT_EQ(ReasonOf(LoadTlsOf(Parse(kEmulated)).status()), "TLS_KEY_EXPOSED");
}

TEST_F(SetupTest, PathsAreThereOrCanBeMadeAndNothingIsMade) {
  const FmConfig config = Parse(kEmulated);
  EXPECT_TRUE(CheckPaths(config).ok()) << CheckPaths(config);
  EXPECT_FALSE(std::filesystem::exists(directory_ + "/store"));
  EXPECT_FALSE(std::filesystem::exists(directory_ + "/fabric"));
  EXPECT_TRUE(CheckPaths(Parse(kEmulated, {{"DIR/fabric", "DIR/a/b/fabric"}})).ok());
  EXPECT_TRUE(CheckPaths(Parse(kQemu)).ok());
  EXPECT_TRUE(CheckPaths(Parse(kShared)).ok());

  const auto refusal = [&](const std::string& fabric, const std::string& from,
                           const std::string& to, const std::string& key) {
    const absl::Status status = CheckPaths(Parse(fabric, {{from, to}}));
    EXPECT_THAT(std::string(status.message()), HasSubstr(": " + key + ": ")) << to;
    EXPECT_THAT(std::string(status.message()), HasSubstr("fm.toml:")) << to;
    return ReasonOf(status);
  };
  std::ofstream(directory_ + "/file") << "x";
  EXPECT_EQ(refusal(kEmulated, "DIR/store/", "DIR/no/store/", "store.path"), "NO_ACCESS");
  EXPECT_EQ(refusal(kEmulated, "DIR/store/", "DIR/file/", "store.path"), "STORE_UNSAFE_PATH");
  EXPECT_EQ(refusal(kEmulated, "DIR/fabric", "DIR/file", "fabric.root"), "NO_ACCESS");
  EXPECT_EQ(refusal(kEmulated, "DIR/fabric", "DIR/file/fabric", "fabric.root"), "NO_ACCESS");
  EXPECT_EQ(refusal(kQemu, "DIR/state", "DIR/no/state", "fabric.state"), "NO_ACCESS");
  EXPECT_EQ(refusal(kShared, "DIR/shared", "DIR/no/shared", "fabric.state"), "NO_ACCESS");
  std::filesystem::create_directory(directory_ + "/store");
  chmod((directory_ + "/store").c_str(), 0777);
  EXPECT_EQ(refusal(kEmulated, "DIR/store/", "DIR/store/", "store.path"), "STORE_UNSAFE_PATH");
}

// That it lost the store it learns no sooner than it goes on; its end comes then.
TEST(OpenFabricTest, WaitsForAnotherManagersEnd) {
  int opened = 0;
  FabricSettings settings;
  settings.open = [&](AgentTasks*) -> absl::StatusOr<std::unique_ptr<FabricDriver>> {
    if (++opened == 3) return nullptr;
    return Refuse(absl::StatusCode::kFailedPrecondition, "FABRIC_BUSY", "taken", "end the other");
  };
  EXPECT_EQ(ReasonOf(OpenFabric(settings, nullptr, absl::ZeroDuration()).status()), "FABRIC_BUSY");
  EXPECT_TRUE(OpenFabric(settings, nullptr).ok());
  EXPECT_EQ(opened, 3);
  settings.open = [&](AgentTasks*) -> absl::StatusOr<std::unique_ptr<FabricDriver>> {
    ++opened;
    return absl::InvalidArgumentError("no such root");
  };
  EXPECT_FALSE(OpenFabric(settings, nullptr).ok());
  EXPECT_EQ(opened, 4);
}

}  // namespace
}  // namespace cxlpool::fm
