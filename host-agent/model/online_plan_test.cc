#include "host-agent/model/online_plan.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "absl/strings/str_cat.h"

namespace cxlpool::agent {
namespace {

constexpr uint64_t kSize = uint64_t{512} << 20;
constexpr uint64_t kSerial = 0x51;

DesiredSegment Desired(Want want, Mode mode) {
  DesiredSegment desired;
  desired.want = want;
  desired.mode = mode;
  desired.host_bridge = "ACPI0016:00";
  desired.targets = {{.slot = 3, .serial = kSerial}};
  desired.length_bytes = kSize;
  return desired;
}

HostObservation EmptyHost() {
  HostObservation host;
  host.bridges = {{.name = "ACPI0016:00",
                   .slots = {3, 4},
                   .max_regions = 4,
                   .window_bytes = 8 * kSize,
                   .free_window_bytes = 8 * kSize}};
  host.memory_block_bytes = uint64_t{128} << 20;
  return host;
}

HostObservation WithMemdev() {
  HostObservation host = EmptyHost();
  host.memdevs = {{.serial = kSerial,
                   .slot = 3,
                   .name = "mem0",
                   .size_bytes = kSize,
                   .host_bridge = "ACPI0016:00"}};
  return host;
}

HostObservation WithRegion(DaxDriver driver = DaxDriver::kNone, uint32_t online = 0,
                           uint32_t total = 0, bool movable = true) {
  HostObservation host = WithMemdev();
  ObservedHostRegion region;
  region.name = "region0";
  region.serials = {kSerial};
  region.committed = true;
  region.size_bytes = kSize;
  region.dax_device = "dax0.0";
  region.numa_node = 1;
  region.dax_driver = driver;
  region.online_blocks = online;
  region.total_blocks = total;
  region.all_movable = movable;
  host.regions = {region};
  host.bridges[0].live_regions = 1;
  host.bridges[0].free_window_bytes -= kSize;
  return host;
}

// Every state that a host can be in for one segment.
const std::map<std::string, HostObservation>& States() {
  static const auto* const kStates = [] {
    auto* states = new std::map<std::string, HostObservation>{
        {"nothing", EmptyHost()},
        {"memdev", WithMemdev()},
        {"region", WithRegion()},
        {"devdax", WithRegion(DaxDriver::kDeviceDax)},
        {"kmem offline", WithRegion(DaxDriver::kKmem, 0, 4)},
        {"kmem partly", WithRegion(DaxDriver::kKmem, 2, 4)},
        {"kmem online", WithRegion(DaxDriver::kKmem, 4, 4)},
        {"kmem unmovable", WithRegion(DaxDriver::kKmem, 4, 4, false)},
    };
    HostObservation half = WithRegion();
    half.regions[0].committed = false;
    states->emplace("half made", half);
    HostObservation orphan = WithRegion();
    orphan.memdevs.clear();
    states->emplace("orphan", orphan);
    HostObservation no_dax = WithRegion();
    no_dax.regions[0].dax_device.clear();
    states->emplace("no dax", no_dax);
    HostObservation other_size = WithRegion();
    other_size.regions[0].size_bytes = kSize / 2;
    states->emplace("other size", other_size);
    return states;
  }();
  return *kStates;
}

std::string Describe(const Step& step) {
  if (step.kind == Step::Kind::kRefuse) return step.refusal.reason;
  std::string text = StepName(step.kind);
  if (step.kind == Step::Kind::kBindDax) {
    absl::StrAppend(&text, step.driver == DaxDriver::kKmem ? " kmem" : " devdax");
  }
  if (step.check_holders) absl::StrAppend(&text, " unless held");
  return text;
}

struct Row {
  const char* state;
  const char* online_devdax;
  const char* online_ram;
  const char* offline;
  const char* ejected;
};

// Memory that may lie in the kernel's zones is not taken off again to be brought back movable.
TEST(OnlinePlanTest, AnyZoneWillDoForTheKernelZone) {
  DesiredSegment desired = Desired(Want::kOnline, Mode::kSystemRam);
  desired.zone = MemoryZone::kKernel;
  EXPECT_EQ(Describe(NextStep(desired, States().at("kmem offline"), false)), "OnlineBlocks");
  EXPECT_EQ(Describe(NextStep(desired, WithRegion(DaxDriver::kKmem, 2, 4, false), false)),
            "OnlineBlocks");
  EXPECT_EQ(Describe(NextStep(desired, States().at("kmem unmovable"), false)), "Done");
  EXPECT_EQ(Describe(NextStep(desired, States().at("kmem online"), false)), "Done");
}

TEST(OnlinePlanTest, NextStepOfEveryStateWantAndMode) {
  const Row kTable[] = {
      {"nothing", "PowerOn", "PowerOn", "Done", "PowerOff"},
      {"memdev", "CreateHostRegion", "CreateHostRegion", "Done", "PowerOff"},
      {"half made", "DestroyHostRegion", "DestroyHostRegion", "DestroyHostRegion",
       "DestroyHostRegion"},
      {"region", "BindDax devdax", "BindDax kmem", "DestroyHostRegion", "DestroyHostRegion"},
      {"no dax", "CreateHostRegion", "CreateHostRegion", "DestroyHostRegion", "DestroyHostRegion"},
      {"devdax", "Done", "UnbindDax unless held", "UnbindDax unless held", "UnbindDax unless held"},
      {"kmem offline", "UnbindDax", "OnlineBlocks", "UnbindDax", "UnbindDax"},
      {"kmem partly", "OfflineBlocks", "OnlineBlocks", "OfflineBlocks", "OfflineBlocks"},
      {"kmem online", "OfflineBlocks", "Done", "OfflineBlocks", "OfflineBlocks"},
      {"kmem unmovable", "OfflineBlocks", "OfflineBlocks", "OfflineBlocks", "OfflineBlocks"},
      {"orphan", "MEMDEV_GONE", "MEMDEV_GONE", "DestroyHostRegion", "DestroyHostRegion"},
      {"other size", "SIZE_MISMATCH", "SIZE_MISMATCH", "DestroyHostRegion", "DestroyHostRegion"},
  };
  ASSERT_EQ(std::size(kTable), States().size());
  for (const Row& row : kTable) {
    SCOPED_TRACE(row.state);
    const HostObservation& host = States().at(row.state);
    auto next = [&](Want want, Mode mode) {
      return Describe(NextStep(Desired(want, mode), host, false));
    };
    EXPECT_EQ(next(Want::kOnline, Mode::kDevdax), row.online_devdax);
    EXPECT_EQ(next(Want::kOnline, Mode::kSystemRam), row.online_ram);
    for (Mode mode : {Mode::kDevdax, Mode::kSystemRam}) {
      EXPECT_EQ(next(Want::kOffline, mode), row.offline);
      EXPECT_EQ(next(Want::kEjected, mode), row.ejected);
    }
  }
}

TEST(OnlinePlanTest, StateOfEveryStateWantAndMode) {
  struct StateRow {
    const char* state;
    LadderState online_devdax, online_ram, down;
  };
  using enum LadderState;
  const StateRow kTable[] = {
      {"nothing", kAbsent, kAbsent, kAbsent},
      {"memdev", kPresent, kPresent, kPresent},
      {"half made", kPresent, kPresent, kStopping},
      {"region", kRegion, kRegion, kStopping},
      {"no dax", kRegion, kRegion, kStopping},
      {"devdax", kOnline, kRegion, kStopping},
      {"kmem offline", kRegion, kRegion, kStopping},
      {"kmem partly", kRegion, kRegion, kStopping},
      {"kmem online", kRegion, kOnline, kStopping},
      {"kmem unmovable", kRegion, kRegion, kStopping},
      {"orphan", kAbsent, kAbsent, kStopping},
      {"other size", kRegion, kRegion, kStopping},
  };
  ASSERT_EQ(std::size(kTable), States().size());
  for (const StateRow& row : kTable) {
    SCOPED_TRACE(row.state);
    const HostObservation& host = States().at(row.state);
    EXPECT_EQ(StateOf(Desired(Want::kOnline, Mode::kDevdax), host), row.online_devdax);
    EXPECT_EQ(StateOf(Desired(Want::kOnline, Mode::kSystemRam), host), row.online_ram);
    for (Want want : {Want::kOffline, Want::kEjected}) {
      for (Mode mode : {Mode::kDevdax, Mode::kSystemRam}) {
        EXPECT_EQ(StateOf(Desired(want, mode), host), row.down);
      }
    }
  }
}

TEST(OnlinePlanTest, BridgeThatCannotTakeARegionIsRefusedWithItsReason) {
  const DesiredSegment desired = Desired(Want::kOnline, Mode::kDevdax);
  struct RefusalRow {
    const char* reason;
    std::function<void(HostObservation&)> change;
  };
  const RefusalRow kTable[] = {
      {"BRIDGE_BLOCKED", [](HostObservation& h) { h.bridges[0].blocked = true; }},
      {"DECODERS_FULL", [](HostObservation& h) { h.bridges[0].live_regions = 4; }},
      {"WINDOW_FULL", [](HostObservation& h) { h.bridges[0].free_window_bytes = kSize - 1; }},
      {"UNKNOWN_BRIDGE", [](HostObservation& h) { h.bridges.clear(); }},
      {"WRONG_BRIDGE", [](HostObservation& h) { h.memdevs[0].host_bridge = "ACPI0016:01"; }},
  };
  for (const RefusalRow& row : kTable) {
    HostObservation host = WithMemdev();
    row.change(host);
    const Step step = NextStep(desired, host, false);
    EXPECT_EQ(step.kind, Step::Kind::kRefuse);
    EXPECT_EQ(step.refusal.reason, row.reason);
    EXPECT_FALSE(step.refusal.message.empty());
    EXPECT_FALSE(step.refusal.remedy.empty());
  }
}

TEST(OnlinePlanTest, BlockedBridgeNamesWhatBlocks) {
  HostObservation host = WithMemdev();
  host.bridges[0].blocked = true;
  host.bridges[0].blocking_serial = 0x77;
  const Step step = NextStep(Desired(Want::kOnline, Mode::kDevdax), host, false);
  EXPECT_NE(step.refusal.message.find("0x77"), std::string::npos);
}

TEST(OnlinePlanTest, LaterSegmentWaitsWithItsHostRegionOnly) {
  const DesiredSegment desired = Desired(Want::kOnline, Mode::kDevdax);
  EXPECT_EQ(NextStep(desired, WithMemdev(), true).kind, Step::Kind::kWait);
  EXPECT_EQ(NextStep(desired, EmptyHost(), true).kind, Step::Kind::kPowerOn);
  EXPECT_EQ(NextStep(desired, WithRegion(), true).kind, Step::Kind::kBindDax);
}

TEST(OnlinePlanTest, OnlyWhatHasNoCommittedRegionHoldsLaterOnesBack) {
  const DesiredSegment up = Desired(Want::kOnline, Mode::kDevdax);
  EXPECT_TRUE(AwaitsHostRegion(up, EmptyHost()));
  EXPECT_TRUE(AwaitsHostRegion(up, WithMemdev()));
  EXPECT_TRUE(AwaitsHostRegion(up, States().at("half made")));
  EXPECT_FALSE(AwaitsHostRegion(up, WithRegion()));
  EXPECT_FALSE(AwaitsHostRegion(Desired(Want::kOffline, Mode::kDevdax), WithMemdev()));
}

TEST(OnlinePlanTest, HostRegionWhoseDaxDeviceDoesNotComeBackIsTakenDown) {
  HostObservation host = States().at("no dax");
  DesiredSegment desired = Desired(Want::kOnline, Mode::kDevdax);
  EXPECT_TRUE(LacksDaxDevice(desired, host));
  desired.failed_remakes = kMaxRemakes - 1;
  EXPECT_EQ(NextStep(desired, host, false).kind, Step::Kind::kCreateHostRegion);
  // Its decoders are taken already: whatever holds others back does not hold this back.
  EXPECT_EQ(NextStep(desired, host, true).kind, Step::Kind::kCreateHostRegion);
  desired.failed_remakes = kMaxRemakes;
  EXPECT_EQ(NextStep(desired, host, false).kind, Step::Kind::kDestroyHostRegion);
  // A host region that has its DAX device is not judged by what failed before.
  EXPECT_EQ(NextStep(desired, WithRegion(), false).kind, Step::Kind::kBindDax);
  EXPECT_FALSE(LacksDaxDevice(desired, WithRegion()));
  EXPECT_FALSE(LacksDaxDevice(desired, WithMemdev()));
  EXPECT_FALSE(LacksDaxDevice(desired, States().at("half made")));
}

TEST(OnlinePlanTest, EjectIsDoneOnlyAfterThisAgentPoweredTheSlotOff) {
  DesiredSegment desired = Desired(Want::kEjected, Mode::kDevdax);
  EXPECT_EQ(NextStep(desired, EmptyHost(), false).kind, Step::Kind::kPowerOff);
  desired.targets[0].powered_off = true;
  EXPECT_EQ(NextStep(desired, EmptyHost(), false).kind, Step::Kind::kDone);
  EXPECT_EQ(NextStep(desired, WithMemdev(), false).kind, Step::Kind::kPowerOff);
}

TEST(OnlinePlanTest, InterleavedTargetsArePoweredInTurnAndNeededTogether) {
  DesiredSegment desired = Desired(Want::kOnline, Mode::kDevdax);
  desired.targets.push_back({.slot = 4, .serial = kSerial + 1});
  HostObservation host = WithMemdev();
  Step step = NextStep(desired, host, false);
  EXPECT_EQ(step.kind, Step::Kind::kPowerOn);
  EXPECT_EQ(step.target, 1u);
  EXPECT_EQ(StateOf(desired, host), LadderState::kAbsent);

  ObservedMemdev second = host.memdevs[0];
  second.serial = kSerial + 1;
  second.slot = 4;
  host.memdevs.push_back(second);
  EXPECT_EQ(NextStep(desired, host, false).kind, Step::Kind::kCreateHostRegion);

  host.regions = WithRegion().regions;  // Spans the first target only.
  EXPECT_EQ(NextStep(desired, host, false).refusal.reason, "FOREIGN_HOST_REGION");
  desired.want = Want::kOffline;
  EXPECT_EQ(NextStep(desired, host, false).refusal.reason, "FOREIGN_HOST_REGION");

  host.regions[0].serials = {kSerial, kSerial + 1};
  EXPECT_EQ(NextStep(desired, host, false).kind, Step::Kind::kDestroyHostRegion);
}

// The fabric lost a target and bound it again under a new serial: what the host has of the old one
// comes down before the new one goes up, whatever is wanted.
TEST(OnlinePlanTest, HostRegionWithATargetThatIsGoneMakesRoomForItsSuccessor) {
  constexpr uint64_t kGone = uint64_t{0x0c} << 56 | 9;  // A pool's.
  for (const Want want : {Want::kOnline, Want::kOffline, Want::kEjected}) {
    DesiredSegment desired = Desired(want, Mode::kDevdax);
    desired.targets.insert(desired.targets.begin(), {.slot = 4, .serial = kSerial + 1});
    HostObservation host = WithRegion(DaxDriver::kDeviceDax);
    host.regions[0].serials = {kGone, kSerial};
    Step step = NextStep(desired, host, false);
    EXPECT_EQ(Describe(step), "UnbindDax unless held");
    EXPECT_EQ(step.serial, kSerial) << "it goes by what is left";
    host.regions[0].dax_driver = DaxDriver::kNone;
    step = NextStep(desired, host, false);
    EXPECT_EQ(step.kind, Step::Kind::kDestroyHostRegion);
    EXPECT_EQ(step.serial, kSerial);
    // Both are there, and one of them belongs to somebody else: that is not ours to take down.
    host.memdevs.push_back(host.memdevs[0]);
    host.memdevs.back().serial = kGone;
    host.memdevs.back().slot = 4;
    EXPECT_EQ(Describe(NextStep(desired, host, false)), "FOREIGN_HOST_REGION");
    // Nor is what has a memdev that no pool has, wherever that is.
    host.memdevs.pop_back();
    host.regions[0].serials = {kSerial + 9, kSerial};
    EXPECT_EQ(Describe(NextStep(desired, host, false)), "FOREIGN_HOST_REGION");
  }
}

TEST(OnlinePlanTest, WhichTargetIsGoneMayBeUnknown) {
  DesiredSegment desired = Desired(Want::kOnline, Mode::kDevdax);
  desired.targets.insert(desired.targets.begin(), {.slot = 4, .serial = kSerial + 1});
  HostObservation host = WithRegion(DaxDriver::kDeviceDax);
  host.regions[0].serials = {0, kSerial};
  Step step = NextStep(desired, host, false);
  EXPECT_EQ(step.kind, Step::Kind::kPowerOn);
  EXPECT_EQ(step.target, 0u);
  host.memdevs.push_back(host.memdevs[0]);  // Not ours.
  host.memdevs.back().serial = kSerial + 2;
  host.memdevs.back().slot = 4;
  EXPECT_EQ(Describe(NextStep(desired, host, false)), "MEMDEV_GONE");
  host.memdevs.back() = host.memdevs[0];  // So it was bound again.
  host.memdevs.back().serial = kSerial + 1;
  host.memdevs.back().slot = 4;
  EXPECT_EQ(Describe(NextStep(desired, host, false)), "UnbindDax unless held");
}

TEST(OnlinePlanTest, AnotherMemdevInTheSlotIsNotOurs) {
  HostObservation host = WithMemdev();
  host.memdevs[0].serial = kSerial + 5;
  const DesiredSegment up = Desired(Want::kOnline, Mode::kDevdax);
  EXPECT_EQ(StateOf(up, host), LadderState::kAbsent);
  EXPECT_EQ(NextStep(up, host, false).kind, Step::Kind::kPowerOn);
  // The fabric gave the slot to another one: ours is long gone.
  EXPECT_EQ(NextStep(Desired(Want::kEjected, Mode::kDevdax), host, false).kind, Step::Kind::kDone);
}

}  // namespace
}  // namespace cxlpool::agent
