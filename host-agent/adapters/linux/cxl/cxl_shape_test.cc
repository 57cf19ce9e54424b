#include "host-agent/adapters/linux/cxl/cxl_shape.h"

#include "gtest/gtest.h"
#include "test/rigs/fake_host_for_test.h"

namespace cxlpool::agent {
namespace {

const absl::Time kNow = absl::UnixEpoch() + absl::Hours(1);
const std::string kMem = "sys/bus/cxl/devices/mem0/";

// A host with one memdev.
struct FakeMemdev : FakeHost {
  FakeMemdev() {
    Link("sys/bus/cxl/devices/mem0", "sys/devices/pci0000:0c/0000:0c:00.0/0000:0f:00.0/mem0");
    Folder("sys/devices/pci0000:0c/0000:0c:00.0/0000:0f:00.0/mem0");
  }
  uint64_t Serial(CxlShapes& shapes, uint64_t inode, absl::Time now) const {
    return shapes.Read({{"mem0", inode}}, {}, now)->memdevs.at(0).memdev.serial;
  }
};

TEST(CxlShapeTest, IsReadOnceForAsLongAsTheDevicesAreTheSame) {
  const FakeMemdev host;
  CxlShapes shapes(host.files());
  EXPECT_EQ(host.Serial(shapes, 7, kNow), 0u);
  host.Put(kMem + "serial", "0x1\n");
  EXPECT_EQ(host.Serial(shapes, 7, kNow), 1u) << "what was still to come is asked for again";
  host.Put(kMem + "serial", "0x2\n");
  EXPECT_EQ(host.Serial(shapes, 7, kNow + CxlShapes::kMaxAge / 2), 1u);
  EXPECT_EQ(host.Serial(shapes, 8, kNow + CxlShapes::kMaxAge / 2), 2u) << "another of that name";
}

TEST(CxlShapeTest, IsReadAnewAfterAWhile) {
  const FakeMemdev host;
  CxlShapes shapes(host.files());
  host.Put(kMem + "serial", "0x1\n");
  EXPECT_EQ(host.Serial(shapes, 7, kNow), 1u);
  host.Put(kMem + "serial", "0x2\n");
  EXPECT_EQ(host.Serial(shapes, 7, kNow + CxlShapes::kMaxAge), 2u);
  host.Put(kMem + "serial", "0x3\n");
  EXPECT_EQ(host.Serial(shapes, 7, kNow), 3u) << "a clock that was set back";
}

}  // namespace
}  // namespace cxlpool::agent
