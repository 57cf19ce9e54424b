#include "fabric-manager/service/ld_names.h"

#include <gtest/gtest.h>

#include "proto/support/cxl_host.h"

namespace cxlpool::fm {
namespace {

constexpr uint64_t kLdBytes = 1ull << 28;

// Two extents, of which host-a has both.
Region NamedRegion() {
  Region region;
  region.tag = Uuid(std::string(16, 'k'));
  Attachment attachment;
  attachment.host = "host-a";
  attachment.generation = 11;
  for (uint32_t i = 0; i < 2; ++i) {
    region.extents.push_back({Interned("cmm-0"), i * kLdBytes, kLdBytes});
    Segment segment;
    segment.extent_index = i;
    segment.slot = 1 + i;
    segment.serial = 101 + i;
    attachment.segments.push_back(segment);
  }
  region.attachments.push_back(attachment);
  return region;
}

BoundLd Shown(const Region& region, uint32_t segment) {
  const Binding binding = BindingFor(region, region.attachments[0], segment);
  return {.host = "host-a",
          .slot = binding.slot,
          .slice = binding.slice,
          .serial = binding.serial,
          .key = binding.key};
}

TEST(LdNamesTest, ARecordSaysWhoseAnLdIsAndWhere) {
  const Region region = NamedRegion();
  const Binding binding = BindingFor(region, region.attachments[0], 1);
  EXPECT_EQ(binding.key, (LdKey{"host-a", "6b6b6b6b-6b6b-6b6b-6b6b-6b6b6b6b6b6b", 11, 1}));
  EXPECT_EQ(binding.slot, 2u);
  EXPECT_EQ(binding.slice, (Slice{"cmm-0", kLdBytes, kLdBytes}));
  EXPECT_EQ(binding.serial, 102u);
}

// One that was a stray keeps the number by which the fabric knows it.
TEST(LdNamesTest, AStrayThatWasTakenInKeepsItsNumber) {
  Region region = NamedRegion();
  region.attachments[0].segments[1].ld_index = 7;
  EXPECT_EQ(KeyFor(region, region.attachments[0], 1).extent_index, 7u);
  EXPECT_TRUE(Names(region, Shown(region, 1), true));
}

TEST(LdNamesTest, ARegionHasAnLdOnlyWhereEverythingAgrees) {
  const Region region = NamedRegion();
  EXPECT_TRUE(Names(region, Shown(region, 0), true));
  const auto differs = [&](auto change) {
    BoundLd ld = Shown(region, 0);
    change(ld);
    return !Names(region, ld, true);
  };
  EXPECT_TRUE(differs([](BoundLd& ld) { ld.key.reset(); }));
  EXPECT_TRUE(differs([](BoundLd& ld) { ld.host = "host-b"; }));
  EXPECT_TRUE(differs([](BoundLd& ld) { ld.key->generation = 12; }));
  EXPECT_TRUE(differs([](BoundLd& ld) { ld.key->extent_index = 1; }));
  EXPECT_TRUE(differs([](BoundLd& ld) { ld.slot = 2; }));
  EXPECT_TRUE(differs([](BoundLd& ld) { ld.serial = 102; }));
  EXPECT_TRUE(differs([](BoundLd& ld) { ld.slice.device = "cmm-1"; }));
  EXPECT_TRUE(differs([](BoundLd& ld) { ld.slice.dpa_bytes = kLdBytes; }));
  EXPECT_TRUE(differs([](BoundLd& ld) { ld.slice.length_bytes = 2 * kLdBytes; }));
}

TEST(LdNamesTest, WhereHardwareHasTheSerialAnyIsTakenUntilItIsRecorded) {
  Region region = NamedRegion();
  BoundLd ld = Shown(region, 0);
  ld.serial = 7;
  EXPECT_FALSE(Names(region, ld, false)) << "the real one is recorded";
  region.attachments[0].segments[0].serial = kSerialBase | 5;
  EXPECT_TRUE(Names(region, ld, false));
  EXPECT_FALSE(Names(region, ld, true)) << "here the fabric gives the serial that was asked for";
}

}  // namespace
}  // namespace cxlpool::fm
