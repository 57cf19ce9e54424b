#include "fabric-manager/model/audit/audit_chain.h"

#include <gtest/gtest.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

struct Trail {
  AuditBounds bounds;
  std::vector<AuditRowPtr> rows;
};

Trail TrailOf(uint64_t rows) {
  Trail trail;
  for (uint64_t i = 1; i <= rows; ++i) {
    const std::string bytes = absl::StrCat("row ", i);
    trail.bounds.head = NextHead(trail.bounds.head, bytes);
    trail.rows.push_back(std::make_shared<AuditRow>(AuditRow{100 + i, trail.bounds.head, bytes}));
  }
  return trail;
}

std::string FlawsOf(const Trail& trail) {
  std::string text;
  for (const AuditFlaw& flaw : VerifyChain(trail.bounds, trail.rows)) {
    absl::StrAppend(&text, text.empty() ? "" : "; ", flaw.number, ": ", flaw.what);
  }
  return text;
}

TEST(AuditChainTest, ATrailAsItWasWrittenHasNoFlaw) {
  EXPECT_EQ(FlawsOf(TrailOf(0)), "");
  EXPECT_EQ(FlawsOf(TrailOf(1)), "");
  EXPECT_EQ(FlawsOf(TrailOf(9)), "");
}

TEST(AuditChainTest, RowsThatWereDroppedAreNotMissed) {
  Trail trail = TrailOf(9);
  trail.bounds.dropped = trail.rows[3]->head;
  trail.rows.erase(trail.rows.begin(), trail.rows.begin() + 4);
  EXPECT_EQ(FlawsOf(trail), "");
  trail.rows.clear();
  trail.bounds.dropped = trail.bounds.head;
  EXPECT_EQ(FlawsOf(trail), "");
}

TEST(AuditChainTest, AnAlteredRowIsFound) {
  for (size_t i = 0; i < 9; ++i) {
    Trail trail = TrailOf(9);
    AuditRow altered = *trail.rows[i];
    altered.bytes += "!";
    trail.rows[i] = std::make_shared<AuditRow>(altered);
    EXPECT_EQ(FlawsOf(trail), absl::StrCat(i + 1, ": row ", i + 1,
                                           " was altered, or does not follow the row before it"));
  }
}

TEST(AuditChainTest, AnAlteredRowWithAHashOfItsOwnIsFoundByTheNext) {
  Trail trail = TrailOf(9);
  AuditRow altered = *trail.rows[4];
  altered.bytes += "!";
  altered.head = NextHead(trail.rows[3]->head, altered.bytes);
  trail.rows[4] = std::make_shared<AuditRow>(altered);
  EXPECT_EQ(FlawsOf(trail), "6: row 6 was altered, or does not follow the row before it");
  // The last one has no next: the pool's record finds it.
  trail = TrailOf(5);
  trail.rows[4] = std::make_shared<AuditRow>(altered);
  EXPECT_EQ(FlawsOf(trail), "5: row 5, the last, is another than the pool's record knows");
}

TEST(AuditChainTest, AMissingRowIsFound) {
  for (size_t i = 0; i + 1 < 9; ++i) {
    Trail trail = TrailOf(9);
    trail.rows.erase(trail.rows.begin() + static_cast<ptrdiff_t>(i));
    EXPECT_EQ(FlawsOf(trail), absl::StrCat(i + 1, ": row ", i + 1, " is missing"));
  }
  Trail trail = TrailOf(9);
  trail.rows.erase(trail.rows.begin() + 2, trail.rows.begin() + 5);
  EXPECT_EQ(FlawsOf(trail), "3: rows 3 to 5 are missing");
}

TEST(AuditChainTest, SwappedRowsAreFound) {
  Trail trail = TrailOf(9);
  std::swap(trail.rows[2], trail.rows[3]);
  EXPECT_EQ(FlawsOf(trail), "3: rows 3 and 4 are out of order: one has the other's place");
  trail.rows[2] = trail.rows[3];
  EXPECT_EQ(FlawsOf(trail), "3: row 3 is there twice; 4: row 4 is missing");
}

TEST(AuditChainTest, ACutTailIsFound) {
  Trail trail = TrailOf(9);
  trail.rows.pop_back();
  EXPECT_EQ(FlawsOf(trail), "9: the trail was cut: row 9 is missing, the last");
  trail.rows.resize(5);
  EXPECT_EQ(FlawsOf(trail), "6: the trail was cut: rows 6 to 9 are missing, the last");
  trail.rows.clear();
  EXPECT_EQ(FlawsOf(trail), "1: the trail was cut: rows 1 to 9 are missing, the last");
}

TEST(AuditChainTest, RowsBesideTheTrailAreFound) {
  Trail trail = TrailOf(9);
  trail.bounds.head = trail.rows[6]->head;
  EXPECT_EQ(FlawsOf(trail),
            "8: the pool's record knows of no row behind 7, and there are rows up "
            "to 9");
  trail = TrailOf(3);
  trail.bounds.dropped = trail.rows[0]->head;
  EXPECT_EQ(FlawsOf(trail), "1: row 1 is there, and was dropped");
}

TEST(AuditChainTest, FlawsAreBounded) {
  Trail trail = TrailOf(99);
  for (size_t i = 0; i < 99; i += 2) trail.rows[i] = trail.rows[1];
  EXPECT_EQ(VerifyChain(trail.bounds, trail.rows).size(), kMaxAuditFlaws);
}

TEST(AuditChainTest, APlaceAsText) {
  EXPECT_EQ(ToText({17, std::string("\x00\xff", 2)}), "17:00ff");
  EXPECT_EQ(ToText({}), "");
  const AuditHead head = TrailOf(3).bounds.head;
  EXPECT_EQ(*ParseAuditHead(ToText(head)), head);
  for (const std::string& text :
       {std::string(), std::string("17"), std::string("17:00ff"), "0:" + std::string(64, '0'),
        "1:" + std::string(64, 'x'), ToText(head) + "0", ToText(head) + ":1"}) {
    EXPECT_EQ(ReasonOf(ParseAuditHead(text).status()), "BAD_ANCHOR") << text;
  }
}

TEST(AuditChainTest, AnAnchorFindsAChainThatWasWrittenAnew) {
  Trail trail = TrailOf(9);
  const auto check = [&trail](const AuditHead& anchor) -> std::string {
    const auto flaw = CheckAnchor(trail.bounds, trail.rows, anchor);
    if (!flaw.ok()) return ReasonOf(flaw.status());
    return flaw->has_value() ? (*flaw)->what : "";
  };
  const AuditHead fifth = trail.rows[4]->head;
  const AuditHead ninth = trail.rows[8]->head;
  EXPECT_EQ(check(fifth), "");
  EXPECT_EQ(check(ninth), "");
  // A tail that was cut with the pool's record is a whole chain.
  trail = TrailOf(7);
  EXPECT_EQ(FlawsOf(trail), "");
  EXPECT_EQ(check(fifth), "");
  EXPECT_EQ(check(ninth), "the trail was cut: it ends at row 7, and the anchor is row 9");
  // So is one of other rows.
  AuditHead other = fifth;
  other.hash[0] ^= 1;
  EXPECT_EQ(check(other),
            "row 5 is another than the anchor's: the trail was written anew up to there");
  // Dropped rows: the last one's hash is still known.
  trail.bounds.dropped = trail.rows[4]->head;
  trail.rows.erase(trail.rows.begin(), trail.rows.begin() + 5);
  EXPECT_EQ(check(fifth), "");
  EXPECT_EQ(check({4, fifth.hash}), "ANCHOR_TOO_OLD");
}

}  // namespace
}  // namespace cxlpool::fm
