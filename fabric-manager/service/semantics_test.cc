// What the manager does by itself and on an operator's word: leases, names, tenants, devices in and
// out of service, forced releases, batches.

#include <gtest/gtest.h>

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "test/rigs/service_fixture.h"

namespace cxlpool::fm {
namespace {

class SemanticsTest : public ServiceTest {
 protected:
  SemanticsTest() { Restart(); }
  AllocateSpec Leased(const std::string& id, absl::Duration ttl, char request) {
    AllocateSpec spec = AllocateOn(id, "host-a", request);
    spec.ttl = ttl;
    return spec;
  }
};

TEST_F(SemanticsTest, ALeaseThatNobodyRenewsEndsAndItsBytesAreCleanBeforeTheNext) {
  Make(Leased("kv", absl::Seconds(20), 1));
  Make(Leased("kw", absl::Seconds(20), 2));
  rig->RunUntil([] { return false; }, absl::Seconds(15));
  RenewSpec renew;
  renew.caller = Caller::Admin("cxlpool://operator/alice");
  renew.request = TestRequest("RenewRegion", 3);
  renew.region_id = "kw";
  const auto renewed = rig->Call(&PoolService::Renew, renew);
  ASSERT_TRUE(renewed.ok()) << renewed.status();
  EXPECT_GT(renewed->region->expire_time - rig->executor.Now(), absl::Seconds(19));
  EXPECT_TRUE(rig->RunUntil([&] { return rig->Find("kv") == nullptr; }, absl::Seconds(15)));
  EXPECT_EQ(world.scrubbed.size(), 1u);
  EXPECT_TRUE(Online(rig->Find("kw")));
  EXPECT_TRUE(rig->RunUntil([&] { return rig->Find("kw") == nullptr; }, absl::Seconds(30)));
  EXPECT_EQ(rig->leases.size(), 0u);
}

TEST_F(SemanticsTest, ARestartGrantsAFullTerm) {
  Make(Leased("kv", absl::Seconds(60), 1));
  rig->RunUntil([] { return false; }, absl::Seconds(50));
  Restart();
  rig->RunUntil([] { return false; }, absl::Seconds(50));
  EXPECT_TRUE(Online(rig->Find("kv")));
  EXPECT_TRUE(rig->RunUntil([&] { return rig->Find("kv") == nullptr; }, absl::Seconds(30)));
}

TEST_F(SemanticsTest, ALeaseIsRenewedByItsOwnerOrAnOperatorAlone) {
  Make(Leased("kv", absl::Seconds(60), 1));
  Make(AllocateOn("kw", "", 2));
  RenewSpec renew;
  renew.caller = Caller::OfHost("host-a", "cxlpool://host/host-a");
  renew.request = Request{{"cxlpool://host/host-a", "RenewRegion", Uuid(std::string(16, 3))}, 1};
  renew.region_id = "kv";
  EXPECT_EQ(ReasonOf(rig->Call(&PoolService::Renew, renew).status()), "NOT_OWNER");
  renew.caller = Caller::OfHost("host-b", "cxlpool://host/host-b");
  renew.request.id.principal = "cxlpool://host/host-b";
  EXPECT_EQ(ReasonOf(rig->Call(&PoolService::Renew, renew).status()), "UNKNOWN_REGION");
  renew.caller = Caller::Admin("cxlpool://operator/alice");
  EXPECT_TRUE(rig->Call(&PoolService::Renew, renew).ok());
  renew.request.id.id = Uuid(std::string(16, 4));
  renew.region_id = "kw";
  EXPECT_EQ(ReasonOf(rig->Call(&PoolService::Renew, renew).status()), "NO_LEASE");
  renew.ttl = absl::Seconds(1);
  EXPECT_EQ(ReasonOf(rig->Call(&PoolService::Renew, renew).status()), "BAD_TTL");
}

// Whoever calls, the planner judges him for each item.
TEST_F(SemanticsTest, ABatchIsJudgedItemByItemForItsCaller) {
  Make(AllocateOn("kv", "host-a", 1));
  const Caller host_b = Caller::OfHost("host-b", "cxlpool://host/host-b");
  std::vector<absl::StatusOr<AllocateSpec>> specs;
  std::vector<absl::StatusOr<ReleaseSpec>> releases;
  for (const char* host : {"host-b", "host-a", ""}) {
    AllocateSpec spec = AllocateOn("", host, static_cast<char>(10 + specs.size()));
    spec.caller = host_b;
    specs.emplace_back(spec);
  }
  for (const char* region : {"kv", "kv", "nothing"}) {
    ReleaseSpec spec = ReleaseOf(region, static_cast<char>(20 + releases.size()));
    spec.caller = host_b;
    releases.emplace_back(spec);
  }
  releases.emplace_back(ReleaseOf("kv", 30));
  releases.back()->caller = Caller();
  std::vector<std::string> reasons;
  const auto note = [&](const Outcomes& outcomes) {
    for (const auto& outcome : outcomes) reasons.push_back(ReasonOf(outcome.status()));
  };
  rig->pool.AllocateBatch(std::move(specs), false, note);
  rig->Run(absl::Milliseconds(50));
  EXPECT_EQ(reasons, (std::vector<std::string>{"", "NOT_YOUR_HOST", "NOT_YOUR_HOST"}));
  reasons.clear();
  rig->pool.ReleaseBatch(std::move(releases), note);
  rig->Run(absl::Milliseconds(50));
  EXPECT_EQ(reasons, (std::vector<std::string>{"UNKNOWN_REGION", "UNKNOWN_REGION", "UNKNOWN_REGION",
                                               "NO_CALLER"}));
  EXPECT_TRUE(Online(rig->Find("kv")));
}

PoolPlan PutDevice(const std::string& id) {
  return [id](const PoolState& state, const Caller& caller, PlanContext& context) {
    DeviceEntry entry;
    entry.id = id;
    return PlanPutDevice(state, caller, entry, context);
  };
}
PoolPlan PutHost(const std::string& id) {
  return [id](const PoolState& state, const Caller& caller, PlanContext& context) {
    HostEntry entry;
    entry.id = id;
    return PlanPutHost(state, caller, entry, context);
  };
}

// No rule in rpc code is needed for it.
TEST_F(SemanticsTest, OnlyWhoRunsThePoolDecidesOnDevicesHostsAndTenants) {
  PoolService& pool = rig->pool;
  const std::string device = "cmm-0", host = "host-b";
  for (const auto& [caller, reason] : std::vector<std::pair<Caller, std::string>>{
           {Caller(), "NO_CALLER"},
           {Caller::OfHost("host-b", "cxlpool://host/host-b"), "ROLE_NOT_ALLOWED"},
           {Caller::User("cxlpool://operator/vic", PoolRole::kViewer), "ROLE_NOT_ALLOWED"}}) {
    const absl::Status answers[] = {
        rig->Change(&PlanBindRole, RoleBinding(), caller),
        rig->Change(&PlanUnbindRole, "cxlpool://operator/bob", caller),
        rig->Change(&PlanEnrol, {.host = "host-x"}, caller),
        rig->Change(&PlanRetire, host, caller),
        rig->Change(&PlanRemoveHost, host, caller),
        rig->Change(&PlanAddDevice, device, caller),
        rig->Change(&PlanDrainDevice, device, caller),
        rig->Change(&PlanRemoveDevice, device, caller),
        rig->Change(&PlanSetTenant, {0, "ml"}, caller),
        rig->Change(&PlanRemoveTenant, "ml", caller),
        rig->Change(&PlanRevoke, Revocation(), caller),
        rig->Change(&PlanRestore, "7a01", caller),
        rig->Do([&](Done done) {
          pool.ChangePool(caller, {.method = "AddDevice"}, PutDevice(device), std::move(done));
        }),
        rig->Do([&](Done done) {
          pool.ChangePool(caller, {.method = "AddHost"}, PutHost(host), std::move(done));
        }),
        rig->Do([&](Done done) { pool.Fence(caller, host, "because", std::move(done)); }),
        rig->Do([&](Done done) { pool.FailDevice(caller, device, "because", std::move(done)); }),
        rig->Do([&](Done done) {
          pool.ApplyTopology(caller, {}, false,
                             [done = std::move(done)](const auto& steps) mutable {
                               std::move(done)(steps.status());
                             });
        }),
        rig->Do([&](Done done) {
          pool.DiscoverDevices(caller, host, [done = std::move(done)](const auto& seen) mutable {
            std::move(done)(seen.status());
          });
        }),
    };
    for (const absl::Status& answer : answers) EXPECT_EQ(ReasonOf(answer), reason) << answer;
  }
}

TEST_F(SemanticsTest, ARenamedRegionIsFoundByItsNewNameAndItsAgentHearsOfIt) {
  Make(AllocateOn("kv", "host-a", 1));
  Make(AllocateOn("kw", "", 2));
  const RegionPtr before = rig->Find("kv");
  RenameSpec rename;
  rename.caller = Caller::Admin("cxlpool://operator/alice");
  rename.request = TestRequest("RenameRegion", 3);
  rename.region_id = "kv";
  rename.new_region_id = "kw";
  EXPECT_EQ(ReasonOf(rig->Call(&PoolService::Rename, rename).status()), "REGION_EXISTS");
  rename.new_region_id = "kx";
  rename.etag = "stale";
  EXPECT_EQ(ReasonOf(rig->Call(&PoolService::Rename, rename).status()), "ETAG_MISMATCH");
  rename.etag = before->etag();
  ASSERT_TRUE(rig->Call(&PoolService::Rename, rename).ok());
  EXPECT_EQ(rig->Find("kv"), nullptr);
  const RegionPtr after = rig->Find("kx");
  ASSERT_NE(after, nullptr);
  EXPECT_EQ(after->tag, before->tag);
  EXPECT_NE(after->generation, before->generation);
  EXPECT_EQ(rig->views.Get()->regions.size(), 2u);
  EXPECT_EQ(rig->views.IdOfTag(after->tag), "kx");
  EXPECT_EQ(rig->agents["host-a"]->offers.begin()->second.region_name(), "regions/kx");
  EXPECT_TRUE(rig->Call(&PoolService::Rename, rename).ok()) << "a retry";
  Restart();
  EXPECT_NE(rig->Find("kx"), nullptr);
}

// For every call that changes something: no etag, no event and, of what is no Region, no revision.
TEST_F(SemanticsTest, ACallThatFindsNothingToDoChangesNothing) {
  Make(AllocateOn("kv", "host-a", 1));
  Make(AllocateOn("kw", "host-a", 2));
  ASSERT_TRUE(rig->Change(&PlanSetTenant, {0, "ml"}).ok());
  ASSERT_TRUE(rig->Change(&PlanRetire, "host-b").ok());
  const RegionPtr kv = rig->Find("kv");
  const RegionPtr kw = rig->Find("kw");
  const uint64_t newest = rig->watch.newest();

  const AttachSpec attach{.request = TestRequest("AttachRegion", 3),
                          .caller = Caller::Admin("cxlpool://operator/alice"),
                          .region_id = "kv",
                          .host = "host-a"};
  const auto attached = rig->Do([&](Done done) {
    rig->pool.Attach(attach, false,
                     [done = std::move(done)](const absl::StatusOr<Committed>& answer) mutable {
                       std::move(done)(answer.status());
                     });
  });
  EXPECT_TRUE(attached.ok()) << attached;
  EXPECT_TRUE(rig->Call(&PoolService::Detach,
                        DetachSpec{TestRequest("DetachRegion", 4),
                                   Caller::Admin("cxlpool://operator/alice"), "kv", "host-b"})
                  .ok());
  EXPECT_TRUE(rig->Resize("kv", kv->size_bytes(), 5).ok());
  RenameSpec rename;
  rename.caller = Caller::Admin("cxlpool://operator/alice");
  rename.request = TestRequest("RenameRegion", 6);
  rename.region_id = rename.new_region_id = "kv";
  EXPECT_TRUE(rig->Call(&PoolService::Rename, rename).ok());
  EXPECT_EQ(rig->Find("kv")->etag(), kv->etag());
  EXPECT_EQ(rig->Find("kv")->revision, kv->revision);
  EXPECT_EQ(rig->watch.newest(), newest);

  const uint64_t revision = rig->writer.revision();
  EXPECT_TRUE(rig->Change(&PlanSetTenant, {0, "ml"}).ok());
  EXPECT_TRUE(rig->Change(&PlanEnrol, {.host = "host-a"}).ok());
  EXPECT_TRUE(rig->Change(&PlanRetire, "host-b").ok());
  EXPECT_TRUE(rig->Change(&PlanAddDevice, "cmm-0").ok());
  EXPECT_EQ(rig->writer.revision(), revision);
  EXPECT_EQ(rig->Find("kw")->etag(), kw->etag());

  // A second release of what goes already.
  world.hold_offline = true;
  ReleaseSpec release = ReleaseOf("kw", 7);
  release.detach_all = true;
  ASSERT_TRUE(rig->Call(&PoolService::Release, release).ok());
  rig->Run(absl::Milliseconds(300));
  const RegionPtr going = rig->Find("kw");
  const uint64_t told = rig->watch.newest();
  release.request = TestRequest("ReleaseRegion", 8);
  ASSERT_TRUE(rig->Call(&PoolService::Release, release).ok());
  EXPECT_EQ(rig->Find("kw")->etag(), going->etag());
  EXPECT_EQ(rig->watch.newest(), told);
}

// A caller that names an etag means the Region that it read: also where there is nothing to do.
TEST_F(SemanticsTest, AnOldEtagIsRefusedAlsoWhereThereIsNothingToDo) {
  Make(AllocateOn("kv", "host-a", 1));
  const RegionPtr kv = rig->Find("kv");
  const auto told = [&](auto call, auto spec, const char* method, uint8_t number,
                        const std::string& etag) {
    spec.request = TestRequest(method, number);
    spec.etag = etag;
    return ReasonOf(rig->Call(call, spec).status());
  };
  const auto attach = [&](uint8_t number, const std::string& etag) {
    const AttachSpec spec{.request = TestRequest("AttachRegion", number),
                          .caller = Caller::Admin("cxlpool://operator/alice"),
                          .region_id = "kv",
                          .host = "host-a",
                          .etag = etag};
    return ReasonOf(rig->Do([&](Done done) {
      rig->pool.Attach(spec, false,
                       [done = std::move(done)](const absl::StatusOr<Committed>& answer) mutable {
                         std::move(done)(answer.status());
                       });
    }));
  };
  const DetachSpec detach{.request = {},
                          .caller = Caller::Admin("cxlpool://operator/alice"),
                          .region_id = "kv",
                          .host = "host-b"};
  const RenameSpec rename{.request = {},
                          .caller = Caller::Admin("cxlpool://operator/alice"),
                          .region_id = "kv",
                          .new_region_id = "kv"};
  EXPECT_EQ(attach(2, "stale"), "ETAG_MISMATCH");
  EXPECT_EQ(attach(3, kv->etag()), "");
  EXPECT_EQ(told(&PoolService::Detach, detach, "DetachRegion", 4, "stale"), "ETAG_MISMATCH");
  EXPECT_EQ(told(&PoolService::Detach, detach, "DetachRegion", 5, kv->etag()), "");
  EXPECT_EQ(told(&PoolService::Rename, rename, "RenameRegion", 6, "stale"), "ETAG_MISMATCH");
  EXPECT_EQ(told(&PoolService::Rename, rename, "RenameRegion", 7, kv->etag()), "");
  EXPECT_EQ(rig->Find("kv")->etag(), kv->etag());

  world.hold_offline = true;
  const ReleaseSpec release = ReleaseOf("kv", 8);
  EXPECT_EQ(told(&PoolService::Release, release, "ReleaseRegion", 9, kv->etag()), "");
  rig->Run(absl::Milliseconds(300));
  EXPECT_EQ(told(&PoolService::Release, release, "ReleaseRegion", 10, kv->etag()), "ETAG_MISMATCH");
  EXPECT_EQ(told(&PoolService::Release, release, "ReleaseRegion", 11, rig->Find("kv")->etag()), "");
}

TEST_F(SemanticsTest, ARemovedHostIsForgottenAndItsIdentityIsFree) {
  Make(AllocateOn("kv", "host-a", 1));
  const auto remove = [&](const std::string& host) { return rig->Change(&PlanRemoveHost, host); };
  EXPECT_EQ(ReasonOf(remove("host-a")), "HOST_HAS_ATTACHMENTS");
  EXPECT_EQ(ReasonOf(remove("host-z")), "UNKNOWN_HOST");
  ASSERT_TRUE(remove("host-b").ok());
  EXPECT_EQ(ReasonOf(rig->agents["host-b"]->closed), "UNKNOWN_HOST");
  EXPECT_FALSE(rig->views.Get()->hosts.contains("host-b"));
  EXPECT_TRUE(rig->views.Get()->hosts.contains("host-a"));
  EXPECT_EQ(rig->views.HostOfIdentity("cxlpool://host/host-b"), "");
  EXPECT_EQ(ReasonOf(remove("host-b")), "UNKNOWN_HOST");
  EXPECT_TRUE(
      rig->Change(&PlanEnrol, {.host = "host-c", .identity = "cxlpool://host/host-c"}).ok());
  EXPECT_TRUE(rig->views.Get()->hosts.contains("host-c"));
  rig->agents.erase("host-b");
}

// Or `explain` would say since when an agent is away that never came.
TEST_F(SemanticsTest, WhatAHostIsAddedAgainUnderHasNoFormerAgent) {
  const auto runtime = [&] { return *rig->views.Get()->hosts.at("host-b")->runtime; };
  const HostRuntime before = runtime();
  ASSERT_NE(before.last_heartbeat, absl::InfinitePast());
  ASSERT_FALSE(before.bridges.empty());
  const auto agent = std::exchange(rig->agents["host-b"], nullptr);
  rig->agents.erase("host-b");
  const auto add_again = [&] {
    ASSERT_TRUE(rig->Change(&PlanRemoveHost, "host-b").ok());
    ASSERT_TRUE(
        rig->Change(&PlanEnrol, {.host = "host-b", .identity = "cxlpool://host/host-b"}).ok());
    const HostRuntime after = runtime();
    EXPECT_FALSE(after.online);
    EXPECT_EQ(after.last_heartbeat, absl::InfinitePast());
    EXPECT_FALSE(after.wrong_since.contains("AGENT_AWAY"));
    EXPECT_TRUE(after.bridges.empty());
    EXPECT_EQ(after.fabric_reachable, before.fabric_reachable);
    EXPECT_EQ(after.fabric_slots, before.fabric_slots);
  };
  add_again();
  EXPECT_EQ(ReasonOf(agent->closed), "UNKNOWN_HOST");
  // Also of one whose agent was away when it was removed.
  auto later = std::make_shared<FakeAgent>("host-b", &world);
  rig->sessions.OnHello(later, {"", true}, later->Hello());
  ASSERT_TRUE(runtime().online);
  rig->sessions.OnClosed(later.get());
  ASSERT_TRUE(runtime().wrong_since.contains("AGENT_AWAY"));
  add_again();
}

TEST_F(SemanticsTest, AReleaseThatIsOnlyAskedAboutChangesNothing) {
  Make(AllocateOn("kv", "host-a", 1));
  const std::string etag = rig->Find("kv")->etag();
  ReleaseSpec release = ReleaseOf("kv", 2);
  release.validate_only = true;
  release.detach_all = false;
  EXPECT_EQ(ReasonOf(rig->Call(&PoolService::Release, release).status()), "REGION_ATTACHED");
  release.detach_all = true;
  const auto planned = rig->Call(&PoolService::Release, release);
  ASSERT_TRUE(planned.ok()) << planned.status();
  EXPECT_EQ(planned->region->state, RegionState::kReleasing);
  // Nothing is fenced either: it is said who would be.
  release.force = release.fence = true;
  release.reason = "it hangs";
  const absl::Status fence = rig->Call(&PoolService::Release, release).status();
  EXPECT_EQ(ReasonOf(fence), "FENCE_REQUIRED");
  rig->Run(absl::Milliseconds(300));
  EXPECT_EQ(rig->Find("kv")->etag(), etag);
  EXPECT_TRUE(Online(rig->Find("kv")));
}

// The fence itself changes the Region: the etag was current when the caller asked.
TEST_F(SemanticsTest, AReleaseThatFencesTakesAnEtag) {
  Make(AllocateOn("kv", "host-a", 1));
  ReleaseSpec release = ReleaseOf("kv", 2);
  release.force = release.fence = true;
  release.reason = "it hangs";
  release.etag = "stale";
  EXPECT_EQ(ReasonOf(rig->Call(&PoolService::Release, release).status()), "ETAG_MISMATCH");
  EXPECT_TRUE(Online(rig->Find("kv")));
  release.etag = rig->Find("kv")->etag();
  const auto released = rig->Call(&PoolService::Release, release);
  EXPECT_TRUE(released.ok()) << released.status();
  EXPECT_TRUE(rig->RunUntil([&] { return rig->Find("kv") == nullptr; }));
}

TEST_F(SemanticsTest, QuotaReservationAndHostCapHold) {
  const auto set = [&](const Tenant& tenant) { return rig->Change(&PlanSetTenant, tenant); };
  AllocateSpec spec = AllocateOn("kv", "host-a", 1);
  spec.tenant = "ml";
  EXPECT_EQ(ReasonOf(rig->Allocate(spec).status()), "UNKNOWN_TENANT");
  ASSERT_TRUE(set({0, "ml", 3 * kGranule, 0, 0}).ok());
  ASSERT_TRUE(rig->Allocate(spec).ok());
  spec.region_id = "kw";
  spec.request = TestRequest("AllocateRegion", 2);
  EXPECT_EQ(ReasonOf(rig->Allocate(spec).status()), "QUOTA_EXCEEDED");
  ASSERT_TRUE(set({0, "ml", 0, 0, 3 * kGranule}).ok());
  EXPECT_EQ(ReasonOf(rig->Allocate(spec).status()), "HOST_CAP_EXCEEDED");
  spec.host = "host-b";
  EXPECT_TRUE(rig->Allocate(spec).ok());
  // 16 granules in all, 4 are taken: of 12 that are free, 11 are promised.
  ASSERT_TRUE(set({0, "db", 0, 11 * kGranule, 0}).ok());
  EXPECT_EQ(ReasonOf(set({0, "web", 0, 6 * kGranule, 0})), "RESERVED_TOO_MUCH");
  spec = AllocateOn("kx", "", 3);
  EXPECT_EQ(ReasonOf(rig->Allocate(spec).status()), "RESERVED_FOR_OTHERS");
  spec.tenant = "db";
  EXPECT_TRUE(rig->Allocate(spec).ok());
  EXPECT_EQ(ReasonOf(rig->Change(&PlanRemoveTenant, "db")), "TENANT_HAS_REGIONS");
  Restart();
  ASSERT_EQ(rig->views.Get()->tenants->size(), 3u);
  EXPECT_EQ((*rig->views.Get()->tenants)[0].tenant.id, "db");
  EXPECT_EQ((*rig->views.Get()->tenants)[0].use.held_bytes, 2 * kGranule);
  EXPECT_TRUE(rig->writer.state().CheckInvariants().ok());
}

TEST_F(SemanticsTest, ADrainedDeviceTakesNothingNewAndEndsEmpty) {
  AllocateSpec spec = AllocateOn("kv", "host-a", 1);
  spec.device = "cmm-0";
  Make(spec);
  const auto drain = [&] { return rig->Change(&PlanDrainDevice, "cmm-0"); };
  const auto remove = [&] { return rig->Change(&PlanRemoveDevice, "cmm-0"); };
  ASSERT_TRUE(drain().ok());
  EXPECT_EQ(ReasonOf(remove()), "DEVICE_NOT_EMPTY");
  spec.region_id = "kw";
  spec.request = TestRequest("AllocateRegion", 2);
  EXPECT_EQ(ReasonOf(rig->Allocate(spec).status()), "DEVICE_DRAINING");
  spec.device.clear();
  ASSERT_TRUE(rig->Allocate(spec).ok());
  EXPECT_EQ(rig->Find("kw")->extents[0].device.str(), "cmm-1");
  Restart();
  EXPECT_EQ(ReasonOf(remove()), "DEVICE_NOT_EMPTY") << "draining is durable";
  ASSERT_TRUE(rig->Call(&PoolService::Release, ReleaseOf("kv", 3)).ok());
  ASSERT_TRUE(rig->RunUntil([&] { return rig->Find("kv") == nullptr; }));
  ASSERT_TRUE(remove().ok());
  EXPECT_EQ(rig->views.Get()->capacity.total_bytes, 8 * kGranule);
  rig->RunUntil([] { return false; }, absl::Seconds(15));
  EXPECT_EQ(rig->views.Get()->capacity.total_bytes, 8 * kGranule)
      << "it does not come back by itself";
  ASSERT_TRUE(rig->Change(&PlanAddDevice, "cmm-0").ok());
  EXPECT_EQ(rig->views.Get()->capacity.total_bytes, 16 * kGranule);
}

TEST_F(SemanticsTest, AFailedDeviceQuarantinesAndForceLetsGoWithoutReuse) {
  AllocateSpec spec = AllocateOn("kv", "host-a", 1);
  spec.device = "cmm-0";
  Make(spec);
  const auto fail = [&](const std::string& why) {
    return rig->Do([&](Done done) {
      rig->pool.FailDevice(Caller::Admin("op"), "cmm-0", why, std::move(done));
    });
  };
  EXPECT_EQ(ReasonOf(fail("")), "REASON_REQUIRED");
  ASSERT_TRUE(fail("smoke").ok());
  EXPECT_EQ(rig->Find("kv")->state, RegionState::kQuarantined);
  EXPECT_TRUE(absl::StrContains(rig->Find("kv")->state_reason, "smoke"));
  EXPECT_EQ(ReasonOf(rig->Call(&PoolService::Release, ReleaseOf("kv", 2)).status()),
            "REGION_QUARANTINED");
  ReleaseSpec force = ReleaseOf("kv", 3);
  force.force = true;
  EXPECT_EQ(ReasonOf(rig->Call(&PoolService::Release, force).status()), "REASON_REQUIRED");
  force.reason = "we took the device out";
  EXPECT_EQ(ReasonOf(rig->Call(&PoolService::Release, force).status()), "FENCE_REQUIRED")
      << "the host has it";
  ASSERT_TRUE(rig->Call(&PoolService::Detach, {.request = TestRequest("DetachRegion", 4),
                                               .caller = Caller::Admin("cxlpool://operator/alice"),
                                               .region_id = "kv",
                                               .host = "host-a"})
                  .ok());
  ASSERT_TRUE(rig->RunUntil([&] { return rig->Find("kv")->attachments.empty(); }));
  EXPECT_TRUE(world.bound.empty());
  EXPECT_EQ(rig->Find("kv")->state, RegionState::kQuarantined);
  ASSERT_TRUE(rig->Call(&PoolService::Release, force).ok());
  ASSERT_TRUE(rig->RunUntil([&] { return rig->Find("kv") == nullptr; }));
  EXPECT_TRUE(world.scrubbed.empty()) << "nobody will read those bytes";
  const Capacity capacity = rig->views.Get()->capacity;
  EXPECT_EQ(capacity.free_bytes, 8 * kGranule);
  EXPECT_EQ(capacity.quarantined_bytes, 8 * kGranule);
  ASSERT_TRUE(rig->Change(&PlanRemoveDevice, "cmm-0").ok());
  EXPECT_EQ(ReasonOf(rig->Change(&PlanAddDevice, "cmm-0")), "DEVICE_FAILED");
}

TEST_F(SemanticsTest, ABatchGivesEachItemItsOwnOutcomeInOneCommit) {
  std::vector<absl::StatusOr<AllocateSpec>> specs;
  for (char i = 0; i < 4; ++i) {
    AllocateSpec spec = AllocateOn(absl::StrCat("kv-", static_cast<int>(i)), "", 1 + i);
    if (i == 1) spec.size_bytes = 100 * kGranule;
    specs.push_back(spec);
  }
  specs.insert(specs.begin() + 2, absl::InvalidArgumentError("of the caller's making"));
  specs[4]->request = specs[0]->request;  // The first again, by another name.
  Outcomes outcomes;
  const uint64_t before = rig->writer.revision();
  rig->pool.AllocateBatch(specs, false, [&](Outcomes got) { outcomes = std::move(got); });
  rig->Run(absl::Milliseconds(50));
  ASSERT_EQ(outcomes.size(), 5u);
  EXPECT_TRUE(outcomes[0].ok());
  EXPECT_EQ(ReasonOf(outcomes[1].status()), "POOL_FULL");
  EXPECT_EQ(outcomes[2].status().message(), "of the caller's making");
  EXPECT_TRUE(outcomes[3].ok());
  EXPECT_EQ((*outcomes[4]).region->key, (*outcomes[0]).region->key);
  EXPECT_EQ(rig->writer.revision(), before + 2);
  EXPECT_EQ(rig->views.Get()->regions.size(), 2u);

  std::vector<absl::StatusOr<ReleaseSpec>> releases = {ReleaseOf("kv-0", 1), ReleaseOf("nope", 2),
                                                       ReleaseOf("kv-2", 3)};
  rig->pool.ReleaseBatch(releases, [&](Outcomes got) { outcomes = std::move(got); });
  rig->Run(absl::Milliseconds(50));
  ASSERT_EQ(outcomes.size(), 3u);
  EXPECT_TRUE(outcomes[0].ok());
  EXPECT_EQ(ReasonOf(outcomes[1].status()), "UNKNOWN_REGION");
  EXPECT_TRUE(rig->RunUntil([&] { return rig->views.Get()->regions.size() == 0; }));
}

}  // namespace
}  // namespace cxlpool::fm
