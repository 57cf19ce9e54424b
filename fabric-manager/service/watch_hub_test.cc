#include "fabric-manager/service/watch_hub.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

WatchEvent Change(Key key, uint64_t revision) {
  Region region;
  region.key = key;
  return {revision, std::make_shared<const Region>(std::move(region)), false};
}

std::vector<uint64_t> Revisions(const WatchHub& hub, uint64_t revision, size_t limit = 1000) {
  std::vector<uint64_t> revisions;
  const auto entries = hub.Take(revision, limit);
  for (const WatchEntryPtr& entry : *entries) {
    revisions.push_back(entry->event().revision);
  }
  return revisions;
}

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

TEST(WatchHubTest, AReaderFarBehindGetsTheLatestOfEachRegion) {
  WatchHub hub(100, 3);
  hub.Reset(10);
  hub.Publish({Change(1, 11), Change(2, 12), Change(1, 13)});
  EXPECT_EQ(Revisions(hub, 10), (std::vector<uint64_t>{11, 12, 13}));
  hub.Publish({Change(3, 14)});
  EXPECT_EQ(Revisions(hub, 10), (std::vector<uint64_t>{12, 13, 14}));
  EXPECT_EQ(Revisions(hub, 10, 2), (std::vector<uint64_t>{12, 13}));
  EXPECT_EQ(Revisions(hub, 13), (std::vector<uint64_t>{14}));
  EXPECT_EQ(hub.Read(10, 9)->size(), 4u);
}

TEST(WatchHubTest, CoalescesAlsoWhatHasPassedThroughASmallRing) {
  WatchHub hub(4, 1);
  hub.Reset(10);
  for (uint64_t revision = 11; revision <= 40; ++revision)
    hub.Publish({Change(revision % 3, revision)});
  EXPECT_EQ(Revisions(hub, 36), (std::vector<uint64_t>{38, 39, 40}));
  EXPECT_EQ(ReasonOf(hub.Take(35, 9).status()), "REVISION_COMPACTED");
}

TEST(WatchHubTest, NeverPartsTheEventsOfOneRevision) {
  WatchHub hub(100);
  hub.Reset(10);
  hub.Publish({Change(1, 11), Change(2, 11), Change(3, 11), Change(4, 12)});
  EXPECT_EQ(hub.Read(10, 1)->size(), 3u);
  EXPECT_EQ(hub.Take(10, 2)->size(), 3u);
  EXPECT_EQ(hub.Take(11, 2)->size(), 1u);
}

TEST(WatchHubTest, WhatGoesOnTheWireIsMadeOnce) {
  WatchHub hub(100);
  hub.Publish({Change(1, 11)});
  int made = 0;
  const auto make = [&](const WatchEvent& event) {
    ++made;
    return std::make_shared<const uint64_t>(event.revision);
  };
  const auto first = hub.Take(0, 1)->front()->Wire(make);
  const auto second = hub.Take(0, 1)->front()->Wire(make);
  EXPECT_EQ(first, second);
  EXPECT_EQ(made, 1);
}

TEST(WatchHubTest, AChangeThatLeftTheRingLongAgoIsForgotten) {
  WatchHub hub(100);
  hub.Reset(0);
  hub.Publish({Change(1, 1)});
  uint64_t revision = 1;
  for (; revision < 100'000; ++revision) hub.Publish({Change(2 + revision % 7, revision + 1)});
  hub.Publish({Change(1, ++revision)});
  EXPECT_EQ(Revisions(hub, revision - 1), std::vector<uint64_t>{revision});
  EXPECT_EQ(Revisions(hub, revision - 100).size(), 100u);
}

}  // namespace
}  // namespace cxlpool::fm
