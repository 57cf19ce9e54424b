#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fabric-manager/adapters/fabric_shared/shared_backend.h"
#include "proto/support/refusal.h"
#include "proto/support/toml_reader.h"

namespace cxlpool::fm {
namespace {

using ::testing::HasSubstr;

const FenceProgram kFence = {"/usr/bin/true", absl::Seconds(17)};
constexpr char kKeys[] = "state = \"/var/lib/shared\"\ncoherent = true\n";

TopologyTables SharedTables() {
  TopologyTables tables;
  tables.devices = {{.id = "cmm-0",
                     .serial = "S0",
                     .capacity_bytes = 2ull << 30,
                     .granule_bytes = 512ull << 20,
                     .path = "host-a/dax0.0"}};
  tables.hosts = {{.id = "host-a"}};
  return tables;
}

TEST(SharedSettingsTest, EveryKeyReachesTheDriver) {
  TomlReader toml = TomlReader::Parse(kKeys, "fm.toml").value();
  const SharedFabricConfig config = ReadSharedConfig(toml, kFence);
  EXPECT_TRUE(toml.Finish().ok()) << toml.Finish();
  EXPECT_EQ(config.state_directory, "/var/lib/shared");
  EXPECT_TRUE(config.coherent);
  EXPECT_EQ(config.fence.path, "/usr/bin/true");
  EXPECT_EQ(config.fence.timeout, absl::Seconds(17));
  TomlReader least = TomlReader::Parse("state = \"/var/lib/shared\"\n", "fm.toml").value();
  EXPECT_FALSE(ReadSharedConfig(least, kFence).coherent);
}

TEST(SharedSettingsTest, ItsDirectoryIsNeeded) {
  TomlReader toml = TomlReader::Parse(kKeys, "fm.toml").value();
  const FabricSettings settings = ReadSharedFabric(toml, kFence);
  ASSERT_EQ(settings.directories.size(), 1u);
  EXPECT_EQ(settings.directories[0].key, "state");
  EXPECT_EQ(settings.directories[0].path, "/var/lib/shared");
  EXPECT_FALSE(settings.directories[0].parents);
  TomlReader empty = TomlReader::Parse("", "fm.toml").value();
  ReadSharedFabric(empty, kFence);
  EXPECT_THAT(std::string(empty.Finish().message()), HasSubstr("state: is missing"));
}

TEST(SharedSettingsTest, APathNamesAHostAndHostsHaveNothingButTheirName) {
  TomlReader toml = TomlReader::Parse(kKeys, "fm.toml").value();
  const FabricRules rules = ReadSharedFabric(toml, kFence).rules;
  const TopologyTables good = SharedTables();
  EXPECT_TRUE(CheckTables(good, rules).ok()) << CheckTables(good, rules);
  TopologyTables other = good;
  other.devices[0].path.clear();
  EXPECT_TRUE(CheckTables(other, rules).ok()) << "it has been marked";
  for (const std::string& path :
       {std::string("dax0.0"), std::string("/dev/dax0.0"), std::string("host-a/"),
        std::string("Host A/dax0.0"), "host-a/" + std::string(320, 'd')}) {
    other.devices[0].path = path;
    EXPECT_EQ(ReasonOf(CheckTables(other, rules)), "BAD_TOPOLOGY") << path;
    EXPECT_THAT(std::string(CheckTables(other, rules).message()),
                HasSubstr("topology: device cmm-0: path is not HOST/NAME"));
  }
  other = good;
  other.hosts[0].slots = {1};
  EXPECT_EQ(ReasonOf(CheckTables(other, rules)), "BAD_TOPOLOGY");
  other = good;
  other.hosts[0].qmp_socket = "/run/qmp";
  EXPECT_EQ(ReasonOf(CheckTables(other, rules)), "BAD_TOPOLOGY");
}

}  // namespace
}  // namespace cxlpool::fm
