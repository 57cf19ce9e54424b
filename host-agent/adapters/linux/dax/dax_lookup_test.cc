#include "host-agent/adapters/linux/dax/dax_lookup.h"

#include "gtest/gtest.h"
#include "proto/support/refusal.h"
#include "test/rigs/fake_host_for_test.h"

namespace cxlpool::agent {
namespace {

class DaxLookupTest : public testing::Test {
 protected:
  DaxLookupTest() {
    host_.Put("sys/bus/cxl/devices/region0/target0", "decoder4.0\n");
    host_.Put("sys/bus/cxl/devices/mem0/serial", "0x1001\n");
    host_.Link("sys/bus/cxl/devices/endpoint4/uport", "sys/bus/cxl/devices/mem0");
    host_.Folder("sys/bus/cxl/devices/region0/dax_region0/dax0.0");
    host_.Put("sys/bus/dax/devices/dax0.0/dev", "252:3\n");
  }
  FakeHost host_;
};

TEST_F(DaxLookupTest, FromSerialToDevice) {
  const absl::StatusOr<DaxNode> node = LookUpDax(host_.files(), 0x1001);
  ASSERT_TRUE(node.ok()) << node.status();
  EXPECT_EQ(node->name, "dax0.0");
  EXPECT_EQ(node->region, "region0");
  EXPECT_EQ(node->major, 252u);
  EXPECT_EQ(node->minor, 3u);
}

TEST_F(DaxLookupTest, UnknownSerial) {
  EXPECT_EQ(ReasonOf(LookUpDax(host_.files(), 0x1002).status()), "NO_HOST_REGION");
}

TEST_F(DaxLookupTest, RegionWithoutTarget) {
  host_.Put("sys/bus/cxl/devices/region0/target0", "\n");
  EXPECT_EQ(ReasonOf(LookUpDax(host_.files(), 0x1001).status()), "NO_HOST_REGION");
}

TEST_F(DaxLookupTest, ByALaterTargetWhereTheFirstIsGone) {
  host_.Put("sys/bus/cxl/devices/region0/target0", "\n");
  host_.Put("sys/bus/cxl/devices/region0/target1", "decoder4.0\n");
  const absl::StatusOr<DaxNode> node = LookUpDax(host_.files(), 0x1001);
  ASSERT_TRUE(node.ok()) << node.status();
  EXPECT_EQ(node->name, "dax0.0");
}

TEST_F(DaxLookupTest, RegionWithoutDaxDevice) {
  host_.Put("sys/bus/cxl/devices/region1/target0", "decoder5.0\n");
  host_.Put("sys/bus/cxl/devices/endpoint5/uport/serial", "0x1002\n");
  EXPECT_EQ(ReasonOf(LookUpDax(host_.files(), 0x1002).status()), "NO_DAX_DEVICE");
}

TEST_F(DaxLookupTest, OpensNothingButDevdax) {
  const absl::StatusOr<DaxNode> node = LookUpDax(host_.files(), 0x1001);
  ASSERT_TRUE(node.ok()) << node.status();
  EXPECT_EQ(ReasonOf(OpenDaxNode(host_.files(), *node, true).status()), "NOT_DEVDAX");
}

TEST_F(DaxLookupTest, OpensNothingThatIsNotThatDevice) {
  const absl::StatusOr<DaxNode> node = LookUpDax(host_.files(), 0x1001);
  ASSERT_TRUE(node.ok()) << node.status();
  host_.Link("sys/bus/dax/devices/dax0.0/driver", "sys/bus/dax/drivers/device_dax");
  EXPECT_EQ(ReasonOf(OpenDaxNode(host_.files(), *node, true).status()), "DAX_OPEN");
  host_.Put("dev/dax0.0", "an ordinary file");
  EXPECT_EQ(ReasonOf(OpenDaxNode(host_.files(), *node, false).status()), "DAX_OPEN");
}

}  // namespace
}  // namespace cxlpool::agent
