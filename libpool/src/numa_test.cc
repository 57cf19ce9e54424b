#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "cxlpool/pool.h"
#include "libpool/src/reason_for_test.h"

namespace cxlpool {
namespace {

constexpr size_t kBytes = 64 * 4096;

class NumaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    address_ = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(address_, MAP_FAILED);
    const Result<void> bound = BindToNode(address_, kBytes, 0);
    if (!bound.ok() && (bound.error().code == CXLPOOL_UNIMPLEMENTED ||
                        bound.error().code == CXLPOOL_PERMISSION_DENIED)) {
      GTEST_SKIP() << "no NUMA calls here: " << bound.error().text();
    }
    ASSERT_TRUE(bound.ok()) << bound.error().text();
  }
  void TearDown() override { ::munmap(address_, kBytes); }

  void* address_ = nullptr;
};

TEST_F(NumaTest, PagesComeFromTheNode) {
  EXPECT_EQ(NodesOfPages(address_, kBytes).value(), std::vector<int>(64, -1));
  std::memset(address_, 1, kBytes / 2);
  std::vector<int> half(64, -1);
  std::fill_n(half.begin(), 32, 0);
  EXPECT_EQ(NodesOfPages(address_, kBytes).value(), half);
  // A page that the range only begins counts, too.
  EXPECT_EQ(NodesOfPages(address_, kBytes / 2 + 1).value(),
            std::vector<int>(half.begin(), half.begin() + 33));
}

TEST_F(NumaTest, RefusesNodesThatAreNotThere) {
  for (int node : {-1, 900, 1023, 1024, 1 << 30}) {
    const Error status = BindToNode(address_, kBytes, node).error();
    EXPECT_EQ(status.code, CXLPOOL_INVALID_ARGUMENT) << status.text();
    EXPECT_EQ(status.reason, "BAD_ARGUMENT");
  }
}

TEST_F(NumaTest, RefusesRangesThatCannotBe) {
  EXPECT_EQ(ReasonOf(BindToNode(address_, 0, 0)), "BAD_ARGUMENT");
  EXPECT_EQ(ReasonOf(BindToNode(static_cast<char*>(address_) + 1, 4096, 0)), "BAD_ARGUMENT");
  EXPECT_EQ(ReasonOf(NodesOfPages(address_, 0)), "BAD_ARGUMENT");
}

}  // namespace
}  // namespace cxlpool
