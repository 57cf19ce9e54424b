#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "fabric-manager/service/record_codec.h"
#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

constexpr Key kFirst = 16;
constexpr Key kRecords = 50'000;  // Enough for several threads.

// The pool's own record, and a tenant a row.
std::vector<Row> ManyRows() {
  std::vector<Row> rows = {{kPoolKey, EncodePool({.next_id = 70'000})}};
  for (Key key = kFirst; key < kFirst + kRecords; ++key) {
    rows.push_back({key, EncodeItem(Tenant{.key = key, .id = absl::StrCat("t", key)})});
  }
  return rows;
}

TEST(RecordLoadTest, ManyRecordsComeInTheOrderOfTheirRows) {
  PoolMeta meta;
  const absl::StatusOr<Change> records = DecodeAll(ManyRows(), meta);
  ASSERT_TRUE(records.ok()) << records.status();
  EXPECT_EQ(meta.next_id, 70'000u);
  ASSERT_EQ(records->size(), kRecords);
  for (Key i = 0; i < kRecords; ++i) {
    const auto* tenant = std::get_if<Tenant>(&(*records)[i]);
    ASSERT_NE(tenant, nullptr) << i;
    ASSERT_EQ(tenant->key, kFirst + i);
    ASSERT_EQ(tenant->id, absl::StrCat("t", kFirst + i));
  }
}

TEST(RecordLoadTest, TheFirstRecordThatIsNotSoundIsTheError) {
  for (const size_t broken : {size_t{1}, size_t{24'999}, size_t{kRecords}}) {
    std::vector<Row> rows = ManyRows();
    rows[broken].value = "\xff";
    rows.back().value = "\xff";
    PoolMeta meta;
    const absl::Status status = DecodeAll(rows, meta).status();
    EXPECT_EQ(ReasonOf(status), "BAD_RECORD");
    EXPECT_TRUE(absl::StrContains(status.message(), absl::StrCat("record ", rows[broken].key, " ")))
        << status;
  }
}

TEST(RecordLoadTest, ThePoolsRecordIsUnderItsKeyAndNothingElseIs) {
  std::vector<Row> rows = ManyRows();
  std::swap(rows.front().value, rows.back().value);
  PoolMeta meta;
  EXPECT_EQ(ReasonOf(DecodeAll(rows, meta).status()), "BAD_RECORD");
  EXPECT_EQ(ReasonOf(DecodeAll({rows.begin() + 1, rows.end()}, meta).status()), "BAD_RECORD");
}

TEST(RecordLoadTest, AnEmptyStoreHasNoRecords) {
  PoolMeta meta;
  const absl::StatusOr<Change> records = DecodeAll({}, meta);
  ASSERT_TRUE(records.ok());
  EXPECT_TRUE(records->empty());
}

}  // namespace
}  // namespace cxlpool::fm
