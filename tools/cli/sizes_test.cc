#include "tools/cli/sizes.h"

#include <gtest/gtest.h>

#include <limits>

namespace cxlpool::cli {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kGiB = uint64_t{1} << 30;

TEST(SizesTest, ShowsExactlyInTheLargestUnit) {
  EXPECT_EQ(FormatSize(0), "0 B");
  EXPECT_EQ(FormatSize(1), "1 B");
  EXPECT_EQ(FormatSize(1000), "1000 B");
  EXPECT_EQ(FormatSize(1024), "1 KiB");
  EXPECT_EQ(FormatSize(1536), "1.5 KiB");
  EXPECT_EQ(FormatSize(512 * kMiB), "512 MiB");
  EXPECT_EQ(FormatSize(1280 * kMiB), "1.25 GiB");
  EXPECT_EQ(FormatSize(1792 * kMiB), "1.75 GiB");
  EXPECT_EQ(FormatSize(1152 * kMiB), "1152 MiB");
  EXPECT_EQ(FormatSize(4 * kGiB), "4 GiB");
  EXPECT_EQ(FormatSize(2048 * kGiB), "2 TiB");
  EXPECT_EQ(FormatSize(500'000'000), "500000000 B");
  EXPECT_EQ(FormatSize(kGiB + 1), "1073741825 B");
  EXPECT_EQ(FormatSize(std::numeric_limits<uint64_t>::max()), "18446744073709551615 B");
}

}  // namespace
}  // namespace cxlpool::cli
