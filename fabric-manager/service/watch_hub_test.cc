#include "fabric-manager/service/watch_hub.h"

#include <gtest/gtest.h>

#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

TEST(WatchHubTest, ResumesAfterARevisionAndMissesNothing) {
  WatchHub hub(100);
  hub.Reset(10);
  int wakes = 0;
  const uint64_t subscription = hub.Subscribe([&] { ++wakes; });
  hub.Publish({{11, nullptr, false}, {12, nullptr, false}});
  hub.Publish({{13, nullptr, true}});
  EXPECT_EQ(wakes, 2);
  EXPECT_EQ(hub.Read(10, 2)->size(), 2u);
  EXPECT_EQ(hub.Read(12, 10)->size(), 1u);
  EXPECT_TRUE(hub.Read(12, 10)->front().removed);
  EXPECT_TRUE(hub.Read(13, 10)->empty());
  hub.Unsubscribe(subscription);
  hub.Publish({{14, nullptr, false}});
  EXPECT_EQ(wakes, 2);
}

TEST(WatchHubTest, RevisionsWithoutEventsAreKnown) {
  WatchHub hub(2);
  hub.Reset(10);
  hub.Advance(12);
  EXPECT_TRUE(hub.Read(12, 1)->empty());
  hub.Publish({{13, nullptr, false}});
  EXPECT_EQ(hub.Read(12, 9)->size(), 1u);
}

TEST(WatchHubTest, SaysWhenARevisionIsGoneOrNotYet) {
  WatchHub hub(2);
  hub.Reset(10);
  EXPECT_EQ(ReasonOf(hub.Read(9, 1).status()), "REVISION_COMPACTED");
  hub.Publish({{11, nullptr, false}, {12, nullptr, false}, {13, nullptr, false}});
  EXPECT_EQ(ReasonOf(hub.Read(10, 1).status()), "REVISION_COMPACTED");
  EXPECT_EQ(hub.Read(11, 9)->size(), 2u);
  EXPECT_EQ(ReasonOf(hub.Read(14, 1).status()), "REVISION_UNKNOWN");
}

}  // namespace
}  // namespace cxlpool::fm
