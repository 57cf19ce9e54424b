#include "fabric-manager/adapters/fabric_emulated/extent_files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csetjmp>
#include <csignal>
#include <filesystem>
#include <fstream>

#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

constexpr uint64_t kLength = 4 << 20;
constexpr char kName[] = "0f0e0d0c-0b0a-4908-8706-050403020100.0";

sigjmp_buf bus_error_jump;

// Whether a load of `address` ends in SIGBUS.
bool LoadFaults(const volatile char* address) {
  struct sigaction action = {}, former = {};
  action.sa_handler = [](int) { siglongjmp(bus_error_jump, 1); };
  sigaction(SIGBUS, &action, &former);
  volatile bool faults = true;  // Survives the jump.
  if (sigsetjmp(bus_error_jump, 1) == 0) {
    [[maybe_unused]] const char byte = *address;
    faults = false;
  }
  sigaction(SIGBUS, &former, nullptr);
  return faults;
}

class ExtentFilesTest : public ::testing::Test {
 protected:
  ExtentFilesTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "cxlpool-XXXXXX").string();
    root_ = ::mkdtemp(pattern.data());
  }
  ~ExtentFilesTest() override { std::filesystem::remove_all(root_); }

  ExtentFiles Open() {
    auto files = ExtentFiles::Open(root_ + "/extents");
    EXPECT_TRUE(files.ok()) << files.status();
    return std::move(*files);
  }

  char* Map(const std::string& path) {
    const UniqueFd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    void* map = ::mmap(nullptr, kLength, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    EXPECT_NE(map, MAP_FAILED);
    return static_cast<char*>(map);
  }

  static void Swap(ExtentFiles& files, uint64_t step_bytes) {
    auto swap = files.BeginSwap(kName);
    ASSERT_TRUE(swap.ok()) << swap.status();
    ASSERT_NE(*swap, nullptr);
    for (int steps = 0; steps < 100; ++steps) {
      auto done = (*swap)->Step(step_bytes);
      ASSERT_TRUE(done.ok()) << done.status();
      if (*done) return;
    }
    FAIL() << "the swap does not end";
  }

  std::string root_;
};

TEST_F(ExtentFilesTest, EnsureMakesASparsePrivateFileOfFullLength) {
  ExtentFiles files = Open();
  ASSERT_TRUE(files.Ensure(kName, kLength, ::geteuid(), false).ok());
  struct stat info;
  ASSERT_EQ(::stat(files.Path(kName).c_str(), &info), 0);
  EXPECT_EQ(static_cast<uint64_t>(info.st_size), kLength);
  EXPECT_EQ(info.st_mode & 07777, 0600u);
  EXPECT_EQ(info.st_blocks, 0);
  EXPECT_TRUE(files.Exists(kName, kLength));
}

TEST_F(ExtentFilesTest, EnsureKeepsTheBytes) {
  ExtentFiles files = Open();
  ASSERT_TRUE(files.Ensure(kName, kLength, ::geteuid(), false).ok());
  char* map = Map(files.Path(kName));
  map[12345] = 'x';
  ASSERT_TRUE(files.Ensure(kName, kLength, ::geteuid(), false).ok());
  EXPECT_EQ(map[12345], 'x');
  ::munmap(map, kLength);
}

TEST_F(ExtentFilesTest, EnsureRefusesAnotherLength) {
  ExtentFiles files = Open();
  ASSERT_TRUE(files.Ensure(kName, kLength, ::geteuid(), false).ok());
  EXPECT_EQ(ReasonOf(files.Ensure(kName, 2 * kLength, ::geteuid(), false)), "EXTENT_LENGTH");
}

TEST_F(ExtentFilesTest, EnsureFollowsNoSymbolicLink) {
  ExtentFiles files = Open();
  std::ofstream(root_ + "/victim") << "precious";
  std::filesystem::create_symlink(root_ + "/victim", files.Path(kName));
  EXPECT_FALSE(files.Ensure(kName, kLength, ::geteuid(), false).ok());
  EXPECT_FALSE(files.Scrub(kName).ok());
  EXPECT_EQ(std::filesystem::file_size(root_ + "/victim"), 8u);
}

TEST_F(ExtentFilesTest, EnsureFinishesWhatACrashCutOff) {
  ExtentFiles files = Open();
  std::ofstream(files.Path(kName)).flush();
  ASSERT_TRUE(files.Ensure(kName, kLength, ::geteuid(), false).ok());
  EXPECT_TRUE(files.Exists(kName, kLength));
}

TEST_F(ExtentFilesTest, OwnerChangesOnlyWhileNobodyElseHasItBound) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  ExtentFiles files = Open();
  ASSERT_TRUE(files.Ensure(kName, kLength, 12345, false).ok());
  EXPECT_EQ(ReasonOf(files.Ensure(kName, kLength, 12346, true)), "EXTENT_OWNER");
  ASSERT_TRUE(files.Ensure(kName, kLength, 12346, false).ok());
  struct stat info;
  ASSERT_EQ(::stat(files.Path(kName).c_str(), &info), 0);
  EXPECT_EQ(info.st_uid, 12346u);
}

TEST_F(ExtentFilesTest, ScrubLeavesAStaleMapNothingButSigbus) {
  ExtentFiles files = Open();
  ASSERT_TRUE(files.Ensure(kName, kLength, ::geteuid(), false).ok());
  char* map = Map(files.Path(kName));
  map[0] = 's';
  ASSERT_TRUE(files.Scrub(kName).ok());
  EXPECT_FALSE(std::filesystem::exists(files.Path(kName)));
  EXPECT_TRUE(LoadFaults(map));
  ::munmap(map, kLength);
}

TEST_F(ExtentFilesTest, ScrubOfNothingIsDone) {
  ExtentFiles files = Open();
  EXPECT_TRUE(files.Scrub(kName).ok());
}

TEST_F(ExtentFilesTest, SwapKeepsBytesAndHolesAndCutsOffStaleMaps) {
  ExtentFiles files = Open();
  ASSERT_TRUE(files.Ensure(kName, kLength, ::geteuid(), false).ok());
  char* stale = Map(files.Path(kName));
  stale[5] = 'a';
  stale[kLength - 1] = 'z';
  Swap(files, 256 << 10);
  EXPECT_TRUE(LoadFaults(stale));
  char* fresh = Map(files.Path(kName));
  EXPECT_EQ(fresh[5], 'a');
  EXPECT_EQ(fresh[kLength - 1], 'z');
  struct stat info;
  ASSERT_EQ(::stat(files.Path(kName).c_str(), &info), 0);
  EXPECT_LT(static_cast<uint64_t>(info.st_blocks) * 512, kLength / 2);
  ::munmap(stale, kLength);
  ::munmap(fresh, kLength);
}

TEST_F(ExtentFilesTest, SwapOfNothingIsNull) {
  ExtentFiles files = Open();
  auto swap = files.BeginSwap(kName);
  ASSERT_TRUE(swap.ok());
  EXPECT_EQ(*swap, nullptr);
}

TEST_F(ExtentFilesTest, OpenFinishesASwapCutOffAfterTheRename) {
  char* stale = nullptr;
  {
    ExtentFiles files = Open();
    ASSERT_TRUE(files.Ensure(kName, kLength, ::geteuid(), false).ok());
    stale = Map(files.Path(kName));
    stale[7] = 'q';
    std::filesystem::rename(files.Path(kName), files.Path(std::string(".fenced-") + kName));
    ASSERT_TRUE(files.Ensure(kName, kLength, ::geteuid(), false).ok());
  }
  ExtentFiles files = Open();
  EXPECT_TRUE(LoadFaults(stale));
  EXPECT_TRUE(files.Exists(kName, kLength));
  EXPECT_FALSE(std::filesystem::exists(files.Path(std::string(".fenced-") + kName)));
  ::munmap(stale, kLength);
}

TEST_F(ExtentFilesTest, OpenUndoesASwapCutOffBeforeTheRename) {
  {
    ExtentFiles files = Open();
    ASSERT_TRUE(files.Ensure(kName, kLength, ::geteuid(), false).ok());
    char* map = Map(files.Path(kName));
    map[7] = 'q';
    ::munmap(map, kLength);
    std::filesystem::create_hard_link(files.Path(kName),
                                      files.Path(std::string(".fenced-") + kName));
    std::ofstream(files.Path(std::string(".copy-") + kName)) << "half";
  }
  ExtentFiles files = Open();
  char* map = Map(files.Path(kName));
  EXPECT_EQ(map[7], 'q');
  ::munmap(map, kLength);
  int left = 0;
  for ([[maybe_unused]] const auto& e : std::filesystem::directory_iterator(root_ + "/extents")) {
    ++left;
  }
  EXPECT_EQ(left, 1);
}

// A swap that fails half-way, or whose fence is given up, leaves its copy; a crash also the old
// file. Nobody opens the directory anew in between.
TEST_F(ExtentFilesTest, ScrubTakesAlongWhatASwapHasLeft) {
  ExtentFiles files = Open();
  for (const bool renamed : {false, true}) {
    ASSERT_TRUE(files.Ensure(kName, kLength, ::geteuid(), false).ok());
    char* map = Map(files.Path(kName));
    std::fill(map, map + kLength, 'q');
    if (renamed) {
      std::filesystem::rename(files.Path(kName), files.Path(std::string(".fenced-") + kName));
      ASSERT_TRUE(files.Ensure(kName, kLength, ::geteuid(), false).ok());
    } else {
      auto swap = files.BeginSwap(kName);
      ASSERT_TRUE(swap.ok()) << swap.status();
      const auto done = (*swap)->Step(kLength / 2);
      ASSERT_TRUE(done.ok()) << done.status();
      ASSERT_FALSE(*done);
      ASSERT_TRUE(std::filesystem::exists(files.Path(std::string(".copy-") + kName)));
    }
    EXPECT_TRUE(files.Scrub(kName).ok());
    EXPECT_TRUE(std::filesystem::is_empty(root_ + "/extents")) << renamed;
    EXPECT_TRUE(LoadFaults(map)) << renamed;
    ::munmap(map, kLength);
  }
}

}  // namespace
}  // namespace cxlpool::fm
