#include <gtest/gtest.h>

#include "test/model/model_rig.h"

namespace cxlpool::fm {
namespace {

class PlanRevokeTest : public ModelRig, public testing::Test {
 protected:
  Revocation Wanted(const std::string& subject) {
    return {.key = 0, .subject = subject, .reason = "lost", .principal = "bob", .time = {}};
  }
  void Revoke(const std::string& subject) {
    const auto change = PlanRevoke(state(), kAlice, Wanted(subject), context());
    ASSERT_TRUE(change.ok()) << change.status();
    Commit(*change);
  }
};

TEST_F(PlanRevokeTest, KeepsWhoWhenAndWhyOfTheFirstTime) {
  Revoke("7a01");
  const Revocation first = state().access_rules().revocations.at("7a01");
  EXPECT_NE(first.key, 0u);
  EXPECT_EQ(first.reason, "lost");
  EXPECT_EQ(first.principal, "bob");
  EXPECT_EQ(first.time, context().now);
  context().now += absl::Hours(1);
  const auto again = PlanRevoke(state(), kAlice, Wanted("7a01"), context());
  ASSERT_TRUE(again.ok());
  EXPECT_TRUE(again->empty());
}

TEST_F(PlanRevokeTest, IsUndoneAsItWasDone) {
  const auto change = PlanRevoke(state(), kAlice, Wanted("7a01"), context());
  const Change undo = Commit(*change);
  EXPECT_TRUE(state().CheckInvariants().ok()) << state().CheckInvariants();
  Commit(undo);
  EXPECT_TRUE(state().access_rules().revocations.empty());
  Revoke("cxlpool://operator/alice");
  const auto restore = PlanRestore(state(), kAlice, "cxlpool://operator/alice", context());
  ASSERT_TRUE(restore.ok()) << restore.status();
  const Change back = Commit(*restore);
  EXPECT_TRUE(state().access_rules().revocations.empty());
  Commit(back);
  EXPECT_EQ(state().access_rules().revocations.size(), 1u);
  EXPECT_TRUE(state().CheckInvariants().ok()) << state().CheckInvariants();
  EXPECT_EQ(ReasonOf(PlanRestore(state(), kAlice, "7a01", context()).status()), "NOT_REVOKED");
}

TEST_F(PlanRevokeTest, TheListHasABound) {
  Change all;
  for (size_t i = 0; i < kMaxRevocations; ++i) {
    Revocation revocation = Wanted(absl::StrCat(absl::Hex(i + 1)));
    revocation.key = context().next_id();
    all.push_back(revocation);
  }
  Commit(all);
  EXPECT_EQ(ReasonOf(PlanRevoke(state(), kAlice, Wanted("ffffff"), context()).status()),
            "TOO_MANY_REVOCATIONS");
  const auto known = PlanRevoke(state(), kAlice, Wanted("1"), context());
  EXPECT_TRUE(known.ok()) << known.status();
}

TEST(CheckRevokedTest, ASerialConcernsOneCertificateAndAnIdentityAll) {
  Revocations revocations;
  revocations["7a01"] = {
      .key = 1, .subject = "7a01", .reason = "lost", .principal = "", .time = {}};
  revocations["cxlpool://host/a"] = {
      .key = 2, .subject = "cxlpool://host/a", .reason = "gone", .principal = "", .time = {}};
  const auto reason = [&](const char* identity, const char* serial) {
    return ReasonOf(CheckRevoked(revocations, identity, serial));
  };
  EXPECT_EQ(reason("cxlpool://operator/alice", "7a01"), "CERTIFICATE_REVOKED");
  EXPECT_EQ(reason("cxlpool://operator/alice", "7a02"), "");
  // An operator may not restore it (docs/access.md).
  const auto refusal = RefusalOf(CheckRevoked(revocations, "cxlpool://host/a", "7a02"));
  EXPECT_NE(refusal->remedy.find("have an admin take it back"), std::string::npos);
  EXPECT_EQ(reason("cxlpool://host/a", "7a02"), "CERTIFICATE_REVOKED");
  EXPECT_EQ(reason("cxlpool://host/ab", "7a0"), "");
  EXPECT_EQ(reason("", ""), "");
}

}  // namespace
}  // namespace cxlpool::fm
