#include "host-agent/adapters/linux/dax/dax_driver.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "host-agent/adapters/linux/memory/memory_blocks.h"
#include "proto/support/refusal.h"
#include "test/rigs/fake_host_for_test.h"

namespace cxlpool::agent {
namespace {

constexpr uint64_t kBlockBytes = 128ull << 20;

class DaxDriverTest : public testing::Test {
 protected:
  void Bound(const std::string& driver) const {
    host_.Link("sys/bus/dax/devices/dax0.0/driver", "sys/bus/dax/drivers/" + driver);
  }

  FakeHost host_;
  const DaxDevice dax_{"dax0.0", "region0", 8 * kBlockBytes, 2 * kBlockBytes, 2 << 20, 1, 252, 0};
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
  host_.Folder("run");
  // The files take the writes, yet nothing is bound: these are only files.
  const absl::Status status = BindDaxDriver(host_.files(), "dax0.0", DaxDriver::kKmem);
  EXPECT_EQ(ReasonOf(status), "DAX_BIND");
  EXPECT_EQ(host_.files().Read("sys/bus/dax/drivers/kmem/bind"), "dax0.0");
  EXPECT_EQ(host_.files().Read("sys/devices/system/memory/auto_online_blocks"), "online_movable");
}

TEST_F(DaxDriverTest, AutoOnlineComesBackAfterTheAgentWasKilled) {
  const std::string policy = "sys/devices/system/memory/auto_online_blocks";
  const std::string word = "run/cxlpool/auto-online";
  host_.Put("proc/sys/kernel/random/boot_id", "boot-1\n");
  host_.Put("sys/bus/dax/drivers/kmem/bind", "");
  host_.Folder("sys/bus/dax/devices/dax0.0");
  host_.Put(policy, "online\n");
  host_.Folder("run/cxlpool");
  // The kernel's write to `bind` is the moment; a process that is killed in it goes no further.
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const std::string bind = host_.Path("sys/bus/dax/drivers/kmem/bind");
    unlink(bind.c_str());
    mkfifo(bind.c_str(), 0600);  // Nobody reads it: opening it hangs.
    (void)BindDaxDriver(host_.files(), "dax0.0", DaxDriver::kKmem);
    _exit(0);
  }
  for (int i = 0; i < 1000 && host_.files().Read(policy) != "offline"; ++i) usleep(10'000);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  ASSERT_EQ(host_.files().Read(policy), "offline");
  host_.Put("proc/sys/kernel/random/boot_id", "boot-2\n");
  const std::string text = host_.files().Read(word).value_or("") + "\n";
  RestoreAutoOnline(host_.files());
  EXPECT_EQ(host_.files().Read(policy), "offline");  // Of another boot.
  EXPECT_FALSE(host_.files().Exists(word));
  host_.Put("proc/sys/kernel/random/boot_id", "boot-1\n");
  host_.Put(word, text);
  RestoreAutoOnline(host_.files());
  EXPECT_EQ(host_.files().Read(policy), "online");
  EXPECT_FALSE(host_.files().Exists(word));
}

TEST_F(DaxDriverTest, WordOfAutoOnlineGoesWithTheBind) {
  host_.Put("proc/sys/kernel/random/boot_id", "boot-1\n");
  host_.Put("sys/bus/dax/drivers/kmem/bind", "");
  host_.Folder("sys/bus/dax/devices/dax0.0");
  host_.Put("sys/devices/system/memory/auto_online_blocks", "online\n");
  host_.Folder("run/cxlpool");
  (void)BindDaxDriver(host_.files(), "dax0.0", DaxDriver::kKmem);
  EXPECT_FALSE(host_.files().Exists("run/cxlpool/auto-online"));
  EXPECT_EQ(host_.files().Read("sys/devices/system/memory/auto_online_blocks"), "online");
}

TEST_F(DaxDriverTest, AutoOnlineStaysAsItIsWhereThatCannotBeNoted) {
  host_.Put("proc/sys/kernel/random/boot_id", "boot-1\n");
  host_.Put("sys/bus/dax/drivers/kmem/bind", "");
  host_.Folder("sys/bus/dax/devices/dax0.0");
  host_.Put("sys/devices/system/memory/auto_online_blocks", "online\n");
  host_.Put("run/cxlpool", "no folder, so that nothing can be written there");
  const absl::Status status = BindDaxDriver(host_.files(), "dax0.0", DaxDriver::kKmem);
  EXPECT_EQ(ReasonOf(status), "RUN_FILE");
  EXPECT_THAT(std::string(status.message()),
              testing::HasSubstr("/run/cxlpool/auto-online cannot be written"));
  EXPECT_EQ(host_.files().Read("sys/devices/system/memory/auto_online_blocks"), "online");
  EXPECT_EQ(host_.files().Read("sys/bus/dax/drivers/kmem/bind"), "");
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

// As Linux does: kmem lets go of the device whatever becomes of the memory.
TEST_F(DaxDriverTest, UnbindTellsOfABlockThatCameOnlineMeanwhile) {
  Bound("kmem");
  host_.Put("sys/devices/system/memory/block_size_bytes", "8000000");
  host_.Put("sys/devices/system/memory/memory8/state", "offline");
  host_.Put("sys/devices/system/memory/memory9/state", "offline");
  bool somebody_is_quicker = true;
  const HostFiles files(host_.Path(""), [&](const std::string& path, absl::string_view) {
    EXPECT_EQ(path, "sys/bus/dax/drivers/kmem/unbind");
    std::filesystem::remove(host_.Path("sys/bus/dax/devices/dax0.0/driver"));
    if (somebody_is_quicker) host_.Put("sys/devices/system/memory/memory9/state", "online");
    return 0;
  });
  const absl::Status status = UnbindDaxDriver(files, dax_);
  EXPECT_EQ(ReasonOf(status), "BLOCKS_BUSY");
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("1 of 2 memory blocks of dax0.0"));
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("(reboot the host)"));

  somebody_is_quicker = false;
  host_.Put("sys/devices/system/memory/memory9/state", "offline");
  Bound("kmem");
  EXPECT_EQ(UnbindDaxDriver(files, dax_), absl::OkStatus());
}

TEST_F(DaxDriverTest, UnboundAlreadyIsFine) {
  host_.Folder("sys/bus/dax/devices/dax0.0");
  EXPECT_TRUE(UnbindDaxDriver(host_.files(), dax_).ok());
}

}  // namespace
}  // namespace cxlpool::agent
