#include "fabric-manager/model/space/balanced_spread.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>

#include "fabric-manager/model/space/bytes.h"

namespace cxlpool::fm {
namespace {

DeviceSet Of(std::initializer_list<DeviceIndex> devices) {
  DeviceSet set;
  for (const DeviceIndex device : devices) set.Add(device);
  return set;
}

class BalancedSpreadTest : public testing::Test {
 protected:
  BalancedSpreadTest() {
    for (int i = 0; i < 4; ++i) EXPECT_TRUE(space_.AddDevice(8 * kGiB, kGiB).ok());
  }

  SpreadRequest Request(uint32_t slices) const {
    return {.among = Of({0, 1, 2, 3}),
            .slice_bytes = kGiB,
            .slices = slices,
            .own_bytes = {},
            .peers = {}};
  }

  FreeSpace space_;
};

TEST_F(BalancedSpreadTest, SlicesOfOneHostGoEverywhere) {
  auto devices = BalancedSpread(space_, Request(8));
  std::sort(devices.begin(), devices.end());
  EXPECT_EQ(devices, (std::vector<DeviceIndex>{0, 0, 1, 1, 2, 2, 3, 3}));
}

TEST_F(BalancedSpreadTest, WhatTheHostHasAlreadyCounts) {
  SpreadRequest request = Request(3);
  request.own_bytes = {2 * kGiB, kGiB};
  EXPECT_EQ(BalancedSpread(space_, request), (std::vector<DeviceIndex>{2, 3, 1}));
}

TEST_F(BalancedSpreadTest, AvoidsADeviceWhoseOtherHostsAreShortOfRoom) {
  ASSERT_TRUE(space_.Take(1, 0, 7 * kGiB).ok());
  SpreadRequest request = Request(1);
  request.among = Of({0, 2});
  request.peers = {{Of({0, 1}), 8 * kGiB}, {Of({2, 3}), 8 * kGiB}};
  EXPECT_EQ(BalancedSpread(space_, request), (std::vector<DeviceIndex>{2}));
  request.peers[0].most_bytes = 0;  // It never wanted anything.
  EXPECT_EQ(BalancedSpread(space_, request), (std::vector<DeviceIndex>{0}));
}

TEST_F(BalancedSpreadTest, FillsTheLastSliceAndNoMore) {
  EXPECT_EQ(BalancedSpread(space_, Request(32)).size(), 32u);
  EXPECT_TRUE(BalancedSpread(space_, Request(33)).empty());
}

TEST_F(BalancedSpreadTest, ASliceNeedsOnePiece) {
  for (uint64_t gib = 0; gib < 8; gib += 2) ASSERT_TRUE(space_.Take(0, gib * kGiB, kGiB).ok());
  SpreadRequest request = Request(1);
  request.slice_bytes = 2 * kGiB;
  request.among = Of({0});
  EXPECT_TRUE(BalancedSpread(space_, request).empty());
  request.among = Of({0, 3});
  EXPECT_EQ(BalancedSpread(space_, request), (std::vector<DeviceIndex>{3}));
}

TEST_F(BalancedSpreadTest, NothingToPlaceOrNowhere) {
  EXPECT_TRUE(BalancedSpread(space_, Request(0)).empty());
  SpreadRequest request = Request(1);
  request.among = Of({9});
  EXPECT_TRUE(BalancedSpread(space_, request).empty());
}

}  // namespace
}  // namespace cxlpool::fm
