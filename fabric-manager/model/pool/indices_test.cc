// The indices that PoolState is composed of, each by itself: that they take a Region whole or not
// at all, and that what they are compared by finds a difference.

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "fabric-manager/model/pool/attachment_index.h"
#include "fabric-manager/model/pool/device_table.h"
#include "fabric-manager/model/pool/region_index.h"
#include "fabric-manager/model/pool/tenant.h"

namespace cxlpool::fm {
namespace {

constexpr uint64_t kGranule = 1 << 20;

std::shared_ptr<Region> MakeRegion(Key key, const std::string& id, char tag) {
  auto region = std::make_shared<Region>();
  region->key = key;
  region->id = id;
  region->tag = Uuid(std::string(16, tag));
  region->tenant = "ml";
  region->extents = {{"cmm-0", 0, kGranule}, {"cmm-0", kGranule, kGranule}};
  region->requests = {{{"p", "AllocateRegion", Uuid(std::string(16, tag))}, 1}};
  Attachment& attachment = region->attachments.emplace_back();
  attachment.host = "host-a";
  attachment.generation = key + 1;
  attachment.segments.resize(2);
  for (uint32_t i = 0; i < 2; ++i) {
    attachment.segments[i].extent_index = i;
    attachment.segments[i].slot = static_cast<uint32_t>(key) + i;
    attachment.segments[i].serial = kSerialBase | (key + i);
  }
  return region;
}

TEST(RegionNamesTest, ARegionHasBothNamesOrNone) {
  const RegionPtr kv = MakeRegion(10, "kv", 'a');
  RegionNames names;
  ASSERT_TRUE(names.Add(kv).ok());
  EXPECT_FALSE(names.Add(MakeRegion(20, "kv", 'b')).ok());
  EXPECT_FALSE(names.Add(MakeRegion(20, "other", 'a')).ok());
  EXPECT_EQ(names.FindById("other"), nullptr) << "it was found by the name that it has alone";
  EXPECT_EQ(names.FindByTag(Uuid(std::string(16, 'b'))), nullptr);
  EXPECT_TRUE(names.Check({{10, kv}}).ok());
  EXPECT_FALSE(names.Check({}).ok());
  EXPECT_FALSE(names.Check({{10, MakeRegion(10, "kv", 'a')}}).ok()) << "another value of it";
  names.Remove(*kv);
  EXPECT_TRUE(names.Check({}).ok());
}

TEST(RequestIndexTest, ARegionHasAllItsRequestsOrNone) {
  RequestIndex requests;
  ASSERT_TRUE(requests.Add(*MakeRegion(10, "kv", 'a')).ok());
  const auto other = MakeRegion(20, "other", 'b');
  const RequestId own = other->requests[0].id;
  other->requests.push_back(MakeRegion(10, "kv", 'a')->requests[0]);
  EXPECT_FALSE(requests.Add(*other).ok());
  EXPECT_EQ(requests.Find(own), std::nullopt);
  EXPECT_EQ(requests.Find(other->requests[1].id), 10u);
}

TEST(TombstonesTest, TheOldestExpireFirst) {
  const absl::Time now = absl::FromUnixSeconds(1'000'000);
  Tombstones tombstones;
  tombstones.Put({MakeRegion(10, "young", 'a'), now});
  tombstones.Put({MakeRegion(20, "old", 'b'), now - 2 * kTombstoneLife});
  tombstones.Put({MakeRegion(30, "older", 'c'), now - 3 * kTombstoneLife});
  EXPECT_EQ(tombstones.Expired(now, 9), (std::vector<Key>{30, 20}));
  EXPECT_EQ(tombstones.Expired(now, 1), (std::vector<Key>{30}));
  tombstones.Put({MakeRegion(30, "older", 'c'), now});
  tombstones.Erase(20);
  EXPECT_TRUE(tombstones.Expired(now, 9).empty());
  EXPECT_TRUE(tombstones.Check().ok());
}

TEST(AttachmentIndexTest, ARegionTakesAllItsSlotsOrNone) {
  const auto kv = MakeRegion(10, "kv", 'a');
  AttachmentIndex index;
  ASSERT_TRUE(index.Add(*kv).ok());
  EXPECT_EQ(index.AttachedBytes("host-a", "ml"), 2 * kGranule);
  const auto other = MakeRegion(20, "other", 'b');
  other->attachments[0].segments[1].slot = 11;
  EXPECT_FALSE(index.Add(*other).ok());
  EXPECT_EQ(index.Occupied("host-a").size(), 2u);
  EXPECT_FALSE(index.KnowsGeneration(21));
  AttachmentIndex fresh;
  EXPECT_FALSE(index.Compare(fresh).ok());
  ASSERT_TRUE(fresh.Add(*kv).ok());
  EXPECT_TRUE(index.Compare(fresh).ok());
  index.Remove(*kv);
  EXPECT_TRUE(index.Compare(AttachmentIndex()).ok());
}

TEST(AttachmentIndexTest, WhatMovesOnKeepsItsSlotsAndTakesNoneBack) {
  const auto before = MakeRegion(10, "kv", 'a');
  before->attachments[0].parts.push_back({.first_segment = 1});
  const auto left = std::make_shared<Region>(*before);
  left->attachments[0].parts[1].state = AttachmentState::kUnbound;
  AttachmentIndex index;
  ASSERT_TRUE(index.Add(*before).ok());
  ASSERT_TRUE(index.Move(*before, *left));
  ASSERT_EQ(index.Occupied("host-a").size(), 1u) << "the slot of the part that left is free";
  EXPECT_EQ(index.Occupied("host-a")[0].slot, 10u);
  EXPECT_FALSE(index.Move(*left, *before));
  EXPECT_EQ(index.Occupied("host-a").size(), 1u);
  AttachmentIndex fresh;
  ASSERT_TRUE(fresh.Add(*left).ok());
  EXPECT_TRUE(index.Compare(fresh).ok()) << index.Compare(fresh);
}

TEST(DeviceTableTest, ARegionTakesAllItsBytesOrNone) {
  const Device device{.id = "cmm-0",
                      .serial = "",
                      .capacity_bytes = 4 * kGranule,
                      .granule_bytes = kGranule,
                      .reachable = true};
  DeviceTable table;
  ASSERT_TRUE(table.Add(device).ok());
  const auto kv = MakeRegion(10, "kv", 'a');
  ASSERT_TRUE(table.Take(*kv).ok());
  const auto other = MakeRegion(20, "other", 'b');
  other->extents[0].dpa_bytes = 2 * kGranule;
  EXPECT_FALSE(table.Take(*other).ok()) << "its second Extent is another's";
  EXPECT_EQ(table.GetCapacity().free_bytes, 2 * kGranule);
  EXPECT_FALSE(table.Remove("cmm-0").ok());
  Device smaller = device;
  smaller.capacity_bytes = kGranule;
  EXPECT_FALSE(table.Change(smaller, kv->extents).ok());
  EXPECT_EQ(table.Find("cmm-0")->capacity_bytes, 4 * kGranule);
  EXPECT_TRUE(table.Check().ok()) << table.Check();
  DeviceTable fresh;
  ASSERT_TRUE(fresh.Add(device).ok());
  EXPECT_FALSE(table.Compare(fresh).ok());
  table.Give(*kv);
  EXPECT_TRUE(table.Compare(fresh).ok()) << table.Compare(fresh);
}

TEST(DeviceTableTest, ADeviceWithAllItsLdsIsNoPlaceForAnother) {
  DeviceTable table;
  table.SetLimits({.max_lds_per_device = 2});
  ASSERT_TRUE(table
                  .Add(Device{.id = "cmm-0",
                              .serial = "",
                              .capacity_bytes = 4 * kGranule,
                              .granule_bytes = kGranule,
                              .reachable = true})
                  .ok());
  EXPECT_FALSE(table.placeable().empty());
  const auto kv = MakeRegion(10, "kv", 'a');
  ASSERT_TRUE(table.Take(*kv).ok());
  EXPECT_TRUE(table.placeable().empty());
  EXPECT_TRUE(table.Check().ok()) << table.Check();
  table.Give(*kv);
  EXPECT_FALSE(table.placeable().empty());
  EXPECT_TRUE(table.Check().ok()) << table.Check();
}

TEST(TenantTableTest, WhatIsReservedIsKeptFromOthersUntilItIsUsed) {
  TenantTable tenants;
  tenants.Put({.key = 1, .id = "ml", .reserved_bytes = 5 * kGranule});
  const auto kv = MakeRegion(10, "kv", 'a');
  tenants.Charge(*kv, 1);
  EXPECT_EQ(tenants.ReservedForOthers("web"), 3 * kGranule);
  EXPECT_EQ(tenants.ReservedForOthers("ml"), 0u);
  tenants.Put({.key = 1, .id = "ml", .reserved_bytes = kGranule});
  EXPECT_EQ(tenants.ReservedForOthers("web"), 0u);
  EXPECT_FALSE(tenants.Compare(TenantTable()).ok());
  tenants.Charge(*kv, -1);
  EXPECT_EQ(tenants.ReservedForOthers("web"), kGranule);
  tenants.Erase("ml");
  EXPECT_TRUE(tenants.Compare(TenantTable()).ok());
}

}  // namespace
}  // namespace cxlpool::fm
