#include "cxlpool/numa.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>

#include "cxlpool/error.h"

namespace cxlpool {
namespace {

constexpr size_t kBytes = 64 * 4096;

class NumaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    address_ = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(address_, MAP_FAILED);
    const absl::Status status = BindToNode(address_, kBytes, 0);
    if (absl::IsUnimplemented(status) || absl::IsPermissionDenied(status)) {
      GTEST_SKIP() << "no NUMA calls here: " << status;
    }
    ASSERT_TRUE(status.ok()) << status;
  }
  void TearDown() override { ::munmap(address_, kBytes); }

  void* address_ = nullptr;
};

TEST_F(NumaTest, PagesComeFromTheNode) {
  auto counts = CountPagesByNode(address_, kBytes);
  ASSERT_TRUE(counts.ok()) << counts.status();
  EXPECT_EQ((*counts)[kNotPresent], 64u);
  std::memset(address_, 1, kBytes / 2);
  counts = CountPagesByNode(address_, kBytes);
  ASSERT_TRUE(counts.ok());
  EXPECT_EQ((*counts)[0], 32u);
  EXPECT_EQ((*counts)[kNotPresent], 32u);
}

TEST_F(NumaTest, RefusesNodesThatAreNotThere) {
  for (int node : {-1, 900, 1023, 1024, 1 << 30}) {
    const absl::Status status = BindToNode(address_, kBytes, node);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_EQ(ErrorReason(status), "BAD_ARGUMENT");
  }
}

TEST_F(NumaTest, RefusesRangesThatCannotBe) {
  EXPECT_EQ(ErrorReason(BindToNode(address_, 0, 0)), "BAD_ARGUMENT");
  EXPECT_EQ(ErrorReason(BindToNode(static_cast<char*>(address_) + 1, 4096, 0)), "BAD_ARGUMENT");
  EXPECT_EQ(ErrorReason(CountPagesByNode(address_, 0).status()), "BAD_ARGUMENT");
}

}  // namespace
}  // namespace cxlpool
