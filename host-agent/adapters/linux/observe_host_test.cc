#include "host-agent/adapters/linux/observe_host.h"

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "proto/support/refusal.h"
#include "test/rigs/fake_host_for_test.h"
#include "test/rigs/snapshot_for_test.h"

namespace cxlpool::agent {
namespace {

TEST(ObserveHostTest, MemdevsAreThoseInSlots) {
  CxlSnapshot snapshot = OneBridge();
  snapshot.memdevs[1].serial = 0;
  snapshot.memdevs.push_back({"mem2", 0x3001, 512 * kMiB, "0000:99:00.0", "pci0000:0c", true});
  const auto memdevs = ViewMemdevs(snapshot, {{10, "0000:0f:00", "0000:0e:00.0", "pci0000:0c"},
                                              {11, "0000:10:00", "0000:0e:01.0", "pci0000:0c"}});
  ASSERT_EQ(memdevs.size(), 1u);
  EXPECT_EQ(memdevs[0].serial, 0x1001u);
  EXPECT_EQ(memdevs[0].slot, 10u);
  EXPECT_EQ(memdevs[0].host_bridge, "ACPI0016:00");
}

TEST(ObserveHostTest, RegionBeforeItsDaxDevice) {
  FakeHost host;
  CxlSnapshot snapshot = OneBridge();
  AddRegion(snapshot, 0, 0x1001);
  const ObservedHostRegion view = ViewRegion(host.files(), snapshot.regions[0], nullptr);
  EXPECT_TRUE(view.committed);
  EXPECT_EQ(view.serials, std::vector<uint64_t>({0x1001}));
  EXPECT_EQ(view.dax_device, "");
  EXPECT_EQ(view.dax_driver, DaxDriver::kNone);
}

TEST(ObserveHostTest, SystemRamShowsItsBlocks) {
  FakeHost host;
  CxlSnapshot snapshot = OneBridge();
  AddRegion(snapshot, 0, 0x1001);
  const DaxDevice dax{"dax0.0", "region0", kWindowHpa, 256 * kMiB, 2 * kMiB, 1, 252, 0};
  host.Link("sys/bus/dax/devices/dax0.0/driver", "sys/bus/dax/drivers/kmem");
  host.Put("sys/devices/system/memory/block_size_bytes", "8000000");
  host.Put("sys/devices/system/memory/memory512/state", "online");
  host.Put("sys/devices/system/memory/memory512/valid_zones", "Movable");
  host.Put("sys/devices/system/memory/memory513/state", "offline");
  ObservedHostRegion view = ViewRegion(host.files(), snapshot.regions[0], &dax);
  EXPECT_EQ(view.dax_driver, DaxDriver::kKmem);
  EXPECT_EQ(view.numa_node, 1);
  EXPECT_EQ(view.total_blocks, 2u);
  EXPECT_EQ(view.online_blocks, 1u);
  EXPECT_TRUE(view.all_movable);
  host.Put("sys/devices/system/memory/memory513/state", "online");
  host.Put("sys/devices/system/memory/memory513/valid_zones", "Normal");
  view = ViewRegion(host.files(), snapshot.regions[0], &dax);
  EXPECT_EQ(view.online_blocks, 2u);
  EXPECT_FALSE(view.all_movable);
}

TEST(ObserveHostTest, MemoryOutsideOfWholeBlocksIsNotCounted) {
  FakeHost host;
  CxlSnapshot snapshot = OneBridge();
  AddRegion(snapshot, 0, 0x1001);
  host.Link("sys/bus/dax/devices/dax0.0/driver", "sys/bus/dax/drivers/kmem");
  host.Put("sys/devices/system/memory/block_size_bytes", "80000000");  // 2 GiB
  for (const char* block : {"memory32", "memory33", "memory34"}) {
    host.Put(absl::StrCat("sys/devices/system/memory/", block, "/state"), "offline");
  }
  // Half of a block at either end.
  DaxDevice dax{"dax0.0", "region0", kWindowHpa + 1024 * kMiB, 4096 * kMiB, 2 * kMiB, 1, 252, 0};
  EXPECT_EQ(ViewRegion(host.files(), snapshot.regions[0], &dax).total_blocks, 1u);
  dax.hpa_bytes = kWindowHpa;
  EXPECT_EQ(ViewRegion(host.files(), snapshot.regions[0], &dax).total_blocks, 2u);
}

TEST(ObserveHostTest, AlignmentAndNodeAreTheDevicesOwn) {
  FakeHost host;
  CxlSnapshot snapshot = OneBridge();
  AddRegion(snapshot, 0, 0x1001);
  host.Link("sys/bus/dax/devices/dax0.0/driver", "sys/bus/dax/drivers/device_dax");
  for (const uint64_t align : {uint64_t{4096}, 2 * kMiB, 1024 * kMiB}) {
    const DaxDevice dax{"dax0.0", "region0", kWindowHpa, 256 * kMiB, align, std::nullopt, 252, 0};
    const ObservedHostRegion view = ViewRegion(host.files(), snapshot.regions[0], &dax);
    EXPECT_EQ(view.dax_align_bytes, align);
    EXPECT_EQ(view.dax_driver, DaxDriver::kDeviceDax);
    EXPECT_FALSE(view.numa_node.has_value());
  }
}

TEST(ObserveHostTest, NodesWithProcessorsAreTheHostsOwn) {
  FakeHost host;
  EXPECT_TRUE(ReadOwnNodes(host.files()).empty());
  host.Put("sys/devices/system/node/has_cpu", "0-1\n");
  host.Put("sys/devices/system/node/has_memory", "0-2\n");
  EXPECT_EQ(ReadOwnNodes(host.files()), (std::vector<int>{0, 1}));
}

TEST(ObserveHostTest, MachineWithoutCxlShowsNothing) {
  FakeHost host;
  Machine machine(host.files());
  const absl::StatusOr<HostObservation> seen = ObserveHost(machine);
  ASSERT_TRUE(seen.ok()) << seen.status();
  EXPECT_EQ(seen->memory_block_bytes, 0u);
}

// As without descriptors: that is no machine without CXL.
TEST(ObserveHostTest, WhatCannotBeListedIsNotAbsent) {
  FakeHost host;
  host.Put("sys/bus/cxl/devices", "");  // No folder: ENOTDIR.
  Machine machine(host.files());
  const absl::StatusOr<HostObservation> seen = ObserveHost(machine);
  EXPECT_EQ(seen.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ReasonOf(seen.status()), "HOST_UNREADABLE");
}

}  // namespace
}  // namespace cxlpool::agent
