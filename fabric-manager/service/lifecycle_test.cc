// The manager's core against a world it cannot trust to wait: whole lifecycles, and the same with
// the manager killed at every rung.

#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "test/rigs/service_rig.h"

namespace cxlpool::fm {
namespace {

bool AllOnline(const RegionPtr& region) {
  return region != nullptr && region->state == RegionState::kAllocated &&
         !region->attachments.empty() &&
         std::all_of(region->attachments.begin(), region->attachments.end(),
                     [](const auto& a) { return a.settled().state == AttachmentState::kOnline; });
}

// Each on a fabric with all luxuries, and on the barest backend, below the shell.
class LifecycleTest : public testing::TestWithParam<bool> {
 protected:
  static World AWorld() { return GetParam() ? World::OfPlainHardware() : World(); }
};
INSTANTIATE_TEST_SUITE_P(On, LifecycleTest, testing::Bool(), [](const auto& info) {
  return info.param ? "BareBackend" : "AllLuxuries";
});

TEST_P(LifecycleTest, AllocateComesOnlineAndReleaseGivesEverythingBack) {
  World world = AWorld();
  ServiceRig rig(std::make_shared<MemoryDisk>(), &world);
  const auto made = rig.Allocate(AllocateOn("kv", "host-a", 1));
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(made->region->state, RegionState::kReserved);
  ASSERT_TRUE(rig.RunUntil([&] { return AllOnline(rig.Find("kv")); }));
  EXPECT_EQ(rig.Find("kv")->attachments[0].segments[0].dax_device, "dax0.0");
  EXPECT_EQ(rig.views.Get()->capacity.held_bytes, 2 * kGranule);

  ASSERT_TRUE(rig.Call(&PoolService::Release, ReleaseOf("kv", 2)).ok());
  ASSERT_TRUE(rig.RunUntil([&] { return rig.Find("kv") == nullptr; }));
  EXPECT_TRUE(world.bound.empty());
  EXPECT_EQ(world.scrubbed.size(), 1u);
  EXPECT_EQ(rig.views.Get()->capacity.free_bytes, rig.views.Get()->capacity.total_bytes);
  EXPECT_TRUE(rig.writer.state().CheckInvariants().ok());
}

// What the fabric cannot do is refused, and not found out by the second host.
TEST_P(LifecycleTest, ARegionIsSharedWhereTheFabricSharesSlices) {
  World world = AWorld();
  ServiceRig rig(std::make_shared<MemoryDisk>(), &world);
  AllocateSpec spec = AllocateOn("kv", "host-a", 1);
  spec.sharing = Sharing::kMultiWriter;
  EXPECT_EQ(ReasonOf(rig.Allocate(spec).status()), world.plain_hardware ? "NOT_SHAREABLE" : "");
}

TEST_P(LifecycleTest, ARetryAfterTheReleaseGetsTheOldRegionNotANewOne) {
  World world = AWorld();
  ServiceRig rig(std::make_shared<MemoryDisk>(), &world);
  const auto first = rig.Allocate(AllocateOn("kv", "host-a", 1));
  ASSERT_TRUE(rig.RunUntil([&] { return AllOnline(rig.Find("kv")); }));
  EXPECT_EQ(rig.Allocate(AllocateOn("kv", "host-a", 1))->region->key, first->region->key);
  ASSERT_TRUE(rig.Call(&PoolService::Release, ReleaseOf("kv", 2)).ok());
  ASSERT_TRUE(rig.RunUntil([&] { return rig.Find("kv") == nullptr; }));
  const auto again = rig.Allocate(AllocateOn("kv", "host-a", 1));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->region->tag, first->region->tag);
  EXPECT_EQ(rig.Find("kv"), nullptr);
  AllocateSpec other = AllocateOn("kv", "host-a", 1);
  other.request.payload_hash = 2;
  EXPECT_EQ(ReasonOf(rig.Allocate(other).status()), "REQUEST_ID_REUSED");
}

TEST_P(LifecycleTest, AnAllocationThatCannotComeOnlineIsUndone) {
  World world = AWorld();
  world.refuse_online = true;
  const auto disk = std::make_shared<MemoryDisk>();
  ServiceRig rig(disk, &world);
  ASSERT_TRUE(rig.Allocate(AllocateOn("kv", "host-a", 1)).ok());
  ASSERT_TRUE(rig.RunUntil([&] { return rig.Find("kv") == nullptr; }));
  std::string reason;
  const auto events = rig.watch.Read(rig.watch_floor, 1000);
  ASSERT_TRUE(events.ok()) << events.status();
  for (const WatchEvent& event : *events) {
    if (event.region->state == RegionState::kFailed) reason = event.region->state_reason;
  }
  EXPECT_NE(reason.find("REGION_COMMIT"), std::string::npos) << reason;
  const auto end = rig.views.EndOf("kv");
  ASSERT_TRUE(end.has_value());
  EXPECT_NE(end->reason.find(reason), std::string::npos) << end->reason;
  EXPECT_NE(end->reason.find("scrubbed and free"), std::string::npos) << end->reason;
  EXPECT_TRUE(world.bound.empty());
  EXPECT_EQ(rig.views.Get()->capacity.free_bytes, rig.views.Get()->capacity.total_bytes);
}

// For people who ask for it; of a name that was given twice, how the last one went.
TEST_P(LifecycleTest, HowARegionWentIsKnownForAWhileAndAfterARestart) {
  World world = AWorld();
  const auto disk = std::make_shared<MemoryDisk>();
  auto rig = std::make_unique<ServiceRig>(disk, &world);
  const auto make_and_lose = [&](const std::string& id, bool fails, char request) {
    world.refuse_online = fails;
    ASSERT_TRUE(rig->Allocate(AllocateOn(id, "host-a", request)).ok());
    if (!fails) {
      ASSERT_TRUE(rig->RunUntil([&] { return AllOnline(rig->Find(id)); }));
      ASSERT_TRUE(
          rig->Call(&PoolService::Release, ReleaseOf(id, static_cast<char>(request + 1))).ok());
    }
    ASSERT_TRUE(rig->RunUntil([&] { return rig->Find(id) == nullptr; }));
  };
  EXPECT_FALSE(rig->views.EndOf("kv").has_value());
  make_and_lose("kv", false, 1);
  make_and_lose("kv", true, 3);
  make_and_lose("kx", true, 5);
  make_and_lose("kx", false, 7);
  const auto check = [&] {
    ASSERT_TRUE(rig->views.EndOf("kv").has_value());
    ASSERT_TRUE(rig->views.EndOf("kx").has_value());
    EXPECT_TRUE(absl::StrContains(rig->views.EndOf("kv")->reason, "REGION_COMMIT"));
    EXPECT_FALSE(absl::StrContains(rig->views.EndOf("kx")->reason, "REGION_COMMIT"));
    EXPECT_LT(rig->views.EndOf("kv")->time, rig->views.EndOf("kx")->time);
    EXPECT_FALSE(rig->views.EndOf("ky").has_value());
  };
  check();
  rig.reset();
  rig = std::make_unique<ServiceRig>(disk, &world);
  check();
}

TEST(ViewHolderTest, TheLatestEndsAreKept) {
  ViewHolder views;
  Publication publication;
  publication.device_infos = views.Get()->devices;
  publication.tenant_infos = views.Get()->tenants;
  const auto go = [&](const std::string& id, int64_t second) {
    publication.ends.push_back({id, {absl::FromUnixSeconds(second), absl::StrCat(second)}});
    views.Publish(publication);
  };
  go("twice", 1);
  go("first", 2);
  for (int64_t i = 3; i < 4097; ++i) go(absl::StrCat("other-", i), i);
  go("twice", 4097);
  go("last", 4098);
  EXPECT_FALSE(views.EndOf("first").has_value());
  EXPECT_TRUE(views.EndOf("other-3").has_value());
  ASSERT_TRUE(views.EndOf("twice").has_value());
  EXPECT_EQ(views.EndOf("twice")->reason, "4097");
  EXPECT_TRUE(views.EndOf("last").has_value());
}

TEST_P(LifecycleTest, HoldersBlockTheReleaseUntilTheyGo) {
  World world = AWorld();
  ServiceRig rig(std::make_shared<MemoryDisk>(), &world);
  ASSERT_TRUE(rig.Allocate(AllocateOn("kv", "host-a", 1)).ok());
  ASSERT_TRUE(rig.RunUntil([&] { return AllOnline(rig.Find("kv")); }));
  world.hold_offline = true;
  ASSERT_TRUE(rig.Call(&PoolService::Release, ReleaseOf("kv", 2)).ok());
  ASSERT_TRUE(rig.RunUntil([&] {
    return rig.Find("kv")->attachments[0].settled().state == AttachmentState::kReleaseBlocked;
  }));
  EXPECT_NE(rig.Find("kv")->attachments[0].settled().reason.find("pid 7"), std::string::npos);
  world.hold_offline = false;
  rig.agents["host-a"]->Send([&] {
    v1::ManagerMessage message;  // The agent tries again by itself.
    *message.mutable_offer() = rig.agents["host-a"]->offers.begin()->second;
    message.set_session(1);
    return message;
  }());
  EXPECT_TRUE(rig.RunUntil([&] { return rig.Find("kv") == nullptr; }));
}

TEST_P(LifecycleTest, ALdThatIsLostIsBoundAgain) {
  World world = AWorld();
  ServiceRig rig(std::make_shared<MemoryDisk>(), &world);
  ASSERT_TRUE(rig.Allocate(AllocateOn("kv", "host-a", 1)).ok());
  ASSERT_TRUE(rig.RunUntil([&] { return AllOnline(rig.Find("kv")); }));
  const uint64_t old = rig.Find("kv")->attachments[0].segments[0].serial;
  const std::optional<LdKey> key = world.bound.at(old).ld.key;
  world.bound.erase(old);
  rig.fabric.Emit({FabricEvent::Kind::kLdLost, "host-a", key});
  v1::AgentMessage gone;
  gone.set_session(1);
  v1::SegmentReport& report = *gone.mutable_report()->add_segments();
  report.set_serial(old);
  report.set_state(v1::SEGMENT_ABSENT);
  rig.sessions.OnMessage(rig.agents["host-a"].get(), gone);
  ASSERT_TRUE(rig.RunUntil([&] { return world.binds == 2 && AllOnline(rig.Find("kv")); }));
  // Hardware cannot be given another; everybody else never gives one twice.
  EXPECT_EQ(rig.Find("kv")->attachments[0].segments[0].serial == old, world.plain_hardware);
  EXPECT_EQ(world.bound.size(), 1u);
}

TEST_P(LifecycleTest, AFencedHostLosesItsAttachments) {
  World world = AWorld();
  ServiceRig rig(std::make_shared<MemoryDisk>(), &world);
  ASSERT_TRUE(rig.Allocate(AllocateOn("kv", "host-a", 1)).ok());
  ASSERT_TRUE(rig.RunUntil([&] { return AllOnline(rig.Find("kv")); }));
  absl::Status fenced = absl::UnknownError("");
  rig.pool.Fence(Caller::Admin("test"), "host-a", "it hangs",
                 [&](absl::Status status) { fenced = status; });
  ASSERT_TRUE(rig.RunUntil([&] { return rig.Find("kv")->attachments.empty(); }));
  EXPECT_TRUE(fenced.ok());
  EXPECT_EQ(rig.Find("kv")->state, RegionState::kAllocated);
}

// Releases while the driver's Bind is still under way, in a world that would abort if bytes were
// scrubbed under a bound LD.
TEST_P(LifecycleTest, AReleaseDuringABindWaitsForItsOutcome) {
  World world = AWorld();
  world.slow_binds = true;
  ServiceRig rig(std::make_shared<MemoryDisk>(), &world);
  ASSERT_TRUE(rig.Allocate(AllocateOn("kv", "host-a", 1)).ok());
  ASSERT_TRUE(rig.RunUntil([&] { return !world.slow.empty(); }));
  ASSERT_TRUE(rig.Call(&PoolService::Release, ReleaseOf("kv", 2)).ok());
  rig.Run(absl::Seconds(30));
  ASSERT_NE(rig.Find("kv"), nullptr);
  EXPECT_TRUE(world.scrubbed.empty());
  for (const auto& bind : world.slow) bind();
  world.slow.clear();
  EXPECT_EQ(world.bound.size(), 1u);
  ASSERT_TRUE(rig.RunUntil([&] { return rig.Find("kv") == nullptr; }));
  EXPECT_TRUE(world.bound.empty());
  EXPECT_EQ(world.scrubbed.size(), 1u);
}

TEST_P(LifecycleTest, AFenceWaitsForBindsUnderWayAndLetsNoneBegin) {
  World world = AWorld();
  world.slow_binds = true;
  ServiceRig rig(std::make_shared<MemoryDisk>(), &world);
  ASSERT_TRUE(rig.Allocate(AllocateOn("kv", "host-a", 1)).ok());
  ASSERT_TRUE(rig.RunUntil([&] { return !world.slow.empty(); }));
  absl::Status fenced = absl::UnknownError("");
  rig.pool.Fence(Caller::Admin("test"), "host-a", "it hangs",
                 [&](absl::Status status) { fenced = status; });
  rig.Run(absl::Seconds(2));
  EXPECT_FALSE(fenced.ok());
  for (const auto& bind : world.slow) bind();
  world.slow.clear();
  // The Region may have come online in between: it then stays, without its Attachment.
  ASSERT_TRUE(rig.RunUntil(
      [&] { return rig.Find("kv") == nullptr || rig.Find("kv")->attachments.empty(); }));
  EXPECT_TRUE(fenced.ok()) << fenced;
  EXPECT_TRUE(world.bound.empty());
}

TEST_P(LifecycleTest, WhatNoRecordHasIsHeldOnceAndKnownFromThenOn) {
  World world = AWorld();
  auto disk = std::make_shared<MemoryDisk>();
  { ServiceRig enrols(disk, &world); }
  const BoundLd ld{"host-a",
                   10,
                   // LD 1 where the device places them.
                   {"cmm-1", (GetParam() ? 8 : 1) * kGranule, kGranule},
                   false,
                   0x77,
                   false,
                   LdKey{"host-a", FormatUuid("0123456789abcdef"), 9'000'000, 0}};
  world.bound[ld.serial] = {ld, v1::SEGMENT_ONLINE};
  for (int life = 0; life < 2; ++life) {
    ServiceRig rig(disk, &world);
    rig.RunUntil([] { return false; }, absl::Seconds(15));
    ASSERT_EQ(rig.writer.state().region_count(), 1u);
    const RegionPtr held = rig.writer.state().regions().begin()->second;
    EXPECT_EQ(held->state, RegionState::kQuarantined);
    ASSERT_EQ(held->attachments.size(), 1u);
    EXPECT_EQ(held->attachments[0].segments[0].slot, 10u);
    EXPECT_EQ(held->attachments[0].segments[0].serial, ld.serial);
    ASSERT_EQ(held->extents.size(), 1u);
    EXPECT_EQ(held->extents[0].dpa_bytes, ld.slice.dpa_bytes);
    EXPECT_EQ(held->extents[0].length_bytes, ld.slice.length_bytes);
  }
  EXPECT_EQ(world.bound.count(ld.serial), 1u);
}

// The rungs that an allocation and a release pass, in order.
std::vector<std::string> Rungs(bool plain_hardware) {
  std::vector<std::string> rungs;
  World world = plain_hardware ? World::OfPlainHardware() : World();
  ServiceRig rig(std::make_shared<MemoryDisk>(), &world,
                 [&](absl::string_view rung) { rungs.emplace_back(rung); });
  EXPECT_TRUE(rig.Allocate(AllocateOn("kv", "host-a", 1)).ok());
  EXPECT_TRUE(rig.RunUntil([&] { return AllOnline(rig.Find("kv")); }));
  EXPECT_TRUE(rig.Call(&PoolService::Release, ReleaseOf("kv", 2)).ok());
  EXPECT_TRUE(rig.RunUntil([&] { return rig.Find("kv") == nullptr; }));
  return rungs;
}

TEST_P(LifecycleTest, ConvergesAfterAKillAtAnyRung) {
  const std::vector<std::string> rungs = Rungs(GetParam());
  EXPECT_GE(rungs.size(), 14u);
  for (size_t fatal = 0; fatal < rungs.size(); ++fatal) {
    SCOPED_TRACE(rungs[fatal]);
    World world = AWorld();
    auto disk = std::make_shared<MemoryDisk>();
    size_t passed = 0;
    ServiceRig* life = nullptr;
    auto first = std::make_unique<ServiceRig>(disk, &world, [&](absl::string_view) {
      if (passed++ == fatal) life->Kill();
    });
    life = first.get();
    const auto asked = first->Allocate(AllocateOn("kv", "host-a", 1));
    EXPECT_TRUE(asked.ok() || absl::IsUnavailable(asked.status())) << asked.status();
    first->RunUntil([&] { return AllOnline(first->Find("kv")); });
    const bool released =
        !first->stopped && first->Call(&PoolService::Release, ReleaseOf("kv", 2)).ok();
    first->RunUntil([&] { return first->Find("kv") == nullptr; });
    first.reset();

    ServiceRig second(disk, &world);
    ASSERT_TRUE(second.opened.ok()) << second.opened;
    // The callers retry what was not answered; the same ids, so never twice.
    if (!released) {
      const auto retried = second.Allocate(AllocateOn("kv", "host-a", 1));
      ASSERT_TRUE(retried.ok()) << retried.status();
      ASSERT_TRUE(second.RunUntil([&] { return AllOnline(second.Find("kv")); }));
    }
    EXPECT_LE(second.views.Get()->regions.size(), 1u);
    ASSERT_TRUE(second.Call(&PoolService::Release, ReleaseOf("kv", 2)).ok());
    ASSERT_TRUE(second.RunUntil([&] { return second.Find("kv") == nullptr; }));
    EXPECT_TRUE(world.bound.empty());
    EXPECT_EQ(second.views.Get()->capacity.free_bytes, second.views.Get()->capacity.total_bytes);
    EXPECT_TRUE(second.writer.state().CheckInvariants().ok());
  }
}

// The next to be served allocates at once, also in a pool that is new.
TEST_P(LifecycleTest, AStartEndsWhenTheDevicesAreThere) {
  World world = AWorld();
  ServiceRig rig(std::make_shared<MemoryDisk>(), &world);
  EXPECT_TRUE(rig.started.ok()) << rig.started;
  EXPECT_EQ(rig.devices_at_start, 2u);
}

TEST_P(LifecycleTest, AStartWaitsForAFabricThatCannotBeRead) {
  World world = AWorld();
  world.failing_discovers = 3;
  ServiceRig rig(std::make_shared<MemoryDisk>(), &world);
  EXPECT_TRUE(absl::IsUnknown(rig.started)) << rig.started;
  rig.Run(absl::Seconds(2));
  EXPECT_TRUE(rig.started.ok()) << rig.started;
  EXPECT_EQ(rig.devices_at_start, 2u);
}

TEST_P(LifecycleTest, AStartDoesNotWaitForeverForTheFabric) {
  World world = AWorld();
  world.failing_discovers = 1'000'000;
  ServiceRig rig(std::make_shared<MemoryDisk>(), &world);
  rig.Run(absl::Seconds(9));
  EXPECT_TRUE(absl::IsUnknown(rig.started)) << rig.started;
  rig.Run(absl::Seconds(2));
  EXPECT_TRUE(absl::IsUnavailable(rig.started)) << rig.started;
}

}  // namespace
}  // namespace cxlpool::fm
