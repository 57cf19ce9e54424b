#include "fabric-manager/service/track_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cxlpool::fm {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

Region MakeRegion(Key key) {
  Region region;
  region.key = key;
  return region;
}

Attachment MakeAttachment(uint64_t generation, const std::string& host, size_t segments) {
  Attachment attachment;
  attachment.generation = generation;
  attachment.host = host;
  attachment.segments.resize(segments);
  return attachment;
}

std::vector<uint64_t> Generations(const TrackTable::Tracks& tracks) {
  std::vector<uint64_t> generations;
  for (const auto& [generation, track] : tracks) generations.push_back(generation);
  return generations;
}

TEST(TrackTableTest, EachIsFoundByItsGenerationItsRegionAndItsHost) {
  TrackTable table;
  Track& first = table.Of(MakeRegion(1), MakeAttachment(11, "host-a", 2));
  table.Of(MakeRegion(1), MakeAttachment(12, "host-b", 1));
  table.Of(MakeRegion(2), MakeAttachment(21, "host-a", 1));
  EXPECT_EQ(table.Find(11), &first);
  EXPECT_EQ(table.Find(13), nullptr);
  EXPECT_EQ(first.region, 1u);
  EXPECT_EQ(first.host, "host-a");
  EXPECT_EQ(first.known.size(), 2u);
  EXPECT_THAT(Generations(table.All()), ElementsAre(11, 12, 21));
  EXPECT_THAT(Generations(table.OfRegion(1)), ElementsAre(11, 12));
  EXPECT_THAT(Generations(table.OfHost("host-a")), ElementsAre(11, 21));
  EXPECT_THAT(Generations(table.OfHost("host-c")), IsEmpty());
}

TEST(TrackTableTest, WhatIsErasedIsNowhere) {
  TrackTable table;
  table.Of(MakeRegion(1), MakeAttachment(11, "host-a", 1));
  table.Of(MakeRegion(1), MakeAttachment(12, "host-b", 1));
  table.Erase(11);
  table.Erase(11);
  EXPECT_EQ(table.Find(11), nullptr);
  EXPECT_THAT(Generations(table.All()), ElementsAre(12));
  EXPECT_THAT(Generations(table.OfRegion(1)), ElementsAre(12));
  EXPECT_THAT(Generations(table.OfHost("host-a")), IsEmpty());
}

Attachment WithSerials(uint64_t generation, const std::string& host,
                       const std::vector<uint64_t>& serials) {
  Attachment attachment = MakeAttachment(generation, host, serials.size());
  for (size_t i = 0; i < serials.size(); ++i) attachment.segments[i].serial = serials[i];
  return attachment;
}

TEST(TrackTableTest, EachIsFoundByTheSerialsThatItsAttachmentHasNow) {
  TrackTable table;
  table.Of(MakeRegion(1), WithSerials(11, "host-a", {101, 102}));
  table.Of(MakeRegion(2), WithSerials(21, "host-b", {101}));
  EXPECT_THAT(Generations(table.OfSerial("host-a", 101)), ElementsAre(11));
  EXPECT_THAT(Generations(table.OfSerial("host-a", 102)), ElementsAre(11));
  EXPECT_THAT(Generations(table.OfSerial("host-b", 101)), ElementsAre(21));
  EXPECT_THAT(Generations(table.OfSerial("host-c", 101)), IsEmpty());
  EXPECT_THAT(Generations(table.OfSerial("host-b", 102)), IsEmpty());

  // Bound again under another serial, and grown.
  table.SetSerials(WithSerials(11, "host-a", {103, 102, 104}));
  EXPECT_THAT(Generations(table.OfSerial("host-a", 101)), IsEmpty());
  EXPECT_THAT(Generations(table.OfSerial("host-a", 103)), ElementsAre(11));
  EXPECT_THAT(Generations(table.OfSerial("host-a", 104)), ElementsAre(11));
  EXPECT_THAT(Generations(table.OfSerial("host-b", 101)), ElementsAre(21));

  table.Erase(11);
  for (const uint64_t serial : {101, 102, 103, 104}) {
    EXPECT_THAT(Generations(table.OfSerial("host-a", serial)), IsEmpty()) << serial;
  }
}

TEST(TrackTableTest, APlanThatIsNotDurableLeavesTheSerialsAsTheyAre) {
  TrackTable table;
  table.Of(MakeRegion(1), WithSerials(11, "host-a", {101}));
  table.Of(MakeRegion(1), WithSerials(11, "host-a", {102}));
  EXPECT_THAT(Generations(table.OfSerial("host-a", 101)), ElementsAre(11));
  EXPECT_THAT(Generations(table.OfSerial("host-a", 102)), IsEmpty());
}

TEST(TrackTableTest, SerialsOfAnAttachmentWithoutATrackAreNotKept) {
  TrackTable table;
  table.SetSerials(WithSerials(11, "host-a", {101}));
  EXPECT_THAT(Generations(table.OfSerial("host-a", 101)), IsEmpty());
}

TEST(TrackTableTest, WhereHardwareShowsASerialAgainBothAreFound) {
  TrackTable table;
  table.Of(MakeRegion(1), WithSerials(11, "host-a", {7}));
  table.Of(MakeRegion(2), WithSerials(21, "host-a", {7, 7}));
  EXPECT_THAT(Generations(table.OfSerial("host-a", 7)), ElementsAre(11, 21));
  table.Erase(21);
  EXPECT_THAT(Generations(table.OfSerial("host-a", 7)), ElementsAre(11));
}

TEST(TrackTableTest, ATrackGrowsWithItsAttachmentAndIsLookedAtAgain) {
  TrackTable table;
  Track& track = table.Of(MakeRegion(1), MakeAttachment(11, "host-a", 1));
  track.observed_revision = 7;
  track.known[0].fabric = FabricSide::kBound;
  EXPECT_EQ(table.Of(MakeRegion(1), MakeAttachment(11, "host-a", 1)).observed_revision, 7u);
  Track& grown = table.Of(MakeRegion(1), MakeAttachment(11, "host-a", 2));
  EXPECT_EQ(&grown, &track);
  EXPECT_EQ(grown.observed_revision, 0u);
  EXPECT_EQ(grown.known[0].fabric, FabricSide::kBound);
  EXPECT_EQ(grown.observed.size(), 2u);
}

}  // namespace
}  // namespace cxlpool::fm
