#include "host-agent/adapters/linux/known_targets.h"

#include "gtest/gtest.h"
#include "host-agent/adapters/linux/snapshot_for_test.h"

namespace cxlpool::agent {
namespace {

TEST(KnownTargetsTest, FillsInWhatWasPulledOut) {
  KnownTargets known;
  CxlSnapshot snapshot = OneBridge();
  AddRegion(snapshot, 0, 0x1001);
  known.Complete(snapshot);
  snapshot.regions[0].targets = {{"", 0}};
  known.Complete(snapshot);
  EXPECT_EQ(snapshot.regions[0].targets[0].serial, 0x1001u);
  snapshot.regions[0].targets.clear();
  known.Complete(snapshot);
  ASSERT_EQ(snapshot.regions[0].targets.size(), 1u);
  EXPECT_EQ(snapshot.regions[0].targets[0].decoder, "");
  EXPECT_NE(FindRegion(snapshot, 0x1001), nullptr);
}

TEST(KnownTargetsTest, NameUsedAgainIsAnotherRegion) {
  KnownTargets known;
  CxlSnapshot snapshot = OneBridge();
  AddRegion(snapshot, 0, 0x1001);
  known.Complete(snapshot);
  snapshot.regions[0].hpa_bytes += 256 * kMiB;
  snapshot.regions[0].targets = {{"", 0}};
  known.Complete(snapshot);
  EXPECT_EQ(snapshot.regions[0].targets[0].serial, 0u);
}

TEST(KnownTargetsTest, ForgetsRegionsThatAreGone) {
  KnownTargets known;
  CxlSnapshot snapshot = OneBridge();
  AddRegion(snapshot, 0, 0x1001);
  known.Complete(snapshot);
  CxlSnapshot empty = OneBridge();
  known.Complete(empty);
  snapshot.regions[0].targets = {{"", 0}};
  known.Complete(snapshot);
  EXPECT_EQ(FindRegion(snapshot, 0x1001), nullptr);
}

}  // namespace
}  // namespace cxlpool::agent
