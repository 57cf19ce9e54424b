#include "host-agent/service/fault_table.h"

#include <gtest/gtest.h>

#include "test/rigs/core_rig.h"

namespace cxlpool::agent {
namespace {

v1::HostEvent Lost(uint64_t serial, uint64_t dpa, uint64_t length = 64) {
  v1::HostEvent event;
  event.set_serial(serial);
  event.set_kind(v1::HostEvent::POISON);
  event.set_bytes_lost(true);
  event.set_dpa_bytes(dpa);
  event.set_length_bytes(length);
  event.set_text("poison");
  return event;
}

struct Table {
  AttachmentTable attachments;
  HostObservation host;
  FaultTable faults;

  void Offer(const v1::Offer& offer) { EXPECT_TRUE(attachments.Put(offer).ok()); }
  std::vector<RegionRange> Placed() {
    faults.Place(attachments, host);
    std::vector<RegionRange> ranges;
    for (const FaultTable::Fault& fault : faults.faults()) ranges.push_back(fault.range);
    return ranges;
  }
};

// One segment of 512 MiB on so many memdevs, from serial 0x61 on.
v1::Offer Striped(int ways, uint32_t granularity) {
  v1::Offer offer = MakeOffer(1, v1::Offer::WANT_ONLINE, {{1, 0x60}});
  v1::OfferedSegment& segment = *offer.mutable_segments(0);
  segment.clear_targets();
  segment.set_interleave_granularity_bytes(granularity);
  for (int i = 0; i < ways; ++i) {
    v1::Target& target = *segment.add_targets();
    target.set_slot(static_cast<uint32_t>(i + 1));
    target.set_serial(0x61 + static_cast<uint64_t>(i));
  }
  return offer;
}

TEST(FaultTableTest, AMemdevsByteIsItsSegmentsByte) {
  Table table;
  table.Offer(MakeOffer(1, v1::Offer::WANT_ONLINE, {{1, 0x51}, {2, 0x52}}));
  table.faults.Add(Lost(0x52, 4096, 256));
  table.faults.Add(Lost(0x51, 0));
  const std::vector<RegionRange> placed = table.Placed();
  ASSERT_EQ(placed.size(), 2u);
  EXPECT_EQ(placed[0], (RegionRange{0, 64}));
  EXPECT_EQ(placed[1], (RegionRange{kTestLength + 4096, 256}));
  EXPECT_EQ(table.faults.faults()[1].sequence, 2u);
  EXPECT_EQ(table.faults.faults()[0].key.tag, "tag-1");
}

TEST(FaultTableTest, WhatIsBeyondTheSegmentIsNotTheRegions) {
  Table table;
  table.Offer(MakeOffer(1, v1::Offer::WANT_ONLINE, {{1, 0x51}}));
  table.faults.Add(Lost(0x51, kTestLength));
  table.faults.Add(Lost(0x51, ~uint64_t{0} - 63));
  EXPECT_TRUE(table.Placed().empty());
  table.faults.Add(Lost(0x51, kTestLength - 64, 1 << 20));
  EXPECT_EQ(table.Placed(), (std::vector<RegionRange>{{kTestLength - 64, 64}}));
}

// Against the definition: byte `o` of a segment is in target o / granularity mod ways.
TEST(FaultTableTest, StripesAgreeWithTheirDefinition) {
  for (const int ways : {2, 4, 8}) {
    for (const uint32_t granularity : {256u, 4096u}) {
      const uint64_t g = granularity;
      for (const uint64_t offset : {uint64_t{0}, g - 64, g, 3 * g + 64, 17 * g, kTestLength - 64}) {
        const uint64_t target = offset / g % static_cast<uint64_t>(ways);
        const uint64_t dpa = offset / (g * static_cast<uint64_t>(ways)) * g + offset % g;
        Table table;
        table.Offer(Striped(ways, granularity));
        table.faults.Add(Lost(0x61 + target, dpa));
        EXPECT_EQ(table.Placed(), (std::vector<RegionRange>{{offset, 64}}))
            << ways << " ways of " << g << " at " << offset;
      }
    }
  }
}

TEST(FaultTableTest, ALossOverSeveralStripesIsTheRangeThatCoversThem) {
  Table table;
  table.Offer(Striped(2, 256));
  table.faults.Add(Lost(0x62, 0, 512));  // Stripes 1 and 3.
  EXPECT_EQ(table.Placed(), (std::vector<RegionRange>{{256, 768}}));
}

TEST(FaultTableTest, GranularityThatNobodySaidIsTheHostRegions) {
  Table table;
  table.Offer(Striped(2, 0));
  table.faults.Add(Lost(0x62, 0));
  EXPECT_EQ(table.Placed(), (std::vector<RegionRange>{{0, kTestLength}}));
  Table known;
  known.Offer(Striped(2, 0));
  ObservedHostRegion region;
  region.serials = {0x61, 0x62};
  region.interleave_granularity_bytes = 1024;
  known.host.regions.push_back(region);
  known.faults.Add(Lost(0x62, 0));
  EXPECT_EQ(known.Placed(), (std::vector<RegionRange>{{1024, 64}}));
}

// A page at a host address, on two regions side by side: 0x51's, and above it one of two targets.
TEST(FaultTableTest, AHostAddressIsOfTheMemdevsThere) {
  HostObservation host;
  ObservedHostRegion below;
  below.serials = {0x51};
  below.hpa_bytes = uint64_t{4} << 30;
  below.size_bytes = kTestLength;
  ObservedHostRegion above = below;
  above.serials = {0x61, 0x62};
  above.hpa_bytes = below.hpa_bytes + below.size_bytes;
  above.interleave_granularity_bytes = 1024;
  host.regions = {below, above};
  const auto of_page = [&host](uint64_t hpa) {
    v1::HostEvent event = Lost(0, 0, 4096);
    event.set_hpa_bytes(hpa);
    std::vector<std::vector<uint64_t>> of;
    for (const v1::HostEvent& each : ByMemdev(host, event)) {
      of.push_back({each.serial(), each.dpa_bytes(), each.length_bytes()});
    }
    return of;
  };
  using Of = std::vector<std::vector<uint64_t>>;
  EXPECT_EQ(of_page(below.hpa_bytes + 8192), (Of{{0x51, 8192, 4096}}));
  EXPECT_EQ(of_page(above.hpa_bytes - 4096), (Of{{0x51, kTestLength - 4096, 4096}}));
  EXPECT_EQ(of_page(above.hpa_bytes + 8192), (Of{{0x61, 4096, 2048}, {0x62, 4096, 2048}}));
  EXPECT_EQ(of_page(below.hpa_bytes - 4096), Of{});
  EXPECT_EQ(of_page(above.hpa_bytes + kTestLength), Of{});
  EXPECT_EQ(of_page(0), Of{});
  host.regions[1].interleave_granularity_bytes = 8192;
  EXPECT_EQ(of_page(above.hpa_bytes + 3 * 4096), (Of{{0x62, 4096, 4096}}));
  host.regions[0].serials = {kNoSerial};  // Of no LD of the pool's.
  EXPECT_EQ(of_page(below.hpa_bytes), Of{});
}

// However long what was lost is said to be, it ends with the host region, and takes no longer.
TEST(FaultTableTest, AtAHostAddressAnyLengthIsLost) {
  HostObservation host;
  ObservedHostRegion& region = host.regions.emplace_back();
  region.serials = {0x61, 0x62, 0x63};
  region.hpa_bytes = uint64_t{4} << 30;
  region.size_bytes = uint64_t{3} << 40;
  region.interleave_granularity_bytes = 256;
  const uint64_t share = uint64_t{1} << 40;
  for (const uint64_t length : {region.size_bytes, uint64_t{1} << 63, UINT64_MAX}) {
    v1::HostEvent event = Lost(0, 0, length);
    event.set_hpa_bytes(region.hpa_bytes + 256 + 64);
    const std::vector<v1::HostEvent> lost = ByMemdev(host, event);
    ASSERT_EQ(lost.size(), 3u) << length;
    const uint64_t dpa[] = {256, 64, 0};
    for (size_t i = 0; i < lost.size(); ++i) {
      EXPECT_EQ(lost[i].serial(), region.serials[i]);
      EXPECT_EQ(lost[i].dpa_bytes(), dpa[i]) << length;
      EXPECT_EQ(lost[i].length_bytes(), share - dpa[i]) << length;
    }
  }
}

TEST(FaultTableTest, ALossMayComeBeforeItsOffer) {
  Table table;
  table.host.memdevs.emplace_back().serial = 0x51;
  table.faults.Add(Lost(0x51, 64));
  EXPECT_TRUE(table.Placed().empty());
  table.Offer(MakeOffer(1, v1::Offer::WANT_ONLINE, {{1, 0x51}}));
  EXPECT_EQ(table.Placed().size(), 1u);
  EXPECT_EQ(table.Placed().size(), 1u);  // Once.
}

TEST(FaultTableTest, FaultsGoWithTheirAttachment) {
  Table table;
  const v1::Offer offer = MakeOffer(1, v1::Offer::WANT_ONLINE, {{1, 0x51}});
  table.Offer(offer);
  table.faults.Add(Lost(0x51, 64));
  EXPECT_EQ(table.Placed().size(), 1u);
  table.attachments.Erase(KeyOf(offer));
  EXPECT_TRUE(table.Placed().empty());
  table.Offer(MakeOffer(2, v1::Offer::WANT_ONLINE, {{1, 0x51}}));
  EXPECT_TRUE(table.Placed().empty());  // Nobody named the serial meanwhile: forgotten.
}

// What grows there afterwards is other memory. The first part keeps its own.
TEST(FaultTableTest, FaultsGoWithTheTailThatHadThem) {
  Table table;
  table.host.memdevs.emplace_back().serial = 0x52;
  const auto offer_with = [](std::vector<std::pair<uint32_t, uint64_t>> slots_and_serials) {
    return MakeOffer(1, v1::Offer::WANT_ONLINE, std::move(slots_and_serials));
  };
  table.Offer(offer_with({{1, 0x51}, {2, 0x52}}));
  table.faults.Add(Lost(0x51, 64));
  table.faults.Add(Lost(0x52, 128));
  EXPECT_EQ(table.Placed().size(), 2u);
  table.Offer(offer_with({{1, 0x51}}));
  EXPECT_EQ(table.Placed(), (std::vector<RegionRange>{{64, 64}}));
  table.Offer(offer_with({{1, 0x51}, {3, 0x53}}));
  EXPECT_EQ(table.Placed(), (std::vector<RegionRange>{{64, 64}}));
  // The host has shown the memdev all the time: its bytes are lost wherever they are a Region's.
  table.Offer(offer_with({{1, 0x51}, {2, 0x52}}));
  EXPECT_EQ(table.Placed(), (std::vector<RegionRange>{{64, 64}, {kTestLength + 128, 64}}));
}

TEST(FaultTableTest, ARegionHasAtMostSoMany) {
  Table table;
  table.Offer(MakeOffer(1, v1::Offer::WANT_ONLINE, {{1, 0x51}}));
  table.Offer(MakeOffer(2, v1::Offer::WANT_ONLINE, {{2, 0x52}}));
  for (uint64_t i = 0; i < 2 * FaultTable::kMaxFaults; ++i) table.faults.Add(Lost(0x51, i * 64));
  table.faults.Add(Lost(0x52, 0));
  EXPECT_EQ(table.Placed().size(), FaultTable::kMaxFaults + 1);
}

TEST(FaultTableTest, TheSameBytesAreOneFault) {
  Table table;
  table.Offer(MakeOffer(1, v1::Offer::WANT_ONLINE, {{1, 0x51}}));
  v1::HostEvent event = Lost(0x51, 64);
  table.faults.Add(event);
  event.set_kind(v1::HostEvent::GENERAL_MEDIA);
  table.faults.Add(event);
  event.set_dpa_bytes(4096);
  event.set_bytes_lost(false);
  table.faults.Add(event);
  EXPECT_EQ(table.Placed().size(), 1u);
}

}  // namespace
}  // namespace cxlpool::agent
