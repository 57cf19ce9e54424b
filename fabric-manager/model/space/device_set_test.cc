#include "fabric-manager/model/space/device_set.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

namespace cxlpool::fm {
namespace {

DeviceSet SetOf(const std::set<DeviceIndex>& devices) {
  DeviceSet set;
  for (const DeviceIndex device : devices) set.Add(device);
  return set;
}

std::vector<DeviceIndex> Listed(const DeviceSet& set) {
  std::vector<DeviceIndex> devices;
  set.ForEach([&](DeviceIndex device) { devices.push_back(device); });
  return devices;
}

TEST(DeviceSetTest, BeginsEmpty) {
  const DeviceSet set;
  EXPECT_TRUE(set.empty());
  EXPECT_EQ(set.size(), 0u);
  EXPECT_FALSE(set.Contains(0));
  EXPECT_TRUE(Listed(set).empty());
}

TEST(DeviceSetTest, AllHoldsEveryDevice) {
  const DeviceSet set = DeviceSet::All();
  EXPECT_EQ(set.size(), kMaxDevices);
  EXPECT_TRUE(set.Contains(0));
  EXPECT_TRUE(set.Contains(kMaxDevices - 1));
  EXPECT_EQ(Listed(set).size(), kMaxDevices);
}

TEST(DeviceSetTest, VisitsInAscendingOrder) {
  EXPECT_EQ(Listed(SetOf({4095, 0, 64, 63, 2000})),
            (std::vector<DeviceIndex>{0, 63, 64, 2000, 4095}));
}

TEST(DeviceSetTest, AWordThatEmptiesLeavesTheSummary) {
  DeviceSet set = SetOf({70, 71});
  set.Remove(70);
  EXPECT_EQ(set.summary(), 2u);
  set.Remove(71);
  EXPECT_TRUE(set.empty());
  set.Remove(71);
  EXPECT_EQ(set, DeviceSet());
}

TEST(DeviceSetTest, AgreesWithAnOrderedSet) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    std::set<DeviceIndex> a, b;
    for (int i = 0; i < 100; ++i) a.insert(static_cast<DeviceIndex>(random() % kMaxDevices));
    for (int i = 0; i < 100; ++i) b.insert(static_cast<DeviceIndex>(random() % kMaxDevices));
    for (const DeviceIndex device : a) {
      if (random() % 2 == 0) b.insert(device);
    }
    std::set<DeviceIndex> both, either = a, rest;
    for (const DeviceIndex device : a) (b.contains(device) ? both : rest).insert(device);
    either.insert(b.begin(), b.end());
    EXPECT_EQ(SetOf(a) & SetOf(b), SetOf(both));
    EXPECT_EQ(SetOf(a) | SetOf(b), SetOf(either));
    EXPECT_EQ(SetOf(a) - SetOf(b), SetOf(rest));
    EXPECT_EQ(SetOf(a).size(), a.size());
    EXPECT_EQ((SetOf(rest) & SetOf(b)).empty(), true);
  }
}

}  // namespace
}  // namespace cxlpool::fm
