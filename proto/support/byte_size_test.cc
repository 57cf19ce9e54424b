#include "proto/support/byte_size.h"

#include <gtest/gtest.h>

#include <limits>

#include "proto/support/refusal.h"

namespace cxlpool {
namespace {

TEST(ParseByteSizeTest, PowersOf1024) {
  EXPECT_EQ(ParseByteSize("512MiB").value(), 512ull << 20);
  EXPECT_EQ(ParseByteSize("1.5GiB").value(), 3ull << 29);
  EXPECT_EQ(ParseByteSize("1.3GiB").value(), 1395864372u);  // Rounded up to a whole byte.
  EXPECT_EQ(ParseByteSize(" 4G ").value(), 4ull << 30);
  EXPECT_EQ(ParseByteSize("4 gb").value(), 4ull << 30);
  EXPECT_EQ(ParseByteSize("268435456").value(), 256ull << 20);
  EXPECT_EQ(ParseByteSize("0").value(), 0u);
}

TEST(ParseByteSizeTest, RefusesWhatIsNotWholeBytes) {
  for (const char* text : {"", "G", "-1", "1X", "1.3B", "1GiBs", "99999999999T", "1e3", "0x10"}) {
    EXPECT_EQ(ReasonOf(ParseByteSize(text).status()), "BAD_SIZE") << text;
  }
}

TEST(FormatByteSizeTest, AlwaysInTheLargestUnitThatItHasOneOf) {
  constexpr uint64_t kMiB = uint64_t{1} << 20;
  constexpr uint64_t kGiB = uint64_t{1} << 30;
  EXPECT_EQ(FormatByteSize(0), "0 B");
  EXPECT_EQ(FormatByteSize(1), "1 B");
  EXPECT_EQ(FormatByteSize(1000), "1000 B");
  EXPECT_EQ(FormatByteSize(1024), "1 KiB");
  EXPECT_EQ(FormatByteSize(1536), "1.5 KiB");
  EXPECT_EQ(FormatByteSize(512 * kMiB), "512 MiB");
  EXPECT_EQ(FormatByteSize(1152 * kMiB), "1.125 GiB");
  EXPECT_EQ(FormatByteSize(5888 * kMiB), "5.75 GiB");
  EXPECT_EQ(FormatByteSize(2048 * kGiB), "2 TiB");
  EXPECT_EQ(FormatByteSize(17536 * kGiB), "17.125 TiB");
  EXPECT_EQ(FormatByteSize(48000 * kGiB), "46.875 TiB");
}

TEST(FormatByteSizeTest, MarksWhatIsNotExact) {
  constexpr uint64_t kGiB = uint64_t{1} << 30;
  EXPECT_EQ(FormatByteSize(500'000'000), "~476.837 MiB");
  EXPECT_EQ(FormatByteSize(kGiB + 1), "~1 GiB");
  EXPECT_EQ(FormatByteSize(kGiB - 1), "~1024 MiB");
  EXPECT_EQ(FormatByteSize(1'000'000'000'000'000), "~909.495 TiB");
  EXPECT_EQ(FormatByteSize(std::numeric_limits<uint64_t>::max()), "~16384 PiB");
}

TEST(FormatByteSizeTest, WhatIsExactIsReadBack) {
  for (uint64_t bytes : {uint64_t{1}, uint64_t{1000}, uint64_t{3} << 29, uint64_t{137} << 37}) {
    EXPECT_EQ(ParseByteSize(FormatByteSize(bytes)).value(), bytes);
  }
}

}  // namespace
}  // namespace cxlpool
