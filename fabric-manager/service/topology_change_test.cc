// The pool's topology changes while the manager runs: what the driver is given, and when.

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "proto/support/cxl_host.h"
#include "test/rigs/service_fixture.h"

namespace cxlpool::fm {
namespace {

class TopologyServiceTest : public ServiceTest {
 protected:
  TopologyServiceTest() {
    world.follows_topology = true;
    Restart();
    TopologyTables tables;
    for (const FabricDevice& device : world.devices) {
      tables.devices.push_back(Entry(device.id, device.capacity_bytes));
    }
    tables.hosts = {{.id = "host-a", .slots = {10, 11, 30, 31}},
                    {.id = "host-b", .slots = {10, 11, 30, 31}}};
    rig->writer.Submit(
        Audit{{}, "test", "test", ""},
        [&](const PoolState& state, PlanContext& context) -> absl::StatusOr<Proposal> {
          return Proposal{PlanImport(state, tables, "fm.toml", context), nullptr};
        },
        [](const absl::StatusOr<Committed>& done) { EXPECT_TRUE(done.ok()) << done.status(); });
    EXPECT_TRUE(rig->RunUntil([&] { return IsImported(rig->writer.state()); }));
  }

  static DeviceEntry Entry(const std::string& id, uint64_t capacity) {
    return {.id = id, .serial = id, .capacity_bytes = capacity, .granule_bytes = kGranule};
  }
  bool LastGiven(const std::string& id) const {
    if (world.configured.empty()) return false;
    const auto& devices = world.configured.back().devices;
    return std::any_of(devices.begin(), devices.end(),
                       [&](const DeviceEntry& entry) { return entry.id == id; });
  }
  void Put(const std::string& id, uint64_t capacity) {
    bool done = false;
    BeginToPut(id, capacity, [&](absl::Status status) {
      EXPECT_TRUE(status.ok()) << status;
      done = true;
    });
    EXPECT_TRUE(rig->RunUntil([&] { return done; }));
  }
  void BeginToPut(const std::string& id, uint64_t capacity, Done done) {
    rig->pool.ChangePool(
        Caller::Admin("cxlpool://operator/alice"), {.method = "AddDevice", .fabric_follows = true},
        [entry = Entry(id, capacity)](const PoolState& state, const Caller& caller,
                                      PlanContext& context) {
          return PlanPutDevice(state, caller, entry, context);
        },
        std::move(done));
  }
  const Device* Find(const std::string& id) { return rig->writer.state().FindDevice(id); }
  // A LD of cmm-9, whether the pool has that device or not.
  void BindByNoRecord(uint64_t number, uint32_t slot, uint64_t dpa) {
    BoundLd ld;
    ld.host = "host-a";
    ld.slot = slot;
    ld.slice = {"cmm-9", dpa, kGranule};
    ld.serial = kSerialBase | (9'000'000 + number);
    const std::string tag = FormatUuid(absl::StrCat("a-lost-record--", number));
    ld.key = LdKey{"host-a", tag, 9'100'000 + number, 0};
    world.bound[ld.serial] = {ld, v1::SEGMENT_ONLINE};
  }
};

TEST_F(TopologyServiceTest, ADeviceIsThereWhenTheCallIsAnswered) {
  Put("cmm-9", 4 * kGranule);
  ASSERT_NE(Find("cmm-9"), nullptr);
  EXPECT_TRUE(Find("cmm-9")->reachable);
  EXPECT_EQ(rig->views.Get()->laid_down->tables.devices.back().id, "cmm-9");
}

TEST_F(TopologyServiceTest, TheDriverIsGivenWhatIsDurableAlone) {
  rig->RunUntil([] { return false; }, absl::Seconds(1));
  world.configured.clear();
  BeginToPut("cmm-9", 4 * kGranule, [](const absl::Status&) {});
  rig->executor.RunReady();  // Planned, and its commit is under way.
  ASSERT_EQ(rig->writer.state().GetTopologyTables().devices.back().id, "cmm-9");
  rig->reconciler.FollowTopology([](const absl::Status&) {});
  rig->executor.RunReady();
  ASSERT_FALSE(world.configured.empty());
  EXPECT_FALSE(LastGiven("cmm-9"));
  EXPECT_TRUE(rig->RunUntil([&] { return LastGiven("cmm-9"); }));
}

// It may be waiting for that host.
TEST_F(TopologyServiceTest, TheDriverIsToldOfAHostThatIsRetired) {
  rig->RunUntil([] { return false; }, absl::Seconds(1));
  EXPECT_TRUE(world.retired.empty());
  ASSERT_TRUE(rig->Change(&PlanRetire, "host-b").ok());
  EXPECT_TRUE(rig->RunUntil([&] { return world.retired == std::set<std::string>{"host-b"}; },
                            absl::Seconds(2)));
  ASSERT_TRUE(rig->Change(&PlanEnrol, {.host = "host-b"}).ok());
  rig->reconciler.FollowTopology([](const absl::Status&) {});
  EXPECT_TRUE(rig->RunUntil([&] { return world.retired.empty(); }, absl::Seconds(2)));
}

TEST_F(TopologyServiceTest, AGrownDeviceHasMoreRoom) {
  Put("cmm-9", 4 * kGranule);
  Put("cmm-9", 6 * kGranule);
  EXPECT_EQ(Find("cmm-9")->capacity_bytes, 6 * kGranule);
  EXPECT_TRUE(Find("cmm-9")->reachable);
  EXPECT_TRUE(rig->writer.state().CheckInvariants().ok());
}

// After a restore from a backup of before a device was added, or made larger: what was bound there
// since is known to the fabric only.
TEST_F(TopologyServiceTest, WhatIsBoundOnADeviceIsHeldWhenTheDeviceComesIn) {
  BindByNoRecord(1, 10, kGranule);
  rig->RunUntil([] { return false; }, absl::Seconds(25));  // Looked at more than once.
  EXPECT_EQ(rig->views.Get()->capacity.quarantined_bytes, 0u) << "there is nothing to hold";
  Put("cmm-9", 4 * kGranule);
  EXPECT_EQ(rig->views.Get()->capacity.quarantined_bytes, kGranule) << "at once";
  BindByNoRecord(2, 30, 5 * kGranule);
  rig->RunUntil([] { return false; }, absl::Seconds(25));
  EXPECT_EQ(rig->views.Get()->capacity.quarantined_bytes, kGranule);
  Put("cmm-9", 6 * kGranule);
  EXPECT_EQ(rig->views.Get()->capacity.quarantined_bytes, 2 * kGranule);
  EXPECT_TRUE(rig->writer.state().CheckInvariants().ok());
  EXPECT_EQ(world.bound.size(), 2u) << "and stays as it is";
}

TEST_F(TopologyServiceTest, WhatWasChangedOutlivesTheManager) {
  Put("cmm-9", 4 * kGranule);
  bool removed = false;
  rig->pool.ChangePool(
      Caller::Admin("cxlpool://operator/alice"), {.method = "RemoveDevice", .fabric_follows = true},
      PlanFor(&PlanRemoveDevice, "cmm-1"), [&](absl::Status status) { removed = status.ok(); });
  ASSERT_TRUE(rig->RunUntil([&] { return removed; }));
  EXPECT_FALSE(LastGiven("cmm-1"));
  const TopologyTables before = rig->writer.DurableTables();
  rig->Kill();
  world.configured.clear();
  Restart();
  EXPECT_TRUE(rig->RunUntil([&] { return LastGiven("cmm-9"); }));
  EXPECT_FALSE(LastGiven("cmm-1"));
  EXPECT_EQ(rig->writer.DurableTables(), before);
}

}  // namespace
}  // namespace cxlpool::fm
