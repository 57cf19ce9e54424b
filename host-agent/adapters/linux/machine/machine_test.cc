#include "host-agent/adapters/linux/machine/machine.h"

#include "gtest/gtest.h"
#include "test/rigs/snapshot_for_test.h"

namespace cxlpool::agent {
namespace {

// What remains of the region on decoder `id`, of 256 MiB, when its memdev was pulled out.
void MakeOrphan(CxlSnapshot& snapshot, size_t id, uint64_t known_serial) {
  for (DecoderStack& stack : snapshot.bridges.front().stacks) stack.decoders[id].in_use = false;
  snapshot.regions[id].committed = false;
  snapshot.regions[id].targets = {{"", known_serial}};
}

TEST(LookAtCxlTest, KnownOrphanHoldsItsAddresses) {
  CxlSnapshot snapshot = OneBridge();
  AddRegion(snapshot, 0, 0x1001);
  MakeOrphan(snapshot, 0, 0x1001);
  CountFree(snapshot);
  EXPECT_EQ(snapshot.windows[0].largest_free_bytes, (8192 - 256) * kMiB);
}

TEST(LookAtCxlTest, LongestRunIsBesideOrphansAndLiveRegions) {
  CxlSnapshot snapshot = OneBridge();
  for (int id = 0; id < 3; ++id) AddRegion(snapshot, id, 0x1001 + id);
  snapshot.regions[2].hpa_bytes = kWindowHpa + 6144 * kMiB;
  MakeOrphan(snapshot, 2, 0x1003);
  CountFree(snapshot);
  EXPECT_EQ(snapshot.windows[0].largest_free_bytes, (6144 - 512) * kMiB);
}

TEST(LookAtCxlTest, WhatIsFreeIsNeverRaised) {
  CxlSnapshot snapshot = OneBridge();
  AddRegion(snapshot, 0, 0x1001);
  MakeOrphan(snapshot, 0, 0x1001);
  snapshot.windows[0].largest_free_bytes = 512 * kMiB;
  CountFree(snapshot);
  EXPECT_EQ(snapshot.windows[0].largest_free_bytes, 512 * kMiB);
}

TEST(LookAtCxlTest, AnonymousOrphanHoldsItsAddressesToo) {
  CxlSnapshot snapshot = OneBridge();
  AddRegion(snapshot, 0, 0x1001);
  MakeOrphan(snapshot, 0, 0);
  CountFree(snapshot);
  EXPECT_EQ(snapshot.windows[0].largest_free_bytes, (8192 - 256) * kMiB);
}

TEST(LookAtCxlTest, OrphanWithoutAddressesAndThoseOfOtherWindowsTakeNothing) {
  CxlSnapshot snapshot = OneBridge();
  AddRegion(snapshot, 0, 0x1001);
  MakeOrphan(snapshot, 0, 0x1001);
  snapshot.regions[0].hpa_bytes = 0;
  CountFree(snapshot);
  snapshot.regions[0].hpa_bytes = kWindowHpa;
  snapshot.regions[0].window = "decoder0.7";
  CountFree(snapshot);
  EXPECT_EQ(snapshot.windows[0].largest_free_bytes, 8192 * kMiB);
}

}  // namespace
}  // namespace cxlpool::agent
