#include "host-agent/adapters/linux/cxl/pci_slots.h"

#include "gtest/gtest.h"
#include "proto/support/refusal.h"
#include "test/rigs/fake_host_for_test.h"

namespace cxlpool::agent {
namespace {

class PciSlotsTest : public testing::Test {
 protected:
  // Host bridge 0c, root port 0c:00.0 (slot 2) with a switch in it, its downstream port 0e:00.0
  // (slot 10), and a slot without a port.
  PciSlotsTest() {
    const std::string root_port = "sys/devices/pci0000:0c/0000:0c:00.0";
    const std::string downstream = root_port + "/0000:0d:00.0/0000:0e:00.0";
    host_.Folder(root_port + "/pci_bus/0000:0d");
    host_.Folder(downstream + "/pci_bus/0000:0f");
    host_.Link("sys/class/pci_bus/0000:0d", root_port + "/pci_bus/0000:0d");
    host_.Link("sys/class/pci_bus/0000:0f", downstream + "/pci_bus/0000:0f");
    host_.Put(root_port + "/0000:0d:00.0/class", "0x060400\n");
    host_.Link("sys/bus/pci/devices/0000:0d:00.0", root_port + "/0000:0d:00.0");
    host_.Put("sys/bus/pci/slots/2/address", "0000:0d:00\n");
    host_.Put("sys/bus/pci/slots/10/address", "0000:0f:00\n");
    host_.Put("sys/bus/pci/slots/10-1/address", "0000:0f:00\n");
    host_.Put("sys/bus/pci/slots/40/address", "0000:77:00\n");
  }
  FakeHost host_;
};

TEST_F(PciSlotsTest, SlotsWithTheirPortsAndBridges) {
  const std::vector<PciSlot> slots = ReadPciSlots(host_.files());
  ASSERT_EQ(slots.size(), 1u);  // Not slot 2: a switch sits there.
  EXPECT_EQ(slots[0].number, 10u);
  EXPECT_EQ(slots[0].device, "0000:0f:00");
  EXPECT_EQ(slots[0].downstream_port, "0000:0e:00.0");
  EXPECT_EQ(slots[0].host_bridge, "pci0000:0c");
  EXPECT_FALSE(SlotOccupied(host_.files(), slots[0]));
  host_.Folder("sys/bus/pci/devices/0000:0f:00.0");
  EXPECT_TRUE(SlotOccupied(host_.files(), slots[0]));
}

TEST_F(PciSlotsTest, ASlotWithASwitchTakesNoLd) {
  EXPECT_EQ(CountSlotsForDevices(host_.files()), 3u);
  host_.Put("sys/bus/pci/devices/0000:0f:00.0/class", "0x050210\n");  // A memdev.
  EXPECT_EQ(CountSlotsForDevices(host_.files()), 3u);
  EXPECT_EQ(CountSlotsForDevices(FakeHost().files()), 0u);
}

TEST_F(PciSlotsTest, RememberedWhileThereAreTheSameSlots) {
  const absl::Time now = absl::UnixEpoch() + absl::Hours(1);
  PciSlots slots(host_.files());
  ASSERT_EQ(slots.Read(now).size(), 1u);
  host_.Put("sys/bus/pci/devices/0000:0f:00.0/class", "0x060400\n");  // A switch without slots.
  EXPECT_EQ(slots.Read(now + PciSlots::kMaxAge / 2).size(), 1u);
  EXPECT_TRUE(slots.Read(now + PciSlots::kMaxAge).empty());
  host_.Put("sys/bus/pci/devices/0000:0f:00.0/class", "0x050210\n");
  host_.Put("sys/bus/pci/slots/11/address", "0000:78:00\n");
  EXPECT_EQ(slots.Read(now + PciSlots::kMaxAge).size(), 1u);
}

TEST_F(PciSlotsTest, UnknownSlotListsTheOthers) {
  const absl::Status status = FindPciSlot(host_.files(), 11).status();
  EXPECT_EQ(ReasonOf(status), "NO_SLOT");
  EXPECT_NE(status.message().find("10"), absl::string_view::npos);
}

}  // namespace
}  // namespace cxlpool::agent
