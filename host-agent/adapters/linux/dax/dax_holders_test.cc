#include "host-agent/adapters/linux/dax/dax_holders.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/support/process_stat.h"
#include "proto/support/unique_fd.h"
#include "test/rigs/fake_host_for_test.h"

namespace cxlpool::agent {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::Not;

// /dev/full stands for a DAX device: few open it.
const CharDevice kFull{"full", makedev(1, 7)};

std::vector<int> PidsOf(const std::vector<ProcessId>& holders) {
  std::vector<int> pids;
  for (const ProcessId& holder : holders) pids.push_back(static_cast<int>(holder.pid));
  return pids;
}

std::vector<int> Find(int self) {
  const auto holders = FindDeviceHolders(HostFiles(), kFull, self, Deadline::In(absl::Seconds(60)));
  return holders.ok() ? PidsOf(*holders) : std::vector<int>();
}

TEST(DaxHoldersTest, SeesAnOpenDescriptorAndLeavesSelfOut) {
  UniqueFd fd(open("/dev/full", O_RDONLY | O_CLOEXEC));
  ASSERT_TRUE(fd.valid());
  EXPECT_THAT(Find(0), Contains(getpid()));
  EXPECT_THAT(Find(getpid()), Not(Contains(getpid())));
  fd.Reset();
  EXPECT_THAT(Find(0), Not(Contains(getpid())));
}

TEST(DaxHoldersTest, TellsWhenAHolderStarted) {
  UniqueFd fd(open("/dev/full", O_RDONLY | O_CLOEXEC));
  const auto holders = FindDeviceHolders(HostFiles(), kFull, 0, Deadline::In(absl::Seconds(60)));
  ASSERT_TRUE(holders.ok()) << holders.status();
  const auto self = static_cast<uint32_t>(getpid());
  EXPECT_THAT(*holders, Contains(ProcessId{self, StartTicksOf(self)}));
}

TEST(DaxHoldersTest, SeesAMappingWhoseDescriptorIsClosed) {
  FakeHost host;
  host.Put("proc/41/maps", "7f00-7f20 rw-s 00000000 00:06 131    /dev/dax0.0\n");
  host.Put("proc/42/maps", "7f00-7f20 rw-s 00000000 00:06 132    /dev/dax1.0\n");
  host.Put("proc/self/maps", "7f00-7f20 rw-s 00000000 00:06 131    /dev/dax0.0\n");
  const auto holders = FindDeviceHolders(host.files(), {"dax0.0", makedev(252, 0)}, 1,
                                         Deadline::In(absl::Seconds(60)));
  ASSERT_TRUE(holders.ok()) << holders.status();
  EXPECT_THAT(PidsOf(*holders), ElementsAre(41));
}

TEST(DaxHoldersTest, NamesTheLowestThirtyTwo) {
  FakeHost host;
  for (int pid = 100; pid < 140; ++pid) {
    host.Put("proc/" + std::to_string(pid) + "/maps", "1-2 rw-s 0 00:06 131 /dev/dax0.0\n");
  }
  const auto holders = FindDeviceHolders(host.files(), {"dax0.0", makedev(252, 0)}, 1,
                                         Deadline::In(absl::Seconds(60)));
  ASSERT_TRUE(holders.ok()) << holders.status();
  ASSERT_EQ(holders->size(), kMaxHolders);
  EXPECT_EQ(holders->front().pid, 100u);
  EXPECT_EQ(holders->back().pid, 131u);
}

TEST(DaxHoldersTest, TheDriverCountsItsUsers) {
  FakeHost host;
  EXPECT_FALSE(NoDaxDeviceIsOpen(host.files()));  // Built in: nobody knows.
  host.Put("sys/module/device_dax/refcnt", "1\n");
  EXPECT_FALSE(NoDaxDeviceIsOpen(host.files()));
  host.Put("sys/module/device_dax/refcnt", "0\n");
  EXPECT_TRUE(NoDaxDeviceIsOpen(host.files()));
}

TEST(DaxHoldersTest, KeepsToItsDeadline) {
  FakeHost host;
  host.Put("proc/41/maps", "");
  const auto holders =
      FindDeviceHolders(host.files(), {"dax0.0", 0}, 1, Deadline::In(absl::ZeroDuration()));
  EXPECT_EQ(holders.status().code(), absl::StatusCode::kDeadlineExceeded);
}

}  // namespace
}  // namespace cxlpool::agent
