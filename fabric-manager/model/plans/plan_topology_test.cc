// What the pool is made of, changed while it runs.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "fabric-manager/model/plans/planner.h"
#include "test/model/model_rig.h"

namespace cxlpool::fm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Verb = TopologyStep::Verb;

DeviceEntry NewDevice(const std::string& id, uint64_t capacity = 4 * kGiB) {
  return {.id = id, .serial = "sn-" + id, .capacity_bytes = capacity, .granule_bytes = 2 * kMiB};
}

HostEntry NewHost(const std::string& id, std::vector<uint32_t> slots = {16, 17, 18, 19}) {
  return {.id = id, .slots = std::move(slots)};
}

// As of a fabric that has to be given slots.
std::optional<BadKey> WantSlots(const HostEntry& host) {
  if (!host.slots.empty()) return std::nullopt;
  return BadKey{"slots", "is missing", "give its slots"};
}

// The rig's pool, of which the topology knows the devices cmm-0 and cmm-1 and the hosts.
class PlanTopologyTest : public testing::Test, protected ModelRig {
 protected:
  void SetUp() override {
    AddPool();
    context().fabric.check_host = WantSlots;
    tables_.devices = {NewDevice("cmm-0"), NewDevice("cmm-1")};
    tables_.hosts = {NewHost("host-a"), NewHost("host-b"), NewHost("host-c")};
    Commit(PlanImport(state(), tables_, "fm.toml", context()));
  }

  absl::StatusOr<TopologyPlan> Plan() { return PlanTopology(state(), kAlice, tables_, context()); }
  void Apply() {
    const auto plan = Plan();
    ASSERT_TRUE(plan.ok()) << plan.status();
    Commit(plan->change);
    EXPECT_EQ(state().GetTopologyTables(), tables_);
  }
  void Remove(const std::string& region) {
    Commit({Erased{(*state().FindRegionById(region))->key}});
  }

  TopologyTables tables_;
};

TEST_F(PlanTopologyTest, WhatIsWantedAlreadyChangesNothing) {
  const auto plan = Plan();
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_TRUE(plan->change.empty());
  EXPECT_THAT(plan->steps, IsEmpty());
}

TEST_F(PlanTopologyTest, ADeviceAndAHostComeIn) {
  tables_.devices.push_back(NewDevice("cmm-2"));
  tables_.hosts.push_back(NewHost("host-d"));
  const auto plan = Plan();
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(plan->steps, ElementsAre(TopologyStep{Verb::kAdd, "device cmm-2"},
                                       TopologyStep{Verb::kAdd, "host host-d"}));
  EXPECT_EQ(state().topology_entries().size(), 6u) << "a plan changes nothing by itself";
  Apply();
}

TEST_F(PlanTopologyTest, OneEntryAtATimeAndTwiceIsTheSame) {
  const auto put = [&] { return PlanPutDevice(state(), kAlice, NewDevice("cmm-2"), context()); };
  auto change = put();
  ASSERT_TRUE(change.ok()) << change.status();
  ASSERT_EQ(change->size(), 1u);
  Commit(*change);
  EXPECT_TRUE(put()->empty());
  change = PlanPutHost(state(), kAlice, NewHost("host-d"), context());
  ASSERT_TRUE(change.ok()) << change.status();
  Commit(*change);
  tables_.devices.push_back(NewDevice("cmm-2"));
  tables_.hosts.push_back(NewHost("host-d"));
  EXPECT_EQ(state().GetTopologyTables(), tables_);
}

TEST_F(PlanTopologyTest, ADeviceMayGrowAndNotShrink) {
  tables_.devices[0].capacity_bytes = 8 * kGiB;
  Apply();
  tables_.devices[0].capacity_bytes = 2 * kGiB;
  EXPECT_EQ(ReasonOf(Plan().status()), "DEVICE_DIFFERS");
  EXPECT_THAT(std::string(Plan().status().message()), HasSubstr("shrink"));
}

TEST_F(PlanTopologyTest, AnotherIdentityIsAnotherDevice) {
  const DeviceEntry good = tables_.devices[0];
  tables_.devices[0].serial = "sn-other";
  EXPECT_EQ(ReasonOf(Plan().status()), "DEVICE_DIFFERS");
  tables_.devices[0] = good;
  tables_.devices[0].granule_bytes = 4 * kMiB;
  EXPECT_EQ(ReasonOf(Plan().status()), "DEVICE_DIFFERS");
  // Where the fabric has never shown it, a mistake can be put right.
  tables_.devices[0] = good;
  tables_.devices.push_back(NewDevice("cmm-2"));
  Apply();
  tables_.devices[2].serial = "sn-right";
  Apply();
}

TEST_F(PlanTopologyTest, ADeviceThatIsCarvedKeepsItsCapacity) {
  Device carved = *state().FindDevice(tables_.devices[0].id);
  carved.max_lds = 4;
  Commit({carved});
  tables_.devices[0].capacity_bytes = 8 * kGiB;
  EXPECT_EQ(ReasonOf(Plan().status()), "DEVICE_DIFFERS");
}
TEST_F(PlanTopologyTest, ADeviceThatHoldsBytesStays) {
  ASSERT_TRUE(Allocate(Allocation("kv", kUnit)).ok());
  const std::string device = (*state().FindRegionById("kv"))->extents.front().device.str();
  std::erase_if(tables_.devices, [&](const DeviceEntry& entry) { return entry.id == device; });
  const auto refused = Plan();
  EXPECT_EQ(ReasonOf(refused.status()), "DEVICE_NOT_EMPTY");
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("kv"));
  Remove("kv");
  Apply();
  EXPECT_EQ(state().FindDevice(device)->service, DeviceService::kRemoved);
}

TEST_F(PlanTopologyTest, ADeviceThatHoldsBytesKeepsItsFile) {
  tables_.devices[0].path = "/pool/0";
  tables_.devices[1].path = "/pool/1";
  for (HostEntry& host : tables_.hosts) host = {.id = host.id, .qmp_socket = "/run/" + host.id};
  context().fabric = {.path = true, .qmp = true};
  auto plan = PlanTopology(state(), kAlice, tables_, context());
  ASSERT_TRUE(plan.ok()) << plan.status();
  Commit(plan->change);
  ASSERT_TRUE(Allocate(Allocation("kv", kUnit)).ok());
  for (DeviceEntry& device : tables_.devices) device.path += ".new";
  plan = PlanTopology(state(), kAlice, tables_, context());
  EXPECT_EQ(ReasonOf(plan.status()), "DEVICE_NOT_EMPTY");
}

TEST_F(PlanTopologyTest, ADeviceThatWasRemovedComesBackAsItWas) {
  const DeviceEntry gone = tables_.devices.back();
  Commit(PlanRemoveDevice(state(), kAlice, "cmm-1", context()).value());
  tables_.devices.pop_back();
  EXPECT_EQ(state().GetTopologyTables(), tables_);
  EXPECT_TRUE(Plan()->change.empty()) << "it is gone already";
  tables_.devices.push_back(gone);
  EXPECT_THAT(Plan()->steps, ElementsAre(TopologyStep{Verb::kAdd, "device cmm-1"}));
  Apply();
  EXPECT_EQ(state().FindDevice("cmm-1")->service, DeviceService::kInService);
  Commit(PlanFailDevice(state(), "cmm-1", "smoke", context()).value());
  Commit(PlanRemoveDevice(state(), kAlice, "cmm-1", context()).value());
  EXPECT_EQ(ReasonOf(Plan().status()), "DEVICE_FAILED");
}

TEST_F(PlanTopologyTest, ADeviceThatWasRemovedComesBackWithItsLinks) {
  tables_.switches = {{.id = "sw0"}};
  tables_.links = {
      {.a = "host-a", .b = "sw0"}, {.a = "sw0", .b = "cmm-0"}, {.a = "sw0", .b = "cmm-1"}};
  Apply();
  Commit(PlanRemoveDevice(state(), kAlice, "cmm-1", context()).value());
  // What is shown can be applied, and changes nothing.
  tables_ = state().GetTopologyTables();
  EXPECT_EQ(tables_.devices.size(), 1u);
  EXPECT_EQ(tables_.links.size(), 2u);
  const auto same = Plan();
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_THAT(same->steps, IsEmpty());
  EXPECT_TRUE(same->change.empty());
  Commit(PlanAddDevice(state(), kAlice, "cmm-1", context()).value());
  EXPECT_NE(state().topology().Find("host-a", "cmm-1"), nullptr);
  EXPECT_EQ(state().GetTopologyTables().links.size(), 3u);
  // Its link goes with the other end, and where there is to be no link at all.
  Commit(PlanRemoveDevice(state(), kAlice, "cmm-1", context()).value());
  tables_.switches.clear();
  tables_.links = {{.a = "host-a", .b = "cmm-0"}, {.a = "host-a", .b = "cmm-1"}};
  tables_.devices.push_back(NewDevice("cmm-1"));
  Apply();
  Commit(PlanRemoveDevice(state(), kAlice, "cmm-1", context()).value());
  tables_.devices.pop_back();
  tables_.links.clear();
  Apply();
  EXPECT_NE(state().topology().Find("host-b", "cmm-0"), nullptr);
  EXPECT_TRUE(state().CheckInvariants().ok());
}

// Its entry stays, and nothing else may be called so: said before anything is changed, and when it
// is only asked.
TEST_F(PlanTopologyTest, NothingElseIsCalledLikeADeviceThatWasRemoved) {
  tables_.devices.pop_back();
  tables_.switches = {{.id = "cmm-1"}};
  EXPECT_EQ(ReasonOf(Plan().status()), "BAD_TOPOLOGY") << "it would go with the same change";
  tables_.switches.clear();
  Apply();
  tables_.switches = {{.id = "cmm-1"}};
  const absl::Status refused = Plan().status();
  EXPECT_EQ(ReasonOf(refused), "BAD_TOPOLOGY");
  EXPECT_THAT(std::string(refused.message()), HasSubstr("\"cmm-1\" is there twice"));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("removed"));
  tables_.switches = {{.id = "sw0"}};
  Apply();
}

// A device that was removed comes back only while its storage is no other device's: each byte would
// have two owners.
TEST_F(PlanTopologyTest, WhatAnotherDeviceIsNowDoesNotComeBack) {
  const auto show = [&](const std::string& id) {
    Device device = state().FindDevice(id) != nullptr ? *state().FindDevice(id) : Device();
    if (device.key == 0) {
      device.key = context().next_id();
      device.id = id;
      device.serial = "sn-" + id;
      device.capacity_bytes = 4 * kGiB;
      device.granule_bytes = 2 * kMiB;
    }
    device.identity = "one storage";
    Commit({device});
  };
  const DeviceEntry gone = tables_.devices.back();
  show("cmm-1");
  Commit(PlanRemoveDevice(state(), kAlice, "cmm-1", context()).value());
  tables_.devices.back() = NewDevice("cmm-2");
  Apply();
  show("cmm-2");
  const absl::Status refused = PlanAddDevice(state(), kAlice, "cmm-1", context()).status();
  EXPECT_EQ(ReasonOf(refused), "DEVICE_REPLACED");
  EXPECT_THAT(std::string(refused.message()), HasSubstr("cmm-2"));
  EXPECT_EQ(ReasonOf(PlanPutDevice(state(), kAlice, gone, context()).status()), "DEVICE_REPLACED");
  tables_.devices.push_back(gone);
  EXPECT_EQ(ReasonOf(Plan().status()), "DEVICE_REPLACED");
  // In its place again.
  tables_.devices.erase(tables_.devices.end() - 2);
  Apply();
  EXPECT_EQ(state().FindDevice("cmm-2")->service, DeviceService::kRemoved);
  EXPECT_EQ(state().FindDevice("cmm-1")->service, DeviceService::kInService);
}

// The fabric has not said yet what is there.
TEST_F(PlanTopologyTest, ADeviceDoesNotComeBackWhereAnotherIsNow) {
  context().fabric = {.path = true, .slots = true};
  tables_.devices[1].path = "/pool/1";
  Apply();
  Commit(PlanRemoveDevice(state(), kAlice, "cmm-1", context()).value());
  tables_.devices[1] = NewDevice("cmm-2");
  tables_.devices[1].path = "/pool/1";
  Apply();
  EXPECT_EQ(ReasonOf(PlanAddDevice(state(), kAlice, "cmm-1", context()).status()),
            "DEVICE_REPLACED");
  tables_.devices.pop_back();
  Apply();
  EXPECT_TRUE(PlanAddDevice(state(), kAlice, "cmm-1", context()).ok());
}

// One that has failed is removed, and its successor comes in where it was.
TEST_F(PlanTopologyTest, WhereARemovedDeviceWasAnotherMayBe) {
  context().fabric = {.path = true, .slots = true};
  tables_.devices[1].path = "/pool/1";
  tables_.switches = {{.id = "sw0"}};
  tables_.links = {{.a = "host-a", .b = "sw0"}, {.a = "sw0", .b = "cmm-1"}};
  Apply();
  DeviceEntry successor = NewDevice("cmm-2");
  successor.path = "/pool/1";
  const auto put = [&] { return PlanPutDevice(state(), kAlice, successor, context()); };
  EXPECT_EQ(ReasonOf(put().status()), "BAD_TOPOLOGY") << "it is there still";
  Commit(PlanFailDevice(state(), "cmm-1", "smoke", context()).value());
  Commit(PlanRemoveDevice(state(), kAlice, "cmm-1", context()).value());
  const auto change = put();
  ASSERT_TRUE(change.ok()) << change.status();
  Commit(*change);
  // Nor is the removed one in the way of anything else.
  const auto host = PlanPutHost(state(), kAlice, NewHost("host-d"), context());
  ASSERT_TRUE(host.ok()) << host.status();
  Commit(*host);
  EXPECT_TRUE(state().CheckInvariants().ok());
  // Its id is taken all the same.
  EXPECT_EQ(ReasonOf(PlanPutHost(state(), kAlice, NewHost("cmm-1"), context()).status()),
            "BAD_TOPOLOGY");
}

TEST_F(PlanTopologyTest, ADrainedDeviceIsUsedAgainByAddingIt) {
  Commit(PlanDrainDevice(state(), kAlice, "cmm-1", context()).value());
  EXPECT_TRUE(Plan()->change.empty()) << "a file says nothing about that";
  const auto change = PlanPutDevice(state(), kAlice, tables_.devices[1], context());
  ASSERT_TRUE(change.ok()) << change.status();
  Commit(*change);
  EXPECT_EQ(state().FindDevice("cmm-1")->service, DeviceService::kInService);
}

TEST_F(PlanTopologyTest, ADeviceThatFailedIsNotAddedAgainByItsName) {
  Commit(PlanFailDevice(state(), "cmm-1", "smoke", context()).value());
  EXPECT_TRUE(Plan()->change.empty()) << "a file that has it still may be applied";
  const auto add = [&] {
    return PlanPutDevice(state(), kAlice, tables_.devices[1], context()).status();
  };
  EXPECT_EQ(ReasonOf(add()), "DEVICE_FAILED");
  tables_.devices[1].capacity_bytes *= 2;
  EXPECT_EQ(ReasonOf(add()), "DEVICE_FAILED");
}

TEST_F(PlanTopologyTest, AHostWithAnAttachmentStaysWhereItIs) {
  ASSERT_TRUE(Allocate(Allocation("kv", kUnit, "host-b")).ok());
  const uint32_t slot = state().Occupied("host-b").front().slot;
  const HostEntry good = tables_.hosts[1];
  const auto refused = [&](const std::string& what) {
    const auto plan = Plan();
    EXPECT_EQ(ReasonOf(plan.status()), "HOST_HAS_ATTACHMENTS") << what;
    EXPECT_THAT(std::string(plan.status().message()), HasSubstr("kv"));
  };
  std::erase(tables_.hosts[1].slots, slot);
  refused("its slot goes");
  tables_.hosts[1] = good;
  tables_.hosts[1].agent_uid = 17;
  refused("another user's");
  tables_.hosts.erase(tables_.hosts.begin() + 1);
  refused("it goes");
  EXPECT_EQ(ReasonOf(PlanRemoveHost(state(), kAlice, "host-b", context()).status()),
            "HOST_HAS_ATTACHMENTS");
  // A slot more, or one less that is free, is no harm.
  tables_.hosts.insert(tables_.hosts.begin() + 1, good);
  std::erase_if(tables_.hosts[1].slots, [&](uint32_t each) { return each != slot; });
  tables_.hosts[1].slots.push_back(40);
  Apply();
}

TEST_F(PlanTopologyTest, AHostIsForgottenWithItsLinks) {
  tables_.switches = {{.id = "sw0"}};
  tables_.links = {{.a = "host-a", .b = "sw0"},
                   {.a = "host-b", .b = "sw0"},
                   {.a = "sw0", .b = "cmm-0"},
                   {.a = "sw0", .b = "cmm-1"}};
  Apply();
  EXPECT_NE(state().topology().Find("host-b", "cmm-1"), nullptr);
  const auto change = PlanRemoveHost(state(), kAlice, "host-b", context());
  ASSERT_TRUE(change.ok()) << change.status();
  Commit(*change);
  EXPECT_EQ(state().FindHost("host-b"), nullptr);
  tables_.hosts.erase(tables_.hosts.begin() + 1);
  tables_.links.erase(tables_.links.begin() + 1);
  EXPECT_EQ(state().GetTopologyTables(), tables_);
  EXPECT_EQ(state().topology().Find("host-b", "cmm-1"), nullptr);
  EXPECT_EQ(ReasonOf(PlanRemoveHost(state(), kAlice, "host-b", context()).status()),
            "UNKNOWN_HOST");
  // One that was never enrolled is forgotten as well.
  tables_.hosts.push_back(NewHost("host-d"));
  Apply();
  Commit(PlanRemoveHost(state(), kAlice, "host-d", context()).value());
}

// What a fence has proven unbound leaves the records with the next commit: who fences and removes
// in one go is told to come again.
TEST_F(PlanTopologyTest, AHostIsForgottenOnceNoRecordNamesIt) {
  const auto remove = [&] { return PlanRemoveHost(state(), kAlice, "host-a", context()); };
  ASSERT_TRUE(Allocate(Allocation("kv", kUnit, "host-a")).ok());
  BringUp("kv");
  EXPECT_EQ(ReasonOf(remove().status()), "HOST_HAS_ATTACHMENTS");
  Rewrite("kv", [](Region& region) {
    region.attachments[0].TurnDown("FENCED: the host was cut off", Uuid());
    region.attachments[0].settled().state = AttachmentState::kUnbound;
  });
  const absl::Status refused = remove().status();
  EXPECT_EQ(ReasonOf(refused), "HOST_HAS_ATTACHMENTS");
  EXPECT_EQ(MetadataOf(refused, "regions"), "kv");
  EXPECT_THAT(std::string(refused.message()), HasSubstr("in a moment"));
  Rewrite("kv", [](Region& region) { region.attachments.clear(); });
  Commit(remove().value());
  EXPECT_EQ(state().FindHost("host-a"), nullptr);
}

TEST_F(PlanTopologyTest, TwoLinksBetweenTheSameNodesAreTwo) {
  tables_.switches = {{.id = "sw0"}};
  tables_.links = {{.a = "host-a", .b = "sw0", .slots = {16}},
                   {.a = "host-a", .b = "sw0", .slots = {17}}};
  Apply();
  tables_.links[1].latency_ns = 5;
  EXPECT_THAT(Plan()->steps, ElementsAre(TopologyStep{Verb::kChange, "link host-a - sw0"}));
  Apply();
  tables_.links.erase(tables_.links.begin());
  EXPECT_THAT(Plan()->steps, ElementsAre(TopologyStep{Verb::kRemove, "link host-a - sw0"}));
  Apply();
}

TEST_F(PlanTopologyTest, WhatMakesNoSenseIsRefused) {
  const TopologyTables good = tables_;
  const auto refused = [&](const std::string& word) {
    const auto plan = Plan();
    EXPECT_EQ(ReasonOf(plan.status()), "BAD_TOPOLOGY") << word;
    EXPECT_THAT(std::string(plan.status().message()), HasSubstr(word));
    tables_ = good;
  };
  tables_.devices[0].capacity_bytes += 1;
  refused("device cmm-0");
  tables_.devices[0].granule_bytes = 3 * kMiB;
  refused("power of two");
  tables_.devices[0].path = "/pool/0";
  refused("path");
  tables_.devices[1] = tables_.devices[0];
  refused("twice");
  tables_.hosts[0].slots = {1, 1};
  refused("host host-a");
  tables_.hosts[0].slots.clear();
  refused("host host-a");
  tables_.hosts[0].qmp_socket = "/run/a";
  refused("QMP");
  tables_.links = {{.a = "host-a", .b = "cmm-9"}};
  refused("cmm-9");
  tables_.links = {{.a = "host-a", .b = "cmm-0", .slots = {99}}};
  refused("slot 99");
  tables_.links = {{.a = "host-a", .b = "host-b"}};
  refused("two hosts");
  tables_.devices[0].id = "Not An Id";
  EXPECT_EQ(ReasonOf(Plan().status()), "BAD_NAME");
}

TEST_F(PlanTopologyTest, TheConfigurationIsTakenInOnceAndPieceByPiece) {
  ModelRig fresh;
  fresh.context().max_items = 2;
  size_t rounds = 0;
  while (true) {
    const Change change = PlanImport(fresh.state(), tables_, "fm.toml", fresh.context());
    if (change.empty()) break;
    EXPECT_LE(change.size(), 2u);
    fresh.Commit(change);
    ++rounds;
  }
  EXPECT_EQ(rounds, 3u);
  EXPECT_TRUE(IsImported(fresh.state()));
  EXPECT_EQ(fresh.state().GetTopologyTables(), tables_);
  tables_.devices.push_back(NewDevice("cmm-9"));
  EXPECT_TRUE(PlanImport(fresh.state(), tables_, "fm.toml", fresh.context()).empty());
  tables_.hosts.erase(tables_.hosts.begin());
  tables_.devices[0].heads = 2;
  EXPECT_THAT(CompareTables(fresh.state().GetTopologyTables(), tables_),
              ElementsAre(TopologyStep{Verb::kChange, "device cmm-0"},
                          TopologyStep{Verb::kAdd, "device cmm-9"},
                          TopologyStep{Verb::kRemove, "host host-a"}));
}

// It is made as a whole or not at all: no part of it is done where the store does not take the
// rest.
TEST_F(PlanTopologyTest, WhatTheStoreDoesNotTakeAtOnceIsRefusedWithTheLimit) {
  context().max_items = 2;
  for (const char* id : {"cmm-7", "cmm-8", "cmm-9"}) tables_.devices.push_back(NewDevice(id));
  const absl::Status refused = Plan().status();
  EXPECT_EQ(ReasonOf(refused), "CHANGE_TOO_LARGE");
  EXPECT_EQ(MetadataOf(refused, "records"), "3");
  EXPECT_EQ(MetadataOf(refused, "max"), "2");
  tables_.devices.pop_back();
  Apply();
  EXPECT_EQ(state().GetTopologyTables(), tables_);
}

TEST_F(PlanTopologyTest, ALoadedStateIsTheSame) {
  tables_.switches = {{.id = "sw0"}};
  tables_.links = {{.a = "host-a", .b = "sw0"}, {.a = "sw0", .b = "cmm-0"}};
  Apply();
  EXPECT_TRUE(state().CheckInvariants().ok());
  EXPECT_EQ(state().ReachOf("host-b").empty(), true);
  // A change that makes no topology is refused as a whole, and what was there is there.
  Change change;
  for (const auto& [key, entry] : state().topology_entries()) {
    if (NameOf(entry) == "switch sw0") change.push_back(Erased{key});
  }
  EXPECT_FALSE(state().Apply(change).ok());
  EXPECT_EQ(state().GetTopologyTables(), tables_);
  EXPECT_NE(state().topology().Find("host-a", "cmm-0"), nullptr);
}

}  // namespace
}  // namespace cxlpool::fm
