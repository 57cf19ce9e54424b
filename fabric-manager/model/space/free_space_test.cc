#include "fabric-manager/model/space/free_space.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "fabric-manager/model/space/bytes.h"

namespace cxlpool::fm {
namespace {

using Free = FreeSpace::Run;

DeviceIndex Added(FreeSpace& space, uint64_t capacity, uint64_t granule) {
  const auto device = space.AddDevice(capacity, granule);
  EXPECT_TRUE(device.ok()) << device.status();
  return device.value_or(0);
}

TEST(FreeSpaceTest, ANewDeviceIsOneFreeRun) {
  FreeSpace space;
  EXPECT_EQ(Added(space, 8 * kGiB, 256 * kMiB), 0);
  EXPECT_EQ(Added(space, 3 * kGiB, kGiB), 1);
  EXPECT_EQ(space.RunsOf(0), (std::vector<Free>{{0, 0, 8 * kGiB}}));
  EXPECT_EQ(space.total_free_bytes(), 11 * kGiB);
  EXPECT_EQ(space.largest_free_bytes(1), 3 * kGiB);
  EXPECT_EQ(space.devices().size(), 2u);
  EXPECT_TRUE(space.Check().ok());
}

TEST(FreeSpaceTest, RefusesADeviceThatIsNotWholeGranules) {
  FreeSpace space;
  for (const auto& [capacity, granule] : std::vector<std::pair<uint64_t, uint64_t>>{
           {kGiB, 0}, {0, kMiB}, {kGiB + 1, kMiB}, {uint64_t{1} << 40, 1}}) {
    EXPECT_EQ(space.AddDevice(capacity, granule).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
  EXPECT_TRUE(space.devices().empty());
}

TEST(FreeSpaceTest, HasALimitOfDevices) {
  FreeSpace space;
  for (size_t i = 0; i < kMaxDevices; ++i) Added(space, kGiB, kGiB);
  EXPECT_EQ(space.AddDevice(kGiB, kGiB).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(space.RemoveDevice(17).ok());
  EXPECT_EQ(Added(space, kGiB, kGiB), 17);
}

TEST(FreeSpaceTest, TheSmallestRunThatIsLongEnoughIsChosen) {
  FreeSpace space;
  Added(space, 16 * kGiB, kGiB);
  Added(space, 6 * kGiB, kGiB);
  Added(space, 6 * kGiB, kGiB);
  EXPECT_EQ(space.BestFit(DeviceSet::All(), 2 * kGiB), (Free{1, 0, 2 * kGiB}));
  ASSERT_TRUE(space.Take(2, 2 * kGiB, kGiB).ok());
  EXPECT_EQ(space.BestFit(DeviceSet::All(), 2 * kGiB), (Free{2, 0, 2 * kGiB}));
  EXPECT_EQ(space.BestFit(DeviceSet::All(), 3 * kGiB), (Free{2, 3 * kGiB, 3 * kGiB}));
  EXPECT_EQ(space.BestFit(DeviceSet::All(), 7 * kGiB), (Free{0, 0, 7 * kGiB}));
  EXPECT_EQ(space.BestFit(DeviceSet::All(), 17 * kGiB), std::nullopt);
  EXPECT_EQ(space.BestFit(DeviceSet(), kGiB), std::nullopt);
  EXPECT_EQ(space.BestFit(DeviceSet::All(), 0), std::nullopt);
}

TEST(FreeSpaceTest, LengthsAreRoundedUpToGranuleAndUnit) {
  FreeSpace space;
  Added(space, 30 * kMiB, 3 * kMiB);
  EXPECT_EQ(space.BestFitOn(0, 1), (Free{0, 0, 3 * kMiB}));
  EXPECT_EQ(space.BestFitOn(0, 1, 2 * kMiB), (Free{0, 0, 6 * kMiB}));
  EXPECT_EQ(space.BestFitOn(0, 25 * kMiB, 2 * kMiB), (Free{0, 0, 30 * kMiB}));
  EXPECT_EQ(space.BestFitOn(0, 31 * kMiB), std::nullopt);
  EXPECT_EQ(space.BestFitOn(0, ~uint64_t{0}, 2 * kMiB), std::nullopt);
  EXPECT_EQ(space.BestFitOn(1, 1), std::nullopt);
}

TEST(FreeSpaceTest, GivingBackMergesNeighbours) {
  FreeSpace space;
  Added(space, 4 * kGiB, kGiB);
  ASSERT_TRUE(space.Take(0, 0, 4 * kGiB).ok());
  EXPECT_EQ(space.Longest(DeviceSet::All()), std::nullopt);
  ASSERT_TRUE(space.Give(0, 0, kGiB).ok());
  ASSERT_TRUE(space.Give(0, 2 * kGiB, kGiB).ok());
  EXPECT_EQ(space.RunsOf(0).size(), 2u);
  ASSERT_TRUE(space.Give(0, kGiB, kGiB).ok());
  EXPECT_EQ(space.RunsOf(0), (std::vector<Free>{{0, 0, 3 * kGiB}}));
  EXPECT_TRUE(space.Check().ok());
}

TEST(FreeSpaceTest, WhatIsRefusedChangesNothing) {
  FreeSpace space;
  Added(space, 4 * kGiB, kGiB);
  ASSERT_TRUE(space.Take(0, kGiB, kGiB).ok());
  const std::vector<Free> before = space.RunsOf(0);
  const auto refused = [](const absl::Status& status) {
    return status.code() == absl::StatusCode::kFailedPrecondition;
  };
  EXPECT_TRUE(refused(space.Take(0, 0, 2 * kGiB)));
  EXPECT_TRUE(refused(space.Take(0, 0, kMiB)));
  EXPECT_TRUE(refused(space.Take(0, kMiB, kGiB)));
  EXPECT_TRUE(refused(space.Take(0, 0, 0)));
  EXPECT_TRUE(refused(space.Take(0, 3 * kGiB, 2 * kGiB)));
  EXPECT_TRUE(refused(space.Take(1, 0, kGiB)));
  EXPECT_TRUE(refused(space.Give(0, 0, kGiB)));
  EXPECT_TRUE(refused(space.Give(0, kGiB, 2 * kGiB)));
  EXPECT_TRUE(refused(space.Give(0, 4 * kGiB, kGiB)));
  EXPECT_TRUE(refused(space.Give(0, uint64_t{1} << 62, kGiB)));
  EXPECT_TRUE(refused(space.RemoveDevice(0)));
  EXPECT_TRUE(refused(space.RemoveDevice(1)));
  EXPECT_EQ(space.RunsOf(0), before);
  EXPECT_TRUE(space.Check().ok());
}

TEST(FreeSpaceTest, ManyRunsOnOneDevice) {
  constexpr uint32_t kGranules = 200'000;
  FreeSpace space;
  Added(space, kGranules * kMiB, kMiB);
  ASSERT_TRUE(space.Take(0, 0, kGranules * kMiB).ok());
  for (uint32_t i = 0; i < kGranules; i += 2) {
    ASSERT_TRUE(space.Give(0, (i * 7919ull % kGranules) / 2 * 2 * kMiB, kMiB).ok());
  }
  ASSERT_EQ(space.RunsOf(0).size(), kGranules / 2);
  ASSERT_TRUE(space.Check().ok());
  EXPECT_EQ(space.BestFit(DeviceSet::All(), 2 * kMiB), std::nullopt);
  for (uint32_t i = 0; i < kGranules; i += 2) {
    ASSERT_EQ(space.BestFit(DeviceSet::All(), kMiB), (Free{0, i * kMiB, kMiB}));
    ASSERT_TRUE(space.Take(0, i * kMiB, kMiB).ok());
  }
  EXPECT_EQ(space.total_free_bytes(), 0u);
  EXPECT_TRUE(space.Check().ok());
}

TEST(FreeSpaceTest, ACopyIsItsOwn) {
  FreeSpace space;
  Added(space, 4 * kGiB, kGiB);
  FreeSpace copy = space;
  ASSERT_TRUE(copy.Take(0, 0, kGiB).ok());
  EXPECT_EQ(space.free_bytes(0), 4 * kGiB);
  EXPECT_TRUE(space.Check().ok());
  EXPECT_TRUE(copy.Check().ok());
}

// The same by definition: every run in a map, every question a walk over all of them.
class NaiveSpace {
 public:
  struct Device {
    uint64_t granule = 0;
    std::map<uint64_t, uint64_t> runs;  // Length by start, bytes.
  };

  std::map<DeviceIndex, Device> devices;

  std::optional<Free> BestFit(const DeviceSet& among, uint64_t length, uint64_t unit) const {
    std::optional<std::tuple<uint64_t, DeviceIndex, uint64_t, uint64_t>> best;
    for (const auto& [index, device] : devices) {
      if (!among.Contains(index)) continue;
      const uint64_t step = *CommonUnit(device.granule, unit);
      const uint64_t rounded = (length + step - 1) / step * step;
      for (const auto& [start, free] : device.runs) {
        const std::tuple run{free, index, start, rounded};
        if (free >= rounded && (!best.has_value() || run < *best)) best = run;
      }
    }
    if (!best.has_value()) return std::nullopt;
    return Free{std::get<1>(*best), std::get<2>(*best), std::get<3>(*best)};
  }

  std::optional<Free> Longest(const DeviceSet& among) const {
    std::optional<Free> best;
    for (const auto& [index, device] : devices) {
      if (!among.Contains(index)) continue;
      for (const auto& [start, free] : device.runs) {
        if (!best.has_value() || free > best->length_bytes) best = Free{index, start, free};
      }
    }
    return best;
  }

  bool Take(const Free& run) {
    std::map<uint64_t, uint64_t>& runs = devices[run.device].runs;
    auto it = runs.upper_bound(run.dpa_bytes);
    if (it == runs.begin()) return false;
    --it;
    const auto [start, free] = *it;
    if (run.dpa_bytes + run.length_bytes > start + free) return false;
    runs.erase(it);
    if (run.dpa_bytes > start) runs[start] = run.dpa_bytes - start;
    const uint64_t end = run.dpa_bytes + run.length_bytes;
    if (end < start + free) runs[end] = start + free - end;
    return true;
  }

  void Give(const Free& run) {
    std::map<uint64_t, uint64_t>& runs = devices[run.device].runs;
    auto it = runs.emplace(run.dpa_bytes, run.length_bytes).first;
    if (const auto next = std::next(it);
        next != runs.end() && it->first + it->second == next->first) {
      it->second += next->second;
      runs.erase(next);
    }
    if (it != runs.begin()) {
      if (const auto last = std::prev(it); last->first + last->second == it->first) {
        last->second += it->second;
        runs.erase(it);
      }
    }
  }
};

// One pool and its naive twin under the same random operations.
class SpaceTwins {
 public:
  explicit SpaceTwins(uint64_t seed) : random_(seed) {}

  void Drive(int operations, size_t devices) {
    for (size_t i = 0; i < devices; ++i) AddDevice();
    // Swings between nearly empty and nearly full.
    for (int i = 0; i < operations && !testing::Test::HasFatalFailure(); ++i) {
      const uint32_t taking = (i / 5000) % 2 == 0 ? 75 : 30;
      const uint32_t dice = Roll(1000);
      if (dice < 3) {
        if (naive_.devices.size() < 3 * devices) AddDevice();
      } else if (dice < 6) {
        RemoveDevice();
      } else if (dice < 60) {
        Ask();
      } else if (Roll(100) < taking) {
        Take();
      } else {
        Give();
      }
      if (i % 500 == 0) Compare();
    }
    Compare();
  }

  int taken = 0;
  int refused = 0;
  int from_few = 0;

 private:
  uint32_t Roll(uint32_t sides) { return static_cast<uint32_t>(random_() % sides); }

  void AddDevice() {
    const uint64_t granule = std::vector<uint64_t>{kMiB, 4 * kMiB, 3 * kMiB, 256 * kMiB}[Roll(4)];
    const uint64_t granules = 1 + Roll(Roll(2) == 0 ? 200 : 3000);
    const auto index = space_.AddDevice(granule * granules, granule);
    ASSERT_TRUE(index.ok());
    ASSERT_FALSE(naive_.devices.contains(*index));
    naive_.devices[*index] = {granule, {{0, granule * granules}}};
  }

  void RemoveDevice() {
    if (naive_.devices.empty()) return;
    const auto it =
        std::next(naive_.devices.begin(), Roll(static_cast<uint32_t>(naive_.devices.size())));
    const uint64_t capacity = space_.capacity_bytes(it->first);
    const bool free = it->second.runs == std::map<uint64_t, uint64_t>{{0, capacity}};
    ASSERT_EQ(space_.RemoveDevice(it->first).ok(), free);
    if (free) naive_.devices.erase(it);
  }

  DeviceSet Among() {
    const uint32_t kind = Roll(4);
    if (kind == 0) return DeviceSet::All();
    DeviceSet set;
    const uint32_t of_ten = kind == 1 ? 1 : kind == 2 ? 5 : 9;
    for (size_t i = 0; i < 80; ++i) {
      if (Roll(10) < of_ten) set.Add(static_cast<DeviceIndex>(i));
    }
    return set;
  }

  uint64_t Length() {
    const uint64_t granules = Roll(8) == 0 ? Roll(1200) : Roll(8) == 0 ? Roll(260) : Roll(20);
    return granules * kMiB + Roll(3) * Roll(kMiB);
  }

  uint64_t Unit() { return std::vector<uint64_t>{0, 0, 2 * kMiB, 5 * kMiB, 512 * kMiB}[Roll(5)]; }

  void Ask() {
    const DeviceSet among = Among();
    ASSERT_EQ(space_.Longest(among), naive_.Longest(among));
    if (naive_.devices.empty()) return;
    const DeviceIndex device =
        std::next(naive_.devices.begin(), Roll(static_cast<uint32_t>(naive_.devices.size())))
            ->first;
    DeviceSet only;
    only.Add(device);
    const uint64_t length = 1 + Length(), unit = Unit();
    ASSERT_EQ(space_.BestFitOn(device, length, unit), naive_.BestFit(only, length, unit));
    const auto longest = naive_.Longest(only);
    ASSERT_EQ(space_.largest_free_bytes(device), longest ? longest->length_bytes : 0);
  }

  void Take() {
    const DeviceSet among = Among();
    const uint64_t length = 1 + Length(), unit = Unit();
    const auto found = space_.BestFit(among, length, unit);
    ASSERT_EQ(found, naive_.BestFit(among, length, unit));
    if (among.size() <= 16) ++from_few;
    if (!found.has_value()) {
      ++refused;
      return;
    }
    Free run = *found;
    const uint64_t granule = naive_.devices[run.device].granule;
    if (Roll(4) == 0) run.dpa_bytes += Roll(6) * granule;  // Elsewhere: it may not be free.
    const bool took = naive_.Take(run);
    ASSERT_EQ(space_.Take(run.device, run.dpa_bytes, run.length_bytes).ok(), took);
    if (!took) return;
    ++taken;
    live_.push_back(run);
  }

  void Give() {
    if (live_.empty()) return;
    std::swap(live_[Roll(static_cast<uint32_t>(live_.size()))], live_.back());
    Free& run = live_.back();
    Free part = run;
    const uint64_t granule = naive_.devices[run.device].granule;
    if (run.length_bytes > granule && Roll(3) == 0) part.length_bytes -= granule;  // A shrink.
    ASSERT_TRUE(space_.Give(part.device, part.dpa_bytes, part.length_bytes).ok());
    naive_.Give(part);
    ASSERT_FALSE(space_.Give(part.device, part.dpa_bytes, granule).ok());
    run.dpa_bytes += part.length_bytes;
    run.length_bytes -= part.length_bytes;
    if (run.length_bytes == 0) live_.pop_back();
  }

  void Compare() {
    const absl::Status status = space_.Check();
    ASSERT_TRUE(status.ok()) << status;
    uint64_t free = 0;
    for (const auto& [index, device] : naive_.devices) {
      std::map<uint64_t, uint64_t> runs;
      for (const Free& run : space_.RunsOf(index)) runs[run.dpa_bytes] = run.length_bytes;
      ASSERT_EQ(runs, device.runs) << "device " << index;
      for (const auto& [start, length] : runs) free += length;
    }
    ASSERT_EQ(space_.total_free_bytes(), free);
    ASSERT_EQ(space_.devices().size(), naive_.devices.size());
  }

  std::mt19937_64 random_;
  FreeSpace space_;
  NaiveSpace naive_;
  std::vector<Free> live_;
};

TEST(FreeSpaceTest, AgreesWithANaiveModel) {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE(seed);
    SpaceTwins twins(seed);
    twins.Drive(40'000, seed % 2 == 0 ? 40 : 6);
    if (HasFatalFailure()) return;
    EXPECT_GT(twins.taken, 10'000);
    EXPECT_GT(twins.refused, 100);
    EXPECT_GT(twins.from_few, 1'000);
  }
}

// A device that places its LDs itself: sizes count, and how many there are.
TEST(FreeSpaceTest, OfLdsAnyRoomIsOneRun) {
  FreeSpace space;
  ASSERT_TRUE(space.AddDevice(8 * kGiB, kGiB, 3).ok());
  EXPECT_EQ(space.BestFitOn(0, 5 * kGiB), (Free{0, 0, 5 * kGiB}));
  ASSERT_TRUE(space.Take(0, 0, 3 * kGiB).ok());
  ASSERT_TRUE(space.Take(0, 16 * kGiB, kGiB).ok()) << "LD 2, as a store may say";
  EXPECT_EQ(space.RunsOf(0), (std::vector<Free>{{0, 8 * kGiB, 4 * kGiB}}));
  EXPECT_FALSE(space.Take(0, 0, kGiB).ok()) << "it is there";
  EXPECT_FALSE(space.Take(0, 9 * kGiB, kGiB).ok()) << "no LD begins there";
  EXPECT_FALSE(space.Take(0, 24 * kGiB, kGiB).ok()) << "there is no fourth";
  EXPECT_FALSE(space.Take(0, 8 * kGiB, 5 * kGiB).ok()) << "there is no room";
  EXPECT_FALSE(space.Give(0, 0, kGiB).ok()) << "it is larger";
  // What is free of a place: of a LD that is not there, as much as there is room for.
  EXPECT_EQ(space.FreeIn(0, 8 * kGiB, 6 * kGiB), (std::vector<Free>{{0, 8 * kGiB, 4 * kGiB}}));
  EXPECT_TRUE(space.FreeIn(0, 0, 6 * kGiB).empty());
  ASSERT_TRUE(space.Take(0, 8 * kGiB, kGiB).ok());
  EXPECT_TRUE(space.RunsOf(0).empty()) << "3 GiB are free, and there is no LD for them";
  EXPECT_EQ(space.free_bytes(0), 3 * kGiB);
  EXPECT_EQ(space.BestFit(DeviceSet::All(), kGiB), std::nullopt);
  ASSERT_TRUE(space.Give(0, 0, 3 * kGiB).ok());
  EXPECT_EQ(space.RunsOf(0), (std::vector<Free>{{0, 0, 6 * kGiB}}));
  EXPECT_TRUE(space.Check().ok()) << space.Check();
}

// A host may say any length of what it has bound, and nobody is given what may be in it.
TEST(FreeSpaceTest, WhatEndsBeyondTheDeviceHasAllThatIsFreeThere) {
  FreeSpace space;
  ASSERT_TRUE(space.AddDevice(8 * kGiB, kGiB, 0).ok());
  ASSERT_TRUE(space.Take(0, 5 * kGiB, kGiB).ok());
  const std::vector<Free> behind = {{0, 4 * kGiB, kGiB}, {0, 6 * kGiB, 2 * kGiB}};
  for (const uint64_t length : {8 * kGiB, uint64_t{1} << 62, UINT64_MAX - 4 * kGiB,
                                UINT64_MAX - 4 * kGiB + 1, UINT64_MAX - 1, UINT64_MAX}) {
    EXPECT_EQ(space.FreeIn(0, 4 * kGiB, length), behind) << length;
    EXPECT_EQ(space.FreeIn(0, 4 * kGiB + 17, length), behind) << length;
    EXPECT_TRUE(space.FreeIn(0, 8 * kGiB, length).empty()) << length;
  }
  EXPECT_TRUE(space.FreeIn(0, UINT64_MAX, UINT64_MAX).empty());
  EXPECT_TRUE(space.FreeIn(0, 4 * kGiB, 0).empty());
  EXPECT_EQ(space.FreeIn(0, 5 * kGiB - 1, 2), (std::vector<Free>{{0, 4 * kGiB, kGiB}}));
}

TEST(FreeSpaceTest, OfLdsEveryCourseAddsUp) {
  std::minstd_rand random(7);
  FreeSpace space;
  ASSERT_TRUE(space.AddDevice(300 * kGiB, kGiB, 40).ok());
  std::map<uint64_t, uint64_t> there;  // Length by place.
  for (int step = 0; step < 4000; ++step) {
    if (random() % 2 == 0 && !there.empty()) {
      const auto one = std::next(there.begin(), random() % there.size());
      ASSERT_TRUE(space.Give(0, one->first, one->second).ok());
      there.erase(one);
    } else {
      const uint64_t want = (1 + random() % 90) * kGiB;
      uint64_t used = 0;
      for (const auto& [place, length] : there) used += length;
      const auto run = space.BestFitOn(0, want);
      ASSERT_EQ(run.has_value(), there.size() < 40 && used + want <= 300 * kGiB);
      if (run.has_value()) {
        ASSERT_EQ(run->dpa_bytes % (300 * kGiB), 0u);
        ASSERT_TRUE(space.Take(0, run->dpa_bytes, want).ok());
        ASSERT_TRUE(there.emplace(run->dpa_bytes, want).second);
      }
    }
    ASSERT_TRUE(space.Check().ok()) << space.Check();
  }
}

}  // namespace
}  // namespace cxlpool::fm
