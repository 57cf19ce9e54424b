// A device that is full of Regions fails.

#include <gtest/gtest.h>

#include <memory>

#include "absl/strings/str_cat.h"
#include "test/rigs/service_fixture.h"

namespace cxlpool::fm {
namespace {

// A device with more Regions on it than a store takes changes of in one commit.
class FullDeviceTest : public ServiceTest {
 protected:
  static constexpr size_t kRegions = StoreLimits().max_batch_rows + 4000;

  void Fill(DeviceService service) {
    const StoreImage image = disk->TakeOver();
    StoreBatch batch{image.epoch, 0, 1, {}, {}};
    Device device;
    device.key = 2;
    device.id = "big";
    device.capacity_bytes = (kRegions + 1) * kGranule;
    device.granule_bytes = kGranule;
    device.service = service;
    if (service == DeviceService::kFailed) device.service_reason = "smoke";
    batch.puts.push_back({device.key, EncodeItem(device, {})});
    batch.puts.push_back({kPoolKey, EncodePool({1, kRegions + 100}, {})});
    for (size_t i = 0; i < kRegions; ++i) {
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
      batch.puts.push_back({region->key, EncodeItem(RegionPtr(region), {})});
      if (batch.puts.size() < 60'000 && i + 1 < kRegions) continue;
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
  rig->pool.FailDevice(Caller::Operator("op"), "big", "smoke",
                       [&](absl::Status status) { failed = status; });
  EXPECT_TRUE(rig->RunUntil([&] { return failed.ok(); })) << failed;
  EXPECT_EQ(Quarantined(), kRegions);
}

TEST_F(FullDeviceTest, AManagerThatDiedAmongTheseChangesGoesOnWithThem) {
  Fill(DeviceService::kFailed);
  EXPECT_TRUE(rig->RunUntil([&] { return Quarantined() == kRegions; }));
}

}  // namespace
}  // namespace cxlpool::fm
