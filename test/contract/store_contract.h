// What every Store does, whatever stands behind it: the same tests for each.
//
// A new adapter instantiates StoreContractTest with a harness of its own; see
// store_contract_test.cc.
#ifndef CXLPOOL_TEST_CONTRACT_STORE_CONTRACT_H_
#define CXLPOOL_TEST_CONTRACT_STORE_CONTRACT_H_

#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "fabric-manager/ports/store.h"
#include "proto/support/refusal.h"
#include "test/contract/store_client.h"

namespace cxlpool::fm {

// One place where records stay while stores come and go.
class StoreHarness {
 public:
  virtual ~StoreHarness() = default;

  // A new Store on that place; the one before has been destroyed, and nothing is outstanding.
  virtual std::unique_ptr<Store> Make() = 0;

  // A new Store on the place with room for `bytes` of values, more or less.
  virtual std::unique_ptr<Store> MakeSmall(uint64_t bytes) = 0;

  // Where a backup may be put: a file that is not there. Empty: this store makes none.
  virtual std::string BackupPath() = 0;

  // From now on Make opens the backup at `path`, as a manager does that was given it back.
  virtual void Restore(const std::string& path) = 0;
};

struct StoreContractParam {
  std::string name;
  std::function<std::unique_ptr<StoreHarness>()> make;
};

class StoreContractTest : public ::testing::TestWithParam<StoreContractParam> {
 protected:
  void SetUp() override { harness_ = GetParam().make(); }

  // Opens a store on what the last one left.
  void Reopen() {
    client_.reset();
    client_ = std::make_unique<StoreClient>(harness_->Make());
    absl::StatusOr<StoreImage> image = client_->Open();
    ASSERT_TRUE(image.ok()) << image.status();
    image_ = *std::move(image);
  }

  StoreRows Rows() const { return RowsOf(image_); }

  using Model = StoreRows;

  std::unique_ptr<StoreHarness> harness_;
  std::unique_ptr<StoreClient> client_;
  StoreImage image_;  // Of the last Reopen.
};

TEST_P(StoreContractTest, NewStoreIsEmptyAtRevisionZero) {
  Reopen();
  EXPECT_EQ(image_.revision, 0u);
  EXPECT_GT(image_.epoch, 0u);
  EXPECT_TRUE(image_.rows.empty());
}

TEST_P(StoreContractTest, CommittedRowsAreThereAfterReopening) {
  Reopen();
  ASSERT_TRUE(client_->CommitNext({{3, "three"}, {1, "one"}}).ok());
  Reopen();
  EXPECT_EQ(image_.revision, 1u);
  EXPECT_EQ(Rows(), (Model{{1, "one"}, {3, "three"}}));
}

TEST_P(StoreContractTest, ImageIsInKeyOrder) {
  Reopen();
  ASSERT_TRUE(client_->CommitNext({{30, "c"}, {1, "a"}, {kMaxRowKey, "d"}, {2, "b"}}).ok());
  Reopen();
  std::vector<uint64_t> keys;
  for (const Row& row : image_.rows) keys.push_back(row.key);
  EXPECT_EQ(keys, (std::vector<uint64_t>{1, 2, 30, kMaxRowKey}));
}

TEST_P(StoreContractTest, EachOpenTakesAGreaterEpoch) {
  Reopen();
  uint64_t last = image_.epoch;
  for (int i = 0; i < 3; ++i) {
    Reopen();
    EXPECT_GT(image_.epoch, last);
    last = image_.epoch;
  }
}

TEST_P(StoreContractTest, CommitBeforeOpenIsRefused) {
  StoreClient client(harness_->Make());
  const absl::Status status = client.Commit({1, 0, 1, {{1, "one"}}, {}});
  EXPECT_EQ(ReasonOf(status), "STORE_NOT_OPEN") << status;
}

TEST_P(StoreContractTest, OldEpochIsFencedAndChangesNothing) {
  Reopen();
  const uint64_t old_epoch = image_.epoch;
  ASSERT_TRUE(client_->CommitNext({{1, "one"}}).ok());
  Reopen();
  const absl::Status status = client_->Commit({old_epoch, 1, 2, {{1, "stolen"}}, {}});
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(ReasonOf(status), "STORE_FENCED");
  EXPECT_TRUE(client_->CommitNext({{2, "two"}}).ok());
  Reopen();
  EXPECT_EQ(Rows(), (Model{{1, "one"}, {2, "two"}}));
}

TEST_P(StoreContractTest, OldBaseRevisionIsFenced) {
  Reopen();
  ASSERT_TRUE(client_->CommitNext({{1, "one"}}).ok());
  const absl::Status status = client_->Commit({client_->epoch(), 0, 5, {{1, "late"}}, {}});
  EXPECT_EQ(ReasonOf(status), "STORE_FENCED") << status;
  EXPECT_EQ(ReasonOf(client_->Commit({client_->epoch(), 7, 8, {}, {}})), "STORE_FENCED");
  Reopen();
  EXPECT_EQ(image_.revision, 1u);
  EXPECT_EQ(Rows(), (Model{{1, "one"}}));
}

TEST_P(StoreContractTest, RevisionMayJumpButNotStandStill) {
  Reopen();
  ASSERT_TRUE(client_->Commit({client_->epoch(), 0, 10, {{1, "one"}}, {}}).ok());
  const absl::Status status = client_->Commit({client_->epoch(), 10, 10, {{1, "two"}}, {}});
  EXPECT_EQ(ReasonOf(status), "STORE_BAD_BATCH");
  Reopen();
  EXPECT_EQ(image_.revision, 10u);
  EXPECT_EQ(Rows(), (Model{{1, "one"}}));
}

TEST_P(StoreContractTest, PutReplacesAndEraseRemoves) {
  Reopen();
  ASSERT_TRUE(client_->CommitNext({{1, "one"}, {2, "two"}, {3, "three"}}).ok());
  ASSERT_TRUE(client_->CommitNext({{2, "deux"}}, {3, 99}).ok());
  ASSERT_TRUE(client_->CommitNext({{4, "a"}, {4, "b"}, {5, "c"}}, {5, 5}).ok());
  Reopen();
  EXPECT_EQ(Rows(), (Model{{1, "one"}, {2, "deux"}, {4, "b"}}));
}

TEST_P(StoreContractTest, EmptyBatchMovesTheRevision) {
  Reopen();
  ASSERT_TRUE(client_->CommitNext({}).ok());
  Reopen();
  EXPECT_EQ(image_.revision, 1u);
}

TEST_P(StoreContractTest, ValuesAreOpaqueAndOfAnySizeUpToTheLimit) {
  Reopen();
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes.push_back(static_cast<char>(i));
  const std::string large(image_.limits.max_row_bytes, '\xff');
  ASSERT_TRUE(client_->CommitNext({{1, ""}, {2, bytes}, {3, large}}).ok());
  Reopen();
  EXPECT_EQ(Rows(), (Model{{1, ""}, {2, bytes}, {3, large}}));
}

TEST_P(StoreContractTest, BatchBeyondALimitIsRefusedWhole) {
  Reopen();
  const StoreLimits limits = image_.limits;
  const std::string too_large(limits.max_row_bytes + 1, 'x');
  EXPECT_EQ(ReasonOf(client_->CommitNext({{1, "one"}, {2, too_large}})), "STORE_BAD_BATCH");
  EXPECT_EQ(ReasonOf(client_->CommitNext({{kMaxRowKey + 1, "x"}})), "STORE_BAD_BATCH");
  std::vector<Row> many;
  for (uint64_t key = 1; key <= limits.max_batch_rows + 1; ++key) many.push_back({key, ""});
  EXPECT_EQ(ReasonOf(client_->CommitNext(std::move(many))), "STORE_BAD_BATCH");
  const std::string largest(limits.max_row_bytes, 'x');
  std::vector<Row> heavy;
  for (uint64_t key = 0; key <= limits.max_batch_bytes / limits.max_row_bytes; ++key)
    heavy.push_back({key, largest});
  EXPECT_EQ(ReasonOf(client_->CommitNext(std::move(heavy))), "STORE_BAD_BATCH");
  EXPECT_TRUE(client_->CommitNext({{1, "uno"}}).ok());
  Reopen();
  EXPECT_EQ(Rows(), (Model{{1, "uno"}}));
}

// As many rows as one commit may have, which together have as many bytes as it may have.
inline std::vector<Row> LargestBatch(const StoreLimits& limits) {
  const std::string bytes = Noise(limits.max_batch_bytes, 1);
  const size_t each = limits.max_batch_bytes / limits.max_batch_rows;
  std::vector<Row> rows;
  rows.reserve(limits.max_batch_rows);
  for (uint64_t key = 1; key <= limits.max_batch_rows; ++key) {
    rows.push_back({key, bytes.substr((key - 1) * each, each)});
  }
  rows.back().value += bytes.substr(limits.max_batch_rows * each);
  return rows;
}

TEST_P(StoreContractTest, ABatchOfExactlyTheLimitsComesBack) {
  Reopen();
  const StoreLimits limits = image_.limits;
  const std::vector<Row> batch = LargestBatch(limits);
  const absl::Status largest = client_->CommitNext(batch);
  ASSERT_TRUE(largest.ok()) << largest;
  ASSERT_TRUE(client_->CommitNext({{limits.max_batch_rows + 1, "next"}}).ok());
  Reopen();
  EXPECT_EQ(image_.revision, 2u);
  ASSERT_EQ(image_.rows.size(), limits.max_batch_rows + 1);
  EXPECT_EQ(image_.rows.back().value, "next");
  for (size_t i = 0; i < batch.size(); ++i) {
    ASSERT_EQ(image_.rows[i].key, batch[i].key);
    ASSERT_TRUE(image_.rows[i].value == batch[i].value) << "row " << batch[i].key;
  }
}

TEST_P(StoreContractTest, FullStoreRefusesTheWholeBatchAndStaysUsable) {
  client_.reset();
  client_ = std::make_unique<StoreClient>(harness_->MakeSmall(256 << 10));
  ASSERT_TRUE(client_->Open().ok());
  ASSERT_TRUE(client_->CommitNext({{1, std::string(1000, 'a')}}).ok());
  const absl::Status full = client_->CommitNext({{1, "changed"}, {2, Noise(512 << 10, 1)}}, {1});
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted) << full;
  EXPECT_EQ(ReasonOf(full), "STORE_FULL");
  ASSERT_TRUE(client_->CommitNext({{3, "fits"}}).ok());
  ASSERT_TRUE(client_->CommitNext({}, {1}).ok());
  Reopen();
  EXPECT_EQ(Rows(), (Model{{3, "fits"}}));
}

// Only within its own completion, or after it.
TEST_P(StoreContractTest, OneCommitIsOutstandingAtATime) {
  Reopen();
  const uint64_t epoch = client_->epoch();
  std::vector<std::future<absl::Status>> answers;
  for (uint64_t i = 0; i < 20; ++i) {
    answers.push_back(client_->Start({epoch, 0, 1, {{1, absl::StrCat(i)}}, {}}));
  }
  absl::Status first = StoreClient::Wait(answers[0]);
  EXPECT_TRUE(first.ok()) << first;
  for (size_t i = 1; i < answers.size(); ++i) {
    const std::string reason(ReasonOf(StoreClient::Wait(answers[i])));
    EXPECT_TRUE(reason == "STORE_COMMIT_OUTSTANDING" || reason == "STORE_FENCED") << reason;
  }
  std::promise<absl::Status> second;
  client_->store().Commit({epoch, 1, 2, {{2, "two"}}, {}}, [&](const absl::Status& status) {
    if (!status.ok()) return second.set_value(status);
    client_->store().Commit({epoch, 2, 3, {{3, "three"}}, {}},
                            [&](absl::Status again) { second.set_value(std::move(again)); });
  });
  auto from_within = second.get_future();
  EXPECT_TRUE(StoreClient::Wait(from_within).ok());
  Reopen();
  EXPECT_EQ(Rows(), (Model{{1, "0"}, {2, "two"}, {3, "three"}}));
}

TEST_P(StoreContractTest, ManyRowsComeBack) {
  Reopen();
  constexpr uint64_t kRows = 20000;
  for (uint64_t from = 1; from <= kRows; from += 5000) {
    std::vector<Row> rows;
    for (uint64_t key = from; key < from + 5000; ++key) {
      rows.push_back({key, std::string(key % 300, static_cast<char>('a' + key % 26))});
    }
    ASSERT_TRUE(client_->CommitNext(std::move(rows)).ok());
  }
  Reopen();
  ASSERT_EQ(image_.rows.size(), kRows);
  for (const Row& row : image_.rows) {
    ASSERT_EQ(row.value, std::string(row.key % 300, static_cast<char>('a' + row.key % 26)));
  }
}

// The same random changes go to the store and to a map; reopening compares the two.
TEST_P(StoreContractTest, AgreesWithAMapUnderRandomChanges) {
  std::minstd_rand random(20240811);
  Model model;
  uint64_t next_key = 1;
  for (int round = 0; round < 5; ++round) {
    Reopen();
    ASSERT_EQ(Rows(), model) << "round " << round;
    for (int change = 0; change < 60; ++change) {
      std::vector<Row> puts;
      std::vector<uint64_t> erases;
      for (unsigned i = random() % 6; i > 0; --i) {
        const uint64_t key = random() % 2 == 0 ? next_key++ : 1 + random() % next_key;
        puts.push_back({key, Noise(random() % 2000, static_cast<unsigned>(random()))});
      }
      for (unsigned i = random() % 3; i > 0; --i) erases.push_back(1 + random() % next_key);
      for (const Row& row : puts) {
        model[row.key] = row.value;
        next_key = std::max(next_key, row.key + 1);
      }
      for (const uint64_t key : erases) model.erase(key);
      ASSERT_TRUE(client_->CommitNext(std::move(puts), std::move(erases)).ok());
    }
  }
  Reopen();
  EXPECT_EQ(Rows(), model);
}

TEST_P(StoreContractTest, BackupHoldsOneRevisionAndOpensUnderAGreaterEpoch) {
  Reopen();
  const std::string path = harness_->BackupPath();
  if (path.empty()) {
    const absl::Status refused = client_->Backup("/nowhere/backup").status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kUnimplemented);
    EXPECT_EQ(ReasonOf(refused), "NO_BACKUP");
    return;
  }
  ASSERT_TRUE(client_->CommitNext({{1, "one"}, {2, "two"}}).ok());
  ASSERT_TRUE(client_->CommitNext({{2, "deux"}, {3, "three"}}, {1}).ok());
  const absl::StatusOr<StoreBackup> backup = client_->Backup(path);
  ASSERT_TRUE(backup.ok()) << backup.status();
  EXPECT_EQ(backup->revision, 2u);
  EXPECT_GT(backup->size_bytes, 0u);
  ASSERT_TRUE(client_->CommitNext({{4, "after"}}).ok());
  const uint64_t epoch = image_.epoch;
  client_.reset();
  harness_->Restore(path);
  Reopen();
  EXPECT_EQ(image_.revision, 2u);
  EXPECT_GT(image_.epoch, epoch);
  EXPECT_EQ(Rows(), (Model{{2, "deux"}, {3, "three"}}));
  EXPECT_TRUE(client_->CommitNext({{5, "goes on"}}).ok());
}

// Commit N puts N under every one of a few keys, so that a copy of two moments would show.
TEST_P(StoreContractTest, BackupAmidCommitsHoldsExactlyItsRevision) {
  Reopen();
  const std::string path = harness_->BackupPath();
  if (path.empty()) GTEST_SKIP() << "this store makes no backups";
  std::vector<Row> bulk;
  for (uint64_t key = 1000; key < 5000; ++key) bulk.push_back({key, Noise(3000, 1)});
  ASSERT_TRUE(client_->CommitNext(std::move(bulk)).ok());
  const auto commit = [&] {
    const std::string value = absl::StrCat(client_->revision() + 1);
    std::vector<Row> puts;
    for (uint64_t key = 1; key <= 50; ++key) puts.push_back({key, value});
    puts.push_back({1000 + client_->revision() % 4000, value});
    return client_->CommitNext(std::move(puts));
  };
  // A backup of fewer commits than it takes to put it back comes back under a later revision.
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(commit().ok());
  auto backup = client_->StartBackup(path);
  for (int commits = 0;
       backup.wait_for(std::chrono::seconds(0)) != std::future_status::ready && commits < 100'000;
       ++commits) {
    ASSERT_TRUE(commit().ok());
  }
  const absl::StatusOr<StoreBackup> made = StoreClient::WaitBackup(backup);
  ASSERT_TRUE(made.ok()) << made.status();
  client_.reset();
  harness_->Restore(path);
  Reopen();
  EXPECT_EQ(image_.revision, made->revision);
  RecordProperty("commits_before", static_cast<int>(made->revision));
  std::map<uint64_t, std::string> rows = Rows();
  for (uint64_t key = 1; key <= 50 && made->revision > 1; ++key) {
    EXPECT_EQ(rows[key], absl::StrCat(made->revision));
  }
  // Commit r wrote its number under key 1000 + (r - 1) % 4000 as well; the latest one stays.
  for (uint64_t r = 2; r <= made->revision && r < 4000; ++r) {
    if (r + 4000 > made->revision) {
      EXPECT_EQ(rows[1000 + (r - 1) % 4000], absl::StrCat(r));
    }
  }
}

TEST_P(StoreContractTest, BackupNeverReplacesAFileAndOneRunsAtATime) {
  Reopen();
  const std::string path = harness_->BackupPath();
  if (path.empty()) GTEST_SKIP() << "this store makes no backups";
  std::vector<Row> bulk;
  for (uint64_t key = 1; key < 2000; ++key) bulk.push_back({key, Noise(3000, 1)});
  ASSERT_TRUE(client_->CommitNext(std::move(bulk)).ok());
  auto first = client_->StartBackup(path);
  const absl::Status second = client_->Backup(path + "-2").status();
  EXPECT_TRUE(StoreClient::WaitBackup(first).ok());
  if (!second.ok()) {
    EXPECT_EQ(ReasonOf(second), "BACKUP_IN_PROGRESS");
  }
  const absl::Status third = client_->Backup(path).status();
  EXPECT_EQ(third.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(ReasonOf(third), "BACKUP_EXISTS");
  EXPECT_EQ(ReasonOf(client_->Backup("relative").status()), "BACKUP_BAD_PATH");
  EXPECT_EQ(ReasonOf(client_->Backup(path + "-no/such").status()), "STORE_UNUSABLE");
  EXPECT_TRUE(client_->CommitNext({{1, "one"}}).ok());
}

TEST_P(StoreContractTest, BackupBeforeOpenIsRefused) {
  const std::string path = harness_->BackupPath();
  if (path.empty()) GTEST_SKIP() << "this store makes no backups";
  StoreClient client(harness_->Make());
  EXPECT_EQ(ReasonOf(client.Backup(path).status()), "STORE_NOT_OPEN");
}

}  // namespace cxlpool::fm

#endif  // CXLPOOL_TEST_CONTRACT_STORE_CONTRACT_H_
