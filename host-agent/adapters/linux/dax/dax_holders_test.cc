#include "host-agent/adapters/linux/dax/dax_holders.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/support/process_stat.h"
#include "proto/support/refusal.h"
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

// Which takes no right to the device: anybody could keep others' memory from being released.
TEST(DaxHoldersTest, WhoHasOnlyItsPathOpenIsNoHolder) {
  const UniqueFd path(open("/dev/full", O_PATH | O_CLOEXEC));
  ASSERT_TRUE(path.valid());
  EXPECT_THAT(Find(0), Not(Contains(getpid())));
  const UniqueFd written(open("/dev/full", O_WRONLY | O_CLOEXEC));
  EXPECT_THAT(Find(0), Contains(getpid()));
}

// Likewise. The file's name counts only where the kernel does not show what it is.
TEST(DaxHoldersTest, WhoMapsAFileOfThatNameIsNoHolder) {
  FakeHost host;
  const std::string maps = "0001f000-00020000 rw-s 00000000 00:07 131    /tmp/full\n";
  for (const char* process : {"proc/41", "proc/42", "proc/43", "proc/44/task/45"}) {
    host.Put(absl::StrCat(process, "/maps"), maps);
  }
  host.Link("proc/41/map_files/1f000-20000", "proc/41/maps");
  host.Link("proc/45/map_files/1f000-20000", "proc/41/maps");
  host.Folder("proc/42/map_files");
  std::filesystem::create_symlink("/dev/full", host.Path("proc/42/map_files/1f000-20000"));
  const auto holders = FindDeviceHolders(host.files(), kFull, 1, Deadline::In(absl::Seconds(60)));
  ASSERT_TRUE(holders.ok()) << holders.status();
  EXPECT_THAT(PidsOf(*holders), ElementsAre(42, 43));
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

absl::StatusOr<std::vector<ProcessId>> FindIn(const FakeHost& host) {
  return FindDeviceHolders(host.files(), {"dax0.0", makedev(252, 0)}, 1,
                           Deadline::In(absl::Seconds(60)));
}

// As many mappings as a process may have, and then one of the DAX device: more than 4 MiB of text.
void PutManyMappings(const FakeHost& host, int pid) {
  std::string maps;
  for (int i = 0; i < 65530; ++i) {
    absl::StrAppend(&maps, "7f0000000000-7f0000001000 r--p 00000000 00:06 200    /usr/lib/lib", i,
                    ".so\n");
  }
  ASSERT_GT(maps.size(), HostFiles::kMaxBytes);
  host.Put(absl::StrCat("proc/", pid, "/maps"),
           maps + "7ff0-7ff1 rw-s 00000000 00:06 131    /dev/dax0.0\n");
}

TEST(DaxHoldersTest, SeesAMappingBehindVeryManyOthers) {
  FakeHost host;
  PutManyMappings(host, 41);
  const auto holders = FindIn(host);
  ASSERT_TRUE(holders.ok()) << holders.status();
  EXPECT_THAT(PidsOf(*holders), ElementsAre(41));
}

TEST(DaxHoldersTest, SeesAMappingOfAFileWithAVeryLongName) {
  FakeHost host;
  const std::string deep(100'000, 'd');
  host.Put("proc/41/maps", "1-2 r--p 0 00:07 1 /" + deep + "\n1-2 rw-s 0 00:07 2 /" + deep +
                               "/dax0.0\n3-4 r--p 0 00:07 3 /lib");
  host.Put("proc/42/maps", "1-2 r--p 0 00:07 1 /dax0.0/" + deep + "\n");
  const auto holders = FindIn(host);
  ASSERT_TRUE(holders.ok()) << holders.status();
  EXPECT_THAT(PidsOf(*holders), ElementsAre(41));
}

TEST(DaxHoldersTest, SeesWhatOtherThreadsHaveWhenTheMainThreadHasEnded) {
  FakeHost host;
  // The kernel shows nothing of a thread that has ended.
  for (const char* folder : {"proc/41", "proc/41/task/41", "proc/51", "proc/51/task/51"}) {
    host.Put(absl::StrCat(folder, "/maps"), "");
    host.Folder(absl::StrCat(folder, "/fd"));
  }
  host.Put("proc/41/task/43/maps", "7f00-7f20 rw-s 00000000 00:06 131    /dev/dax0.0\n");
  host.Put("proc/51/task/53/maps", "7f00-7f20 rw-s 00000000 00:06 7    /usr/lib/libc.so\n");
  host.Folder("proc/51/task/53/fd");
  const auto mapped = FindIn(host);
  ASSERT_TRUE(mapped.ok()) << mapped.status();
  EXPECT_THAT(PidsOf(*mapped), ElementsAre(41));
  std::filesystem::create_symlink("/dev/full", host.Path("proc/51/task/53/fd/3"));
  const auto opened = FindDeviceHolders(host.files(), kFull, 1, Deadline::In(absl::Seconds(60)));
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_THAT(PidsOf(*opened), ElementsAre(51));
}

// They have one memory: what the second shows here, no kernel would.
TEST(DaxHoldersTest, LooksAtOneThreadThatHasMemory) {
  FakeHost host;
  host.Put("proc/41/maps", "");
  host.Put("proc/41/task/42/maps", "");  // It is ending.
  host.Put("proc/41/task/43/maps", "7f00-7f20 rw-s 00000000 00:06 7    /usr/lib/libc.so\n");
  host.Put("proc/41/task/44/maps", "7f00-7f20 rw-s 00000000 00:06 131    /dev/dax0.0\n");
  const auto holders = FindIn(host);
  ASSERT_TRUE(holders.ok()) << holders.status();
  EXPECT_THAT(PidsOf(*holders), ElementsAre());
}

TEST(DaxHoldersTest, WhatCannotBeReadIsNotTakenForFree) {
  for (const char* place : {"maps", "fd", "task"}) {
    FakeHost host;
    // A folder in the place of a file, and a file in that of a folder, cannot be read.
    if (std::string(place) == "maps") {
      host.Folder("proc/41/maps");
    } else {
      host.Put(absl::StrCat("proc/41/", place), "");
    }
    const absl::Status status = FindIn(host).status();
    EXPECT_EQ(ReasonOf(status), "HOLDERS_UNKNOWN") << place;
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    EXPECT_THAT(std::string(status.message()),
                testing::HasSubstr(absl::StrCat("/proc/41/", place, " cannot be read")));
    // Who is seen to hold it is answer enough.
    host.Put("proc/42/maps", "7f00-7f20 rw-s 00000000 00:06 131    /dev/dax0.0\n");
    const auto holders = FindIn(host);
    ASSERT_TRUE(holders.ok()) << holders.status();
    EXPECT_THAT(PidsOf(*holders), ElementsAre(42));
  }
  EXPECT_EQ(ReasonOf(FindIn(FakeHost()).status()), "HOLDERS_UNKNOWN");  // No /proc at all.
}

// The kernel does not say where such a file is. What it is can be seen all the same.
TEST(DaxHoldersTest, AFileWithAPathThatIsTooLongKeepsNothing) {
  FakeHost host;
  host.Folder("proc/41");
  std::filesystem::create_directory_symlink("/proc/self/fd", host.Path("proc/41/fd"));
  host.Folder("deep");
  const std::string name(200, 'd');
  UniqueFd folder(open(host.Path("deep").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  for (int i = 0; i < 25; ++i) {
    ASSERT_EQ(mkdirat(folder.get(), name.c_str(), 0700), 0);
    folder = UniqueFd(openat(folder.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    ASSERT_TRUE(folder.valid());
  }
  const auto holders = FindIn(host);
  EXPECT_TRUE(holders.ok()) << holders.status();
  const UniqueFd full(open("/dev/full", O_RDONLY | O_CLOEXEC));
  const auto found = FindDeviceHolders(host.files(), kFull, 1, Deadline::In(absl::Seconds(60)));
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_THAT(PidsOf(*found), ElementsAre(41));
}

TEST(DaxHoldersTest, AProcessThatHasEndedHoldsNothing) {
  FakeHost host;
  host.Folder("proc/41");
  const auto holders = FindIn(host);
  ASSERT_TRUE(holders.ok()) << holders.status();
  EXPECT_TRUE(holders->empty());
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

TEST(DaxHoldersTest, KeepsToItsDeadlineWithinOneProcess) {
  FakeHost host;
  PutManyMappings(host, 41);
  const auto holders =
      FindDeviceHolders(host.files(), {"dax1.0", 0}, 1, Deadline::In(absl::Milliseconds(1)));
  EXPECT_EQ(holders.status().code(), absl::StatusCode::kDeadlineExceeded);
}

}  // namespace
}  // namespace cxlpool::agent
