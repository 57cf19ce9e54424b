#include "host-agent/adapters/linux/cxl/pcie_slot_control.h"

#include <fstream>
#include <iterator>

#include "gtest/gtest.h"
#include "proto/support/refusal.h"
#include "test/rigs/fake_host_for_test.h"

namespace cxlpool::agent {
namespace {

// MSI at 0x40, then PCI Express at 0x60.
std::string Config(bool power_controller) {
  std::string config(256, '\0');
  config[0x06] = 0x10;
  config[0x34] = 0x40;
  config[0x40] = 0x05;
  config[0x41] = 0x60;
  config[0x60] = 0x10;
  config[0x60 + 0x14] = power_controller ? 0x02 : 0x01;
  config[0x60 + 0x18] = 0x08;
  config[0x60 + 0x19] = 0x11;
  return config;
}

std::string Written(const FakeHost& host) {
  std::ifstream file(host.Path("sys/bus/pci/devices/0000:0e:00.0/config"), std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

TEST(PcieSlotControlTest, WalksTheCapabilities) {
  EXPECT_EQ(FindPcieCapability(Config(false)), 0x60u);
  EXPECT_EQ(HasPowerController(Config(false), 0x60), false);
  EXPECT_EQ(HasPowerController(Config(true), 0x60), true);
}

TEST(PcieSlotControlTest, MalformedListsEnd) {
  EXPECT_EQ(FindPcieCapability(""), std::nullopt);
  EXPECT_EQ(FindPcieCapability(std::string(64, '\0')), std::nullopt);
  std::string loop = Config(false);
  loop[0x41] = 0x40;
  EXPECT_EQ(FindPcieCapability(loop), std::nullopt);
  std::string header = Config(false);
  header[0x34] = 0x10;
  EXPECT_EQ(FindPcieCapability(header), std::nullopt);
  EXPECT_EQ(FindPcieCapability(Config(false).substr(0, 0x60)), std::nullopt);
  EXPECT_EQ(HasPowerController(Config(false).substr(0, 0x74), 0x60), std::nullopt);
}

TEST(PcieSlotControlTest, WritesOnlyTheTwoBytes) {
  FakeHost host;
  host.Put("sys/bus/pci/devices/0000:0e:00.0/config", Config(false));
  ASSERT_TRUE(ShowSlotOff(host.files(), "0000:0e:00.0").ok());
  std::string expected = Config(false);
  expected[0x60 + 0x19] = 0x17;
  EXPECT_EQ(Written(host), expected);
}

TEST(PcieSlotControlTest, LeavesAPowerControllerAlone) {
  FakeHost host;
  host.Put("sys/bus/pci/devices/0000:0e:00.0/config", Config(true));
  ASSERT_TRUE(ShowSlotOff(host.files(), "0000:0e:00.0").ok());
  EXPECT_EQ(Written(host), Config(true));
}

TEST(PcieSlotControlTest, SaysWhatFailed) {
  FakeHost host;
  EXPECT_EQ(ReasonOf(ShowSlotOff(host.files(), "0000:0e:00.0")), "SLOT_CONTROL");
  host.Put("sys/bus/pci/devices/0000:0e:00.0/config", Config(false).substr(0, 64));
  EXPECT_EQ(ReasonOf(ShowSlotOff(host.files(), "0000:0e:00.0")), "SLOT_CONTROL");
}

}  // namespace
}  // namespace cxlpool::agent
