#include "host-agent/adapters/linux/cxl/sysfs_snapshot.h"

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "test/rigs/fake_cxl_for_test.h"

namespace cxlpool::agent {
namespace {

TEST(SysfsSnapshotTest, BridgesHaveTheStacksOfTheirPortsAndSwitches) {
  const FakeCxl host;
  const CxlSnapshot seen = ReadCxlSnapshot(host.files());
  ASSERT_EQ(seen.bridges.size(), 2u);
  EXPECT_EQ(seen.bridges[0].acpi_name, "ACPI0016:00");
  EXPECT_EQ(seen.bridges[0].pci_name, "pci0000:11");
  ASSERT_EQ(seen.bridges[0].stacks.size(), 1u);
  EXPECT_EQ(seen.bridges[0].stacks[0].port, "port1");
  EXPECT_EQ(seen.bridges[1].acpi_name, "ACPI0016:01");
  ASSERT_EQ(seen.bridges[1].stacks.size(), 2u);
  for (const DecoderStack& stack : seen.bridges[1].stacks) {
    ASSERT_EQ(stack.decoders.size(), 2u) << stack.port;
    EXPECT_TRUE(stack.decoders[0].in_use);
    EXPECT_EQ(stack.decoders[0].region, "region0");
    EXPECT_EQ(stack.decoders[0].hpa_bytes, 0x110000000u);
    EXPECT_FALSE(stack.decoders[1].in_use);
  }
  EXPECT_EQ(seen.bridges[1].stacks[0].port, "port2");
  EXPECT_EQ(seen.bridges[1].stacks[1].port, "port3");
}

TEST(SysfsSnapshotTest, CommittedDecoderWithoutARegionIsTheFirmwaresUnlessOneLiesAbove) {
  const FakeCxl host;
  host.Put(host.kRoot + "/port1/decoders_committed", "1\n");
  host.Put(host.kPort + "/decoder2.0/region", "\n");
  host.Put(host.kPort + "/decoder2.1/region", "region0\n");
  host.Put(host.kPort + "/decoders_committed", "2\n");
  const CxlSnapshot seen = ReadCxlSnapshot(host.files());
  ASSERT_EQ(seen.bridges.size(), 2u);
  EXPECT_TRUE(seen.bridges[0].stacks[0].decoders[0].in_use);
  EXPECT_FALSE(seen.bridges[1].stacks[0].decoders[0].in_use);
  EXPECT_TRUE(seen.bridges[1].stacks[0].decoders[1].in_use);
}

TEST(SysfsSnapshotTest, WindowsNameTheirBridgesByPosition) {
  const FakeCxl host;
  const CxlSnapshot seen = ReadCxlSnapshot(host.files());
  ASSERT_EQ(seen.windows.size(), 2u);
  EXPECT_EQ(seen.windows[0].name, "decoder0.0");
  EXPECT_EQ(seen.windows[0].bridges, std::vector<std::string>({"pci0000:0c"}));
  EXPECT_EQ(seen.windows[0].size_bytes, 0x200000000u);
  EXPECT_EQ(seen.windows[0].largest_free_bytes, 0x200000000u);
  EXPECT_TRUE(seen.windows[0].volatile_capable);
  EXPECT_EQ(seen.windows[1].bridges, std::vector<std::string>({"pci0000:0c", "pci0000:11"}));
}

TEST(SysfsSnapshotTest, RegionsHaveTheirTargetsBySerial) {
  const FakeCxl host;
  const CxlSnapshot seen = ReadCxlSnapshot(host.files());
  ASSERT_EQ(seen.regions.size(), 1u);
  const CxlHostRegion& region = seen.regions[0];
  EXPECT_EQ(region.name, "region0");
  EXPECT_EQ(region.window, "decoder0.0");
  EXPECT_EQ(region.hpa_bytes, 0x110000000u);
  EXPECT_EQ(region.size_bytes, 0x10000000u);
  EXPECT_TRUE(region.committed);
  EXPECT_TRUE(region.enabled);
  EXPECT_NE(region.inode, 0u);
  ASSERT_EQ(region.targets.size(), 1u);
  EXPECT_EQ(region.targets[0].decoder, "decoder4.0");
  EXPECT_EQ(region.targets[0].serial, 0x1001u);
}

TEST(SysfsSnapshotTest, RegionWithoutTargetsOrAddressesIsAnOrphan) {
  const FakeCxl host;
  host.Put(host.kRegion + "/commit", "0\n");
  host.Put(host.kRegion + "/target0", "\n");
  host.Put(host.kRegion + "/resource", "0xffffffffffffffff\n");
  const CxlSnapshot seen = ReadCxlSnapshot(host.files());
  ASSERT_EQ(seen.regions.size(), 1u);
  EXPECT_TRUE(IsAnonymousOrphan(seen.regions[0]));
  EXPECT_EQ(seen.regions[0].hpa_bytes, 0u);
}

TEST(SysfsSnapshotTest, WhatComesAndGoesIsReadAnew) {
  const FakeCxl host;
  CxlShapes shapes(host.files());
  CxlSnapshot seen = ReadCxlSnapshot(host.files(), shapes);
  EXPECT_TRUE(seen.bridges[1].stacks[0].decoders[0].in_use);
  host.Put(host.kRegion + "/commit", "0\n");
  host.Put(host.kPort + "/decoder2.0/region", "\n");
  host.Put(host.kPort + "/decoders_committed", "0\n");
  seen = ReadCxlSnapshot(host.files(), shapes);
  EXPECT_FALSE(seen.regions[0].committed);
  EXPECT_FALSE(seen.bridges[1].stacks[0].decoders[0].in_use);

  // Kept beside: a file system gives a freed inode to the next file, as sysfs never does.
  std::filesystem::rename(host.Path("sys/bus/cxl/devices/mem0"), host.Path("sys/bus/cxl/mem0"));
  const std::string another = "sys/devices/pci0000:11/0000:11:00.0/0000:12:00.0/mem0";
  host.OnBus("cxl", another);
  host.Put(another + "/serial", "0x1002\n");
  seen = ReadCxlSnapshot(host.files(), shapes);
  ASSERT_EQ(seen.memdevs.size(), 1u);
  EXPECT_EQ(seen.memdevs[0].serial, 0x1002u);
  EXPECT_EQ(seen.memdevs[0].pci_bridge, "pci0000:11");
}

TEST(SysfsSnapshotTest, MemdevIsReadyOnceItsEndpointHasDecoders) {
  const FakeCxl host;
  EXPECT_FALSE(MemdevReady(host.files(), 0x1001));
  host.OnBus("cxl", host.kEndpoint + "/decoder4.0");
  const CxlSnapshot seen = ReadCxlSnapshot(host.files());
  ASSERT_EQ(seen.memdevs.size(), 1u);
  EXPECT_EQ(seen.memdevs[0].serial, 0x1001u);
  EXPECT_EQ(seen.memdevs[0].size_bytes, 0x20000000u);
  EXPECT_EQ(seen.memdevs[0].pci_device, "0000:0f:00.0");
  EXPECT_EQ(seen.memdevs[0].pci_bridge, "pci0000:0c");
  EXPECT_TRUE(seen.memdevs[0].ready);
  EXPECT_TRUE(MemdevReady(host.files(), 0x1001));
  EXPECT_FALSE(MemdevReady(host.files(), 0x1002));
}

TEST(SysfsSnapshotTest, DaxDevicesAreThoseOnCxlRegions) {
  const FakeCxl host;
  const std::vector<DaxDevice> devices = ReadDaxDevices(host.files());
  ASSERT_EQ(devices.size(), 1u);
  EXPECT_EQ(devices[0].name, "dax0.0");
  EXPECT_EQ(devices[0].region, "region0");
  EXPECT_EQ(devices[0].hpa_bytes, 0x110000000u);
  EXPECT_EQ(devices[0].size_bytes, 0x10000000u);
  EXPECT_EQ(devices[0].align_bytes, 0x200000u);
  EXPECT_EQ(devices[0].target_node, 1);
  EXPECT_EQ(devices[0].major, 252u);
}

TEST(SysfsSnapshotTest, HostWithoutCxlIsEmpty) {
  const FakeHost host;
  const CxlSnapshot seen = ReadCxlSnapshot(host.files());
  EXPECT_TRUE(seen.bridges.empty() && seen.memdevs.empty() && seen.regions.empty());
  EXPECT_TRUE(ReadDaxDevices(host.files()).empty());
}

}  // namespace
}  // namespace cxlpool::agent
