// A device that is full of Regions fails, also on a store that takes little at once.

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "test/rigs/service_fixture.h"

namespace cxlpool::fm {
namespace {

// A device with more Regions on it than a store takes changes of in one commit.
class FullDeviceTest : public ServiceTest {
 protected:
  static constexpr size_t kRegions = StoreLimits().max_batch_rows + 4000;
  static constexpr size_t kFewRegions = 200;
  static constexpr StoreLimits kSmall = {.max_batch_rows = 64};

  void Fill(DeviceService service, size_t regions = kRegions, const StoreLimits& limits = {}) {
    disk = std::make_shared<MemoryDisk>(uint64_t{1} << 32, limits);
    const size_t at_once = std::min<size_t>(60'000, limits.max_batch_rows - 4);
    const StoreImage image = disk->TakeOver();
    StoreBatch batch{image.epoch, 0, 1, {}, {}};
    Device device;
    device.key = 2;
    device.id = "big";
    device.capacity_bytes = (regions + 1) * kGranule;
    device.granule_bytes = kGranule;
    device.service = service;
    if (service == DeviceService::kFailed) device.service_reason = "smoke";
    batch.puts.push_back({device.key, EncodeItem(device)});
    batch.puts.push_back({kPoolKey, EncodePool({1, regions + 100})});
    for (size_t i = 0; i < regions; ++i) {
      auto region = std::make_shared<Region>();
      region->key = region->generation = 10 + i;
      std::string tag(16, 't');
      for (size_t b = 0; b < 4; ++b) tag[b] = static_cast<char>(i >> (8 * b));
      region->tag = Uuid(tag);
      region->id = absl::StrCat("r", i);
      region->tenant = kDefaultTenant;
      region->state = RegionState::kAllocated;
      region->extents = {{"big", i * kGranule, kGranule}};
      region->requested_bytes = kGranule;
      region->revision = 1;
      batch.puts.push_back({region->key, EncodeItem(RegionPtr(region))});
      if (batch.puts.size() < at_once && i + 1 < regions) continue;
      ASSERT_TRUE(disk->Apply(batch).ok());
      batch = {image.epoch, batch.revision, batch.revision + 1, {}, {}};
    }
    rig = std::make_unique<ServiceRig>(disk, &world);
  }

  size_t Quarantined() {
    size_t count = 0;
    for (const auto& [key, region] : rig->writer.state().regions()) {
      count += region->state == RegionState::kQuarantined ? 1 : 0;
    }
    return count;
  }
};

TEST_F(FullDeviceTest, FailsInAsManyChangesAsItTakes) {
  Fill(DeviceService::kInService);
  ASSERT_EQ(Quarantined(), 0u);
  absl::Status failed = absl::UnavailableError("no answer");
  rig->pool.FailDevice(Caller::Admin("op"), "big", "smoke",
                       [&](absl::Status status) { failed = status; });
  EXPECT_TRUE(rig->RunUntil([&] { return failed.ok(); })) << failed;
  EXPECT_EQ(Quarantined(), kRegions);
}

TEST_F(FullDeviceTest, FailsOnAStoreThatTakesLittleAtOnce) {
  Fill(DeviceService::kInService, kFewRegions, kSmall);
  absl::Status failed = absl::UnavailableError("no answer");
  rig->pool.FailDevice(Caller::Admin("op"), "big", "smoke",
                       [&](absl::Status status) { failed = status; });
  EXPECT_TRUE(rig->RunUntil([&] { return failed.ok(); })) << failed;
  EXPECT_EQ(Quarantined(), kFewRegions);
}

// And the tombstones that its commits let go of by the way fit in as well.
TEST_F(FullDeviceTest, ABatchOnAStoreThatTakesLittleAtOnce) {
  disk = std::make_shared<MemoryDisk>(uint64_t{1} << 32, kSmall);
  world.devices = {world.devices.front()};
  world.devices.front().capacity_bytes = 2 * kFewRegions * kGranule;
  Restart();
  for (int round = 0; round < 3; ++round) {
    std::vector<absl::StatusOr<AllocateSpec>> specs;
    std::vector<absl::StatusOr<ReleaseSpec>> releases;
    for (size_t i = 0; i < kFewRegions; ++i) {
      AllocateSpec spec = AllocateOn(absl::StrCat("r", i), "", 0);
      ReleaseSpec release = ReleaseOf(spec.region_id, 0);
      spec.request.id.id = release.request.id.id =
          Uuid(absl::StrCat(round, "-", 1000 + i, std::string(10, '-')));
      spec.size_bytes = kGranule;
      specs.emplace_back(spec);
      releases.emplace_back(release);
    }
    const auto all_ok = [](const Outcomes& outcomes) {
      return outcomes.size() == kFewRegions &&
             std::all_of(outcomes.begin(), outcomes.end(),
                         [](const auto& one) { return one.ok(); });
    };
    bool made = false;
    bool released = false;
    rig->pool.AllocateBatch(std::move(specs), false, [&](auto got) { made = all_ok(got); });
    EXPECT_TRUE(rig->RunUntil([&] { return made; }));
    EXPECT_TRUE(rig->RunUntil([&] { return Online(rig->Find("r199")); }));
    rig->pool.ReleaseBatch(std::move(releases), [&](auto got) { released = all_ok(got); });
    EXPECT_TRUE(rig->RunUntil([&] { return released; }));
    EXPECT_TRUE(rig->RunUntil([&] { return rig->writer.state().regions().empty(); }));
    rig->executor.Advance(absl::Hours(2));  // The tombstones expire.
  }
  EXPECT_TRUE(rig->fatal.ok()) << rig->fatal;
  ExpectSound();
}

TEST_F(FullDeviceTest, AHostWithMuchIsFencedOnAStoreThatTakesLittleAtOnce) {
  disk = std::make_shared<MemoryDisk>(uint64_t{1} << 32, kSmall);
  world.any_order = true;
  world.slots.clear();
  for (uint32_t slot = 1; slot <= 160; ++slot) world.slots.push_back(slot);
  world.devices = {world.devices.front()};
  world.devices.front().capacity_bytes = 2 * kFewRegions * kGranule;
  Restart();
  constexpr char kRegionsThere = 100;
  for (char i = 1; i <= kRegionsThere; ++i) {
    AllocateSpec spec = AllocateOn(absl::StrCat("r", int{i}), "host-a", i);
    spec.size_bytes = kGranule;
    Make(spec);
  }
  const absl::Status fenced = rig->Do([&](Done done) {
    rig->pool.Fence(Caller::Admin("op"), "host-a", "it hangs", std::move(done));
  });
  EXPECT_TRUE(fenced.ok()) << fenced;
  EXPECT_TRUE(rig->RunUntil([&] { return rig->writer.state().Occupied("host-a").empty(); }));
  EXPECT_TRUE(rig->fatal.ok()) << rig->fatal;
  ExpectSound();
}

TEST_F(FullDeviceTest, AManagerThatDiedAmongTheseChangesGoesOnWithThem) {
  Fill(DeviceService::kFailed);
  EXPECT_TRUE(rig->RunUntil([&] { return Quarantined() == kRegions; }));
}

// The changes are so many that most of them are still to be made when it is up.
TEST_F(FullDeviceTest, AManagerThatGoesOnWithThemOutlastsAStoreThatTakesNothing) {
  constexpr size_t kMany = 6'000;
  Fill(DeviceService::kFailed, kMany, {.max_batch_rows = 32});
  ASSERT_GT(Quarantined(), 0u);
  ASSERT_LT(Quarantined(), kMany);
  rig->store().FailNextCommit(
      {Refuse(absl::StatusCode::kResourceExhausted, "STORE_FULL", "full", "wait"), false});
  EXPECT_TRUE(rig->RunUntil([&] { return Quarantined() == kMany; })) << Quarantined();
}

}  // namespace
}  // namespace cxlpool::fm
