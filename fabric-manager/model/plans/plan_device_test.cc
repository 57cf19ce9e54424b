// Devices that come in, and those that fail.

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "fabric-manager/model/plans/planner.h"
#include "proto/support/cxl_host.h"
#include "test/model/model_rig.h"

namespace cxlpool::fm {
namespace {

class PlanDeviceTest : public testing::Test, protected ModelRig {};

TEST_F(PlanDeviceTest, AFullDeviceFailsAPartAtATime) {
  AddDevice("big", 8 * kGiB, 2 * kMiB);
  Change regions;
  for (size_t i = 0; i < 2 * kFailedRegionsAChange + 7; ++i) {
    auto region = std::make_shared<Region>();
    region->key = region->generation = context().next_id();
    region->tag = context().make_tag();
    region->id = absl::StrCat("r", i);
    region->tenant = kDefaultTenant;
    region->state = RegionState::kAllocated;
    region->extents = {{"big", i * 2 * kMiB, 2 * kMiB}};
    regions.push_back(RegionPtr(region));
  }
  Commit(regions);
  std::vector<size_t> items;
  while (items.size() < 10) {
    const auto failed = PlanFailDevice(state(), "big", "smoke", context());
    ASSERT_TRUE(failed.ok()) << failed.status();
    if (failed->empty()) break;
    items.push_back(failed->size());
    Commit(*failed);
    EXPECT_EQ(state().FindDevice("big")->service, DeviceService::kFailed) << "from the first on";
  }
  EXPECT_EQ(items, (std::vector<size_t>{kFailedRegionsAChange + 1, kFailedRegionsAChange, 7}));
  EXPECT_EQ((*state().FindRegionById("r2050"))->state, RegionState::kQuarantined);
}

TEST_F(PlanDeviceTest, IsOutOfServiceSinceItWasTakenOut) {
  AddDevice("cmm-9", 8 * kGiB, 2 * kMiB);
  const auto since = [this] { return state().FindDevice("cmm-9")->service_since; };
  EXPECT_EQ(since(), absl::InfinitePast());
  const absl::Time drained = context().now;
  Commit(PlanDrainDevice(state(), kAlice, "cmm-9", context()).value());
  EXPECT_EQ(since(), drained);
  context().now += absl::Minutes(1);
  EXPECT_TRUE(PlanDrainDevice(state(), kAlice, "cmm-9", context()).value().empty());
  Commit(PlanAddDevice(state(), kAlice, "cmm-9", context()).value());
  EXPECT_EQ(since(), absl::InfinitePast());
  Commit(PlanFailDevice(state(), "cmm-9", "smoke", context()).value());
  EXPECT_EQ(since(), drained + absl::Minutes(1));
}

TEST_F(PlanDeviceTest, AFailureIsNoLargerThanTheStoreTakes) {
  AddDevice("big", 8 * kGiB, 2 * kMiB);
  context().max_items = 3;
  Change regions;
  for (size_t i = 0; i < 6; ++i) {
    auto region = std::make_shared<Region>();
    region->key = region->generation = context().next_id();
    region->tag = context().make_tag();
    region->id = absl::StrCat("r", i);
    region->tenant = kDefaultTenant;
    region->state = RegionState::kAllocated;
    region->extents = {{"big", i * 2 * kMiB, 2 * kMiB}};
    regions.push_back(RegionPtr(region));
  }
  Commit(regions);
  std::vector<size_t> items;
  while (items.size() < 10) {
    const auto failed = PlanFailDevice(state(), "big", "smoke", context());
    ASSERT_TRUE(failed.ok()) << failed.status();
    if (failed->empty()) break;
    items.push_back(failed->size());
    Commit(*failed);
  }
  EXPECT_EQ(items, (std::vector<size_t>{3, 3, 1})) << "the device is one of them";
}

Device New(uint64_t capacity_bytes) {
  Device device;
  device.id = "new";
  device.capacity_bytes = capacity_bytes;
  device.granule_bytes = kUnit;
  return device;
}

TEST_F(PlanDeviceTest, ADeviceThatIsSeenComesInFree) {
  Device seen = New(5 * kUnit);
  const Change change = PlanSeenDevice(state(), seen, false, context());
  ASSERT_EQ(change.size(), 1u);
  Commit(change);
  EXPECT_EQ(state().UseOf(*state().IndexOf(Interned("new"))).quarantined_bytes, 0u);
  EXPECT_TRUE(PlanSeenDevice(state(), seen, false, context()).empty()) << "it is known";
}

TEST_F(PlanDeviceTest, ADeviceThatHasBytesAlreadyIsHeldWhole) {
  const Device seen = New(5 * kUnit);
  Commit(PlanSeenDevice(state(), seen, true, context()));
  const auto on_it = state().RegionsOn("new");
  ASSERT_EQ(on_it.size(), 1u);
  EXPECT_EQ((*on_it.begin())->id.substr(0, 10), "found-new-");
  EXPECT_EQ((*on_it.begin())->state, RegionState::kQuarantined);
  EXPECT_EQ((*on_it.begin())->size_bytes(), 5 * kUnit);
}

// Its record may be one of those that a damaged store lost, and its bytes somebody's.
TEST_F(PlanDeviceTest, WhereRecordsWereLostADeviceThatIsSeenIsHeldWhole) {
  PlanContext lossy = context();
  lossy.hold_reason = "records were lost, as a repair found on 2026-11-22";
  const Device seen = New(5 * kUnit);
  Commit(PlanSeenDevice(state(), seen, false, lossy));
  const auto on_it = state().RegionsOn("new");
  ASSERT_EQ(on_it.size(), 1u);
  const Region& hold = **on_it.begin();
  EXPECT_EQ(hold.id.substr(0, 10), "fsck-hold-");
  EXPECT_EQ(hold.state, RegionState::kQuarantined);
  EXPECT_EQ(hold.size_bytes(), 5 * kUnit);
  EXPECT_NE(hold.state_reason.find("2026-11-22"), std::string::npos) << hold.state_reason;
  EXPECT_EQ(state().space().free_bytes(*state().IndexOf(Interned("new"))), 0u);
}

// A retired host has no Attachment: it may be enrolled again in another life, and what was attached
// in the one before would be taken for gone.
TEST_F(PlanDeviceTest, WhatARetiredHostHasBoundIsHeldWithoutAnAttachment) {
  AddPool();
  StrayLd ld;
  ld.host = "host-a";
  ld.tag = Uuid("0123456789abcdef");
  ld.generation = 9'000'000;
  ld.slot = 17;
  ld.serial = kSerialBase | 9'000'001;
  ld.extent = {"cmm-1", 0, kUnit};
  const auto attachments = [&] {
    const Change change = PlanStray(state(), {ld}, context());
    EXPECT_EQ(change.size(), 1u);
    const Region& region = *std::get<RegionPtr>(change.front());
    EXPECT_EQ(region.state, RegionState::kQuarantined);
    EXPECT_EQ(region.size_bytes(), kUnit);
    return region.attachments.size();
  };
  EXPECT_EQ(attachments(), 1u);
  Commit(PlanRetire(state(), kAlice, "host-a", context()).value());
  EXPECT_EQ(attachments(), 0u);
}

}  // namespace
}  // namespace cxlpool::fm
