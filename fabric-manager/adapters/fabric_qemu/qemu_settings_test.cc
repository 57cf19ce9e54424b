#include "fabric-manager/adapters/fabric_qemu/qemu_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/support/refusal.h"
#include "proto/support/toml_reader.h"

namespace cxlpool::fm {
namespace {

using ::testing::HasSubstr;

const FenceProgram kFence = {"/usr/bin/true", absl::Seconds(17)};

TopologyTables QemuTables() {
  TopologyTables tables;
  tables.devices = {{.id = "cmm-0",
                     .serial = "S0",
                     .capacity_bytes = 2ull << 30,
                     .granule_bytes = 512ull << 20,
                     .path = "/pool/cmm-0"}};
  tables.hosts = {{.id = "host-a", .qmp_socket = "/run/host-a/qmp"}};
  return tables;
}

TEST(QemuSettingsTest, EveryKeyReachesTheDriver) {
  TomlReader toml = TomlReader::Parse("state = \"/var/lib/qemu\"\n", "fm.toml").value();
  QemuFabricConfig config = ReadQemuConfig(toml, kFence);
  EXPECT_TRUE(toml.Finish().ok()) << toml.Finish();
  SetParts(config, QemuTables());
  const auto& [devices, hosts, state, timing, fence] = config;
  EXPECT_EQ(fence.path, "/usr/bin/true");
  EXPECT_EQ(fence.timeout, absl::Seconds(17));
  EXPECT_EQ(state, "/var/lib/qemu");
  ASSERT_EQ(devices.size(), 1u);
  const auto& [id, serial, path, capacity, granule] = devices[0];
  EXPECT_EQ(id, "cmm-0");
  EXPECT_EQ(serial, "S0");
  EXPECT_EQ(path, "/pool/cmm-0");
  EXPECT_EQ(capacity, uint64_t{2} << 30);
  EXPECT_EQ(granule, uint64_t{512} << 20);
  ASSERT_EQ(hosts.size(), 1u);
  const auto& [host, socket] = hosts[0];
  EXPECT_EQ(host, "host-a");
  EXPECT_EQ(socket, "/run/host-a/qmp");
}

TEST(QemuSettingsTest, ItsDirectoryMayBeLeftOut) {
  TomlReader toml = TomlReader::Parse("state = \"/var/lib/qemu\"\n", "fm.toml").value();
  const FabricSettings settings = ReadQemuFabric(toml, kFence);
  ASSERT_EQ(settings.directories.size(), 1u);
  EXPECT_EQ(settings.directories[0].key, "state");
  EXPECT_EQ(settings.directories[0].path, "/var/lib/qemu");
  EXPECT_FALSE(settings.directories[0].parents);
  TomlReader empty = TomlReader::Parse("", "fm.toml").value();
  EXPECT_TRUE(ReadQemuFabric(empty, kFence).directories.empty());
  EXPECT_TRUE(empty.Finish().ok()) << empty.Finish();
}

TEST(QemuSettingsTest, DevicesAreFilesAndHostsAreSockets) {
  TomlReader toml = TomlReader::Parse("", "fm.toml").value();
  const FabricRules rules = ReadQemuFabric(toml, kFence).rules;
  const auto message = [&](const TopologyTables& tables) {
    return std::string(CheckTables(tables, rules).message());
  };
  const TopologyTables good = QemuTables();
  EXPECT_EQ(message(good), "");
  TopologyTables bad = good;
  bad.devices[0].path.clear();
  EXPECT_THAT(message(bad), HasSubstr("topology: device cmm-0: path is missing"));
  EXPECT_EQ(ReasonOf(CheckTables(bad, rules)), "BAD_TOPOLOGY");
  bad.devices[0].path = "cmm-0";
  EXPECT_THAT(message(bad), HasSubstr("path is no absolute path"));
  bad = good;
  bad.hosts[0].qmp_socket.clear();
  EXPECT_THAT(message(bad), HasSubstr("topology: host host-a: qmp is missing"));
  bad.hosts[0].qmp_socket = "qmp";
  EXPECT_THAT(message(bad), HasSubstr("qmp is no absolute path"));
  bad.hosts[0].qmp_socket = "/" + std::string(kMaxSocketPath, 'q');
  EXPECT_THAT(message(bad), HasSubstr("qmp is longer than 107 bytes"));
  bad = good;
  bad.hosts[0].slots = {1};
  EXPECT_THAT(message(bad), HasSubstr("slots is not used by this pool's fabric"));
  bad = good;
  bad.hosts[0].agent_uid = 17;
  EXPECT_THAT(message(bad), HasSubstr("uid is not used by this pool's fabric"));
}

}  // namespace
}  // namespace cxlpool::fm
