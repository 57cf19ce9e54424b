#include "tools/benches/pod.h"

#include <gtest/gtest.h>

#include <set>

namespace cxlpool::bench {
namespace {

TEST(PodDesignTest, AnyTwoHostsShareExactlyOneDevice) {
  int ports[kPodHosts] = {};
  int shared[kPodHosts][kPodHosts] = {};
  for (const auto& hosts : PodDesign()) {
    ASSERT_EQ(std::set(hosts.begin(), hosts.end()).size(), kDeviceHeads);
    for (const uint8_t a : hosts) {
      ASSERT_LT(a, kPodHosts);
      ++ports[a];
      for (const uint8_t b : hosts) ++shared[a][b];
    }
  }
  for (size_t a = 0; a < kPodHosts; ++a) {
    EXPECT_EQ(ports[a], static_cast<int>(kHostPorts));
    for (size_t b = 0; b < a; ++b) EXPECT_EQ(shared[a][b], 1) << a << " and " << b;
  }
}

TEST(PodTest, PacksTheFullestHostThatFits) {
  // 30 cores, then 20 on a host of its own, then 10 beside the 30; it goes, and 20 join the 20.
  const auto pods = PackPods({{0, -1, 30, 4}, {1, -1, 20, 8}, {2, 1, 10, 1}, {3, -1, 20, 3}});
  ASSERT_EQ(pods.size(), 1u);
  const auto& events = pods[0].events;
  ASSERT_EQ(events.size(), 5u);
  EXPECT_EQ(events[0].host, 0);
  EXPECT_EQ(events[0].slices, 2);
  EXPECT_EQ(events[1].host, 1);
  EXPECT_EQ(events[2].host, 0);
  EXPECT_EQ(events[2].slices, 1);
  EXPECT_FALSE(events[3].arrives);
  EXPECT_EQ(events[4].host, 1);
  EXPECT_EQ(events[4].slices, 2);
  EXPECT_EQ(pods[0].peak_slices, 8u);
}

TEST(PodTest, APodHasTwentyFiveHosts) {
  const std::vector<Machine> machines(26, {0, -1, 40, 2});
  const auto pods = PackPods(machines);
  ASSERT_EQ(pods.size(), 2u);
  EXPECT_EQ(pods[0].peak_slices, 25u);
  EXPECT_EQ(pods[1].peak_slices, 1u);
}

TEST(PodTest, AHostsSlicesSpreadOverItsDevices) {
  PodTrace trace{.events = {{0, 3, 16, true}}, .peak_slices = 16};
  EXPECT_EQ(DeviceNeed(trace, PodPolicy::kBalanced), 2u);
  EXPECT_EQ(DeviceNeed(trace, PodPolicy::kLeast), 2u);
  EXPECT_EQ(DeviceNeed(trace, PodPolicy::kWhole), 16u);
  trace.events.push_back({0, 3, 16, false});
  trace.events.push_back({1, 3, 16, true});
  EXPECT_EQ(DeviceNeed(trace, PodPolicy::kBalanced), 2u);
}

}  // namespace
}  // namespace cxlpool::bench
