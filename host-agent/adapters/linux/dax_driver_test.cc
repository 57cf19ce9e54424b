#include "host-agent/adapters/linux/dax_driver.h"

#include "gtest/gtest.h"
#include "host-agent/adapters/linux/fake_host_for_test.h"
#include "host-agent/adapters/linux/memory_blocks.h"
#include "proto/support/refusal.h"

namespace cxlpool::agent {
namespace {

constexpr uint64_t kBlock = 128ull << 20;

class DaxDriverTest : public testing::Test {
 protected:
  void Bound(const std::string& driver) const {
    host_.Link("sys/bus/dax/devices/dax0.0/driver", "sys/bus/dax/drivers/" + driver);
  }

  FakeHost host_;
  const DaxDevice dax_{"dax0.0", "region0", 8 * kBlock, 2 * kBlock, 2 << 20, 1, 252, 0};
};

TEST_F(DaxDriverTest, NamesTheDriver) {
  host_.Folder("sys/bus/dax/devices/dax0.0");
  EXPECT_EQ(DaxDriverOf(host_.files(), "dax0.0"), DaxDriver::kNone);
  Bound("kmem");
  EXPECT_EQ(DaxDriverOf(host_.files(), "dax0.0"), DaxDriver::kKmem);
}

TEST_F(DaxDriverTest, BoundAlreadyIsFine) {
  Bound("device_dax");
  EXPECT_TRUE(BindDaxDriver(host_.files(), "dax0.0", DaxDriver::kDeviceDax).ok());
}

TEST_F(DaxDriverTest, NeverTakesFromAnotherDriver) {
  Bound("device_dax");
  const absl::Status status = BindDaxDriver(host_.files(), "dax0.0", DaxDriver::kKmem);
  EXPECT_EQ(ReasonOf(status), "DAX_BOUND");
}

TEST_F(DaxDriverTest, BindIsNotBelieved) {
  host_.Folder("sys/bus/dax/devices/dax0.0");
  host_.Put("sys/bus/dax/drivers/kmem/bind", "");
  host_.Put("sys/devices/system/memory/auto_online_blocks", "online_movable");
  // The files take the writes, yet nothing is bound: these are only files.
  const absl::Status status = BindDaxDriver(host_.files(), "dax0.0", DaxDriver::kKmem);
  EXPECT_EQ(ReasonOf(status), "DAX_BIND");
  EXPECT_EQ(host_.files().Read("sys/bus/dax/drivers/kmem/bind"), "dax0.0");
  EXPECT_EQ(host_.files().Read("sys/devices/system/memory/auto_online_blocks"), "online_movable");
}

TEST_F(DaxDriverTest, IdDoesNotStickToTheName) {
  host_.Folder("sys/bus/dax/devices/dax0.0");
  host_.Put("sys/bus/dax/drivers/device_dax/new_id", "");
  host_.Put("sys/bus/dax/drivers/device_dax/remove_id", "");
  EXPECT_FALSE(BindDaxDriver(host_.files(), "dax0.0", DaxDriver::kDeviceDax).ok());
  EXPECT_EQ(host_.files().Read("sys/bus/dax/drivers/device_dax/remove_id"), "dax0.0");
}

TEST_F(DaxDriverTest, UnbindRefusesWhileABlockIsOnline) {
  Bound("kmem");
  host_.Put("sys/bus/dax/drivers/kmem/unbind", "");
  host_.Put("sys/devices/system/memory/block_size_bytes", "8000000");
  host_.Put("sys/devices/system/memory/memory8/state", "offline");
  host_.Put("sys/devices/system/memory/memory9/state", "going-offline");
  EXPECT_EQ(ReasonOf(UnbindDaxDriver(host_.files(), dax_)), "BLOCKS_BUSY");
  EXPECT_EQ(host_.files().Read("sys/bus/dax/drivers/kmem/unbind"), "");
}

TEST_F(DaxDriverTest, UnboundAlreadyIsFine) {
  host_.Folder("sys/bus/dax/devices/dax0.0");
  EXPECT_TRUE(UnbindDaxDriver(host_.files(), dax_).ok());
}

}  // namespace
}  // namespace cxlpool::agent
