#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fabric-manager/adapters/fabric_emulated/emulated_fabric.h"
#include "proto/support/refusal.h"
#include "proto/support/toml_reader.h"

namespace cxlpool::fm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const FenceProgram kFence = {"/usr/bin/true", absl::Seconds(17)};

TopologyTables EmulatedTables() {
  TopologyTables tables;
  tables.devices = {
      {.id = "cmm-0", .serial = "S0", .capacity_bytes = 2ull << 30, .granule_bytes = 512ull << 20}};
  tables.hosts = {{.id = "host-a", .slots = {3, 4}, .agent_uid = 1234}};
  return tables;
}

TEST(EmulatedSettingsTest, EveryKeyReachesTheDriver) {
  TomlReader toml = TomlReader::Parse("root = \"/run/fabric\"\n", "fm.toml").value();
  EmulatedFabricConfig config = ReadEmulatedConfig(toml, kFence);
  EXPECT_TRUE(toml.Finish().ok()) << toml.Finish();
  SetParts(config, EmulatedTables());
  const auto& [root, devices, hosts, poll, watch, fence] = config;
  EXPECT_EQ(fence.path, "/usr/bin/true");
  EXPECT_EQ(fence.timeout, absl::Seconds(17));
  EXPECT_EQ(root, "/run/fabric");
  ASSERT_EQ(devices.size(), 1u);
  const auto& [id, serial, capacity, granule] = devices[0];
  EXPECT_EQ(id, "cmm-0");
  EXPECT_EQ(serial, "S0");
  EXPECT_EQ(capacity, uint64_t{2} << 30);
  EXPECT_EQ(granule, uint64_t{512} << 20);
  ASSERT_EQ(hosts.size(), 1u);
  const auto& [host, slots, uid] = hosts[0];
  EXPECT_EQ(host, "host-a");
  EXPECT_THAT(slots, ElementsAre(3, 4));
  EXPECT_EQ(uid, 1234u);
}

TEST(EmulatedSettingsTest, ItHasOneDirectoryWhichMayBeMadeWithThoseAboveIt) {
  TomlReader toml = TomlReader::Parse("root = \"/run/fabric\"\n", "fm.toml").value();
  const FabricSettings settings = ReadEmulatedFabric(toml, kFence);
  ASSERT_EQ(settings.directories.size(), 1u);
  EXPECT_EQ(settings.directories[0].key, "root");
  EXPECT_EQ(settings.directories[0].path, "/run/fabric");
  EXPECT_TRUE(settings.directories[0].parents);
}

TEST(EmulatedSettingsTest, HostsNeedSlotsAndNothingElseIsUsed) {
  TomlReader toml = TomlReader::Parse("root = \"/run/fabric\"\n", "fm.toml").value();
  const FabricRules rules = ReadEmulatedFabric(toml, kFence).rules;
  const auto message = [&](const TopologyTables& tables) {
    return std::string(CheckTables(tables, rules).message());
  };
  const TopologyTables good = EmulatedTables();
  EXPECT_EQ(message(good), "");
  TopologyTables bad = good;
  bad.hosts[0].slots.clear();
  EXPECT_THAT(message(bad), HasSubstr("topology: host host-a: slots is missing"));
  EXPECT_EQ(ReasonOf(CheckTables(bad, rules)), "BAD_TOPOLOGY");
  bad = good;
  bad.hosts[0].qmp_socket = "/run/qmp";
  EXPECT_THAT(message(bad), HasSubstr("qmp is not used by this pool's fabric"));
  bad = good;
  bad.devices[0].path = "/pool/0";
  EXPECT_THAT(message(bad), HasSubstr("path is not used by this pool's fabric"));
}

}  // namespace
}  // namespace cxlpool::fm
