#include "host-agent/adapters/linux/linux_space.h"

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/support/refusal.h"
#include "test/rigs/fake_dax_kernel.h"

namespace cxlpool::agent {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// region0 on a memdev of serial 0x77, and Soft Reserved memory hmem.2.
class LinuxSpaceTest : public testing::Test {
 protected:
  static constexpr uint64_t kMiB = 1 << 20;
  static constexpr uint64_t kSize = 1024 * kMiB;

  LinuxSpaceTest() {
    host_.AddCxl(0, 0x110000000, kSize, 0x77);
    host_.AddSoftReserved(2, 0x20000000, 256 * kMiB);
  }

  std::unique_ptr<DaxSpace> Space(std::vector<std::string> devices = {}) {
    return MakeLinuxSpace({.devices = std::move(devices), .files = host_.kernel()});
  }

  FakeDaxKernel host_;
};

TEST_F(LinuxSpaceTest, PreparesSoftReservedMemoryOnAHostWithoutCxl) {
  const auto space = Space({"hmem.2"});
  ASSERT_EQ(space->Prepare(), absl::OkStatus());
  const SpaceView view = *space->Look();
  ASSERT_EQ(view.devices.size(), 1);
  EXPECT_EQ(view.devices[0].name, "hmem.2");
  EXPECT_EQ(view.devices[0].size_bytes, 256 * kMiB);
  EXPECT_EQ(view.devices[0].align_bytes, 2 * kMiB);
  EXPECT_EQ(view.devices[0].unfit, "");
  EXPECT_TRUE(view.pieces.empty());  // An empty DAX device is none.
  EXPECT_EQ(view.memory_block_bytes, 128 * kMiB);
  EXPECT_THAT(view.own_nodes, ElementsAre(0));
  // What was not named was not touched.
  EXPECT_FALSE(host_.RangesOf("dax0.0").empty());
}

TEST_F(LinuxSpaceTest, ShowsEachDeviceAndTakesTheKernelsOwnApart) {
  const auto space = Space();
  EXPECT_THAT(space->Look()->devices.at(0).unfit, HasSubstr("dax0.0 is on all of it"));
  EXPECT_EQ(space->Look()->pieces.size(), 2);
  ASSERT_EQ(space->Prepare(), absl::OkStatus());
  const SpaceView view = *space->Look();
  ASSERT_EQ(view.devices.size(), 2);
  EXPECT_EQ(view.devices[0].name, "region0");
  EXPECT_EQ(view.devices[0].serial, "0x77");
  EXPECT_EQ(view.devices[0].size_bytes, kSize);
  EXPECT_EQ(view.devices[0].unfit, "");
  EXPECT_EQ(view.devices[1].name, "hmem.2");
  EXPECT_TRUE(view.pieces.empty());
}

TEST_F(LinuxSpaceTest, ADeviceIsNamedByItsOwnNameItsMemdevOrItsSerial) {
  host_.AddCxl(1, 0x210000000, kSize, 0x78);
  for (const char* name : {"region1", "mem1", "0x78"}) {
    const SpaceView view = *Space({name})->Look();
    ASSERT_EQ(view.devices.size(), 1) << name;
    EXPECT_EQ(view.devices[0].name, "region1");
    ASSERT_EQ(view.pieces.size(), 1) << name;
    EXPECT_EQ(view.pieces[0].device, "region1");
  }
  EXPECT_TRUE(Space({"mem7"})->Look()->devices.empty());
}

// Where the region lies is not known: a DAX device that is there is not shown, and that is said.
TEST_F(LinuxSpaceTest, SaysWhereItDoesNotSeeEveryDaxDevice) {
  const auto space = Space({"region0"});
  EXPECT_TRUE(space->Look()->devices.at(0).pieces_known);
  std::filesystem::remove(host_.Path("sys/devices/root0/decoder0.0/region0/resource"));
  const SpaceView view = *space->Look();
  EXPECT_TRUE(view.pieces.empty());
  EXPECT_FALSE(view.devices.at(0).pieces_known);
}

// Of a make that gives all its devices one serial number, or none.
TEST_F(LinuxSpaceTest, TwoDevicesOfOneSerialAreTwo) {
  for (const uint64_t serial : {0x77, 0}) {
    FakeDaxKernel host;
    host.AddCxl(0, 0x110000000, kSize, serial);
    host.AddCxl(1, 0x210000000, kSize, serial);
    const auto space_of = [&](std::vector<std::string> devices) {
      return MakeLinuxSpace({.devices = std::move(devices), .files = host.kernel()});
    };
    ASSERT_EQ(space_of({"mem1"})->Look()->devices.size(), 1u);
    EXPECT_EQ(space_of({"mem1"})->Look()->devices[0].name, "region1");
    // The second loses its host region.
    std::filesystem::remove(host.Path("sys/bus/cxl/devices/region1"));
    std::filesystem::remove_all(host.Path("sys/devices/root0/decoder0.0/region1"));
    host.Put("sys/bus/cxl/devices/decoder5.0/mode", "none\n");  // Its driver has taken it.
    const auto space = space_of({});
    ASSERT_EQ(space->Prepare(), absl::OkStatus());
    const SpaceView view = *space->Look();
    ASSERT_EQ(view.devices.size(), 2u) << serial;
    EXPECT_EQ(view.devices[0].name, "region0");
    EXPECT_EQ(view.devices[0].unfit, "");
    EXPECT_EQ(view.devices[1].name, "mem1");
    EXPECT_THAT(view.devices[1].unfit, HasSubstr(serial == 0 ? "no serial" : "that of mem0"));
  }
}

TEST_F(LinuxSpaceTest, PersistentMemoryIsNoneOfIts) {
  host_.Put("sys/bus/cxl/devices/region0/mode", "pmem\n");
  std::filesystem::remove_all(host_.Path("sys/bus/cxl/devices/region0/dax_region0"));
  const auto space = Space();
  ASSERT_EQ(space->Prepare(), absl::OkStatus());
  ASSERT_EQ(space->Look()->devices.size(), 1);
  EXPECT_EQ(space->Look()->devices[0].name, "hmem.2");
}

TEST_F(LinuxSpaceTest, AMemdevThatItsDriverHasNotTakenIsUnfit) {
  std::filesystem::remove_all(host_.Path("sys/devices/root0/decoder0.0"));
  std::filesystem::remove(host_.Path("sys/bus/cxl/devices/region0"));
  const auto space = Space();
  ASSERT_EQ(space->Prepare(), absl::OkStatus());
  const SpaceView view = *space->Look();
  ASSERT_EQ(view.devices.size(), 2);
  EXPECT_EQ(view.devices[0].unfit, "");
  EXPECT_EQ(view.devices[1].name, "mem0");
  EXPECT_EQ(view.devices[1].serial, "0x77");
  EXPECT_EQ(view.devices[1].size_bytes, kSize);
  EXPECT_THAT(view.devices[1].unfit, HasSubstr("its driver has not taken it"));
}

TEST_F(LinuxSpaceTest, WithoutAnyDeviceSaysWhatTheHostLacks) {
  std::filesystem::remove_all(host_.Path("sys/bus/cxl"));
  std::filesystem::remove_all(host_.Path("sys/bus/platform"));
  const absl::Status status = Space()->Prepare();
  EXPECT_EQ(ReasonOf(status), "HOST_UNFIT");
  EXPECT_THAT(std::string(status.message()), HasSubstr("modprobe dax_cxl"));
  EXPECT_THAT(std::string(status.message()), testing::Not(HasSubstr("hot-plug slot")));
}

TEST_F(LinuxSpaceTest, APieceGoesUpAndDownAsSystemRam) {
  const auto space = Space({"hmem.2"});
  ASSERT_EQ(space->Prepare(), absl::OkStatus());
  ASSERT_EQ(space->Carve("hmem.2", 128 * kMiB, 128 * kMiB), absl::OkStatus());
  SpacePiece piece = space->Look()->pieces.at(0);
  EXPECT_EQ(piece, (SpacePiece{.device = "hmem.2",
                               .offset_bytes = 128 * kMiB,
                               .length_bytes = 128 * kMiB,
                               .dax = "dax2.2",
                               .driver = DaxDriver::kNone,
                               .hpa_bytes = 0x28000000,
                               .numa_node = 1}));
  ASSERT_EQ(space->Bind(piece, DaxDriver::kKmem), absl::OkStatus());
  const std::optional<SpacePiece> again = space->LookAgain(piece);
  piece = space->Look()->pieces.at(0);
  EXPECT_EQ(again, piece);
  EXPECT_EQ(piece.driver, DaxDriver::kKmem);
  EXPECT_EQ(piece.total_blocks, 1);
  EXPECT_EQ(piece.online_blocks, 0);
  host_.Put("sys/devices/system/memory/memory5/state", "online\n");
  host_.Put("sys/devices/system/memory/memory5/valid_zones", "Movable\n");
  piece = space->Look()->pieces.at(0);
  EXPECT_EQ(piece.online_blocks, 1);
  EXPECT_TRUE(piece.all_movable);
  EXPECT_EQ(ReasonOf(space->Unbind(piece)), "BLOCKS_BUSY");
  EXPECT_EQ(ReasonOf(space->Uncarve(piece)), "DAX_BOUND");
  ASSERT_EQ(space->OfflineBlocks(piece, absl::Seconds(20)).code(), absl::StatusCode::kOk);
  ASSERT_EQ(space->Unbind(piece), absl::OkStatus());
  ASSERT_EQ(space->Uncarve(piece), absl::OkStatus());
  EXPECT_EQ(space->Uncarve(piece), absl::OkStatus());
  EXPECT_EQ(space->LookAgain(piece), std::nullopt);
  EXPECT_TRUE(space->Look()->pieces.empty());
}

TEST_F(LinuxSpaceTest, APieceIsKnownByItsRangeNotItsName) {
  const auto space = Space({"hmem.2"});
  ASSERT_EQ(space->Prepare(), absl::OkStatus());
  ASSERT_EQ(space->Carve("hmem.2", 0, 2 * kMiB), absl::OkStatus());
  const SpacePiece gone = space->Look()->pieces.at(0);
  ASSERT_EQ(space->Uncarve(gone), absl::OkStatus());
  ASSERT_EQ(space->Carve("hmem.2", 4 * kMiB, 2 * kMiB), absl::OkStatus());
  ASSERT_EQ(space->Look()->pieces.at(0).dax, gone.dax);
  EXPECT_EQ(space->LookAgain(gone), std::nullopt);
  EXPECT_EQ(ReasonOf(space->Bind(gone, DaxDriver::kDeviceDax)), "NO_DAX_DEVICE");
  EXPECT_EQ(ReasonOf(space->Open(gone, true).status()), "NO_DAX_DEVICE");
  EXPECT_EQ(space->Uncarve(gone), absl::OkStatus());
  EXPECT_EQ(space->Look()->pieces.size(), 1);
}

TEST_F(LinuxSpaceTest, WhatIsInUseIsUnfitAndSaysWhy) {
  host_.SetDriver("dax2.0", "kmem");
  host_.Put("sys/devices/system/memory/memory4/state", "online\n");
  const auto space = Space({"hmem.2"});
  ASSERT_EQ(space->Prepare(), absl::OkStatus());
  const SpaceView view = *space->Look();
  EXPECT_THAT(view.devices.at(0).unfit, HasSubstr("NUMA node 1"));
  EXPECT_EQ(view.pieces.at(0).driver, DaxDriver::kKmem);
  EXPECT_EQ(view.pieces.at(0).online_blocks, 1);
  EXPECT_EQ(ReasonOf(space->Carve("hmem.2", 0, 2 * kMiB)), "RANGE_TAKEN");
  host_.Put("sys/devices/system/memory/memory4/state", "offline\n");
  ASSERT_EQ(space->Prepare(), absl::OkStatus());
  EXPECT_EQ(space->Look()->devices.at(0).unfit, "");
}

TEST_F(LinuxSpaceTest, AnUnknownDeviceIsRefused) {
  const auto space = Space();
  EXPECT_EQ(ReasonOf(space->Carve("region9", 0, 2 * kMiB)), "UNKNOWN_DEVICE");
  EXPECT_EQ(ReasonOf(space->Carve("mem0", 0, 2 * kMiB)), "UNKNOWN_DEVICE");
  EXPECT_EQ(space->Uncarve({.device = "region9", .dax = "dax9.0"}), absl::OkStatus());
}

TEST_F(LinuxSpaceTest, TheCheckShowsDevicesAndWhatKeepsThemFromThePool) {
  const auto examine = [&](std::vector<std::string> devices) {
    return ExamineWholeDevices({.devices = std::move(devices), .files = host_.kernel()});
  };
  EXPECT_EQ(examine({"mem7"}).verdict, Verdict::kMissing);
  const Finding before = examine({});
  EXPECT_EQ(before.verdict, Verdict::kWarning);
  EXPECT_THAT(before.what, HasSubstr("region0 (serial 0x77): dax0.0 is on all of it"));
  EXPECT_THAT(before.what, HasSubstr("hmem.2: dax2.0 is on all of it"));
  EXPECT_FALSE(before.remedy.empty());
  ASSERT_EQ(Space()->Prepare(), absl::OkStatus());
  const Finding after = examine({});
  EXPECT_EQ(after.verdict, Verdict::kOk);
  EXPECT_EQ(
      after.what,
      "devices that this host sees whole: region0 (serial 0x77) of 1073741824 bytes, hmem.2 of "
      "268435456 bytes");
}

}  // namespace
}  // namespace cxlpool::agent
