// What the records know and the configuration no longer names, or names by something else: nothing
// of it is proven, scrubbed, bound or given away, and everything goes on once it is back.

#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "test/rigs/service_fixture.h"

namespace cxlpool::fm {
namespace {

class UnknownFabricTest : public ServiceTest {
 protected:
  UnknownFabricTest() { Restart(); }

  void Make(const std::string& id, char request, const std::string& host = "host-a") {
    AllocateSpec spec = AllocateOn(id, host, request);
    spec.device = "cmm-0";
    ServiceTest::Make(spec);
  }

  void Release(const std::string& id, char request) {
    const auto released = rig->Call(&PoolService::Release, ReleaseOf(id, request));
    ASSERT_TRUE(released.ok()) << released.status();
  }

  bool Gone(const std::string& id) {
    return rig->RunUntil([&] { return rig->Find(id) == nullptr; });
  }

  // Releases what stands in the way of a proof, waits long, and sees that nothing was believed.
  void ExpectHeld(const std::string& id, char request) {
    Release(id, request);
    rig->RunUntil([] { return false; }, absl::Seconds(60));
    ASSERT_NE(rig->Find(id), nullptr) << "nobody could know that the host let go";
    EXPECT_TRUE(world.scrubbed.empty());
    EXPECT_EQ(rig->views.Get()->capacity.free_bytes, 14 * kGranule);
  }

  const Device& DeviceOf(const std::string& id) { return *rig->writer.state().FindDevice(id); }
  const HostRuntime& HostOf(const std::string& id) { return rig->writer.state().Runtime(id); }
};

TEST_F(UnknownFabricTest, ASlotThatIsNoLongerNamedIsNotEmpty) {
  Make("kv", 1);
  const uint32_t slot = rig->Find("kv")->attachments[0].segments[0].slot;
  const std::vector<uint32_t> slots = world.slots;
  Restart([&] { std::erase(world.slots, slot); });
  ExpectHeld("kv", 2);
  Restart([&] { world.slots = slots; });
  EXPECT_TRUE(Gone("kv"));
}

TEST_F(UnknownFabricTest, AHostThatIsNoLongerNamedKeepsWhatItHas) {
  Make("kv", 1);
  Restart([&] { world.hosts = {"host-b"}; });
  ExpectHeld("kv", 2);
  EXPECT_TRUE(absl::StrContains(HostOf("host-a").fabric_reason, "cxlpool host add"))
      << HostOf("host-a").fabric_reason;
  Restart([&] { world.hosts = {"host-a", "host-b"}; });
  EXPECT_EQ(HostOf("host-a").fabric_reason, "");
  EXPECT_TRUE(Gone("kv"));
}

TEST_F(UnknownFabricTest, DevicesThatChangeAreLookedAtSoon) {
  rig->Run(absl::Seconds(1));
  world.devices.push_back({"cmm-2", "cmm-2", 8 * kGranule, kGranule, "third"});
  rig->fabric.Emit({.kind = FabricEvent::Kind::kDevicesChanged});
  rig->Run(absl::Seconds(1));
  EXPECT_NE(rig->writer.state().FindDevice("cmm-2"), nullptr);
}

// A slip of the hand in `host enrol`, say: it is said at once, and not after the next look.
TEST_F(UnknownFabricTest, AHostThatIsEnrolledAndNotNamedIsSaidToBe) {
  Restart();
  rig->RunUntil([] { return false; }, absl::Seconds(1));  // The look of the start is over.
  EXPECT_TRUE(rig->Change(&PlanEnrol, {.host = "host-x"}).ok());
  rig->Run(absl::Milliseconds(500));
  const auto hosts = rig->views.Get()->hosts;
  ASSERT_TRUE(hosts.contains("host-x"));
  EXPECT_TRUE(absl::StrContains(hosts.at("host-x")->runtime->fabric_reason, "cxlpool host add"));
  EXPECT_TRUE(absl::StrContains(hosts.at("host-x")->runtime->fabric_reason,
                                "`cxlpool host remove host-x`"));
  EXPECT_EQ(hosts.at("host-a")->runtime->fabric_reason, "");
}

TEST_F(UnknownFabricTest, TheDriverIsToldInWhichLifeTheRecordsKnowEachHost) {
  world.lives = {{"host-a", "first"}, {"host-b", "other"}};
  Restart();
  Make("kv", 1);
  Restart();
  EXPECT_EQ(rig->fabric.started_with.hosts.at("host-a"), "first");
  EXPECT_EQ(rig->fabric.started_with.hosts.at("host-b"), "other");
  EXPECT_THAT(rig->fabric.started_with.unsettled, testing::IsEmpty())
      << "nobody else can reach the store";
}

// The life must be on record first: if it were not, a manager that starts later could not tell this
// host from another that answers in its place.
TEST_F(UnknownFabricTest, NothingIsBoundBeforeTheLifeOfTheHostIsDurable) {
  // On record, and waiting for its host.
  world.unreachable = {"host-a"};
  rig->Run(absl::Seconds(1));
  ASSERT_TRUE(rig->Allocate(AllocateOn("kv", "host-a", 1)).ok());
  ASSERT_TRUE(world.bound.empty());
  // The host's QEMU was started anew, say, and the disk is full when that is to be written down.
  // A commit takes a while, and the fabric is looked at meanwhile.
  const auto refusal = Refuse(absl::StatusCode::kResourceExhausted, "STORE_FULL", "full", "wait");
  for (int i = 0; i < 20; ++i) rig->store().FailNextCommit({refusal, false});
  world.lives["host-a"] = "second";
  world.unreachable.clear();
  int refused = 0;
  for (int i = 0; i < 1000; ++i) {
    rig->fabric.Emit({FabricEvent::Kind::kHostReachable, "host-a", {}});  // It looks again.
    rig->executor.Advance(absl::Microseconds(200));
    const Host& known = *rig->writer.state().FindHost("host-a");
    if (known.fabric_incarnation != "second" || rig->writer.IsDurable(known.key)) continue;
    ++refused;
    ASSERT_TRUE(world.bound.empty()) << "in a life that nobody may remember";
  }
  EXPECT_GT(refused, 0);
  EXPECT_TRUE(rig->RunUntil([&] { return Settled(rig->Find("kv")); }));
  EXPECT_EQ(rig->writer.state().FindHost("host-a")->fabric_incarnation, "second");
}

TEST_F(UnknownFabricTest, OnlyTheEndOfTheLifeOnRecordIsProof) {
  Make("kv", 1);
  world.unreachable = {"host-a"};
  GoSilent("host-a");
  Release("kv", 2);
  rig->fabric.Emit({FabricEvent::Kind::kHostGone, "host-a", {}, "of another host"});
  rig->Run(absl::Seconds(30));
  ASSERT_NE(rig->Find("kv"), nullptr);
  EXPECT_TRUE(world.scrubbed.empty());
  world.bound.clear();
  rig->fabric.Emit({FabricEvent::Kind::kHostGone, "host-a", {}, "1"});
  EXPECT_TRUE(Gone("kv"));
}

// The end comes while a call to the fabric is under way, and is not said twice.
TEST_F(UnknownFabricTest, AnEndDuringABindIsRememberedWhenTheBindHasFailed) {
  world.slow_binds = true;
  ASSERT_TRUE(rig->Allocate(AllocateOn("kv", "host-a", 1)).ok());
  ASSERT_EQ(world.slow.size(), 1u);
  world.unreachable = {"host-a"};
  rig->fabric.Emit({FabricEvent::Kind::kHostGone, "host-a", {}, "1"});
  GoSilent("host-a");
  rig->Run(absl::Milliseconds(100));
  world.lives["host-a"] = "2";
  world.slow.front()();
  Release("kv", 2);
  EXPECT_TRUE(Gone("kv")) << "its process has ended, so nothing is bound there";
}

TEST_F(UnknownFabricTest, ADeviceWithOtherStorageBehindItsNameIsNotTouched) {
  Make("kv", 1);
  const FabricDevice before = world.devices[0];
  const std::vector<std::pair<std::string, std::function<void(FabricDevice&)>>> changes = {
      {"storage", [](FabricDevice& device) { device.identity = "another"; }},
      {"storage", [](FabricDevice& device) { device.identity.clear(); }},
      {"serial", [](FabricDevice& device) { device.serial = "another"; }},
      {"capacity", [](FabricDevice& device) { device.capacity_bytes *= 2; }},
      {"granule", [](FabricDevice& device) { device.granule_bytes /= 2; }},
      {"shown", [](FabricDevice& device) { device.id = "cmm-9"; }},
  };
  for (const auto& [word, change] : changes) {
    Restart([&, edit = change] {
      world.devices[0] = before;
      edit(world.devices[0]);
    });
    rig->Run(absl::Seconds(1));
    EXPECT_FALSE(DeviceOf("cmm-0").reachable) << word;
    const std::string why = DeviceOf("cmm-0").unreachable_reason;
    EXPECT_TRUE(absl::StrContains(why, word == "shown" ? "does not show" : word)) << why;
    AllocateSpec more = AllocateOn("more", "", 7);
    more.device = "cmm-0";
    EXPECT_FALSE(rig->Allocate(more).ok());
  }
  // Still so, a release is proven by the host; but these bytes cannot be cleared.
  Release("kv", 2);
  rig->RunUntil([] { return false; }, absl::Seconds(30));
  ASSERT_NE(rig->Find("kv"), nullptr);
  EXPECT_EQ(rig->Find("kv")->state, RegionState::kScrubbing);
  EXPECT_TRUE(absl::StartsWith(rig->Find("kv")->state_reason, "WAITS: device cmm-0"))
      << rig->Find("kv")->state_reason;
  EXPECT_TRUE(world.scrubbed.empty());
  Restart([&] { world.devices[0] = before; });
  EXPECT_TRUE(DeviceOf("cmm-0").reachable);
  EXPECT_EQ(DeviceOf("cmm-0").unreachable_reason, "");
  EXPECT_TRUE(Gone("kv"));
  EXPECT_EQ(world.scrubbed.size(), 1u);
}

// Records of a release that did not ask for identities take them over as they are found.
TEST_F(UnknownFabricTest, AnIdentityIsRecordedWhereThereWasNone) {
  for (FabricDevice& device : world.devices) device.identity.clear();
  disk = std::make_shared<MemoryDisk>();
  Restart();
  EXPECT_EQ(DeviceOf("cmm-0").identity, "");
  Restart([&] { world.devices[0].identity = "now there is one"; });
  rig->Run(absl::Seconds(1));
  EXPECT_EQ(DeviceOf("cmm-0").identity, "now there is one");
  EXPECT_TRUE(DeviceOf("cmm-0").reachable);
}

TEST_F(UnknownFabricTest, OneStorageIsNotTwoDevices) {
  Make("kv", 1);
  Restart([&] { world.devices[0].id = "renamed"; });
  rig->Run(absl::Seconds(1));
  EXPECT_EQ(rig->writer.state().FindDevice("renamed"), nullptr);
  EXPECT_EQ(rig->views.Get()->capacity.total_bytes, 16 * kGranule);
  EXPECT_FALSE(DeviceOf("cmm-0").reachable);
}

TEST_F(UnknownFabricTest, OneStorageIsNotTwoDevicesThatComeInTogether) {
  Restart([&] {
    for (const char* id : {"cmm-2", "cmm-3"}) {
      world.devices.push_back({id, id, 8 * kGranule, kGranule, "the same"});
    }
  });
  rig->Run(absl::Seconds(1));
  EXPECT_NE(rig->writer.state().FindDevice("cmm-2") == nullptr,
            rig->writer.state().FindDevice("cmm-3") == nullptr);
  EXPECT_EQ(rig->views.Get()->capacity.total_bytes, 24 * kGranule);
}

TEST_F(UnknownFabricTest, BytesThatANewDeviceBringsAreKeptUntilAnOperatorReleasesThem) {
  Restart([&] {
    world.devices.push_back({"cmm-2", "cmm-2", 8 * kGranule, kGranule, "used before", true});
  });
  rig->Run(absl::Seconds(1));
  EXPECT_EQ(rig->views.Get()->capacity.free_bytes, 16 * kGranule);
  EXPECT_EQ(rig->views.Get()->capacity.quarantined_bytes, 8 * kGranule);
  AllocateSpec there = AllocateOn("there", "", 1);
  there.device = "cmm-2";
  EXPECT_FALSE(rig->Allocate(there).ok());
  std::string found;
  for (const auto& [key, region] : rig->writer.state().regions()) found = region->id;
  ASSERT_TRUE(absl::StartsWith(found, "found-cmm-2-")) << found;
  ReleaseSpec release = ReleaseOf(found, 2);
  release.force = true;
  release.reason = "nobody needs it";
  ASSERT_TRUE(rig->Call(&PoolService::Release, release).ok());
  EXPECT_TRUE(Gone(found));
  ASSERT_EQ(world.scrubbed.size(), 1u);
  EXPECT_EQ(world.scrubbed[0].length_bytes, 8 * kGranule);
  EXPECT_TRUE(rig->Allocate(there).ok());
  // Once known, what its tenants write there is no surprise.
  Restart();
  EXPECT_EQ(rig->views.Get()->capacity.quarantined_bytes, 0u);
}

}  // namespace
}  // namespace cxlpool::fm
