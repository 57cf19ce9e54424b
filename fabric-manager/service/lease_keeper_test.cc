#include "fabric-manager/service/lease_keeper.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "fabric-manager/adapters/store_memory/memory_store.h"
#include "test/rigs/manual_executor.h"

namespace cxlpool::fm {
namespace {

// "kv", under a lease of ten seconds, of a pool whose store takes five for each commit.
class LeaseKeeperTest : public testing::Test {
 protected:
  static constexpr Key kLeased = 3;

  void SetUp() override {
    writer.Open({.on_committed = [this](const auto& changes) { leases.OnCommitted(changes); },
                 .on_fatal = [](const absl::Status&) {}},
                [](const absl::Status& status) { ASSERT_TRUE(status.ok()) << status; });
    executor.RunReady();
    leases.Start();
    Device device;
    device.key = 1;
    device.id = "cmm-0";
    device.serial = "1";
    device.capacity_bytes = device.granule_bytes = uint64_t{256} << 20;
    Commit(device);
    auto region = std::make_shared<Region>();
    region->key = kLeased;
    region->id = "kv";
    region->tag = Uuid(std::string(16, 'k'));
    region->generation = 10;
    region->state = RegionState::kAllocated;
    region->extents = {{Interned("cmm-0"), 0, device.capacity_bytes}};
    region->ttl = absl::Seconds(10);
    region->expire_time = executor.Now() + region->ttl + kCommit;
    Commit(RegionPtr(region));
    ASSERT_EQ(leases.size(), 1u);
  }
  void Commit(const Item& item) {
    writer.Submit(
        Audit{{}, "test", "test", ""},
        [item](const PoolState&, PlanContext&) -> absl::StatusOr<Proposal> {
          return Proposal::Of(item, nullptr);
        },
        [](const absl::StatusOr<Committed>& done) { ASSERT_TRUE(done.ok()) << done.status(); });
    executor.Advance(kCommit + absl::Milliseconds(10));
  }
  RegionState State() const { return writer.Durable(kLeased)->state; }
  uint64_t Expired() const { return writer.meters().leases_expired.value(); }

  const absl::Duration kCommit = absl::Seconds(5);
  ManualExecutor executor;
  MemoryStore store{std::make_shared<MemoryDisk>(), &executor, kCommit};
  ViewHolder views;
  WatchHub watch;
  Writer writer{{}, &executor, &executor, &store, &views, &watch};
  LeaseKeeper leases{&executor, &executor, &writer};
};

TEST_F(LeaseKeeperTest, ALeaseEndsOnceHoweverLongTheStoreTakes) {
  executor.Advance(absl::Seconds(9));
  EXPECT_EQ(State(), RegionState::kAllocated);
  EXPECT_EQ(writer.queued(), 0u);
  executor.Advance(absl::Seconds(4));
  EXPECT_EQ(writer.queued(), 1u) << "it is under way";
  executor.Advance(absl::Seconds(20));
  EXPECT_EQ(State(), RegionState::kReleasing);
  EXPECT_EQ(Expired(), 1u);
  EXPECT_EQ(leases.size(), 0u);
}

TEST_F(LeaseKeeperTest, AnEndThatIsNotDurableIsTriedAgain) {
  store.FailNextCommit({absl::ResourceExhaustedError("the disk is full")});
  executor.Advance(absl::Seconds(17));
  EXPECT_EQ(State(), RegionState::kAllocated);
  EXPECT_EQ(Expired(), 0u);
  EXPECT_EQ(leases.size(), 1u);
  executor.Advance(absl::Seconds(20));
  EXPECT_EQ(State(), RegionState::kReleasing);
  EXPECT_EQ(Expired(), 1u);
}

}  // namespace
}  // namespace cxlpool::fm
