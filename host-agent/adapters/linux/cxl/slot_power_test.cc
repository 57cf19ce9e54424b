#include "host-agent/adapters/linux/cxl/slot_power.h"

#include <cerrno>
#include <filesystem>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "gtest/gtest.h"
#include "test/rigs/fake_cxl_for_test.h"

namespace cxlpool::agent {
namespace {

// Its memdev has lost the driver. The kernel gives it back when it is asked again.
struct HostAfterALinkError : FakeCxl {
  HostAfterALinkError() {
    OnBus("cxl", kEndpoint + "/decoder4.0");
    std::filesystem::remove(Path(kMemdev + "/driver"));
  }

  std::optional<int> Kernel(const std::string& path, absl::string_view text) {
    if (path != "sys/bus/cxl/drivers/cxl_mem/bind") return 0;
    EXPECT_EQ(text, "mem0");
    if (++asked < 2) return EBUSY;
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
  host.Link(host.kMemdev + "/driver", "sys/bus/cxl/drivers/cxl_mem");
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
