#include "fabric-manager/adapters/fabric_qemu/pool_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

constexpr uint64_t kSlice = 8 << 20;
constexpr uint64_t kStep = 3 << 20;  // Does not divide the slice.

class PoolFileTest : public ::testing::Test {
 protected:
  PoolFileTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "cxlpool-XXXXXX").string();
    directory_ = ::mkdtemp(pattern.data());
    path_ = directory_ + "/pool";
    fd_ = UniqueFd(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    EXPECT_EQ(::ftruncate(fd_.get(), 3 * kSlice), 0);
    map_ = static_cast<char*>(
        ::mmap(nullptr, 3 * kSlice, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0));
    std::fill(map_, map_ + 3 * kSlice, 's');
  }
  PoolFile Open() {
    auto file = PoolFile::Open(path_, 3 * kSlice);
    EXPECT_TRUE(file.ok()) << file.status();
    return *std::move(file);
  }

  ~PoolFileTest() override {
    ::munmap(map_, 3 * kSlice);
    std::filesystem::remove_all(directory_);
  }

  std::string directory_, path_;
  UniqueFd fd_;
  char* map_;
};

TEST_F(PoolFileTest, EveryByteOfTheSliceAndNoOtherIsCleared) {
  const PoolFile file = Open();
  PoolScrub scrub(file, kSlice, kSlice);
  int steps = 0;
  while (true) {
    auto done = scrub.Step(kStep);
    ASSERT_TRUE(done.ok()) << done.status();
    ASSERT_LT(++steps, 20);
    if (*done) break;
  }
  EXPECT_EQ(steps, 6) << "three to clear, three to check";
  for (uint64_t i = 0; i < 3 * kSlice; ++i) {
    const bool inside = i >= kSlice && i < 2 * kSlice;
    ASSERT_EQ(map_[i], inside ? '\0' : 's') << i;
  }
  struct stat info;
  ASSERT_EQ(::fstat(fd_.get(), &info), 0);
  EXPECT_EQ(static_cast<uint64_t>(info.st_size), 3 * kSlice);
}

TEST_F(PoolFileTest, ByteWrittenMeanwhileFailsTheScrub) {
  const PoolFile file = Open();
  PoolScrub scrub(file, kSlice, kSlice);
  auto cleared = scrub.Step(kSlice);
  ASSERT_TRUE(cleared.ok()) << cleared.status();
  ASSERT_FALSE(*cleared);
  map_[2 * kSlice - 1] = 'x';  // By a process that still has it mapped.
  auto done = scrub.Step(kSlice);
  EXPECT_EQ(ReasonOf(done.status()), "SCRUB_FAILED") << done.status();
  PoolScrub again(file, kSlice, kSlice);
  ASSERT_FALSE(*again.Step(kSlice));
  EXPECT_TRUE(*again.Step(kSlice));
}

TEST_F(PoolFileTest, WhatIsNoFileOfThatSizeIsRefused) {
  EXPECT_EQ(ReasonOf(PoolFile::Open(path_, 3 * kSlice + 1).status()), "BAD_POOL_FILE");
  EXPECT_EQ(ReasonOf(PoolFile::Open(directory_ + "/absent", kSlice).status()), "BAD_POOL_FILE");
  EXPECT_EQ(ReasonOf(PoolFile::Open(directory_, 0).status()), "BAD_POOL_FILE");
  std::ofstream(path_ + ".id") << "no uuid";
  EXPECT_EQ(ReasonOf(PoolFile::Open(path_, kSlice).status()), "BAD_POOL_FILE");
}

TEST_F(PoolFileTest, HolesAreNoBytes) {
  EXPECT_TRUE(*Open().HasBytes());
  std::fill(map_, map_ + 3 * kSlice, '\0');
  EXPECT_FALSE(*Open().HasBytes()) << "zeroes that were written are none either";
  map_[3 * kSlice - 1] = 'x';
  EXPECT_TRUE(*Open().HasBytes());
}

}  // namespace
}  // namespace cxlpool::fm
