#include "libpool/heap/aligned_ranges.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <random>

namespace cxlpool::libpool {
namespace {

constexpr uintptr_t kBegin = 0x200000;
constexpr size_t kPage = 4096;

TEST(AlignedRangesTest, TakesTheSmallestThatHasRoomAndJoinsWhatIsGivenBack) {
  AlignedRanges ranges(kBegin, 16 * kPage);
  EXPECT_TRUE(ranges.all_free());
  EXPECT_EQ(ranges.Take(17 * kPage, kPage), 0u);
  const uintptr_t a = ranges.Take(4 * kPage, kPage);
  const uintptr_t b = ranges.Take(2 * kPage, kPage);
  const uintptr_t c = ranges.Take(10 * kPage, kPage);
  EXPECT_EQ(a, kBegin);
  EXPECT_EQ(b, kBegin + 4 * kPage);
  EXPECT_EQ(c, kBegin + 6 * kPage);
  EXPECT_EQ(ranges.Take(kPage, kPage), 0u);
  EXPECT_EQ(ranges.free_bytes(), 0u);
  ranges.Give(a, 4 * kPage);
  ranges.Give(c, 10 * kPage);
  EXPECT_EQ(ranges.Take(kPage, kPage), a) << "four pages are fewer than ten";
  ranges.Give(a, kPage);
  ranges.Give(b, 2 * kPage);
  EXPECT_TRUE(ranges.all_free());
  EXPECT_EQ(ranges.Take(16 * kPage, kPage), kBegin) << "one range again";
}

TEST(AlignedRangesTest, FindsAnAlignedPlaceBehindManyThatAreNot) {
  AlignedRanges ranges(kBegin + kPage, 2048 * kPage);
  // Holes of two pages each, none of which has two pages at a multiple of 1 MiB.
  EXPECT_EQ(ranges.Take(40 * kPage, kPage), kBegin + kPage);
  for (size_t i = 0; i < 13; ++i) ranges.Give(kBegin + kPage + i * 3 * kPage, 2 * kPage);
  const uintptr_t taken = ranges.Take(2 * kPage, 1 << 20);
  EXPECT_NE(taken, 0u);
  EXPECT_EQ(taken % (1 << 20), 0u);
  EXPECT_EQ(ranges.Take(kPage, 1 << 30), 0u);
}

// Against a table of every page.
TEST(AlignedRangesTest, AnyOrderOfCallsAgreesWithAModel) {
  constexpr size_t kPages = 256;
  for (unsigned seed = 0; seed < 30; ++seed) {
    std::mt19937 random(seed);
    AlignedRanges ranges(kBegin, kPages * kPage);
    bool taken[kPages] = {};
    std::map<uintptr_t, size_t> blocks;
    for (int step = 0; step < 600; ++step) {
      if (random() % 2 == 0 || blocks.empty()) {
        const size_t pages = 1 + random() % 20;
        const size_t alignment = kPage << random() % 5;
        const uintptr_t at = ranges.Take(pages * kPage, alignment);
        if (at == 0) {
          size_t run = 0;
          for (size_t i = 0; i < kPages && alignment == kPage; ++i) {
            run = taken[i] ? 0 : run + 1;
            ASSERT_LT(run, pages) << "there was room: seed " << seed;
          }
          continue;
        }
        ASSERT_EQ(at % alignment, 0u);
        for (size_t i = 0; i < pages; ++i) {
          bool& page = taken[(at - kBegin) / kPage + i];
          ASSERT_FALSE(page) << "given twice: seed " << seed;
          page = true;
        }
        blocks[at] = pages;
      } else {
        auto block = blocks.begin();
        std::advance(block, random() % blocks.size());
        // All of it, or the first page of it.
        const size_t pages = random() % 2 == 0 ? block->second : 1;
        const auto [at, all] = *block;
        blocks.erase(block);
        if (pages < all) blocks[at + pages * kPage] = all - pages;
        ranges.Give(at, pages * kPage);
        for (size_t i = 0; i < pages; ++i) taken[(at - kBegin) / kPage + i] = false;
      }
      size_t free_pages = 0;
      for (const bool page : taken) free_pages += page ? 0 : 1;
      ASSERT_EQ(ranges.free_bytes(), free_pages * kPage);
    }
    for (const auto& [at, pages] : blocks) ranges.Give(at, pages * kPage);
    EXPECT_TRUE(ranges.all_free());
    EXPECT_EQ(ranges.Take(kPages * kPage, kPage), kBegin);
  }
}

}  // namespace
}  // namespace cxlpool::libpool
