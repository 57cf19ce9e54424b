#include "host-agent/adapters/linux/machine/host_needs.h"

#include <filesystem>

#include "gtest/gtest.h"
#include "host-agent/adapters/linux/dax/dax_driver.h"
#include "proto/support/refusal.h"
#include "test/rigs/fake_host_for_test.h"

namespace cxlpool::agent {
namespace {

class PrepareHostTest : public testing::Test {
 protected:
  PrepareHostTest() {
    for (const char* folder :
         {"sys/bus/cxl/drivers/cxl_port", "sys/bus/cxl/drivers/cxl_mem",
          "sys/bus/cxl/drivers/cxl_region", "sys/bus/cxl/drivers/cxl_dax_region",
          "sys/bus/pci/drivers/cxl_pci", "sys/bus/pci/slots/10", "sys/bus/dax/drivers/device_dax",
          "sys/bus/dax/drivers/kmem"}) {
      host_.Folder(folder);
    }
    host_.Put("sys/bus/dax/drivers_autoprobe", "1\n");
    host_.Put("sys/bus/cxl/devices/root0/decoder0.0/create_ram_region", "region0\n");
    host_.Put("sys/devices/system/memory/auto_online_blocks", "offline\n");
  }
  FakeHost host_;
};

TEST_F(PrepareHostTest, SwitchesAutoprobeOff) {
  const absl::Status status = PrepareHost(host_.files(), "6.12.0");
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(host_.files().Read("sys/bus/dax/drivers_autoprobe"), "0");
}

TEST_F(PrepareHostTest, SwitchesOffWhatSomebodySwitchedOnLater) {
  ASSERT_TRUE(PrepareHost(host_.files(), "6.12.0").ok());
  host_.Put("sys/bus/dax/drivers_autoprobe", "1\n");
  const absl::Status status = SwitchAutoprobeOff(host_.files());
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(host_.files().Read("sys/bus/dax/drivers_autoprobe"), "0");
}

TEST_F(PrepareHostTest, AutoprobeThatStaysOnIsRefused) {
  std::filesystem::remove(host_.Path("sys/bus/dax/drivers_autoprobe"));
  EXPECT_TRUE(absl::IsNotFound(SwitchAutoprobeOff(host_.files())));
  // Takes what is written to it, and does not show it.
  host_.Link("sys/bus/dax/drivers_autoprobe", "takes-all");
  std::filesystem::create_symlink("/dev/null", host_.Path("takes-all"));
  const absl::Status status = SwitchAutoprobeOff(host_.files());
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ReasonOf(status), "HOST_UNFIT");
  EXPECT_NE(status.message().find("stays on"), absl::string_view::npos) << status;
  EXPECT_NE(PrepareHost(host_.files(), "6.12.0").message().find("stays on"),
            absl::string_view::npos);
}

TEST_F(PrepareHostTest, ListsEverythingThatIsMissing) {
  std::filesystem::remove_all(host_.Path("sys/bus/cxl/drivers/cxl_dax_region"));
  std::filesystem::remove_all(host_.Path("sys/bus/dax/drivers/kmem"));
  std::filesystem::remove_all(host_.Path("sys/bus/pci/slots/10"));
  std::filesystem::remove(host_.Path("sys/bus/cxl/devices/root0/decoder0.0/create_ram_region"));
  const absl::Status status = PrepareHost(host_.files(), "6.1.0");
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ReasonOf(status), "HOST_UNFIT");
  const std::string text(status.message());
  for (const char* part : {"6.1.0", "dax_cxl", "modprobe kmem", "hot-plug slot", "memory window"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
  }
}

TEST_F(PrepareHostTest, AHostOfWholeDevicesNeedsNoSlots) {
  std::filesystem::remove_all(host_.Path("sys/bus/pci/slots/10"));
  EXPECT_EQ(PrepareHost(host_.files(), "6.12.0", HostUse::kWhole), absl::OkStatus());
  EXPECT_FALSE(PrepareHost(host_.files(), "6.12.0").ok());
  // CXL, too, only where the memory is not there already.
  std::filesystem::remove_all(host_.Path("sys/bus/cxl"));
  EXPECT_FALSE(PrepareHost(host_.files(), "6.12.0", HostUse::kWhole).ok());
  host_.Put("sys/bus/platform/devices/hmem.0/dax_region/size", "1073741824\n");
  EXPECT_EQ(PrepareHost(host_.files(), "6.12.0", HostUse::kWhole), absl::OkStatus());
  std::filesystem::remove_all(host_.Path("sys/bus/dax/drivers/kmem"));
  EXPECT_FALSE(PrepareHost(host_.files(), "6.12.0", HostUse::kWhole).ok());
}

TEST_F(PrepareHostTest, WithoutADaxBusSaysSo) {
  std::filesystem::remove_all(host_.Path("sys/bus/dax"));
  const absl::Status status = PrepareHost(host_.files(), "6.12.0");
  EXPECT_NE(status.message().find("modprobe dax"), absl::string_view::npos) << status;
}

}  // namespace
}  // namespace cxlpool::agent
