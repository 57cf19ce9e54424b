#include "host-agent/adapters/linux/cxl/slot_power.h"

#include <cerrno>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "gtest/gtest.h"
#include "test/rigs/fake_host_for_test.h"

namespace cxlpool::agent {
namespace {

const std::string kRoot = "sys/devices/platform/ACPI0017:00/root0";
const std::string kEndpoint = kRoot + "/port1/endpoint4";
const std::string kMemdev = "sys/devices/pci0000:0c/0000:0c:00.0/0000:0f:00.0/mem0";

// A memdev that has lost its driver. The kernel gives it back at the third time of asking.
struct HostAfterALinkError : FakeHost {
  HostAfterALinkError() {
    for (const std::string& path :
         {kRoot, kRoot + "/port1", kEndpoint, kEndpoint + "/decoder4.0", kMemdev}) {
      Folder(path);
      Link("sys/bus/cxl/devices" + path.substr(path.rfind('/')), path);
    }
    Link(kRoot + "/dport12", "sys/devices/pci0000:0c");
    Link("sys/devices/pci0000:0c/firmware_node", "sys/devices/LNXSYSTM:00/ACPI0016:01");
    Link(kRoot + "/port1/uport", "sys/devices/pci0000:0c");
    Link(kEndpoint + "/uport", kMemdev);
    Link(kEndpoint + "/driver", "sys/bus/cxl/drivers/cxl_port");
    Put(kMemdev + "/serial", "0x1001\n");
    Put(kMemdev + "/ram/size", "0x20000000\n");
  }

  std::optional<int> Kernel(const std::string& path, absl::string_view text) {
    if (path != "sys/bus/cxl/drivers/cxl_mem/bind") return 0;
    EXPECT_EQ(text, "mem0");
    if (++asked < 3) return EBUSY;
    Link(kMemdev + "/driver", "sys/bus/cxl/drivers/cxl_mem");
    return 0;
  }

  int asked = 0;
  const HostFiles with_kernel{Path(""), [this](const std::string& path, absl::string_view text) {
                                return Kernel(path, text);
                              }};
};

TEST(SlotPowerTest, AMemdevThatLostItsDriverIsGivenToItAgain) {
  HostAfterALinkError host;
  EXPECT_TRUE(AwaitMemdev(host.with_kernel, 0x1001, Deadline::In(absl::Seconds(10))));
  EXPECT_EQ(host.asked, 3);
  EXPECT_TRUE(AwaitMemdev(host.with_kernel, 0x1001, Deadline::In(absl::Seconds(10))));
  EXPECT_EQ(host.asked, 3) << "it has one";
}

TEST(SlotPowerTest, NoDriverIsAskedForAMemdevThatIsNotThere) {
  HostAfterALinkError host;
  EXPECT_FALSE(AwaitMemdev(host.with_kernel, 0x1002, Deadline::In(absl::Milliseconds(20))));
  EXPECT_EQ(host.asked, 0);
}

}  // namespace
}  // namespace cxlpool::agent
