#include "host-agent/adapters/linux/cxl/host_region.h"

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/support/refusal.h"
#include "test/rigs/fake_cxl_for_test.h"

namespace cxlpool::agent {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr uint64_t kPoolSerial = 0x0c00000000000051;

// A kernel that takes every write, and does one thing: a region that is deleted is gone.
class HostRegionTest : public testing::Test {
 protected:
  HostRegionTest() {
    host_.OnBus("cxl", FakeCxl::kEndpoint + "/decoder4.0");  // So the memdev is ready.
    host_.Put(kMemory + "block_size_bytes", "8000000\n");
  }

  HostFiles Kernel() {
    return HostFiles(host_.Path(""), [this](const std::string& path, absl::string_view text) {
      writes_.push_back(path.substr(path.rfind('/') + 1));
      if (absl::EndsWith(path, "/delete_region")) {
        deleted_.emplace_back(text);
        std::filesystem::remove(host_.Path(absl::StrCat("sys/bus/cxl/devices/", deleted_.back())));
      }
      return 0;
    });
  }

  // The memdev of region0 is pulled out: the kernel resets its decoders, and keeps its addresses.
  void PullTarget() const {
    host_.Put(FakeCxl::kRegion + "/commit", "0\n");
    host_.Put(FakeCxl::kRegion + "/target0", "\n");
  }

  // A region that has addresses and no target, as one has that is just being made.
  void BeginRegion(const std::string& name, int window, uint64_t hpa, uint64_t size) const {
    const std::string path = absl::StrCat(FakeCxl::kRoot, "/decoder0.", window, "/", name);
    host_.OnBus("cxl", path);
    host_.Put(path + "/resource", absl::StrCat("0x", absl::Hex(hpa), "\n"));
    host_.Put(path + "/size", absl::StrCat("0x", absl::Hex(size), "\n"));
    host_.Put(path + "/commit", "0\n");
    host_.Put(path + "/interleave_ways", "1\n");
    host_.Put(path + "/target0", "\n");
  }

  // Clears the way, and then ends at a memdev that is not there.
  void Make(Machine& machine, const std::string& bridge, uint64_t serial,
            uint64_t size_bytes = 256 << 20) {
    const HostRegionSpec spec = {
        .host_bridge = bridge, .serials = {serial}, .size_bytes = size_bytes};
    EXPECT_EQ(ReasonOf(MakeHostRegion(machine, spec, Deadline::In(absl::Seconds(20)))),
              "NO_MEMDEV");
  }

  static inline const std::string kMemory = "sys/devices/system/memory/";

  FakeCxl host_;
  std::vector<std::string> writes_;  // The files' names.
  std::vector<std::string> deleted_;
};

TEST_F(HostRegionTest, IsNotDestroyedUnderABlockThatStayedOnline) {
  Machine machine(Kernel());
  host_.Put(kMemory + "memory34/state", "offline\n");
  host_.Put(kMemory + "memory35/state", "online\n");
  const absl::Status status = DestroyHostRegionOf(machine, 0x1001);
  EXPECT_EQ(ReasonOf(status), "BLOCKS_BUSY");
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("1 of 2 memory blocks of host region region0 are online"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("(reboot the host)"));
  EXPECT_THAT(writes_, IsEmpty());

  host_.Put(kMemory + "memory35/state", "offline\n");
  EXPECT_EQ(DestroyHostRegionOf(machine, 0x1001), absl::OkStatus());
  EXPECT_THAT(deleted_, ElementsAre("region0"));
}

// As after `daxctl destroy-device dax0.0`, which leaves that one empty, and `create-device`.
TEST_F(HostRegionTest, IsNotDestroyedUnderASecondDaxDeviceThatIsBound) {
  Machine machine(Kernel());
  const std::string second = FakeCxl::kRegion + "/dax_region0/dax0.1";
  host_.Dax("dax0.1", second);
  host_.Link(second + "/driver", "sys/bus/dax/drivers/device_dax");
  const absl::Status status = DestroyHostRegionOf(machine, 0x1001);
  EXPECT_EQ(ReasonOf(status), "DAX_BOUND");
  EXPECT_THAT(std::string(status.message()), HasSubstr("driver device_dax has its device dax0.1"));
  EXPECT_THAT(writes_, IsEmpty());
}

// There is nothing behind it, and its blocks stay whatever becomes of it.
TEST_F(HostRegionTest, WhatLostItsMemdevGoesThoughItsBlocksStayOnline) {
  Machine machine(Kernel());
  LookAtCxl(machine);
  PullTarget();
  host_.Put(kMemory + "memory34/state", "online\n");
  EXPECT_EQ(DestroyHostRegionOf(machine, 0x1001), absl::OkStatus());
  EXPECT_THAT(deleted_, ElementsAre("region0"));
}

TEST_F(HostRegionTest, WhatAPersonIsMakingIsLeftAlone) {
  Machine machine(Kernel());
  BeginRegion("region5", 0, 0x120000000, 256 << 20);  // Over the same bridge.
  BeginRegion("region6", 1, 0x310000000, 256 << 20);
  Make(machine, "ACPI0016:01", kPoolSerial);
  Make(machine, "ACPI0016:01", kPoolSerial, uint64_t{8} << 30);  // Also where it takes the room.
  Make(machine, "ACPI0016:01", 0x2001);
  EXPECT_THAT(deleted_, IsEmpty());
}

// A pool's orphans are cleared away once they are old. Nobody does that to others.
TEST_F(HostRegionTest, WhatTakesTheRoomOfADeviceOfItsOwnSerialGoes) {
  Machine machine(Kernel());
  BeginRegion("region5", 0, 0x120000000, 256 << 20);
  BeginRegion("region6", 1, 0x310000000, uint64_t{8} << 30);
  Make(machine, "ACPI0016:01", 0x2001, uint64_t{8} << 30);
  EXPECT_THAT(deleted_, ElementsAre("region5", "region6"));
}

TEST_F(HostRegionTest, WhatIsLeftOfThePoolsRegionsInItsWindowsGoes) {
  host_.Put(FakeCxl::kMemdev + "/serial", absl::StrCat("0x", absl::Hex(kPoolSerial), "\n"));
  Machine machine(Kernel());
  LookAtCxl(machine);
  PullTarget();
  Make(machine, "ACPI0016:00", kPoolSerial + 1);  // The window is over another bridge.
  EXPECT_THAT(deleted_, IsEmpty());
  Make(machine, "ACPI0016:01", kPoolSerial + 1);
  EXPECT_THAT(deleted_, ElementsAre("region0"));
}

TEST_F(HostRegionTest, WhatIsLeftOfOthersRegionsStays) {
  Machine machine(Kernel());
  LookAtCxl(machine);
  PullTarget();
  Make(machine, "ACPI0016:01", kPoolSerial);
  EXPECT_THAT(deleted_, IsEmpty());
}

TEST_F(HostRegionTest, WhatIsHalfMadeOnItsMemdevGoes) {
  Machine machine(Kernel());
  host_.Put(FakeCxl::kRegion + "/commit", "0\n");
  const HostRegionSpec spec = {
      .host_bridge = "ACPI0016:09", .serials = {0x1001}, .size_bytes = 256 << 20};
  EXPECT_FALSE(MakeHostRegion(machine, spec, Deadline::In(absl::Seconds(20))).ok());
  EXPECT_THAT(deleted_, ElementsAre("region0"));
}

}  // namespace
}  // namespace cxlpool::agent
