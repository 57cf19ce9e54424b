#include "test/sim/rack.h"

#include <gtest/gtest.h>

#include "host-agent/model/online_plan.h"
#include "proto/support/refusal.h"

namespace cxlpool::sim {
namespace {

using agent::DaxDriver;

const std::string kRed = "11111111-1111-1111-1111-111111111111";
const std::string kBlue = "22222222-2222-2222-2222-222222222222";

RackHost MakeHost(const std::string& id) {
  RackHost host;
  host.id = id;
  host.bridges = {{"ACPI0016:00", {1, 2, 3, 4, 5, 6}, 4}, {"ACPI0016:01", {11, 12, 13}, 4}};
  return host;
}

class RackTest : public ::testing::Test {
 protected:
  RackTest()
      : rack(&scheduler,
             {.intends = [this](const auto&...) { return intends; },
              .leaving = [this](const auto&...) { return leaving; },
              .stays = [this](const std::string&,
                              uint64_t serial) { return staying.contains(serial); }},
             [this](const std::string& what) { breaches.push_back(what); }) {
    rack.devices = {{"cmm-0", std::vector<uint32_t>(16)}, {"cmm-1", std::vector<uint32_t>(16)}};
    for (const char* id : {"host-a", "host-b"}) rack.hosts[id] = MakeHost(id);
  }

  fm::BindRequest Request(uint32_t slot, uint64_t serial, const std::string& tag = kRed,
                          uint64_t first = 0, const std::string& host = "host-a") {
    fm::BindRequest request;
    if (const RackHost* known = rack.FindHost(host)) request.incarnation = known->life();
    request.key = {host, tag, serial, 0};
    request.slot = slot;
    request.slice = {"cmm-0", first * kGranule, 2 * kGranule};
    request.serial = serial;
    return request;
  }
  absl::StatusOr<fm::BoundLd> Bind(uint32_t slot, uint64_t serial, const std::string& tag = kRed,
                                   uint64_t first = 0, const std::string& host = "host-a") {
    return rack.Bind(Request(slot, serial, tag, first, host));
  }
  // Bound, powered on, and a host region made of it.
  void Take(uint32_t slot, uint64_t serial, uint64_t first) {
    ASSERT_TRUE(Bind(slot, serial, kRed, first).ok());
    ASSERT_TRUE(rack.PowerOn(a, slot, serial));
    ASSERT_TRUE(Create({serial}).ok());
  }
  absl::Status Create(std::vector<uint64_t> serials, uint32_t granularity = 0,
                      const std::string& bridge = "ACPI0016:00") {
    agent::HostRegionSpec spec;
    spec.host_bridge = bridge;
    spec.size_bytes = 2 * kGranule * serials.size();
    spec.serials = std::move(serials);
    spec.interleave_granularity_bytes = granularity;
    return rack.CreateHostRegion(a, spec);
  }
  // Up and down without a word of the judge.
  void EjectAll() {
    for (auto it = a.slots.begin(); it != a.slots.end();) {
      const fm::BoundLd ld = (it++)->second.ld;
      rack.OfflineBlocks(a, ld.serial).IgnoreError();
      rack.UnbindDax(a, ld.serial).IgnoreError();
      EXPECT_TRUE(rack.DestroyHostRegion(a, ld.serial).ok());
      EXPECT_TRUE(rack.BeginUnbind(*ld.key).ok());
      EXPECT_TRUE(rack.PowerOff(a, ld.slot, ld.serial).ok());
    }
  }
  void ExpectBreach(const std::string& what) {
    ASSERT_FALSE(breaches.empty()) << "no breach: " << what;
    EXPECT_NE(breaches.front().find(what), std::string::npos) << breaches.front();
  }
  agent::ObservedBridge Bridge() { return rack.Observe(a).bridges[0]; }

  Scheduler scheduler;
  bool intends = true;
  bool leaving = true;
  std::set<uint64_t> staying;
  std::vector<std::string> breaches;
  Rack rack;
  RackHost& a = rack.hosts["host-a"];
  RackHost& b = rack.hosts["host-b"];
};

// --- Bind and its judge.

TEST_F(RackTest, BindIsIdempotentAndRefusesWhatTheFabricRefuses) {
  ASSERT_TRUE(Bind(1, 100).ok());
  ASSERT_TRUE(Bind(1, 100).ok()) << "again";
  EXPECT_EQ(a.slots.size(), 1u);
  EXPECT_EQ(ReasonOf(Bind(1, 101, kBlue, 4).status()), "NO_FREE_PORT");
  fm::BindRequest other = Request(1, 100);
  other.slot = 2;
  EXPECT_EQ(ReasonOf(rack.Bind(other).status()), "LD_CONFLICT");
  EXPECT_EQ(ReasonOf(Bind(99, 102).status()), "UNKNOWN_SLOT");
  EXPECT_EQ(ReasonOf(Bind(2, 102, kRed, 0, "nowhere").status()), "UNKNOWN_HOST");
  EXPECT_EQ(ReasonOf(Bind(2, 102, kRed, 15).status()), "BAD_SLICE");
  b.reachable = false;
  EXPECT_EQ(ReasonOf(Bind(2, 102, kRed, 0, "host-b").status()), "HOST_UNREACHABLE");
  EXPECT_TRUE(absl::IsUnavailable(Bind(2, 102, kRed, 0, "host-b").status()));
  rack.PowerLost(a);
  EXPECT_EQ(ReasonOf(Bind(2, 102).status()), "HOST_UNREACHABLE");
  EXPECT_TRUE(breaches.empty());
}

TEST_F(RackTest, BindWithoutADurableIntentIsABreach) {
  intends = false;
  Bind(1, 100).IgnoreError();
  ExpectBreach("no durable record");
}

TEST_F(RackTest, BytesOfTwoRegionsBoundAtOnceAreABreachAlsoOnAHostNobodyCanAsk) {
  ASSERT_TRUE(Bind(1, 100, kRed, 0).ok());
  ASSERT_TRUE(Bind(1, 200, kRed, 0, "host-b").ok()) << "shared";
  EXPECT_TRUE(breaches.empty());
  a.reachable = false;
  Bind(2, 201, kBlue, 1, "host-b").IgnoreError();
  ExpectBreach("its bytes are bound as LD of tag " + kRed);
}

TEST_F(RackTest, ASerialIsNewInAFabricIncarnation) {
  ASSERT_TRUE(Bind(1, 100).ok());
  EjectAll();
  rack.Reset(a);
  ASSERT_TRUE(Bind(1, 100, kRed, 4, "host-b").ok()) << "another host";
  EXPECT_TRUE(breaches.empty());
  ASSERT_TRUE(Bind(2, 100).ok());
  ExpectBreach("the serial was used before");
  breaches.clear();
  rack.PowerLost(a);
  rack.PowerBack(a);
  ASSERT_TRUE(Bind(2, 100).ok());
  EXPECT_TRUE(breaches.empty());
}

TEST_F(RackTest, ThePreviousTenantsBytesAreABreachUntilTheyAreScrubbed) {
  Take(1, 100, 0);
  EXPECT_EQ(rack.devices[0].content[0], Rack::HashOf(kRed));
  EXPECT_EQ(rack.devices[0].content[1], Rack::HashOf(kRed));
  EXPECT_EQ(rack.devices[0].content[2], 0u);
  EjectAll();
  ASSERT_TRUE(Bind(2, 101, kRed, 0).ok()) << "its own bytes";
  EjectAll();
  EXPECT_TRUE(breaches.empty());
  const fm::Slice slice{"cmm-0", 0, 2 * kGranule};
  rack.Scrub(slice, 0, 1);
  ASSERT_TRUE(Bind(3, 102, kBlue, 0).ok());
  ExpectBreach("granule 1 holds bytes of somebody else");
  EjectAll();
  breaches.clear();
  rack.Scrub(slice, 1, 1);
  ASSERT_TRUE(Bind(4, 103, kBlue, 0).ok());
  EXPECT_TRUE(breaches.empty());
}

TEST_F(RackTest, ScrubUnderSomebodyOrOfWhatIsToStayIsABreach) {
  const fm::Slice slice{"cmm-0", 0, 2 * kGranule};
  rack.Scrub(slice, 0, 2);
  EXPECT_TRUE(breaches.empty());
  leaving = false;
  rack.Scrub(slice, 0, 2);
  ExpectBreach("not on their way out");
  breaches.clear();
  leaving = true;
  ASSERT_TRUE(Bind(1, 100, kRed, 1).ok());
  rack.Scrub(slice, 0, 1);
  ExpectBreach("they can be reached by the LD of tag " + kRed);
}

// --- The ladder of a host.

TEST_F(RackTest, DecodersAreAStack) {
  Take(1, 100, 0);
  Take(2, 101, 2);
  EXPECT_EQ(Bridge().live_regions, 2u);
  EXPECT_EQ(Bridge().blocking_serial, 101u);
  EXPECT_EQ(Bridge().free_window_bytes, (kWindowGranules - 4) * kGranule);
  ASSERT_TRUE(rack.DestroyHostRegion(a, 100).ok());
  EXPECT_TRUE(Bridge().blocked);
  EXPECT_EQ(ReasonOf(Create({100})), "BRIDGE_BLOCKED");
  EXPECT_FALSE(rack.Observe(a).bridges[1].blocked);
  ASSERT_TRUE(rack.DestroyHostRegion(a, 101).ok());
  EXPECT_FALSE(Bridge().blocked);
  EXPECT_TRUE(Create({100}).ok());
}

TEST_F(RackTest, ABridgeHasSoManyDecodersAndSoMuchWindow) {
  a.bridges[0].max_regions = 2;
  Take(1, 100, 0);
  Take(2, 101, 2);
  ASSERT_TRUE(Bind(3, 102, kRed, 4).ok());
  ASSERT_TRUE(rack.PowerOn(a, 3, 102));
  EXPECT_EQ(ReasonOf(Create({102})), "DECODERS_FULL");
  EXPECT_EQ(ReasonOf(Create({102}, 0, "ACPI0016:01")), "WRONG_BRIDGE");
  a.bridges[0].max_regions = 4;
  a.regions.back().size_bytes = (kWindowGranules - 3) * kGranule;
  EXPECT_EQ(ReasonOf(Create({102})), "WINDOW_FULL");
}

TEST_F(RackTest, AnInterleaveSetIsOneHostRegionUnderOneBridge) {
  for (uint32_t i = 0; i < 4; ++i) {
    ASSERT_TRUE(Bind(1 + i, 100 + i, kRed, 2 * i).ok());
    ASSERT_TRUE(rack.PowerOn(a, 1 + i, 100 + i));
  }
  EXPECT_EQ(ReasonOf(Create({100, 101, 102})), "REGION_COMMIT");
  EXPECT_EQ(ReasonOf(Create({100, 100})), "REGION_COMMIT");
  ASSERT_TRUE(Create({100, 101}, 512).ok());
  ASSERT_TRUE(Create({100, 101}, 512).ok()) << "again";
  EXPECT_EQ(ReasonOf(Create({100, 101}, 256)), "OTHER_REGION");
  EXPECT_EQ(ReasonOf(Create({102, 101}, 512)), "OTHER_REGION");
  EXPECT_EQ(Bridge().live_regions, 1u);
  EXPECT_EQ(rack.devices[0].content[3], Rack::HashOf(kRed));
  EXPECT_EQ(ReasonOf(rack.PowerOff(a, 2, 101)), "REGION_LIVE");
  ASSERT_TRUE(rack.DestroyHostRegion(a, 101).ok()) << "by any target";
  EXPECT_TRUE(a.regions.empty());
  EXPECT_TRUE(Create({103, 100, 102, 101}).ok());
}

TEST_F(RackTest, SystemRamGoesOnlineAndOffline) {
  Take(1, 100, 0);
  EXPECT_EQ(ReasonOf(rack.OnlineBlocks(a, 100)), "NOT_KMEM");
  ASSERT_TRUE(rack.BindDax(a, 100, DaxDriver::kKmem).ok());
  EXPECT_EQ(ReasonOf(rack.BindDax(a, 100, DaxDriver::kDeviceDax)), "DAX_BOUND");
  EXPECT_EQ(a.regions[0].total_blocks, 2u);
  EXPECT_EQ(a.regions[0].online_blocks, 0u);
  ASSERT_TRUE(rack.OnlineBlocks(a, 100).ok());
  EXPECT_TRUE(a.regions[0].all_movable);
  EXPECT_EQ(ReasonOf(rack.UnbindDax(a, 100)), "BLOCKS_BUSY");
  EXPECT_EQ(ReasonOf(rack.DestroyHostRegion(a, 100)), "DAX_BOUND");
  a.refuses_offline = true;
  EXPECT_EQ(ReasonOf(rack.OfflineBlocks(a, 100)), "BLOCKS_BUSY");
  EXPECT_EQ(a.regions[0].online_blocks, 1u);
  EXPECT_EQ(ReasonOf(rack.OfflineBlocks(a, 100)), "BLOCKS_BUSY");
  EXPECT_EQ(a.regions[0].online_blocks, 1u);
  a.refuses_offline = false;
  ASSERT_TRUE(rack.OfflineBlocks(a, 100).ok());
  ASSERT_TRUE(rack.UnbindDax(a, 100).ok());
  ASSERT_TRUE(rack.DestroyHostRegion(a, 100).ok());
}

TEST_F(RackTest, PowerOffEjectsOnlyWhatTheFabricHasBegunToUnbind) {
  std::vector<Rack::Gone> gone;
  rack.Subscribe([&](const fm::BoundLd&, Rack::Gone why) { gone.push_back(why); });
  ASSERT_TRUE(Bind(1, 100).ok());
  EXPECT_FALSE(rack.PowerOn(a, 1, 999));
  ASSERT_TRUE(rack.PowerOn(a, 1, 100));
  EXPECT_EQ(ReasonOf(rack.PowerOff(a, 1, 999)), "OTHER_MEMDEV");
  ASSERT_TRUE(rack.PowerOff(a, 1, 100).ok());
  EXPECT_TRUE(rack.Observe(a).memdevs.empty());
  EXPECT_TRUE(rack.IsBound(Request(1, 100).key));
  EXPECT_TRUE(gone.empty());
  ASSERT_TRUE(rack.BeginUnbind(Request(1, 100).key).ok());
  EXPECT_TRUE(a.slots.at(1).ld.unbinding);
  ASSERT_TRUE(rack.PowerOff(a, 1, 100).ok());
  EXPECT_FALSE(rack.IsBound(Request(1, 100).key));
  EXPECT_EQ(gone, std::vector<Rack::Gone>{Rack::Gone::kUnbound});
  EXPECT_TRUE(rack.PowerOff(a, 1, 100).ok()) << "empty";
}

TEST_F(RackTest, WhatIsToStayIsNotTakenDown) {
  Take(1, 100, 0);
  ASSERT_TRUE(rack.BindDax(a, 100, DaxDriver::kKmem).ok());
  ASSERT_TRUE(rack.OnlineBlocks(a, 100).ok());
  staying = {100};
  const auto down = [&](const absl::Status& status, const std::string& rung) {
    EXPECT_TRUE(status.ok()) << status;
    ExpectBreach(rung + " on host-a serial 100: taken down though it is to stay");
    breaches.clear();
  };
  down(rack.OfflineBlocks(a, 100), "OfflineBlocks");
  down(rack.UnbindDax(a, 100), "UnbindDax");
  down(rack.DestroyHostRegion(a, 100), "DestroyHostRegion");
  down(rack.PowerOff(a, 1, 100), "PowerOff");
  rack.PowerOff(a, 1, 100).IgnoreError();
  rack.DestroyHostRegion(a, 100).IgnoreError();
  EXPECT_TRUE(breaches.empty()) << "nothing was there to be taken down";
}

TEST_F(RackTest, OneTargetThatStaysKeepsTheSet) {
  for (uint32_t i = 0; i < 2; ++i) {
    ASSERT_TRUE(Bind(1 + i, 100 + i, kRed, 2 * i).ok());
    ASSERT_TRUE(rack.PowerOn(a, 1 + i, 100 + i));
  }
  ASSERT_TRUE(Create({100, 101}).ok());
  staying = {101};
  ASSERT_TRUE(rack.DestroyHostRegion(a, 100).ok());
  ExpectBreach("serial 101: taken down");
}

// --- What happens by itself.

TEST_F(RackTest, HostsStoreIntoWhatTheyCanReachAndNoFurther) {
  fm::BindRequest read_only = Request(2, 101, kRed, 2);
  read_only.read_only = true;
  Take(1, 100, 0);
  ASSERT_TRUE(rack.Bind(read_only).ok());
  ASSERT_TRUE(rack.PowerOn(a, 2, 101));
  ASSERT_TRUE(Create({101}).ok());
  ASSERT_TRUE(Bind(3, 102, kRed, 4).ok());
  auto& content = rack.devices[0].content;
  std::fill(content.begin(), content.end(), 0u);
  rack.Store(a);
  EXPECT_EQ(content[0], Rack::HashOf(kRed));
  EXPECT_EQ(content[2], 0u) << "read-only";
  EXPECT_EQ(content[4], 0u) << "not powered on";
  rack.Remove(a, 1);
  std::fill(content.begin(), content.end(), 0u);
  rack.Store(a);
  EXPECT_EQ(content[0], 0u) << "pulled out";
}

TEST_F(RackTest, AStoreIntoWhatIsSomebodyElsesByNowIsABreach) {
  Take(1, 100, 0);
  rack.Store(a);
  EXPECT_TRUE(breaches.empty());
  Bind(2, 201, kBlue, 1, "host-b").IgnoreError();
  breaches.clear();
  rack.Store(a);
  ExpectBreach("these bytes are tag " + kBlue);
}

TEST_F(RackTest, SurpriseRemovalLeavesTheHostRegion) {
  std::vector<Rack::Gone> gone;
  const uint32_t subscription =
      rack.Subscribe([&](const fm::BoundLd&, Rack::Gone why) { gone.push_back(why); });
  Take(1, 100, 0);
  rack.Remove(a, 1);
  rack.Remove(a, 1);
  EXPECT_EQ(gone, std::vector<Rack::Gone>{Rack::Gone::kRemoved});
  const agent::HostObservation seen = rack.Observe(a);
  EXPECT_TRUE(seen.memdevs.empty());
  ASSERT_NE(agent::FindHostRegion(seen, 100), nullptr);
  EXPECT_TRUE(rack.DestroyHostRegion(a, 100).ok());
  rack.Unsubscribe(subscription);
  Take(2, 101, 0);
  rack.Remove(a, 2);
  EXPECT_EQ(gone.size(), 1u);
  EXPECT_TRUE(breaches.empty());
}

TEST_F(RackTest, ResetForgetsTheKernelAndKeepsThePlugs) {
  Take(1, 100, 0);
  ASSERT_TRUE(rack.BeginUnbind(Request(1, 100).key).ok());
  staying = {100};
  a.prepared = true;
  const std::string before = a.incarnation();
  rack.Reset(a);
  EXPECT_NE(a.incarnation(), before);
  EXPECT_FALSE(a.prepared);
  EXPECT_EQ(a.fabric_boots, 1u);
  EXPECT_TRUE(a.regions.empty());
  EXPECT_TRUE(rack.Observe(a).memdevs.empty());
  ASSERT_TRUE(a.slots.contains(1));
  EXPECT_TRUE(a.slots.at(1).ld.unbinding);
  EXPECT_TRUE(rack.PowerOn(a, 1, 100));
  EXPECT_TRUE(breaches.empty());
}

TEST_F(RackTest, APowerCutAndAFenceLeaveNothing) {
  std::vector<std::string> dark;
  rack.on_dark = [&](const std::string& host) { dark.push_back(host); };
  Take(1, 100, 0);
  staying = {100};
  const std::string incarnation = rack.Look().hosts[0].fabric_incarnation;
  rack.Fence("host-a");
  rack.Fence("host-a");
  EXPECT_EQ(dark, std::vector<std::string>{"host-a"});
  EXPECT_FALSE(rack.IsBound(Request(1, 100).key));
  const fm::FabricView view = rack.Look();
  EXPECT_FALSE(view.hosts[0].reachable);
  EXPECT_NE(view.hosts[0].fabric_incarnation, incarnation);
  EXPECT_FALSE(rack.PowerOn(a, 1, 100));
  const uint32_t boots = a.boots;
  rack.PowerBack(a);
  EXPECT_EQ(a.boots, boots + 1);
  EXPECT_TRUE(rack.Look().hosts[0].reachable);
  EXPECT_TRUE(breaches.empty());
}

TEST_F(RackTest, LookLeavesOutWhatItCannotAsk) {
  ASSERT_TRUE(Bind(1, 100, kRed, 0).ok());
  ASSERT_TRUE(Bind(1, 200, kRed, 0, "host-b").ok());
  a.reachable = false;
  const fm::FabricView view = rack.Look();
  ASSERT_EQ(view.bound.size(), 1u);
  EXPECT_EQ(view.bound[0].host, "host-b");
  EXPECT_FALSE(view.hosts[0].reachable);
  EXPECT_EQ(view.hosts[0].slots.size(), 9u);
  EXPECT_TRUE(rack.IsBound(Request(1, 100).key));
  EXPECT_TRUE(rack.MayBeBound(Request(2, 300).key)) << "nobody can tell";
}

TEST_F(RackTest, BreachesAreTold) {
  rack.Breach("something");
  ExpectBreach("something");
}

}  // namespace
}  // namespace cxlpool::sim
