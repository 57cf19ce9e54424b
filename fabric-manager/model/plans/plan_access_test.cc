#include <gtest/gtest.h>

#include "test/model/model_rig.h"

namespace cxlpool::fm {
namespace {

constexpr char kBob[] = "cxlpool://operator/bob";
constexpr char kCarol[] = "cxlpool://operator/carol";
constexpr char kCi[] = "spiffe://site/ci";

class PlanAccessTest : public ModelRig, public testing::Test {
 protected:
  static RoleBinding Wanted(const std::string& identity, PoolRole role,
                            absl::Time end = absl::InfiniteFuture()) {
    return {
        .identity = identity, .role = role, .end = end, .reason = "new here", .principal = "al"};
  }
  // Why it is refused; empty: it is done.
  std::string Bind(const std::string& identity, PoolRole role,
                   absl::Time end = absl::InfiniteFuture()) {
    return Do(PlanBindRole(state(), kAlice, Wanted(identity, role, end), context()));
  }
  std::string Unbind(const std::string& identity) {
    return Do(PlanUnbindRole(state(), kAlice, identity, context()));
  }
  std::string Do(const absl::StatusOr<Change>& change) {
    if (!change.ok()) return ReasonOf(change.status());
    Commit(*change);
    EXPECT_TRUE(state().CheckInvariants().ok()) << state().CheckInvariants();
    return "";
  }
  const RoleBindings& bindings() { return state().access_rules().bindings; }
};

TEST_F(PlanAccessTest, KeepsWhoWhenAndWhyUntilTheRoleIsAnother) {
  ASSERT_EQ(Bind(kBob, PoolRole::kAdmin), "");
  const RoleBinding first = bindings().at(kBob);
  EXPECT_NE(first.key, 0u);
  EXPECT_EQ(first.reason, "new here");
  EXPECT_EQ(first.principal, "al");
  EXPECT_EQ(first.time, context().now);
  context().now += absl::Hours(1);
  EXPECT_EQ(Bind(kBob, PoolRole::kAdmin), "");
  EXPECT_EQ(bindings().at(kBob), first);
  ASSERT_EQ(Bind(kCarol, PoolRole::kAdmin), "");
  ASSERT_EQ(Bind(kBob, PoolRole::kViewer), "");
  EXPECT_EQ(bindings().at(kBob).key, first.key);
  EXPECT_EQ(bindings().at(kBob).role, PoolRole::kViewer);
  EXPECT_EQ(bindings().at(kBob).time, context().now);
}

// Otherwise only somebody on the manager's machine could change rights again.
TEST_F(PlanAccessTest, AnAdminStaysForGood) {
  const absl::Time later = context().now + absl::Hours(1);
  EXPECT_EQ(Bind(kBob, PoolRole::kViewer), "LAST_ADMIN")
      << "the first one takes all others' rights";
  EXPECT_EQ(Bind(kBob, PoolRole::kAdmin, later), "LAST_ADMIN") << "it ends";
  ASSERT_EQ(Bind(kBob, PoolRole::kAdmin), "");
  ASSERT_EQ(Bind(kCi, PoolRole::kViewer), "");
  EXPECT_EQ(Bind(kBob, PoolRole::kOperator), "LAST_ADMIN");
  EXPECT_EQ(Bind(kBob, PoolRole::kAdmin, later), "LAST_ADMIN");
  EXPECT_EQ(Unbind(kBob), "LAST_ADMIN");
  ASSERT_EQ(Bind(kCarol, PoolRole::kAdmin), "");
  EXPECT_EQ(Unbind(kBob), "");
  EXPECT_EQ(Unbind(kCi), "");
  EXPECT_EQ(Unbind(kCarol), "") << "nobody is bound: certificates of operators count again";
  EXPECT_TRUE(bindings().empty());
  EXPECT_EQ(Unbind(kCarol), "NOT_BOUND");
}

TEST_F(PlanAccessTest, AnIdentityIsAHostsOrAUsers) {
  ASSERT_EQ(Do(PlanEnrol(state(), kAlice, {.host = "host-s", .identity = kCi}, context())), "");
  ASSERT_EQ(Bind(kBob, PoolRole::kAdmin), "");
  EXPECT_EQ(Bind(kCi, PoolRole::kViewer), "IDENTITY_TAKEN");
  ASSERT_EQ(Bind("spiffe://site/cron", PoolRole::kViewer), "");
  EXPECT_EQ(Do(PlanEnrol(state(), kAlice, {.host = "host-t", .identity = "spiffe://site/cron"},
                         context())),
            "IDENTITY_TAKEN");
}

TEST_F(PlanAccessTest, IsUndoneAsItWasDone) {
  ASSERT_EQ(Bind(kBob, PoolRole::kAdmin), "");
  const auto change = PlanBindRole(state(), kAlice, Wanted(kCi, PoolRole::kViewer), context());
  ASSERT_TRUE(change.ok());
  Commit(Commit(*change));
  EXPECT_EQ(bindings().size(), 1u);
  ASSERT_EQ(Bind(kCi, PoolRole::kViewer), "");
  const auto gone = PlanUnbindRole(state(), kAlice, kCi, context());
  ASSERT_TRUE(gone.ok());
  Commit(Commit(*gone));
  EXPECT_EQ(bindings().at(kCi).role, PoolRole::kViewer);
  EXPECT_TRUE(state().CheckInvariants().ok()) << state().CheckInvariants();
}

TEST_F(PlanAccessTest, TheListHasABound) {
  Change all;
  for (size_t i = 0; i < kMaxRoleBindings; ++i) {
    RoleBinding binding = Wanted(absl::StrCat("spiffe://site/", i), PoolRole::kAdmin);
    binding.key = context().next_id();
    all.push_back(binding);
  }
  Commit(all);
  EXPECT_EQ(Bind(kBob, PoolRole::kViewer), "TOO_MANY_BINDINGS");
  EXPECT_EQ(Bind("spiffe://site/7", PoolRole::kViewer), "");
}

// What each role may, as plans judge it, beside the rules at the door.
TEST_F(PlanAccessTest, EachPlanWantsItsRight) {
  const auto may = [&](PoolRole role, Right right) {
    return CheckCaller(state(), Caller::User(kBob, role), right).ok();
  };
  for (const Right right :
       {Right::kUseMemory, Right::kMoveMemory, Right::kRunPool, Right::kAdminister}) {
    for (const PoolRole role : {PoolRole::kTenant, PoolRole::kScheduler}) {
      EXPECT_EQ(may(role, right), right == Right::kUseMemory || right == Right::kMoveMemory);
    }
    EXPECT_FALSE(may(PoolRole::kViewer, right));
    EXPECT_FALSE(may(PoolRole::kMetrics, right));
    EXPECT_EQ(may(PoolRole::kOperator, right), right != Right::kAdminister);
    EXPECT_TRUE(may(PoolRole::kAdmin, right));
    EXPECT_EQ(ReasonOf(CheckCaller(state(), Caller(), right)), "NO_CALLER");
  }
  const Caller bob = Caller::User(kBob, PoolRole::kOperator);
  EXPECT_EQ(
      ReasonOf(PlanBindRole(state(), bob, Wanted(kBob, PoolRole::kAdmin), context()).status()),
      "ROLE_NOT_ALLOWED");
  EXPECT_EQ(ReasonOf(PlanUnbindRole(state(), bob, kBob, context()).status()), "ROLE_NOT_ALLOWED");
  EXPECT_EQ(ReasonOf(PlanRevoke(state(), bob, {.subject = "7a01"}, context()).status()),
            "ROLE_NOT_ALLOWED");
  EXPECT_EQ(ReasonOf(PlanSetTenant(state(), bob, {.id = "ml"}, context()).status()),
            "ROLE_NOT_ALLOWED");
}

// A call that goes on, or begins late, has no right that was taken away meanwhile.
TEST_F(PlanAccessTest, ARoleThatIsTakenAwayEndsWhatWaits) {
  const auto check = [&](const Caller& caller) {
    return ReasonOf(CheckCaller(state(), caller, Right::kUseMemory));
  };
  const Caller first = Caller::Bound(kBob, Proof::kOperatorCertificate, Granted{PoolRole::kAdmin});
  EXPECT_EQ(check(first), "") << "nobody is bound";
  ASSERT_EQ(Bind(kCarol, PoolRole::kAdmin), "");
  EXPECT_EQ(check(first), "RIGHTS_CHANGED");
  ASSERT_EQ(Bind(kBob, PoolRole::kOperator, context().now + absl::Hours(1)), "");
  const Caller bob = Caller::Bound(kBob, Proof::kOperatorCertificate, Granted{PoolRole::kOperator});
  EXPECT_EQ(check(bob), "");
  ASSERT_EQ(Bind(kBob, PoolRole::kViewer), "");
  EXPECT_EQ(check(bob), "RIGHTS_CHANGED");
  ASSERT_EQ(Unbind(kBob), "");
  EXPECT_EQ(check(bob), "RIGHTS_CHANGED");
  EXPECT_EQ(check(Caller::Admin(kBob)), "") << "an admin by the configuration";
}

// Bytes that are kept from everybody stand under the default tenant.
TEST(MaySeeTest, WhatTheManagerKeepsIsNoTenants) {
  Region region;
  region.id = "bad-cmm-0-17";
  region.tenant = kDefaultTenant;
  const Caller bob = Caller::User(kBob, PoolRole::kTenant, {kDefaultTenant});
  EXPECT_FALSE(MaySee(bob, nullptr, region));
  EXPECT_TRUE(MaySee(Caller::User(kBob, PoolRole::kViewer), nullptr, region));
  // What an operator does about it does not give it away.
  const Uuid id("0123456789abcdef");
  for (const char* method : {"DetachRegion", "RenameRegion", "ReleaseRegion"}) {
    region.requests.push_back({{"cxlpool://operator/alice", method, id}, 1});
    EXPECT_FALSE(MaySee(bob, nullptr, region)) << method;
  }
  region.requests = {{{kBob, "AllocateRegion", id}, 1}};
  EXPECT_TRUE(MaySee(bob, nullptr, region));
}

TEST(RoleOfTest, CertificatesOfOperatorsCountWhileNobodyIsBound) {
  const absl::Time now = absl::FromUnixSeconds(1'700'000'000);
  RoleBindings bindings;
  EXPECT_EQ(RoleOf(bindings, kBob, Proof::kOperatorCertificate, now), Granted{PoolRole::kAdmin});
  EXPECT_EQ(RoleOf(bindings, kCi, Proof::kCertificate, now), std::nullopt);
  bindings[kCi] = {.key = 1, .identity = kCi, .role = PoolRole::kOperator, .end = now};
  EXPECT_EQ(RoleOf(bindings, kBob, Proof::kOperatorCertificate, now), std::nullopt);
  EXPECT_EQ(RoleOf(bindings, kCi, Proof::kCertificate, now), std::nullopt) << "it has ended";
  EXPECT_EQ(RoleOf(bindings, kCi, Proof::kCertificate, now - absl::Seconds(1)),
            Granted{PoolRole::kOperator});
}

TEST(RoleOfTest, ATokenIsNoCertificate) {
  const absl::Time now = absl::FromUnixSeconds(1'700'000'000);
  const std::string token = "cxlpool://token/ci";
  const RoleBindings bindings = {
      {kCi, {.identity = kCi, .role = PoolRole::kViewer}},
      {token, {.identity = token, .token_hash = "hash", .role = PoolRole::kAdmin}}};
  EXPECT_EQ(RoleOf(bindings, token, Proof::kToken, now), Granted{PoolRole::kAdmin});
  EXPECT_EQ(RoleOf(bindings, token, Proof::kCertificate, now), std::nullopt);
  EXPECT_EQ(RoleOf(bindings, token, Proof::kOperatorCertificate, now), std::nullopt);
  EXPECT_EQ(RoleOf(bindings, kCi, Proof::kToken, now), std::nullopt);
}

}  // namespace
}  // namespace cxlpool::fm
