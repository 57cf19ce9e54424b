#include "fabric-manager/model/extent_map.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

namespace cxlpool::fm {
namespace {

using Use = ExtentMap::Use;
constexpr uint64_t kG = 256;  // Granule.

ExtentMap Make(uint64_t granules) { return ExtentMap::Create(granules * kG, kG).value(); }

TEST(ExtentMapTest, CreateRefusesWhatIsNoMultiple) {
  EXPECT_EQ(ExtentMap::Create(0, kG).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ExtentMap::Create(kG, 0).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ExtentMap::Create(kG + 1, kG).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(ExtentMapTest, BestFitPrefersTheSmallestRunThenTheLowest) {
  ExtentMap map = Make(16);
  // Free: [0,4) [5,7) [8,10) [11,16).
  for (uint64_t taken : {4, 7, 10}) ASSERT_TRUE(map.Take(taken * kG, kG, Use::kHeld).ok());
  EXPECT_EQ(map.BestFit(2 * kG), 5 * kG);
  EXPECT_EQ(map.BestFit(3 * kG), 0u);
  EXPECT_EQ(map.BestFit(5 * kG), 11 * kG);
  EXPECT_EQ(map.BestFit(6 * kG), std::nullopt);
  EXPECT_EQ(map.largest_free_bytes(), 5 * kG);
  EXPECT_EQ(map.free_by_length().rbegin()->first, 5 * kG);
}

TEST(ExtentMapTest, BestFitAligns) {
  ExtentMap map = Make(16);
  ASSERT_TRUE(map.Take(0, kG, Use::kHeld).ok());
  EXPECT_EQ(map.BestFit(2 * kG, 4 * kG), 4 * kG);
  EXPECT_EQ(map.BestFit(12 * kG, 4 * kG), 4 * kG);
  EXPECT_EQ(map.BestFit(13 * kG, 4 * kG), std::nullopt);
}

TEST(ExtentMapTest, BestFitRefusesWhatIsNoRange) {
  const ExtentMap map = Make(4);
  EXPECT_EQ(map.BestFit(0), std::nullopt);
  EXPECT_EQ(map.BestFit(kG + 1), std::nullopt);
  EXPECT_EQ(map.BestFit(UINT64_MAX - kG + 1), std::nullopt);
}

TEST(ExtentMapTest, TakeRefusesWhatIsNotFreeOrNoRange) {
  ExtentMap map = Make(8);
  ASSERT_TRUE(map.Take(2 * kG, 2 * kG, Use::kHeld).ok());
  for (const auto& [dpa, length] :
       std::vector<std::pair<uint64_t, uint64_t>>{{2 * kG, kG},
                                                  {kG, 2 * kG},
                                                  {3 * kG, 2 * kG},
                                                  {0, 8 * kG},
                                                  {0, 0},
                                                  {1, kG},
                                                  {0, 1},
                                                  {7 * kG, 2 * kG},
                                                  {8 * kG, kG},
                                                  {UINT64_MAX - kG + 1, kG},
                                                  {kG, UINT64_MAX - kG + 1}}) {
    EXPECT_EQ(map.Take(dpa, length, Use::kHeld).code(), absl::StatusCode::kFailedPrecondition)
        << dpa << "+" << length;
  }
  EXPECT_TRUE(map.Check().ok());
  EXPECT_EQ(map.free_bytes(), 6 * kG);
}

TEST(ExtentMapTest, ReleaseMergesNeighbours) {
  ExtentMap map = Make(6);
  for (uint64_t i = 0; i < 6; ++i) ASSERT_TRUE(map.Take(i * kG, kG, Use::kHeld).ok());
  EXPECT_EQ(map.BestFit(kG), std::nullopt);
  for (uint64_t i : {1, 3, 2}) ASSERT_TRUE(map.Free(i * kG, kG).ok());
  EXPECT_EQ(map.free_by_length().size(), 1u);
  EXPECT_EQ(map.largest_free_bytes(), 3 * kG);
  for (uint64_t i : {0, 5, 4}) ASSERT_TRUE(map.Free(i * kG, kG).ok());
  EXPECT_EQ(map.largest_free_bytes(), 6 * kG);
  EXPECT_TRUE(map.Check().ok());
}

TEST(ExtentMapTest, OnlyWholeRangesChange) {
  ExtentMap map = Make(8);
  ASSERT_TRUE(map.Take(0, 4 * kG, Use::kHeld).ok());
  EXPECT_FALSE(map.Free(0, kG).ok());
  EXPECT_FALSE(map.Free(kG, kG).ok());
  EXPECT_FALSE(map.SetUse(0, 2 * kG, Use::kScrubbing).ok());
  EXPECT_FALSE(map.SetUse(4 * kG, kG, Use::kScrubbing).ok());
  ASSERT_TRUE(map.SetUse(0, 4 * kG, Use::kQuarantined).ok());
  EXPECT_EQ(map.held_bytes(Use::kHeld), 0u);
  EXPECT_EQ(map.held_bytes(Use::kQuarantined), 4 * kG);
  ASSERT_TRUE(map.Free(0, 4 * kG).ok());
  EXPECT_FALSE(map.Free(0, 4 * kG).ok());
  EXPECT_EQ(map.free_bytes(), 8 * kG);
}

// One byte a granule: '.' free, else the digit of its use.
struct Bitmap {
  std::string granules;

  std::optional<uint64_t> BestFit(uint64_t n, uint64_t align) const {
    std::optional<uint64_t> best;
    uint64_t best_run = UINT64_MAX;
    for (uint64_t i = 0; i < granules.size();) {
      uint64_t end = i;
      while (end < granules.size() && granules[end] == '.') ++end;
      const uint64_t start = align == 0 ? i : (i + align - 1) / align * align;
      if (end > i && start + n <= end && end - i < best_run) {
        best = start;
        best_run = end - i;
      }
      i = std::max(end, i + 1);
    }
    return best;
  }
  uint64_t Count(char c) const { return std::count(granules.begin(), granules.end(), c); }
};

TEST(ExtentMapTest, AgreesWithANaiveBitmapOnRandomOperations) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const uint64_t size = 1 + random() % 200;
    ExtentMap map = Make(size);
    Bitmap model{std::string(size, '.')};
    std::map<uint64_t, uint64_t> taken;
    for (int step = 0; step < 1500; ++step) {
      const uint64_t n = 1 + random() % 12;
      const char use = static_cast<char>(random() % 3);
      const auto pick = [&] { return std::next(taken.begin(), random() % taken.size()); };
      switch (random() % 4) {
        case 0: {  // Take where it fits best.
          const uint64_t align = random() % 3 == 0 ? 4 : 0;
          const auto fit = map.BestFit(n * kG, align * kG);
          const auto expected = model.BestFit(n, align);
          ASSERT_EQ(fit.has_value(), expected.has_value()) << step;
          if (!fit) break;
          ASSERT_EQ(*fit, *expected * kG) << step;
          ASSERT_TRUE(map.Take(*fit, n * kG, static_cast<Use>(use)).ok());
          model.granules.replace(*expected, n, std::string(n, static_cast<char>('0' + use)));
          taken[*expected] = n;
          break;
        }
        case 1: {  // Take anywhere.
          const uint64_t at = random() % size;
          const bool free = at + n <= size && model.granules.find_first_not_of('.', at) >= at + n;
          ASSERT_EQ(map.Take(at * kG, n * kG, static_cast<Use>(use)).ok(), free) << step;
          if (!free) break;
          model.granules.replace(at, n, std::string(n, static_cast<char>('0' + use)));
          taken[at] = n;
          break;
        }
        case 2: {
          if (taken.empty()) break;
          const auto [at, length] = *pick();
          ASSERT_TRUE(map.Free(at * kG, length * kG).ok());
          model.granules.replace(at, length, std::string(length, '.'));
          taken.erase(at);
          break;
        }
        default: {
          if (taken.empty()) break;
          const auto [at, length] = *pick();
          ASSERT_TRUE(map.SetUse(at * kG, length * kG, static_cast<Use>(use)).ok());
          model.granules.replace(at, length, std::string(length, static_cast<char>('0' + use)));
        }
      }
      ASSERT_TRUE(map.Check().ok()) << map.Check() << " at step " << step;
      ASSERT_EQ(map.free_bytes(), model.Count('.') * kG);
      for (int u = 0; u < 3; ++u) {
        ASSERT_EQ(map.held_bytes(static_cast<Use>(u)),
                  model.Count(static_cast<char>('0' + u)) * kG);
      }
    }
  }
}

}  // namespace
}  // namespace cxlpool::fm
