#include "fabric-manager/rpc/refusal_trail.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "cxlpool/v1/pool_service.pb.h"
#include "fabric-manager/model/pool/caller.h"
#include "proto/support/refusal.h"
#include "test/rigs/manual_executor.h"

namespace cxlpool::fm {
namespace {

constexpr char kRelease[] = "/cxlpool.v1.PoolService/ReleaseRegion";

absl::Status Denied(const std::string& identity) {
  return Refuse(absl::StatusCode::kPermissionDenied, "NO_ROLE", "no", "ask",
                {{"identity", identity}});
}

class RefusalTrailTest : public testing::Test {
 protected:
  ManualExecutor time_;
  std::vector<std::vector<AuditEntry>> rows_;
  RefusalTrail trail_{&time_, &time_, [this](std::vector<AuditEntry> entries) {
                        rows_.push_back(std::move(entries));
                      }};
};

TEST_F(RefusalTrailTest, SaysWhoWantedWhatFromWhere) {
  trail_.NoteUnread(kRelease, "ipv4:10.0.0.7:5000", Denied("cxlpool://operator/bob"));
  Caller carol = Caller::User("cxlpool://operator/carol", PoolRole::kOperator);
  carol.SetOrigin({"ipv4:10.0.0.8:6000", Uuid("0123456789abcdef")});
  trail_.NoteAnswered({.method = kRelease,
                       .peer = carol.origin().peer,
                       .caller = carol,
                       .tenant = "",
                       .request = v1::ReleaseRegionRequest(),
                       .status = Denied("")});
  EXPECT_TRUE(rows_.empty());
  time_.Advance(RefusalTrail::kDelay);
  ASSERT_EQ(rows_.size(), 1u);
  ASSERT_EQ(rows_[0].size(), 2u);
  EXPECT_EQ(rows_[0][0].who, "cxlpool://operator/bob");
  EXPECT_EQ(rows_[0][0].method, "ReleaseRegion");
  EXPECT_EQ(rows_[0][0].peer, "ipv4:10.0.0.7:5000");
  EXPECT_EQ(rows_[0][0].outcome, "NO_ROLE");
  EXPECT_EQ(rows_[0][1].who, "cxlpool://operator/carol");
  EXPECT_EQ(rows_[0][1].role, "OPERATOR");
  EXPECT_EQ(rows_[0][1].request_id, Uuid("0123456789abcdef"));
}

TEST_F(RefusalTrailTest, LooksAndOtherErrorsAreNone) {
  for (const char* method : {"/cxlpool.v1.PoolService/ListRegions", "/cxlpool.v1.PoolService/Watch",
                             "/cxlpool.v1.HostService/Session", "/grpc.health.v1.Health/Check"}) {
    trail_.NoteUnread(method, "unix:", Denied("x"));
  }
  trail_.NoteUnread(kRelease, "unix:", absl::NotFoundError("no such Region"));
  trail_.NoteUnread(kRelease, "unix:", absl::OkStatus());
  time_.Advance(absl::Minutes(1));
  EXPECT_TRUE(rows_.empty());
}

TEST_F(RefusalTrailTest, AFloodIsCountedAndComesSeldom) {
  for (int second = 0; second < 30; ++second) {
    for (int i = 0; i < 100; ++i) {
      trail_.NoteUnread(kRelease, "unix:", Denied(absl::StrCat("caller-", i / 2)));
    }
    time_.Advance(absl::Seconds(1));
  }
  EXPECT_EQ(rows_.size(), 3u);
  uint64_t refusals = 0;
  for (const auto& row : rows_) {
    EXPECT_EQ(row.size(), RefusalTrail::kMaxEntries + 1);
    for (const AuditEntry& entry : row) refusals += 1 + entry.more;
  }
  time_.Advance(RefusalTrail::kPeriod);
  for (const AuditEntry& entry : rows_.back()) refusals += 1 + entry.more;
  EXPECT_EQ(refusals, 3000u) << "none is left out of the count";
}

// Whoever reaches an address that takes tokens may call without one, as often as he likes.
TEST_F(RefusalTrailTest, WhoHasNoIdentityDropsNothingOfTheTrail) {
  const absl::Status nobody =
      Refuse(absl::StatusCode::kUnauthenticated, "BAD_TOKEN", "no", "have one made");
  for (int second = 0; second < 3600; ++second) {
    trail_.NoteUnread(kRelease, "ipv4:10.0.0.9:1", nobody);
    trail_.NoteUnread("/cxlpool.v1.PoolService/AllocateRegion", "ipv4:10.0.0.9:1", nobody);
    time_.Advance(absl::Seconds(1));
  }
  ASSERT_EQ(rows_.size(), 1u);
  ASSERT_EQ(rows_[0].size(), 1u);
  EXPECT_EQ(rows_[0][0].outcome, "BAD_TOKEN");
  time_.Advance(RefusalTrail::kStrangersPeriod);
  ASSERT_EQ(rows_.size(), 2u);
  uint64_t refusals = 0;
  for (const auto& row : rows_) {
    for (const AuditEntry& entry : row) refusals += 1 + entry.more;
  }
  EXPECT_EQ(refusals, 7200u) << "none is left out of the count";
}

}  // namespace
}  // namespace cxlpool::fm
