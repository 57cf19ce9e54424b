// What a host's certificate may do to Regions: its own, of the tenants that it is enrolled for.

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "proto/support/names.h"
#include "test/model/model_rig.h"

namespace cxlpool::fm {
namespace {

class HostBorderTest : public testing::Test, public ModelRig {
 protected:
  void SetUp() override {
    AddPool();
    SetTenant("ml", 0);
    SetTenant("vip", 0);
    Commit(PlanEnrol(state(), kAlice, {.host = "host-a", .tenants = {"ml", "default"}}, context())
               .value());
  }

  Request RequestBy(const std::string& host, const std::string& method) {
    Request request = NewRequest(method);
    request.id.principal = absl::StrCat("cxlpool://host/", host);
    return request;
  }
  AllocateSpec AllocationBy(const std::string& host, const std::string& id) {
    AllocateSpec spec = Allocation(id, kUnit, host);
    spec.request = RequestBy(host, "AllocateRegion");
    spec.caller = Caller::OfHost(host, absl::StrCat("cxlpool://host/", host));
    return spec;
  }
  absl::Status Renew(const std::string& host, const std::string& region) {
    RenewSpec spec;
    spec.request = RequestBy(host, "RenewRegion");
    spec.caller = Caller::OfHost(host, absl::StrCat("cxlpool://host/", host));
    spec.region_id = region;
    spec.ttl = absl::Seconds(10);
    return PlanRenew(state(), spec, context()).status();
  }
  std::string TagOf(const std::string& id) {
    return FormatUuid((*state().FindRegionById(id))->tag.bytes());
  }
};

TEST_F(HostBorderTest, ACallThatSaysNotWhoMakesItIsRefused) {
  AllocateSpec spec = Allocation("kv", kUnit);
  spec.caller = Caller();
  EXPECT_EQ(ReasonOf(Allocate(spec).status()), "NO_CALLER");
  EXPECT_EQ(ReasonOf(PlanRelease(state(), ReleaseSpec(), context()).status()), "NO_CALLER");
  EXPECT_EQ(ReasonOf(PlanRenew(state(), RenewSpec(), context()).status()), "NO_CALLER");
}

// A person who adds a call says which right it takes; these are nobody's but an operator's.
TEST_F(HostBorderTest, WhatDecidesForOthersIsRefusedToHostsAndToNobody) {
  ASSERT_TRUE(Allocate(AllocationBy("host-a", "kv")).ok());
  BringUp("kv");
  const auto answers = [&](const Caller& caller) {
    AttachSpec attach{.request = {}, .caller = caller, .region_id = "kv", .host = "host-a"};
    DetachSpec detach{.request = {}, .caller = caller, .region_id = "kv", .host = "host-a"};
    ResizeSpec resize{.request = {}, .caller = caller, .region_id = "kv", .size_bytes = 2 * kUnit};
    RenameSpec rename{.request = {}, .caller = caller, .region_id = "kv", .new_region_id = "kw"};
    return std::set<std::string>{
        ReasonOf(PlanAttach(state(), attach, context()).status()),
        ReasonOf(PlanDetach(state(), detach, context()).status()),
        ReasonOf(PlanResize(state(), resize, nullptr, context()).status()),
        ReasonOf(PlanRename(state(), rename, context()).status()),
    };
  };
  EXPECT_EQ(answers(Caller::OfHost("host-a", "cxlpool://host/host-a")),
            std::set<std::string>{"ROLE_NOT_ALLOWED"});
  EXPECT_EQ(answers(Caller::OfHost("host-x", "cxlpool://host/host-x")),
            std::set<std::string>{"NOT_ENROLLED"});
  EXPECT_EQ(answers(Caller()), std::set<std::string>{"NO_CALLER"});
}

TEST_F(HostBorderTest, WhoMaySeeARegion) {
  const RegionPtr kv = *Allocate(AllocationBy("host-a", "kv"));
  const Host* host_a = state().FindHost("host-a");
  const Host* host_b = state().FindHost("host-b");
  const Caller a = Caller::OfHost("host-a", "cxlpool://host/host-a");
  EXPECT_TRUE(MaySee(Caller::Admin("cxlpool://operator/alice"), nullptr, *kv));
  EXPECT_TRUE(MaySee(Caller::Local("cxlpool://operator/local"), nullptr, *kv));
  EXPECT_TRUE(MaySee(a, host_a, *kv));
  EXPECT_FALSE(MaySee(Caller::OfHost("host-b", "cxlpool://host/host-b"), host_b, *kv));
  EXPECT_FALSE(MaySee(a, host_b, *kv)) << "another host's record";
  EXPECT_FALSE(MaySee(a, nullptr, *kv)) << "its record is gone";
  EXPECT_FALSE(MaySee(Caller::OfHost("host-a", "spiffe://rack/a"), host_a, *kv));
  EXPECT_FALSE(MaySee(Caller(), host_a, *kv));
  Host retired = *host_a;
  retired.retired = true;
  EXPECT_FALSE(MaySee(a, &retired, *kv));
}

TEST_F(HostBorderTest, AHostAllocatesForTheTenantsOfItsEnrolment) {
  AllocateSpec spec = AllocationBy("host-a", "kv");
  spec.tenant = "ml";
  EXPECT_TRUE(Allocate(spec).ok());
  spec = AllocationBy("host-a", "kw");
  spec.tenant = "vip";
  const absl::Status refused = Allocate(spec).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(ReasonOf(refused), "TENANT_NOT_YOURS");
  // The command keeps what there is.
  EXPECT_NE(refused.message().find(
                "`cxlpool host enrol host-a --tenant default --tenant ml --tenant vip`"),
            std::string::npos)
      << refused;
  spec = AllocationBy("host-b", "kx");
  spec.tenant = "ml";
  EXPECT_EQ(ReasonOf(Allocate(spec).status()), "TENANT_NOT_YOURS");
  spec.tenant = "default";
  EXPECT_TRUE(Allocate(spec).ok());
}

TEST_F(HostBorderTest, EnrolmentKeepsTenantsThatItDoesNotName) {
  const std::vector<std::string> both = {"default", "ml"};
  EXPECT_EQ(state().FindHost("host-a")->tenants, both);
  EXPECT_TRUE(PlanEnrol(state(), kAlice, {.host = "host-a"}, context())->empty());
  EXPECT_TRUE(
      PlanEnrol(state(), kAlice, {.host = "host-a", .tenants = {"default", "ml", "ml"}}, context())
          ->empty());
  EXPECT_EQ(
      ReasonOf(
          PlanEnrol(state(), kAlice, {.host = "host-a", .tenants = {"mi"}}, context()).status()),
      "UNKNOWN_TENANT");
  EXPECT_EQ(state().FindHost("host-b")->tenants, std::vector<std::string>{"default"});
  Commit(*PlanRetire(state(), kAlice, "host-a", context()));
  Commit(*PlanEnrol(state(), kAlice, {.host = "host-a"}, context()));
  EXPECT_EQ(state().FindHost("host-a")->tenants, std::vector<std::string>{"default"})
      << "a host that comes back begins anew";
}

TEST_F(HostBorderTest, AHostAllocatesOnItselfAlone) {
  AllocateSpec spec = AllocationBy("host-a", "kv");
  for (const char* other : {"host-b", ""}) {
    spec.host = other;
    EXPECT_EQ(ReasonOf(Allocate(spec).status()), "NOT_YOUR_HOST") << other;
  }
}

TEST_F(HostBorderTest, OnlyTheHostsOwnAgentNamesItsUsers) {
  const Owner owner{.uid = 7, .pid = 8, .start_ticks = 9, .incarnation = "boot-1"};
  for (const bool process : {true, false}) {
    SCOPED_TRACE(process);
    const auto name_user = [&](AllocateSpec& spec) {
      if (process) {
        spec.owner = owner;
      } else {
        spec.maker_uid = 7;
      }
    };
    AllocateSpec by_operator = Allocation("kv", kUnit, "host-a");
    name_user(by_operator);
    EXPECT_EQ(ReasonOf(Allocate(by_operator).status()), "OWNER_NOT_YOURS");
    AllocateSpec by_other = AllocationBy("host-b", "kv");
    by_other.host = "host-a";
    name_user(by_other);
    EXPECT_EQ(ReasonOf(Allocate(by_other).status()), "OWNER_NOT_YOURS");
    AllocateSpec by_own = AllocationBy("host-a", process ? "kv" : "kw");
    name_user(by_own);
    EXPECT_TRUE(Allocate(by_own).ok());
    AllocateSpec local = Allocation(process ? "kx" : "ky", kUnit, "host-b");
    local.caller = Caller::Local("cxlpool://operator/local");  // Any host that it says it is.
    name_user(local);
    EXPECT_TRUE(Allocate(local).ok());
  }
  EXPECT_EQ((*state().FindRegionById("kw"))->maker, (Maker{"host-a", 7}));
  EXPECT_EQ((*state().FindRegionById("kx"))->owner, owner);
}

TEST_F(HostBorderTest, WhatDoesNotConcernAHostIsNotThereForIt) {
  ASSERT_TRUE(Allocate(AllocationBy("host-a", "kv")).ok());
  ASSERT_TRUE(Allocate(Allocation("ours", kUnit)).ok());
  BringUp("kv");
  const auto text = [](std::string message, const std::string& name) {
    const size_t at = message.find(name);
    return at == std::string::npos ? message : message.replace(at, name.size(), "NAME");
  };
  const std::string no_tag = "0f8fad5b-d9cb-469f-a165-70867728950e";
  for (const auto& [there, not_there] :
       {std::pair<std::string, std::string>{"kv", "zz"}, {TagOf("kv"), no_tag}, {"ours", "zzzz"}}) {
    SCOPED_TRACE(there);
    const std::pair<absl::Status, absl::Status> calls[] = {
        {Release(there, true, "host-b").status(), Release(not_there, true, "host-b").status()},
        {Renew("host-b", there), Renew("host-b", not_there)}};
    for (const auto& [seen, unseen] : calls) {
      EXPECT_EQ(seen.code(), absl::StatusCode::kNotFound);
      EXPECT_EQ(ReasonOf(seen), "UNKNOWN_REGION");
      EXPECT_EQ(text(std::string(seen.message()), there),
                text(std::string(unseen.message()), not_there));
    }
  }
  EXPECT_EQ((*state().FindRegionById("kv"))->state, RegionState::kAllocated);
  EXPECT_EQ((*state().FindRegionById("kv"))->expire_time, absl::InfiniteFuture());
}

TEST_F(HostBorderTest, AnAttachmentMakesItSeenAndNoMore) {
  AllocateSpec shared = AllocationBy("host-a", "kv");
  shared.sharing = Sharing::kMultiWriter;
  ASSERT_TRUE(Allocate(shared).ok());
  AllocateSpec of_ml = AllocationBy("host-a", "ml-kv");
  of_ml.tenant = "ml";
  of_ml.sharing = Sharing::kMultiWriter;
  ASSERT_TRUE(Allocate(of_ml).ok());
  for (const char* id : {"kv", "ml-kv"}) {
    BringUp(id);
    ASSERT_TRUE(Attach(id, "host-b").ok());
  }
  EXPECT_EQ(ReasonOf(Renew("host-b", "kv")), "NOT_OWNER");
  EXPECT_EQ(ReasonOf(Renew("host-b", "ml-kv")), "UNKNOWN_REGION") << "not of a tenant of host-b's";
  EXPECT_EQ(ReasonOf(Release("ml-kv", true, "host-b").status()), "UNKNOWN_REGION");
  EXPECT_EQ(ReasonOf(Release("kv", true, "host-b").status()), "REGION_ATTACHED");
  EXPECT_TRUE(Renew("host-a", "ml-kv").ok());
}

TEST_F(HostBorderTest, AHostReleasesOnlyWhatItAloneUses) {
  AllocateSpec spec = Allocation("kv", kUnit, "host-a");
  spec.sharing = Sharing::kMultiWriter;
  ASSERT_TRUE(Allocate(spec).ok());
  BringUp("kv");
  ASSERT_TRUE(Attach("kv", "host-b").ok());
  EXPECT_EQ(ReasonOf(Release("kv", false, "host-c").status()), "UNKNOWN_REGION");
  for (const bool detach_all : {false, true}) {
    const absl::Status status = Release("kv", detach_all, "host-a").status();
    EXPECT_EQ(ReasonOf(status), "REGION_ATTACHED");
    EXPECT_EQ(MetadataOf(status, "hosts"), "host-b");
  }
  ASSERT_TRUE(Detach("kv", "host-b").ok());
  ASSERT_TRUE(Release("kv", false, "host-a").ok());
  EXPECT_TRUE((*state().FindRegionById("kv"))->FindAttachment("host-a")->settled().detaching);
}

TEST_F(HostBorderTest, AHostGivesBackWhatItMadeWhateverItServesNow) {
  AllocateSpec of_ml = AllocationBy("host-a", "kv");
  of_ml.tenant = "ml";
  ASSERT_TRUE(Allocate(of_ml).ok());
  Commit(PlanEnrol(state(), kAlice, {.host = "host-a", .tenants = {"default"}}, context()).value());
  EXPECT_TRUE(Release("kv", true, "host-a").ok()) << "its owner has ended, say";
}

TEST_F(HostBorderTest, ARetiredHostMayNothingAndNorMayItsOldIdentity) {
  ASSERT_TRUE(Allocate(AllocationBy("host-a", "kv")).ok());
  Rewrite("kv", [](Region& region) { region.attachments.clear(); });
  const AllocateSpec again = AllocationBy("host-a", "kw");
  Commit(*PlanRetire(state(), kAlice, "host-a", context()));
  EXPECT_EQ(ReasonOf(Allocate(again).status()), "NOT_ENROLLED");
  EXPECT_EQ(ReasonOf(Renew("host-a", "kv")), "NOT_ENROLLED");
  EXPECT_EQ(ReasonOf(Release("kv", true, "host-a").status()), "NOT_ENROLLED");
  Commit(*PlanEnrol(state(), kAlice, {.host = "host-a", .identity = "spiffe://rack/a"}, context()));
  EXPECT_EQ(ReasonOf(Allocate(again).status()), "NOT_ENROLLED");
  EXPECT_EQ(ReasonOf(Allocate(AllocationBy("host-z", "kw")).status()), "NOT_ENROLLED");
}

TEST_F(HostBorderTest, NoMoreHostsAreEnrolledThanThePoolMayHave) {
  Change others;
  for (size_t i = state().hosts().size(); i + 1 < kMaxEnrolledHosts; ++i) {
    others.push_back(Host{.key = 1'000'000 + i,
                          .id = absl::StrCat("other-", i),
                          .identity = absl::StrCat("cxlpool://host/other-", i),
                          .retired = i % 2 == 0});
  }
  Commit(others);
  Commit(PlanEnrol(state(), kAlice, {.host = "last"}, context()).value());
  const absl::Status status = PlanEnrol(state(), kAlice, {.host = "more"}, context()).status();
  EXPECT_EQ(ReasonOf(status), "TOO_MANY_HOSTS");
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  // One that is there is changed as before, and one that is removed makes room.
  EXPECT_TRUE(PlanEnrol(state(), kAlice, {.host = "host-a", .tenants = {"vip"}}, context()).ok());
  Commit(PlanRemoveHost(state(), kAlice, "last", context()).value());
  EXPECT_TRUE(PlanEnrol(state(), kAlice, {.host = "more"}, context()).ok());
}

TEST_F(HostBorderTest, AHostMayNotForce) {
  ASSERT_TRUE(Allocate(AllocationBy("host-a", "kv")).ok());
  ReleaseSpec spec;
  spec.request = RequestBy("host-a", "ReleaseRegion");
  spec.caller = Caller::OfHost("host-a", "cxlpool://host/host-a");
  spec.region_id = "kv";
  spec.force = true;
  spec.reason = "because";
  EXPECT_EQ(ReasonOf(PlanRelease(state(), spec, context()).status()), "ROLE_NOT_ALLOWED");
}

// The agent has judged for its user; by the time that the manager plans, the name may be another's.
TEST_F(HostBorderTest, AReleaseMeansTheRegionThatTheAgentJudged) {
  AllocateSpec spec = AllocationBy("host-a", "kv");
  spec.tenant = "ml";
  spec.maker_uid = 1001;
  ASSERT_TRUE(Allocate(spec).ok());
  const auto release = [&](const std::string& tenant, std::optional<uint32_t> maker_uid) {
    ReleaseSpec release;
    release.request = RequestBy("host-a", "ReleaseRegion");
    release.caller = Caller::OfHost("host-a", "cxlpool://host/host-a");
    release.region_id = "kv";
    release.detach_all = true;
    release.tenant = tenant;
    release.maker_uid = maker_uid;
    return PlanRelease(state(), release, context()).status();
  };
  EXPECT_EQ(ReasonOf(release("default", 1001)), "UNKNOWN_REGION");
  EXPECT_EQ(ReasonOf(release("ml", 1002)), "UNKNOWN_REGION");
  EXPECT_EQ(ReasonOf(release("ml", 0)), "UNKNOWN_REGION");
  EXPECT_TRUE(release("ml", 1001).ok());
  EXPECT_TRUE(release("ml", std::nullopt).ok());
  EXPECT_TRUE(release("", std::nullopt).ok());
  Rewrite("kv", [](Region& region) { region.maker.reset(); });
  EXPECT_EQ(ReasonOf(release("ml", 1001)), "UNKNOWN_REGION");
  Rewrite("kv", [](Region& region) { region.maker = Maker{"host-b", 1001}; });
  EXPECT_EQ(ReasonOf(release("ml", 1001)), "UNKNOWN_REGION") << "another host's 1001";
}

TEST_F(HostBorderTest, AHostThatIsUnfitSetsNobodysUnit) {
  HostRuntime runtime = state().Runtime("host-b");
  runtime.region_granule_bytes = 2 * kGiB;
  state().SetRuntime("host-b", runtime);
  EXPECT_EQ((*Allocate(Allocation("wide", 1)))->held_bytes(), 2 * kGiB);
  runtime.unfit_reason = "it says so";
  state().SetRuntime("host-b", runtime);
  EXPECT_EQ((*Allocate(Allocation("kv", 1)))->held_bytes(), kUnit);
}

}  // namespace
}  // namespace cxlpool::fm
