#include "host-agent/service/agent_core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "test/rigs/core_rig.h"

namespace cxlpool::agent {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

TEST(AgentCoreTest, BringsADevdaxSegmentUpAndDown) {
  CoreRig rig;
  rig.memory.plugged[1] = 0x51;
  rig.Start();
  rig.Connect();
  rig.Offer(MakeOffer(1, kOnline, {{1, 0x51}}));
  EXPECT_THAT(rig.memory.calls,
              ElementsAre("PowerOn 0x51", "CreateHostRegion 0x51", "BindDax 0x51"));
  EXPECT_EQ(rig.Reported(0x51), v1::SEGMENT_ONLINE);
  const v1::SegmentReport online = *rig.link.Last(0x51);
  EXPECT_EQ(online.region_tag(), "tag-1");
  EXPECT_EQ(online.segment().dax_device(), "dax0.0");
  EXPECT_EQ(online.segment().memdev(), "mem1");
  EXPECT_FALSE(online.segment().has_numa_node());

  rig.memory.calls.clear();
  rig.Offer(MakeOffer(1, kOffline, {{1, 0x51}}));
  EXPECT_THAT(rig.memory.calls,
              ElementsAre("FindHolders 0x51", "UnbindDax 0x51", "DestroyHostRegion 0x51"));
  EXPECT_EQ(rig.Reported(0x51), v1::SEGMENT_PRESENT);

  rig.memory.calls.clear();
  rig.Offer(MakeOffer(1, kEjected, {{1, 0x51}}));
  EXPECT_THAT(rig.memory.calls, ElementsAre("PowerOff 0x51"));
  EXPECT_EQ(rig.Reported(0x51), v1::SEGMENT_ABSENT);
  EXPECT_THAT(rig.probes, testing::Contains("after-PowerOff"));
}

TEST(AgentCoreTest, BringsSystemRamUpAndDown) {
  CoreRig rig;
  rig.memory.plugged[1] = 0x51;
  rig.Start();
  rig.Connect({MakeOffer(1, kOnline, {{1, 0x51}}, v1::SYSTEM_RAM)});
  EXPECT_THAT(rig.memory.calls, ElementsAre("PowerOn 0x51", "CreateHostRegion 0x51", "BindDax 0x51",
                                            "OnlineBlocks 0x51"));
  EXPECT_EQ(rig.link.Last(0x51)->segment().numa_node(), 2);
  EXPECT_EQ(rig.link.Last(0x51)->segment().online_blocks(), 4u);
  rig.memory.calls.clear();
  rig.Offer(MakeOffer(1, kEjected, {{1, 0x51}}, v1::SYSTEM_RAM));
  EXPECT_THAT(rig.memory.calls, ElementsAre("OfflineBlocks 0x51", "UnbindDax 0x51",
                                            "DestroyHostRegion 0x51", "PowerOff 0x51"));
}

TEST(AgentCoreTest, OneRungAtATime) {
  CoreRig rig;
  rig.memory.plugged = {{1, 0x51}, {3, 0x52}};
  rig.memory.silent = {"PowerOn"};
  rig.Start();
  rig.Connect({MakeOffer(1, kOnline, {{1, 0x51}}), MakeOffer(2, kOnline, {{3, 0x52}})});
  rig.executor.Advance(absl::Seconds(20));  // Looks on meanwhile, and does nothing else.
  EXPECT_THAT(rig.memory.calls, ElementsAre("PowerOn 0x51"));
  rig.memory.Resume();
  rig.executor.RunReady();
  EXPECT_EQ(rig.Reported(0x51), v1::SEGMENT_ONLINE);
  EXPECT_EQ(rig.Reported(0x52), v1::SEGMENT_ONLINE);
}

TEST(AgentCoreTest, HostRegionsOfABridgeAreMadeInOrderOfGeneration) {
  CoreRig rig;
  rig.memory.plugged = {{1, 0x51}, {2, 0x52}};
  rig.Start();
  // The later one is there already; the earlier one is not powered yet.
  rig.memory.host.memdevs = {
      {.serial = 0x52, .slot = 2, .name = "mem2", .size_bytes = 0, .host_bridge = "ACPI0016:00"}};
  rig.Connect({MakeOffer(8, kOnline, {{2, 0x52}}), MakeOffer(7, kOnline, {{1, 0x51}})});
  std::vector<std::string> creates;
  for (const std::string& call : rig.memory.calls) {
    if (call.starts_with("Create")) creates.push_back(call);
  }
  EXPECT_THAT(creates, ElementsAre("CreateHostRegion 0x51", "CreateHostRegion 0x52"));
}

TEST(AgentCoreTest, AFailedEarlierOneLetsTheLaterPass) {
  CoreRig rig;
  rig.memory.plugged = {{2, 0x52}};  // 0x51 never comes.
  rig.Start();
  rig.Connect({MakeOffer(1, kOnline, {{1, 0x51}}), MakeOffer(2, kOnline, {{2, 0x52}})});
  EXPECT_EQ(rig.Reported(0x52), v1::SEGMENT_ONLINE);
  EXPECT_EQ(rig.Reported(0x51), v1::SEGMENT_ABSENT);
  EXPECT_EQ(rig.ReportedError(0x51), "DEADLINE_EXCEEDED");
}

TEST(AgentCoreTest, RetriesWithBackoffThatIsCappedAndReportsTheError) {
  CoreRig rig;
  rig.memory.plugged[1] = 0x51;
  rig.memory.failures["CreateHostRegion"] =
      Refuse(absl::StatusCode::kInternal, "REGION_COMMIT", "the kernel says ENXIO", "see dmesg");
  rig.Start();
  rig.Connect({MakeOffer(1, kOnline, {{1, 0x51}})});
  EXPECT_EQ(rig.ReportedError(0x51), "REGION_COMMIT");
  EXPECT_EQ(rig.Calls("CreateHostRegion 0x51"), 1);
  rig.executor.Advance(absl::Milliseconds(100));
  EXPECT_EQ(rig.Calls("CreateHostRegion 0x51"), 2);
  rig.executor.Advance(absl::Milliseconds(199));
  EXPECT_EQ(rig.Calls("CreateHostRegion 0x51"), 2);
  rig.executor.Advance(absl::Milliseconds(1));
  EXPECT_EQ(rig.Calls("CreateHostRegion 0x51"), 3);
  rig.executor.Advance(absl::Minutes(1));
  const int before = rig.Calls("CreateHostRegion 0x51");
  rig.executor.Advance(absl::Seconds(50));
  EXPECT_EQ(rig.Calls("CreateHostRegion 0x51"), before + 10);  // Every 5 s.
  rig.memory.failures.clear();
  rig.executor.Advance(absl::Seconds(5));
  EXPECT_EQ(rig.Reported(0x51), v1::SEGMENT_ONLINE);
  EXPECT_EQ(rig.ReportedError(0x51), "");
}

TEST(AgentCoreTest, ARungThatLiesIsFoundOutAndBackedOff) {
  CoreRig rig;
  rig.memory.plugged[1] = 0x51;
  rig.Start();
  rig.Connect({MakeOffer(1, kOnline, {{1, 0x51}}, v1::SYSTEM_RAM)});
  rig.memory.lies = {"OfflineBlocks"};
  rig.Offer(MakeOffer(1, kOffline, {{1, 0x51}}, v1::SYSTEM_RAM));
  EXPECT_EQ(rig.Reported(0x51), v1::SEGMENT_STOPPING);
  EXPECT_EQ(rig.ReportedError(0x51), "NO_EFFECT");
  EXPECT_EQ(rig.Calls("OfflineBlocks 0x51"), 1);
  rig.executor.Advance(absl::Minutes(1));
  EXPECT_LE(rig.Calls("OfflineBlocks 0x51"), 20);
  EXPECT_EQ(rig.Calls("UnbindDax 0x51"), 0);
  rig.memory.lies.clear();
  rig.executor.Advance(absl::Seconds(6));
  EXPECT_EQ(rig.Reported(0x51), v1::SEGMENT_PRESENT);
}

TEST(AgentCoreTest, ALostDaxDeviceIsMadeAgain) {
  CoreRig rig;
  rig.memory.plugged[1] = 0x51;
  rig.Start();
  rig.Connect({MakeOffer(1, kOnline, {{1, 0x51}})});
  rig.memory.calls.clear();
  rig.memory.LoseDax(0x51);
  rig.executor.Advance(absl::Seconds(2));
  EXPECT_THAT(rig.memory.calls, ElementsAre("CreateHostRegion 0x51", "BindDax 0x51"));
  EXPECT_EQ(rig.Reported(0x51), v1::SEGMENT_ONLINE);
  EXPECT_THAT(rig.memory.host.regions, SizeIs(1));
}

TEST(AgentCoreTest, AHostRegionWhoseDaxDeviceStaysAwayIsTakenDownAndMadeAfresh) {
  CoreRig rig;
  rig.memory.plugged[1] = 0x51;
  rig.Start();
  rig.Connect({MakeOffer(1, kOnline, {{1, 0x51}})});
  rig.memory.calls.clear();
  rig.memory.LoseDax(0x51);
  rig.memory.failures["CreateHostRegion"] = Refuse(absl::StatusCode::kNotFound, "NO_DAX_DEVICE",
                                                   "host region region0 has no DAX device", "");
  rig.executor.Advance(absl::Seconds(2));
  EXPECT_EQ(rig.Reported(0x51), v1::SEGMENT_REGION);
  EXPECT_EQ(rig.ReportedError(0x51), "NO_DAX_DEVICE");
  rig.executor.Advance(absl::Seconds(8));
  EXPECT_EQ(rig.Calls("DestroyHostRegion 0x51"), 1);
  EXPECT_GT(rig.Calls("CreateHostRegion 0x51"), kMaxRemakes);
  EXPECT_EQ(rig.Calls("BindDax 0x51"), 0);
  EXPECT_THAT(rig.memory.host.regions, IsEmpty());
  rig.memory.failures.clear();
  rig.executor.Advance(absl::Seconds(6));
  EXPECT_EQ(rig.Reported(0x51), v1::SEGMENT_ONLINE);
  EXPECT_EQ(rig.Calls("DestroyHostRegion 0x51"), 1);
}

TEST(AgentCoreTest, ADaxDeviceThatIsSaidToBeThereAndIsNotEndsInANewHostRegion) {
  CoreRig rig;
  rig.memory.plugged[1] = 0x51;
  rig.Start();
  rig.Connect({MakeOffer(1, kOnline, {{1, 0x51}})});
  rig.memory.LoseDax(0x51);
  rig.memory.lies = {"CreateHostRegion"};
  rig.executor.Advance(absl::Seconds(10));
  EXPECT_EQ(rig.Calls("DestroyHostRegion 0x51"), 1);
  rig.memory.lies.clear();
  rig.executor.Advance(absl::Seconds(6));
  EXPECT_EQ(rig.Reported(0x51), v1::SEGMENT_ONLINE);
}

TEST(AgentCoreTest, AHostRegionWithoutDaxDeviceGoesDownAtOnce) {
  CoreRig rig;
  rig.memory.plugged[1] = 0x51;
  rig.Start();
  rig.Connect({MakeOffer(1, kOnline, {{1, 0x51}})});
  rig.memory.LoseDax(0x51);
  rig.memory.failures["CreateHostRegion"] = absl::NotFoundError("no DAX device");
  rig.executor.Advance(absl::Seconds(2));
  rig.memory.calls.clear();
  rig.Offer(MakeOffer(1, kEjected, {{1, 0x51}}));
  EXPECT_THAT(rig.memory.calls, ElementsAre("DestroyHostRegion 0x51", "PowerOff 0x51"));
  EXPECT_EQ(rig.Reported(0x51), v1::SEGMENT_ABSENT);
}

TEST(AgentCoreTest, ABlockedBridgeIsRefusedWithoutTryingAndRecoversByItself) {
  CoreRig rig;
  rig.memory.plugged[1] = 0x51;
  rig.memory.host.bridges[0].blocked = true;
  rig.memory.host.bridges[0].blocking_serial = 0x99;
  rig.Start();
  rig.Connect({MakeOffer(1, kOnline, {{1, 0x51}})});
  EXPECT_EQ(rig.ReportedError(0x51), "BRIDGE_BLOCKED");
  EXPECT_EQ(rig.Calls("CreateHostRegion 0x51"), 0);
  rig.memory.host.bridges[0].blocked = false;
  rig.executor.Advance(absl::Seconds(2));
  EXPECT_EQ(rig.Reported(0x51), v1::SEGMENT_ONLINE);
}

TEST(AgentCoreTest, HeldDevdaxStaysUpAndNamesItsHolders) {
  CoreRig rig;
  rig.memory.plugged[1] = 0x51;
  rig.Start();
  rig.Connect({MakeOffer(1, kOnline, {{1, 0x51}})});
  rig.memory.holders = {41, 42};
  rig.Offer(MakeOffer(1, kOffline, {{1, 0x51}}));
  EXPECT_EQ(rig.Reported(0x51), v1::SEGMENT_STOPPING);
  EXPECT_EQ(rig.ReportedError(0x51), "HOLDERS");
  EXPECT_THAT(rig.link.Last(0x51)->error().holder_pids(), ElementsAre(41, 42));
  EXPECT_EQ(rig.Calls("UnbindDax 0x51"), 0);
  rig.memory.holders.clear();
  rig.executor.Advance(absl::Seconds(5));
  EXPECT_EQ(rig.Reported(0x51), v1::SEGMENT_PRESENT);
}

TEST(AgentCoreTest, AnOpenAttachmentIsNotTakenDown) {
  CoreRig rig;
  rig.memory.plugged[1] = 0x51;
  rig.Start();
  rig.Connect({MakeOffer(1, kOnline, {{1, 0x51}}, v1::SYSTEM_RAM)});
  rig.core->opens().Open({.generation = 1, .tag = "tag-1"}, {7, {4711, 99}, "regions/r1"}, {0x51});
  rig.Offer(MakeOffer(1, kOffline, {{1, 0x51}}, v1::SYSTEM_RAM));
  EXPECT_EQ(rig.ReportedError(0x51), "HOLDERS");
  EXPECT_THAT(rig.link.Last(0x51)->error().holder_pids(), ElementsAre(4711));
  EXPECT_EQ(rig.Calls("OfflineBlocks 0x51"), 0);
  rig.core->opens().CloseConnection(7);
  rig.core->Reconsider();
  rig.executor.RunReady();
  EXPECT_EQ(rig.Reported(0x51), v1::SEGMENT_PRESENT);
}

// Only what lives is alive.
class SomeProcesses : public ProcessWatch {
 public:
  void Watch(const ProcessId&, Done) override {}
  void Forget(const ProcessId&) override {}
  bool HasEnded(const ProcessId& process) override { return !alive.contains(process); }
  std::set<ProcessId> alive;
};

TEST(AgentCoreTest, WhoOpenedItAndHasEndedIsNotNamedButWhoHasItNow) {
  CoreRig rig;
  SomeProcesses processes;
  rig.core->SetProcessWatch(&processes);
  rig.memory.plugged[1] = 0x51;
  rig.Start();
  rig.Connect({MakeOffer(1, kOnline, {{1, 0x51}})});
  rig.core->opens().Open({.generation = 1, .tag = "tag-1"}, {7, {11077, 99}, "regions/r1"}, {0x51});
  rig.memory.holders = {11087};  // A child of 11077 has the connection and the descriptor.
  processes.alive = {{11087, FakeHostMemory::kHolderStart}};
  rig.Offer(MakeOffer(1, kOffline, {{1, 0x51}}));
  rig.executor.Advance(absl::Seconds(3));
  EXPECT_EQ(rig.ReportedError(0x51), "HOLDERS");
  EXPECT_THAT(rig.link.Last(0x51)->error().holder_pids(), ElementsAre(11087));
  EXPECT_EQ(rig.link.Last(0x51)->error().message().find("11077"), std::string::npos);
  EXPECT_EQ(rig.Calls("UnbindDax 0x51"), 0);
  // Nobody has a descriptor any more, but the connection stands.
  rig.memory.holders.clear();
  processes.alive.clear();
  rig.executor.Advance(absl::Seconds(5));
  EXPECT_THAT(rig.link.Last(0x51)->error().holder_pids(), ElementsAre());
  EXPECT_NE(rig.link.Last(0x51)->error().message().find("process 11077 made; it has ended"),
            std::string::npos);
  EXPECT_EQ(rig.Calls("UnbindDax 0x51"), 0);
  rig.core->opens().CloseConnection(7);
  rig.core->Reconsider();
  rig.executor.Advance(absl::Seconds(5));
  EXPECT_EQ(rig.Reported(0x51), v1::SEGMENT_PRESENT);
}

TEST(AgentCoreTest, HelloSaysEverythingThatIsOnTheHost) {
  CoreRig rig;
  rig.memory.plugged[1] = 0x51;
  rig.Start();
  rig.Connect({MakeOffer(1, kOnline, {{1, 0x51}})});
  rig.NewCore();  // The agent restarts: it knows no Offer, and finds what is there.
  rig.memory.calls.clear();
  rig.Start();
  const v1::Hello hello = rig.Connect({MakeOffer(1, kOnline, {{1, 0x51}})});
  EXPECT_EQ(hello.protocol_version(), 1u);
  EXPECT_EQ(hello.host(), "hosts/host-a");
  ASSERT_EQ(hello.segments_size(), 1);
  EXPECT_EQ(hello.segments(0).region_tag(), "");
  EXPECT_EQ(hello.segments(0).serial(), 0x51u);
  EXPECT_EQ(hello.segments(0).state(), v1::SEGMENT_ONLINE);
  EXPECT_EQ(hello.inventory().bridges_size(), 2);
  EXPECT_THAT(rig.memory.calls, IsEmpty());  // Readopted as it stands.
  EXPECT_EQ(rig.link.Last(0x51)->region_tag(), "tag-1");
}

TEST(AgentCoreTest, WhatNoOfferNamesIsReportedAndLeftAlone) {
  CoreRig rig;
  rig.Start();
  rig.Connect();
  rig.memory.host.memdevs = {
      {.serial = 0x77, .slot = 2, .name = "mem2", .size_bytes = 0, .host_bridge = "ACPI0016:00"}};
  rig.executor.Advance(absl::Seconds(2));
  EXPECT_EQ(rig.Reported(0x77), v1::SEGMENT_PRESENT);
  EXPECT_EQ(rig.link.Last(0x77)->region_tag(), "");
  EXPECT_THAT(rig.memory.calls, IsEmpty());
  rig.memory.host.memdevs.clear();
  rig.executor.Advance(absl::Seconds(2));
  EXPECT_EQ(rig.Reported(0x77), v1::SEGMENT_ABSENT);
}

TEST(AgentCoreTest, SurpriseRemovalIsSeenAndReported) {
  CoreRig rig;
  rig.memory.plugged[1] = 0x51;
  rig.Start();
  rig.Connect({MakeOffer(1, kOnline, {{1, 0x51}})});
  rig.memory.Unplug(1);
  rig.executor.Advance(absl::Seconds(2));
  EXPECT_EQ(rig.Reported(0x51), v1::SEGMENT_ABSENT);
  EXPECT_EQ(rig.ReportedError(0x51), "MEMDEV_GONE");
  rig.Offer(MakeOffer(1, kEjected, {{1, 0x51}}));  // What is left of it goes.
  EXPECT_THAT(rig.memory.host.regions, IsEmpty());
  EXPECT_EQ(rig.Reported(0x51), v1::SEGMENT_ABSENT);
  EXPECT_EQ(rig.ReportedError(0x51), "");
}

TEST(AgentCoreTest, ReportsOnlyWhatChanged) {
  CoreRig rig;
  rig.memory.plugged = {{1, 0x51}, {3, 0x52}};
  rig.Start();
  rig.Connect({MakeOffer(1, kOnline, {{1, 0x51}})});
  rig.link.reports.clear();
  rig.executor.Advance(absl::Minutes(1));
  EXPECT_THAT(rig.link.reports, IsEmpty());
  rig.Offer(MakeOffer(2, kOnline, {{3, 0x52}}));
  for (const v1::Report& report : rig.link.reports) {
    for (const v1::SegmentReport& segment : report.segments()) EXPECT_EQ(segment.serial(), 0x52u);
  }
}

TEST(AgentCoreTest, ConvergesWhileTheManagerIsAway) {
  CoreRig rig;
  rig.Start();
  rig.Connect({MakeOffer(1, kOnline, {{1, 0x51}})});
  rig.link.handlers.on_lost(absl::UnavailableError("gone"), false);
  rig.executor.RunReady();
  rig.link.reports.clear();
  rig.memory.plugged[1] = 0x51;
  rig.executor.Advance(absl::Seconds(5));
  EXPECT_EQ(rig.memory.Region(0x51)->dax_driver, DaxDriver::kDeviceDax);
  EXPECT_THAT(rig.link.reports, IsEmpty());
  const v1::Hello hello = rig.Connect({MakeOffer(1, kOnline, {{1, 0x51}})});
  EXPECT_EQ(hello.segments(0).state(), v1::SEGMENT_ONLINE);
  EXPECT_EQ(hello.segments(0).region_tag(), "tag-1");
}

TEST(AgentCoreTest, WelcomeForgetsOffersThatAreNotInIt) {
  CoreRig rig;
  rig.memory.plugged[1] = 0x51;
  rig.Start();
  rig.Connect({MakeOffer(1, kOnline, {{1, 0x51}})});
  rig.Connect({});
  EXPECT_THAT(rig.core->attachments().all(), IsEmpty());
  EXPECT_EQ(rig.link.Last(0x51)->region_tag(), "");
  EXPECT_EQ(rig.Reported(0x51), v1::SEGMENT_ONLINE);
}

TEST(AgentCoreTest, ANewGenerationIsTakenBesideTheOldOneOfItsRegion) {
  CoreRig rig;
  rig.memory.plugged = {{1, 0x51}};
  rig.Start();
  rig.Connect({MakeOffer(1, kOnline, {{1, 0x51}})});
  ASSERT_EQ(rig.Reported(0x51), v1::SEGMENT_ONLINE);
  rig.memory.plugged[3] = 0x52;
  v1::Offer newer = MakeOffer(2, kOnline, {{3, 0x52}});
  newer.set_region_tag("tag-1");
  rig.Offer(newer);
  EXPECT_EQ(rig.Reported(0x52), v1::SEGMENT_ONLINE);
  EXPECT_EQ(rig.core->attachments().FindByTag("tag-1")->first.generation, 2u);
}

TEST(AgentCoreTest, WithdrawForgets) {
  CoreRig rig;
  rig.memory.plugged[1] = 0x51;
  rig.Start();
  rig.Connect({MakeOffer(1, kEjected, {{1, 0x51}})});
  v1::Withdraw withdraw;
  withdraw.set_region_tag("tag-1");
  withdraw.set_attachment_generation(1);
  rig.link.handlers.on_withdraw(withdraw);
  rig.executor.RunReady();
  EXPECT_THAT(rig.core->attachments().all(), IsEmpty());
}

TEST(AgentCoreTest, AnEmptySlotIsPoweredOffAgainForAsLongAsThatIsWanted) {
  CoreRig rig;
  rig.Start();
  rig.Connect({MakeOffer(1, kEjected, {{1, 0x51}})});
  EXPECT_EQ(rig.Calls("PowerOff 0x51"), 1);
  rig.executor.Advance(kRepeatPowerOff - absl::Seconds(1));
  EXPECT_EQ(rig.Calls("PowerOff 0x51"), 1);
  // It may have said so and done nothing: there was no memdev that could be seen to go.
  rig.executor.Advance(absl::Seconds(3));
  EXPECT_EQ(rig.Calls("PowerOff 0x51"), 2);
  rig.Offer(MakeOffer(1, kEjected, {{1, 0x51}}));
  EXPECT_EQ(rig.Calls("PowerOff 0x51"), 3);
  EXPECT_EQ(rig.ReportedError(0x51), "");
  rig.link.handlers.on_lost(absl::UnavailableError("cut"), false);
  rig.executor.Advance(absl::Minutes(1));
  EXPECT_EQ(rig.Calls("PowerOff 0x51"), 3) << "without a session the Offer may be old";
}

// A serial as managers give them.
constexpr uint64_t kOurs = 0x0c00'0000'0000'0051;

TEST(AgentCoreTest, TheRemainsOfAnUnpluggedMemdevAreClearedAway) {
  CoreRig rig;
  rig.memory.plugged = {{1, kOurs}, {3, kOurs + 1}};
  rig.Start();
  rig.Connect({MakeOffer(1, kOnline, {{1, kOurs}}), MakeOffer(2, kOnline, {{3, kOurs + 1}})});
  ASSERT_THAT(rig.memory.host.regions, SizeIs(2));
  rig.memory.Unplug(1);
  rig.executor.Advance(absl::Seconds(10));
  EXPECT_THAT(rig.memory.host.regions, SizeIs(2)) << "an Offer names it: the manager says when";
  v1::Withdraw withdraw;
  withdraw.set_region_tag(MakeOffer(1, kOnline, {{1, kOurs}}).region_tag());
  withdraw.set_attachment_generation(1);
  rig.link.handlers.on_withdraw(withdraw);
  rig.executor.Advance(absl::Seconds(10));
  ASSERT_THAT(rig.memory.host.regions, SizeIs(1));
  EXPECT_EQ(rig.memory.host.regions[0].serials[0], kOurs + 1);
}

TEST(AgentCoreTest, ARestartedAgentClearsRemainsOnlyOnceItIsWelcome) {
  CoreRig rig;
  rig.memory.plugged[1] = kOurs;
  rig.Start();
  rig.Connect({MakeOffer(1, kOnline, {{1, kOurs}})});
  rig.memory.Unplug(1);
  rig.NewCore();
  rig.Start();
  rig.executor.Advance(absl::Seconds(10));
  EXPECT_THAT(rig.memory.host.regions, SizeIs(1));
  rig.Connect();
  rig.executor.Advance(absl::Seconds(10));
  EXPECT_THAT(rig.memory.host.regions, IsEmpty());
}

TEST(AgentCoreTest, WhatHasAMemdevIsNoRemains) {
  CoreRig rig;
  rig.memory.plugged[1] = kOurs;
  rig.Start();
  rig.Connect({MakeOffer(1, kOnline, {{1, kOurs}})});
  rig.NewCore();
  rig.Start();
  rig.Connect();
  rig.executor.Advance(absl::Minutes(1));
  EXPECT_THAT(rig.memory.host.regions, SizeIs(1));
}

// A host's own CXL card may sit where no slot shows it.
TEST(AgentCoreTest, WhatIsNotOfAPoolIsLeftAlone) {
  CoreRig rig;
  rig.memory.plugged[1] = 0x51;
  rig.Start();
  rig.Connect({MakeOffer(1, kOnline, {{1, 0x51}})});
  rig.memory.Unplug(1);
  rig.NewCore();
  rig.Start();
  rig.Connect();
  rig.executor.Advance(absl::Minutes(1));
  EXPECT_THAT(rig.memory.host.regions, SizeIs(1));
}

TEST(AgentCoreTest, AChangeOfMindTurnsAroundOnTheLadder) {
  CoreRig rig;
  rig.memory.plugged[1] = 0x51;
  rig.memory.silent = {"CreateHostRegion"};
  rig.Start();
  rig.Connect({MakeOffer(1, kOnline, {{1, 0x51}})});
  rig.Offer(MakeOffer(1, kEjected, {{1, 0x51}}));
  EXPECT_EQ(rig.Calls("PowerOff 0x51"), 0);  // The rung that is under way ends first.
  rig.memory.Resume();
  rig.executor.RunReady();
  EXPECT_THAT(rig.memory.host.regions, IsEmpty());
  EXPECT_THAT(rig.memory.host.memdevs, IsEmpty());
  EXPECT_EQ(rig.Calls("BindDax 0x51"), 0);
}

TEST(AgentCoreTest, WaysDownComeBeforeWaysUp) {
  CoreRig rig;
  rig.memory.plugged = {{1, 0x51}, {3, 0x52}};
  rig.Start();
  rig.Connect({MakeOffer(1, kOnline, {{1, 0x51}})});
  rig.memory.calls.clear();
  rig.Connect({MakeOffer(0, kOnline, {{3, 0x52}}), MakeOffer(1, kOffline, {{1, 0x51}})});
  EXPECT_EQ(rig.memory.calls.front(), "FindHolders 0x51");
}

TEST(AgentCoreTest, WhatFailsOverAndOverDoesNotKeepOthersWaiting) {
  CoreRig rig;
  rig.memory.plugged = {{3, 0x52}, {4, 0x53}};  // 0x51 never comes.
  rig.Start();
  rig.Connect({MakeOffer(1, kOnline, {{1, 0x51}})});
  rig.executor.Advance(absl::Seconds(30));
  rig.memory.silent = {"PowerOn"};
  rig.memory.calls.clear();
  rig.Offer(MakeOffer(2, kOnline, {{3, 0x52}}));
  rig.Offer(MakeOffer(3, kOnline, {{4, 0x53}}));
  rig.executor.Advance(absl::Seconds(30));  // The time of 0x51 has come while 0x52 is served.
  EXPECT_THAT(rig.memory.calls, ElementsAre("PowerOn 0x52"));
  rig.memory.Resume();
  rig.executor.RunReady();
  ASSERT_EQ(rig.Calls("PowerOn 0x51"), 1);
  EXPECT_EQ(rig.memory.calls.back(), "PowerOn 0x51");
  EXPECT_EQ(rig.Reported(0x52), v1::SEGMENT_ONLINE);
  EXPECT_EQ(rig.Reported(0x53), v1::SEGMENT_ONLINE);
}

TEST(AgentCoreTest, NothingIsMadeOnAHostThatCouldNotBePrepared) {
  CoreRig rig;
  rig.memory.plugged[1] = 0x51;
  rig.memory.prepare =
      Refuse(absl::StatusCode::kFailedPrecondition, "NO_CXL_MODULE", "no cxl_acpi", "load it");
  rig.Start();
  rig.Connect({MakeOffer(1, kOnline, {{1, 0x51}})});
  EXPECT_THAT(rig.memory.calls, IsEmpty());
  EXPECT_EQ(rig.ReportedError(0x51), "NO_CXL_MODULE");
  EXPECT_EQ(rig.Connect().inventory().unfit_reason(), "no cxl_acpi (load it)");
  rig.link.handlers.on_offer(MakeOffer(1, kOnline, {{1, 0x51}}));
  rig.memory.prepare = absl::OkStatus();
  rig.executor.Advance(absl::Seconds(8));
  EXPECT_EQ(rig.Reported(0x51), v1::SEGMENT_ONLINE);
  // The manager hears as soon as it is fixed.
  const auto report = std::find_if(rig.link.reports.begin(), rig.link.reports.end(),
                                   [](const v1::Report& r) { return r.has_inventory(); });
  ASSERT_NE(report, rig.link.reports.end());
  EXPECT_EQ(report->inventory().unfit_reason(), "");
}

TEST(AgentCoreTest, ABadOfferIsRefusedForGoodAndHarmsNoOther) {
  CoreRig rig;
  rig.memory.plugged[1] = 0x51;
  rig.Start();
  v1::Offer bad = MakeOffer(2, kOnline, {{3, 0x52}});
  bad.mutable_segments(0)->clear_targets();
  rig.Connect({bad, MakeOffer(1, kOnline, {{1, 0x51}})});
  EXPECT_EQ(rig.Reported(0x51), v1::SEGMENT_ONLINE);
  bool reported = false;
  for (const v1::Report& report : rig.link.reports) {
    for (const v1::SegmentReport& segment : report.segments()) {
      reported |= segment.region_tag() == "tag-2" && segment.error().permanent() &&
                  segment.error().reason() == "BAD_OFFER";
    }
  }
  EXPECT_TRUE(reported);
}

// Ends when the test says so.
class FakeDeviceWork : public DeviceWork {
 public:
  void Do(v1::DeviceTask, DoneWith<v1::DeviceLook> done) override {
    under_way.push_back(std::move(done));
  }
  void EndSession() override {}

  std::vector<DoneWith<v1::DeviceLook>> under_way;
};

// The next manager may have given the same number to a task of its own.
TEST(AgentCoreTest, ATaskIsAnsweredOnlyInTheSessionThatItWasAskedIn) {
  FakeDeviceWork work;
  CoreRig rig;
  rig.core->SetDeviceWork(&work);
  rig.Start();
  v1::DeviceTask task;
  task.set_id(7);
  task.mutable_look();
  for (int session = 0; session < 2; ++session) {
    rig.Connect();
    rig.link.handlers.on_device_task(task);
    rig.executor.RunReady();
  }
  ASSERT_THAT(work.under_way, SizeIs(2));
  std::move(work.under_way[0])(v1::DeviceLook());
  rig.executor.RunReady();
  EXPECT_THAT(rig.link.answers, IsEmpty());
  std::move(work.under_way[1])(v1::DeviceLook());
  rig.executor.RunReady();
  EXPECT_THAT(rig.link.answers, SizeIs(1));
}

// The link may have the next session already, of which the core has yet to hear.
TEST(AgentCoreTest, ATaskOfASessionThatWasLostIsNotAnswered) {
  FakeDeviceWork work;
  CoreRig rig;
  rig.core->SetDeviceWork(&work);
  rig.Start();
  rig.Connect();
  v1::DeviceTask task;
  task.set_id(7);
  task.mutable_look();
  rig.link.handlers.on_device_task(task);
  rig.executor.RunReady();
  ASSERT_THAT(work.under_way, SizeIs(1));
  rig.link.handlers.on_lost(absl::UnavailableError("gone"), false);
  rig.executor.RunReady();
  std::move(work.under_way[0])(v1::DeviceLook());
  rig.executor.RunReady();
  EXPECT_THAT(rig.link.answers, IsEmpty());
}

TEST(AgentCoreTest, AWelcomesOffersHaveTheRoomOfThoseThatGo) {
  CoreRig rig;
  rig.Start();
  for (const uint64_t first : {uint64_t{1}, uint64_t{5001}}) {
    std::vector<v1::Offer> offers;
    for (uint64_t i = 0; i < kMaxAttachments; ++i) {
      offers.push_back(MakeOffer(first + i, kOnline, {}));
    }
    rig.Connect(std::move(offers));
    EXPECT_EQ(rig.core->attachments().all().size(), kMaxAttachments);
    EXPECT_EQ(rig.core->attachments().all().begin()->first.generation, first);
  }
}

TEST(AgentCoreTest, CompletionsAfterItsDeathAreDropped) {
  CoreRig rig;
  rig.memory.plugged[1] = 0x51;
  rig.memory.silent = {"PowerOn"};
  rig.Start();
  rig.Connect({MakeOffer(1, kOnline, {{1, 0x51}})});
  rig.core.reset();
  rig.memory.Resume();
  rig.executor.Advance(absl::Minutes(1));
}

}  // namespace
}  // namespace cxlpool::agent
