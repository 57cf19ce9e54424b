#include "fabric-manager/adapters/fabric_qemu/pool_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

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
  ~PoolFileTest() override {
    ::munmap(map_, 3 * kSlice);
    std::filesystem::remove_all(directory_);
  }

  std::string directory_, path_;
  UniqueFd fd_;
  char* map_;
};

TEST_F(PoolFileTest, EveryByteOfTheSliceAndNoOtherIsCleared) {
  auto scrub = PoolScrub::Begin(path_, kSlice, kSlice);
  ASSERT_TRUE(scrub.ok()) << scrub.status();
  int steps = 0;
  while (true) {
    auto done = scrub->Step(kStep);
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
  auto scrub = PoolScrub::Begin(path_, kSlice, kSlice);
  ASSERT_TRUE(scrub.ok()) << scrub.status();
  auto cleared = scrub->Step(kSlice);
  ASSERT_TRUE(cleared.ok()) << cleared.status();
  ASSERT_FALSE(*cleared);
  map_[2 * kSlice - 1] = 'x';  // By whoever still has it mapped.
  auto done = scrub->Step(kSlice);
  EXPECT_EQ(ReasonOf(done.status()), "SCRUB_FAILED") << done.status();
  auto again = PoolScrub::Begin(path_, kSlice, kSlice);
  ASSERT_TRUE(again.ok());
  ASSERT_FALSE(*again->Step(kSlice));
  EXPECT_TRUE(*again->Step(kSlice));
}

TEST_F(PoolFileTest, SliceOutsideOfTheFileIsRefused) {
  EXPECT_FALSE(PoolScrub::Begin(path_, 3 * kSlice, kSlice).ok());
  EXPECT_FALSE(PoolScrub::Begin(path_, 2 * kSlice, 2 * kSlice).ok());
  EXPECT_FALSE(PoolScrub::Begin(path_, UINT64_MAX, 2).ok());
  EXPECT_FALSE(PoolScrub::Begin(directory_ + "/absent", 0, kSlice).ok());
  EXPECT_FALSE(PoolScrub::Begin(directory_, 0, 0).ok());
}

}  // namespace
}  // namespace cxlpool::fm
