#include "host-agent/adapters/linux/cxl/sysfs_snapshot.h"

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "test/rigs/fake_host_for_test.h"

namespace cxlpool::agent {
namespace {

const std::string kRoot = "sys/devices/platform/ACPI0017:00/root0";
const std::string kPort = kRoot + "/port2";
const std::string kEndpoint = kPort + "/port3/endpoint4";
const std::string kRegion = kRoot + "/decoder0.0/region0";
const std::string kMemdev = "sys/devices/pci0000:0c/0000:0c:00.0/0000:0f:00.0/mem0";

// Two host bridges, of which the one on pci0000:0c has a switch and a memdev with a region and a
// DAX device.
struct FakeCxl : FakeHost {
  FakeCxl() {
    for (const std::string& path :
         {kRoot, kRoot + "/decoder0.0", kRoot + "/decoder0.1", kRoot + "/port1", kPort,
          kPort + "/port3", kEndpoint, kRegion, kRegion + "/dax_region0", kMemdev}) {
      OnBus("cxl", path);
    }
    Link(kRoot + "/dport12", "sys/devices/pci0000:0c");
    Link(kRoot + "/dport17", "sys/devices/pci0000:11");
    Link("sys/devices/pci0000:0c/firmware_node", "sys/devices/LNXSYSTM:00/ACPI0016:01");
    Link("sys/devices/pci0000:11/firmware_node", "sys/devices/LNXSYSTM:00/ACPI0016:00");
    Link(kRoot + "/port1/uport", "sys/devices/pci0000:11");
    Link(kPort + "/uport", "sys/devices/pci0000:0c");
    Link(kPort + "/port3/uport", "sys/devices/pci0000:0c/0000:0c:00.0/0000:0d:00.0");
    Link(kEndpoint + "/uport", kMemdev);
    Stack(kRoot + "/port1", 1, {"", ""}, 0);
    Stack(kPort, 2, {"region0", ""}, 1);
    Stack(kPort + "/port3", 3, {"region0", ""}, 1);
    Window(0, "12", 0x110000000);
    Window(1, "12,17", 0x310000000);
    Put(kRegion + "/resource", "0x110000000\n");
    Put(kRegion + "/size", "0x10000000\n");
    Put(kRegion + "/commit", "1\n");
    Put(kRegion + "/interleave_granularity", "256\n");
    Put(kRegion + "/interleave_ways", "1\n");
    Put(kRegion + "/target0", "decoder4.0\n");
    Link(kRegion + "/driver", "sys/bus/cxl/drivers/cxl_region");
    Put(kMemdev + "/serial", "0x1001\n");
    Put(kMemdev + "/ram/size", "0x20000000\n");
    Link(kMemdev + "/driver", "sys/bus/cxl/drivers/cxl_mem");
    Link(kEndpoint + "/driver", "sys/bus/cxl/drivers/cxl_port");
    Dax("dax0.0", kRegion + "/dax_region0/dax0.0");
    Dax("dax9.0", "sys/devices/platform/hmem.0/dax9.0");
  }

  void OnBus(const std::string& bus, const std::string& path) const {
    Folder(path);
    Link(absl::StrCat("sys/bus/", bus, "/devices", path.substr(path.rfind('/'))), path);
  }

  void Stack(const std::string& port, int number, const std::vector<std::string>& regions,
             int committed) const {
    Put(port + "/decoders_committed", absl::StrCat(committed, "\n"));
    for (size_t id = 0; id < regions.size(); ++id) {
      const std::string path = absl::StrCat(port, "/decoder", number, ".", id);
      OnBus("cxl", path);
      Put(path + "/region", regions[id] + "\n");
      Put(path + "/start", "0x110000000\n");  // Also in one that is free.
    }
  }

  void Window(int id, const std::string& targets, uint64_t hpa) const {
    const std::string path = absl::StrCat(kRoot, "/decoder0.", id);
    Put(path + "/start", absl::StrCat("0x", absl::Hex(hpa), "\n"));
    Put(path + "/size", "0x200000000\n");
    Put(path + "/interleave_granularity", "256\n");
    Put(path + "/cap_ram", "1\n");
    Put(path + "/target_list", targets + "\n");
  }

  void Dax(const std::string& name, const std::string& path) const {
    OnBus("dax", path);
    Put(path + "/resource", "0x110000000\n");
    Put(path + "/size", "268435456\n");
    Put(path + "/align", "2097152\n");
    Put(path + "/target_node", "1\n");
    Put(path + "/dev", absl::StrCat("252:", name.substr(3, 1), "\n"));
  }
};

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
  host.Put(kRoot + "/port1/decoders_committed", "1\n");
  host.Put(kPort + "/decoder2.0/region", "\n");
  host.Put(kPort + "/decoder2.1/region", "region0\n");
  host.Put(kPort + "/decoders_committed", "2\n");
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
  host.Put(kRegion + "/commit", "0\n");
  host.Put(kRegion + "/target0", "\n");
  host.Put(kRegion + "/resource", "0xffffffffffffffff\n");
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
  host.Put(kRegion + "/commit", "0\n");
  host.Put(kPort + "/decoder2.0/region", "\n");
  host.Put(kPort + "/decoders_committed", "0\n");
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
  host.OnBus("cxl", kEndpoint + "/decoder4.0");
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
