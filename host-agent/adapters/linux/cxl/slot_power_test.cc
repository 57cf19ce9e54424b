#include "host-agent/adapters/linux/cxl/slot_power.h"

#include <cerrno>
#include <filesystem>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "gtest/gtest.h"
#include "test/rigs/fake_host_for_test.h"

namespace cxlpool::agent {
namespace {

// A memdev that has lost its driver. The kernel gives it back when it is asked again.
struct HostAfterALinkError : FakeHost {
  HostAfterALinkError() {
    const std::string root = "sys/devices/platform/ACPI0017:00/root0";
    const std::string endpoint = root + "/port1/endpoint4";
    for (const std::string& path :
         {root, root + "/port1", endpoint, endpoint + "/decoder4.0", memdev}) {
      Folder(path);
      Link("sys/bus/cxl/devices" + path.substr(path.rfind('/')), path);
    }
    Link(root + "/dport12", "sys/devices/pci0000:0c");
    Link("sys/devices/pci0000:0c/firmware_node", "sys/devices/LNXSYSTM:00/ACPI0016:01");
    Link(root + "/port1/uport", "sys/devices/pci0000:0c");
    Link(endpoint + "/uport", memdev);
    Link(endpoint + "/driver", "sys/bus/cxl/drivers/cxl_port");
    Put(memdev + "/serial", "0x1001\n");
    Put(memdev + "/ram/size", "0x20000000\n");
  }

  std::optional<int> Kernel(const std::string& path, absl::string_view text) {
    if (path != "sys/bus/cxl/drivers/cxl_mem/bind") return 0;
    EXPECT_EQ(text, "mem0");
    if (++asked < 2) return EBUSY;
    Link(memdev + "/driver", "sys/bus/cxl/drivers/cxl_mem");
    return 0;
  }

  const std::string memdev = "sys/devices/pci0000:0c/0000:0c:00.0/0000:0f:00.0/mem0";
  int asked = 0;
  const HostFiles with_kernel{Path(""), [this](const std::string& path, absl::string_view text) {
                                return Kernel(path, text);
                              }};
};

TEST(SlotPowerTest, AMemdevThatLostItsDriverIsGivenToItAgain) {
  HostAfterALinkError host;
  EXPECT_TRUE(AwaitMemdev(host.with_kernel, 0x1001, Deadline::In(absl::Seconds(10))));
  EXPECT_EQ(host.asked, 2);
  EXPECT_TRUE(AwaitMemdev(host.with_kernel, 0x1001, Deadline::In(absl::Seconds(10))));
  EXPECT_EQ(host.asked, 2) << "it has one";
}

// While the link is reset the memdev has no driver either, and gets it back by itself.
TEST(SlotPowerTest, AMemdevThatHasJustLostItsDriverIsLeftAlone) {
  HostAfterALinkError host;
  EXPECT_FALSE(AwaitMemdev(host.with_kernel, 0x1001, Deadline::In(absl::Seconds(1))));
  EXPECT_EQ(host.asked, 0);
}

TEST(SlotPowerTest, AMemdevThatHasItsDriverIsNotGivenToItAgain) {
  HostAfterALinkError host;
  host.Link(host.memdev + "/driver", "sys/bus/cxl/drivers/cxl_mem");
  std::filesystem::remove(host.Path("sys/bus/cxl/devices/decoder4.0"));
  EXPECT_FALSE(AwaitMemdev(host.with_kernel, 0x1001, Deadline::In(absl::Seconds(3))));
  EXPECT_EQ(host.asked, 0);
}

TEST(SlotPowerTest, NoDriverIsAskedForAMemdevThatIsNotThere) {
  HostAfterALinkError host;
  EXPECT_FALSE(AwaitMemdev(host.with_kernel, 0x1002, Deadline::In(absl::Milliseconds(20))));
  EXPECT_EQ(host.asked, 0);
}

}  // namespace
}  // namespace cxlpool::agent
