#include "fabric-manager/adapters/store_sqlite/sqlite_store.h"

#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "proto/support/refusal.h"
#include "test/contract/store_client.h"
#include "test/store/disk_faults.h"

namespace cxlpool::fm {
namespace {

namespace fs = std::filesystem;

class SqliteStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "cxlpool-sqlite-XXXXXX").string();
    directory_ = mkdtemp(pattern.data());
    options_.path = directory_ + "/pool.db";
  }
  void TearDown() override { fs::remove_all(directory_); }

  std::unique_ptr<StoreClient> Client() {
    auto store = MakeSqliteStore(options_);
    EXPECT_TRUE(store.ok()) << store.status();
    return std::make_unique<StoreClient>(*std::move(store));
  }

  // Opens and closes.
  absl::StatusOr<StoreImage> OpenOnce() { return Client()->Open(); }

  // A closed database of `rows` records "record N value".
  void Fill(uint64_t rows) {
    auto client = Client();
    ASSERT_TRUE(client->Open().ok());
    std::vector<Row> puts;
    for (uint64_t key = 1; key <= rows; ++key) {
      puts.push_back({key, absl::StrCat("record ", key, " value")});
    }
    ASSERT_TRUE(client->CommitNext(std::move(puts)).ok());
  }

  // Changes the closed database behind the store's back.
  void Sql(const std::string& sql) {
    sqlite3* db = nullptr;
    ASSERT_EQ(sqlite3_open(options_.path.c_str(), &db), SQLITE_OK);
    EXPECT_EQ(sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK)
        << sqlite3_errmsg(db);
    sqlite3_close(db);
  }

  std::string Bytes() {
    std::ifstream in(options_.path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }

  void WriteBytes(const std::string& bytes) {
    std::ofstream(options_.path, std::ios::binary) << bytes;
  }

  std::string directory_;
  SqliteStoreOptions options_;
};

TEST_F(SqliteStoreTest, FilesAreForTheOwnerAlone) {
  auto client = Client();
  ASSERT_TRUE(client->Open().ok());
  ASSERT_TRUE(client->CommitNext({{1, "one"}}).ok());
  int files = 0;
  for (const auto& entry : fs::directory_iterator(directory_)) {
    struct stat found;
    ASSERT_EQ(stat(entry.path().c_str(), &found), 0);
    EXPECT_EQ(found.st_mode & 0777, 0600u) << entry.path();
    ++files;
  }
  EXPECT_EQ(files, 3);  // The database, its log and its head file; no shared memory.
}

TEST_F(SqliteStoreTest, SecondManagerIsKeptOutAndToldWhatToDo) {
  auto first = Client();
  ASSERT_TRUE(first->Open().ok());
  const auto second = OpenOnce();
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ReasonOf(second.status()), "STORE_BUSY");
  EXPECT_NE(second.status().message().find("stop the other manager"), absl::string_view::npos);
  EXPECT_TRUE(first->CommitNext({{1, "one"}}).ok());
  first.reset();
  EXPECT_TRUE(OpenOnce().ok());
}

TEST_F(SqliteStoreTest, FlippedByteOfAValueIsCaughtAndNamed) {
  Fill(100);
  std::string bytes = Bytes();
  const size_t at = bytes.find("record 57 value");
  ASSERT_NE(at, std::string::npos);
  bytes[at + 7] ^= 1;
  WriteBytes(bytes);
  const auto image = OpenOnce();
  EXPECT_EQ(image.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(ReasonOf(image.status()), "STORE_CORRUPT");
  EXPECT_NE(image.status().message().find("record 57 "), absl::string_view::npos) << image.status();
  EXPECT_EQ(Bytes(), bytes) << "a damaged database must be left as it is";
}

// Flips one bit in every 17th byte in turn: the store opens with exactly what was stored, or says
// that it is damaged. It never opens with something else.
TEST_F(SqliteStoreTest, NoFlippedBitPassesUnnoticed) {
  Fill(40);
  const std::string good = Bytes();
  const auto stored = OpenOnce();
  ASSERT_TRUE(stored.ok());
  int caught = 0, harmless = 0;
  for (size_t at = 0; at < good.size(); at += 17) {
    std::string bad = good;
    bad[at] ^= static_cast<char>(1 << (at % 8));
    WriteBytes(bad);
    const auto image = OpenOnce();
    if (!image.ok()) {
      ++caught;
      EXPECT_NE(ReasonOf(image.status()), "") << image.status();
      continue;
    }
    ++harmless;  // Space that no record uses.
    ASSERT_EQ(image->rows.size(), stored->rows.size()) << "byte " << at;
    for (size_t i = 0; i < image->rows.size(); ++i) {
      ASSERT_EQ(image->rows[i].key, stored->rows[i].key) << "byte " << at;
      ASSERT_EQ(image->rows[i].value, stored->rows[i].value) << "byte " << at;
    }
  }
  EXPECT_GT(caught, 50);
  RecordProperty("caught", caught);
  RecordProperty("harmless", harmless);
}

TEST_F(SqliteStoreTest, ValuesSwappedBetweenKeysAreCaught) {
  Fill(3);
  std::string bytes = Bytes();
  const size_t one = bytes.find("record 1 value"), two = bytes.find("record 2 value");
  std::swap(bytes[one + 7], bytes[two + 7]);
  WriteBytes(bytes);
  EXPECT_EQ(ReasonOf(OpenOnce().status()), "STORE_CORRUPT");
}

TEST_F(SqliteStoreTest, LostRecordIsCaught) {
  Fill(3);
  // Its entry: 16 bytes of header and "record 2 value".
  Sql("UPDATE packs SET body = CAST(substr(body, 1, 30) || substr(body, 61) AS BLOB);");
  const auto image = OpenOnce();
  EXPECT_EQ(ReasonOf(image.status()), "STORE_CORRUPT");
  EXPECT_NE(image.status().message().find("2 records where 3"), absl::string_view::npos)
      << image.status();
}

TEST_F(SqliteStoreTest, LostPackIsCaught) {
  Fill(1000);
  Sql("DELETE FROM packs WHERE first = (SELECT max(first) FROM packs);");
  EXPECT_EQ(ReasonOf(OpenOnce().status()), "STORE_CORRUPT");
}

TEST_F(SqliteStoreTest, RecordFromThePastIsCaught) {
  Fill(3);
  Sql("CREATE TABLE old AS SELECT * FROM packs;");
  {
    auto client = Client();
    ASSERT_TRUE(client->Open().ok());
    ASSERT_TRUE(client->CommitNext({{2, "changed"}}).ok());
  }
  Sql("UPDATE packs SET body = (SELECT body FROM old);");
  EXPECT_EQ(ReasonOf(OpenOnce().status()), "STORE_CORRUPT");
}

TEST_F(SqliteStoreTest, PacksOutOfOrderAreCaught) {
  Fill(1000);
  // Every record is there with its checksum, but not where a change would look for it.
  Sql("UPDATE packs SET first = first + 100000 WHERE first = 1;");
  EXPECT_EQ(ReasonOf(OpenOnce().status()), "STORE_CORRUPT");
}

TEST_F(SqliteStoreTest, ChangedMetaRowIsCaught) {
  Fill(3);
  Sql("UPDATE meta SET revision = 7;");
  EXPECT_EQ(ReasonOf(OpenOnce().status()), "STORE_CORRUPT");
  Sql("DELETE FROM meta;");
  EXPECT_EQ(ReasonOf(OpenOnce().status()), "STORE_CORRUPT");
  Sql("DROP TABLE meta;");
  EXPECT_EQ(ReasonOf(OpenOnce().status()), "STORE_CORRUPT");
}

TEST_F(SqliteStoreTest, TruncatedOrForeignFileIsRefused) {
  Fill(500);
  const std::string good = Bytes();
  WriteBytes(good.substr(0, good.size() / 2));
  EXPECT_EQ(ReasonOf(OpenOnce().status()), "STORE_CORRUPT");
  WriteBytes("[manager]\nlisten = \"unix:/run/cxlpool/fm.sock\"\n" + std::string(5000, '#'));
  EXPECT_EQ(ReasonOf(OpenOnce().status()), "STORE_CORRUPT");
  fs::remove(options_.path);
  Sql("CREATE TABLE people (name TEXT); PRAGMA application_id = 77;");
  fs::permissions(options_.path, fs::perms::owner_read | fs::perms::owner_write);
  EXPECT_EQ(ReasonOf(OpenOnce().status()), "STORE_FOREIGN");
}

TEST_F(SqliteStoreTest, LaterReleasesDatabaseIsRefusedAndLeftAlone) {
  Fill(3);
  Sql("PRAGMA user_version = 99;");
  const std::string before = Bytes();
  const auto image = OpenOnce();
  EXPECT_EQ(image.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ReasonOf(image.status()), "STORE_TOO_NEW");
  EXPECT_EQ(Bytes(), before);
}

TEST_F(SqliteStoreTest, OpenCanBeTriedAgainOnceTheOtherIsGone) {
  auto first = Client();
  ASSERT_TRUE(first->Open().ok());
  auto second = Client();
  EXPECT_FALSE(second->Open().ok());
  first.reset();
  EXPECT_TRUE(second->Open().ok());
  EXPECT_TRUE(second->CommitNext({{1, "one"}}).ok());
}

TEST_F(SqliteStoreTest, FullDiskRefusesChangesUntilThereIsSpace) {
  DiskSwitches faults;
  options_.vfs = kWatchedVfs;
  auto client = Client();
  ASSERT_TRUE(client->Open().ok());
  ASSERT_TRUE(client->CommitNext({{1, "one"}}).ok());
  faults.disk_is_full = true;
  const absl::Status full = client->CommitNext({{2, std::string(100000, 'x')}});
  EXPECT_EQ(ReasonOf(full), "STORE_FULL") << full;
  const auto refusal = RefusalOf(full);
  ASSERT_TRUE(refusal.has_value());
  const std::string folder = std::filesystem::path(options_.path).parent_path();
  EXPECT_EQ(refusal->metadata,
            (std::vector<std::pair<std::string, std::string>>{{"folder", folder}}));
  faults.disk_is_full = false;
  EXPECT_TRUE(client->CommitNext({{3, "three"}}).ok());
  client.reset();
  const auto image = OpenOnce();
  ASSERT_TRUE(image.ok()) << image.status();
  EXPECT_EQ(image->rows.size(), 2u);
}

TEST_F(SqliteStoreTest, ErasingWorksOnAFullDisk) {
  DiskSwitches faults;
  options_.vfs = kWatchedVfs;
  auto client = Client();
  ASSERT_TRUE(client->Open().ok());
  for (uint64_t key = 1; key <= 50; ++key) {
    ASSERT_TRUE(client->CommitNext({{key, std::string(2000, 'x')}}).ok());
  }
  faults.log_is_full = true;
  for (uint64_t key = 1; key <= 50; ++key) {
    ASSERT_TRUE(client->CommitNext({}, {key}).ok()) << key;
  }
}

TEST_F(SqliteStoreTest, FailedSyncIsAnUnknownOutcomeAndStopsTheStore) {
  DiskSwitches faults;
  options_.vfs = kWatchedVfs;
  auto client = Client();
  ASSERT_TRUE(client->Open().ok());
  ASSERT_TRUE(client->CommitNext({{1, "one"}}).ok());
  faults.sync_fails = true;
  const absl::Status failed = client->Commit(client->Next({{2, "two"}}));
  EXPECT_EQ(failed.code(), absl::StatusCode::kDataLoss) << failed;
  EXPECT_EQ(ReasonOf(failed), "STORE_IO");
  faults.sync_fails = false;
  EXPECT_EQ(client->Commit(client->Next({{3, "three"}})).code(), absl::StatusCode::kDataLoss);
  client.reset();
  const auto image = OpenOnce();
  ASSERT_TRUE(image.ok()) << image.status();
  // Either is right for row 2; row 1 was acknowledged and row 3 refused.
  ASSERT_GE(image->rows.size(), 1u);
  ASSERT_LE(image->rows.size(), 2u);
  EXPECT_EQ(image->rows[0].value, "one");
  if (image->rows.size() == 2) {
    EXPECT_EQ(image->rows[1].value, "two");
  }
}

// A power cut would lose the log, with every commit in it.
TEST_F(SqliteStoreTest, LogWhoseNameIsNotDurableIsNotUsed) {
  Fill(3);
  ASSERT_FALSE(fs::exists(options_.path + "-wal"));
  DiskSwitches faults;
  options_.vfs = kWatchedVfs;
  faults.directory_sync_fails = true;
  const auto image = OpenOnce();
  EXPECT_EQ(ReasonOf(image.status()), "STORE_UNUSABLE") << image.status();
  faults.directory_sync_fails = false;
  EXPECT_EQ(OpenOnce()->rows.size(), 3u);
}

TEST_F(SqliteStoreTest, HungDiskIsAnsweredAtTheDeadline) {
  DiskSwitches faults;
  options_.vfs = kWatchedVfs;
  options_.commit_deadline = absl::Milliseconds(100);
  auto client = Client();
  ASSERT_TRUE(client->Open().ok());
  faults.sync_hangs = true;
  auto hung = client->Start(client->Next({{1, "one"}}));
  EXPECT_EQ(ReasonOf(StoreClient::Wait(hung)), "STORE_STUCK");
  EXPECT_EQ(ReasonOf(client->Commit(client->Next({{3, "three"}}))), "STORE_STUCK");
  faults.sync_hangs = false;
  faults.sync_hangs.notify_all();
}

// Between two commits: nobody would hear of it until the next.
TEST_F(SqliteStoreTest, DiskThatFailsBetweenCommitsIsSaidAtOnce) {
  DiskSwitches faults;
  options_.vfs = kWatchedVfs;
  options_.checkpoint_pages = 4;
  options_.checkpoint_idle = absl::Milliseconds(200);
  auto client = Client();
  ASSERT_TRUE(client->Open().ok());
  ASSERT_TRUE(client->CommitNext({{1, std::string(30000, 'x')}}).ok());
  faults.sync_fails = true;
  const absl::Status lost = client->WaitLost();
  EXPECT_EQ(ReasonOf(lost), "STORE_IO") << lost;
  faults.sync_fails = false;
  EXPECT_EQ(ReasonOf(client->CommitNext({{2, "two"}})), "STORE_IO");
}

TEST_F(SqliteStoreTest, LogStaysSmall) {
  options_.checkpoint_pages = 16;
  options_.checkpoint_idle = absl::Milliseconds(1);
  auto client = Client();
  ASSERT_TRUE(client->Open().ok());
  for (uint64_t i = 0; i < 400; ++i) {
    ASSERT_TRUE(client->CommitNext({{1 + i % 50, std::string(500, 'x')}}).ok());
  }
  EXPECT_LT(fs::file_size(options_.path + "-wal"), 150u * 4096u);
}

TEST_F(SqliteStoreTest, DestructionServesWhatWasAskedFor) {
  for (uint64_t key = 1; key <= 20; ++key) {
    auto client = Client();
    ASSERT_TRUE(client->Open().ok());
    auto commit = client->Start(client->Next({{key, "x"}}));
    client.reset();
    EXPECT_TRUE(StoreClient::Wait(commit).ok());
  }
  EXPECT_EQ(OpenOnce()->rows.size(), 20u);
}

class MigrationTest : public SqliteStoreTest {
 protected:
  void CopyOf(const std::string& name) {
    fs::copy_file(std::string(CXLPOOL_STORES) + "/" + name, options_.path);
    fs::permissions(options_.path, fs::perms::owner_read | fs::perms::owner_write);
  }
  // What the first release's database holds, read without the store.
  std::map<uint64_t, std::string> RowsOfFirstRelease() {
    std::map<uint64_t, std::string> rows;
    sqlite3* db = nullptr;
    sqlite3_open(options_.path.c_str(), &db);
    sqlite3_exec(
        db, "SELECT key, hex(value) FROM records",
        [](void* to, int, char** columns, char**) {
          std::string& value = (*static_cast<decltype(&rows)>(to))[std::stoull(columns[0])];
          value = absl::HexStringToBytes(columns[1]);
          return 0;
        },
        &rows, nullptr);
    sqlite3_close(db);
    return rows;
  }
};

TEST_F(MigrationTest, FirstReleasesDatabaseOpensWithEveryRecord) {
  CopyOf("first-release.db");
  const auto before = RowsOfFirstRelease();
  ASSERT_EQ(before.size(), 15u);
  for (int open = 0; open < 2; ++open) {  // Moved over once, and then as ever.
    const auto image = OpenOnce();
    ASSERT_TRUE(image.ok()) << image.status();
    EXPECT_EQ(image->revision, 63u);
    EXPECT_EQ(image->epoch, 2u + open);
    EXPECT_EQ(RowsOf(*image), before);
  }
  auto client = Client();
  ASSERT_TRUE(client->Open().ok());
  EXPECT_TRUE(client->CommitNext({{22, "changed"}, {1000, "new"}}, {26}).ok());
  client.reset();
  EXPECT_EQ(OpenOnce()->rows.size(), 15u);
}

TEST_F(MigrationTest, DamagedOldDatabaseIsRefusedAndLeftAsItWas) {
  for (const char* damage :
       {"UPDATE records SET value = x'00' WHERE key = 22;", "DELETE FROM records WHERE key = 22;",
        "UPDATE meta SET row_count = 14;", "DROP TABLE records;"}) {
    CopyOf("first-release.db");
    Sql(damage);
    const std::string before = Bytes();
    EXPECT_EQ(ReasonOf(OpenOnce().status()), "STORE_CORRUPT") << damage;
    EXPECT_EQ(Bytes(), before) << damage;
    fs::remove(options_.path);
  }
}

TEST_F(MigrationTest, OldDatabaseWithoutSpaceToMigrateStaysAsItWas) {
  CopyOf("first-release.db");
  options_.max_size_bytes = 3 * 4096;
  EXPECT_EQ(ReasonOf(OpenOnce().status()), "STORE_FULL");
  options_.max_size_bytes = 1 << 20;
  EXPECT_EQ(OpenOnce()->rows.size(), 15u);
}

TEST_F(SqliteStoreTest, BackupWithoutSpaceLeavesNothingBehind) {
  Fill(2000);
  DiskSwitches faults;
  options_.vfs = kWatchedVfs;
  auto client = Client();
  ASSERT_TRUE(client->Open().ok());
  faults.disk_is_full = true;
  const std::string path = directory_ + "/backup.db";
  EXPECT_EQ(ReasonOf(client->Backup(path).status()), "STORE_FULL");
  faults.disk_is_full = false;
  for (const auto& entry : fs::directory_iterator(directory_)) {
    EXPECT_EQ(entry.path().filename().string().find("backup"), std::string::npos) << entry.path();
  }
  EXPECT_TRUE(client->CommitNext({{5000, "goes on"}}).ok());
  EXPECT_EQ(client->Backup(path)->revision, 2u);
}

TEST_F(SqliteStoreTest, LateBackupIsGivenUpAndLeavesNothingBehind) {
  Fill(100);
  options_.backup_deadline = absl::ZeroDuration();
  auto client = Client();
  ASSERT_TRUE(client->Open().ok());
  const absl::Status late = client->Backup(directory_ + "/backup.db").status();
  EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(ReasonOf(late), "BACKUP_TIMEOUT");
  EXPECT_FALSE(fs::exists(directory_ + "/backup.db"));
}

TEST_F(SqliteStoreTest, BackupBehindAHungDiskIsAnsweredAtItsDeadline) {
  Fill(100);
  DiskSwitches faults;
  options_.vfs = kWatchedVfs;
  options_.commit_deadline = absl::Milliseconds(100);
  options_.backup_deadline = absl::Milliseconds(100);
  auto client = Client();
  ASSERT_TRUE(client->Open().ok());
  faults.sync_hangs = true;
  auto hung = client->Start(client->Next({{1, "one"}}));
  auto backup = client->StartBackup(directory_ + "/backup.db");
  EXPECT_EQ(ReasonOf(StoreClient::WaitBackup(backup).status()), "BACKUP_TIMEOUT");
  EXPECT_EQ(ReasonOf(StoreClient::Wait(hung)), "STORE_STUCK");
  faults.sync_hangs = false;
  faults.sync_hangs.notify_all();
  client.reset();
  EXPECT_FALSE(fs::exists(directory_ + "/backup.db"));
}

TEST_F(SqliteStoreTest, ClosingAnswersTheBackup) {
  Fill(60000);
  auto client = Client();
  ASSERT_TRUE(client->Open().ok());
  auto backup = client->StartBackup(directory_ + "/backup.db");
  client.reset();
  const auto answer = StoreClient::WaitBackup(backup);
  EXPECT_EQ(fs::exists(directory_ + "/backup.db"), answer.ok()) << answer.status();
  for (const auto& entry : fs::directory_iterator(directory_)) {
    EXPECT_EQ(entry.path().string().find(".part-"), std::string::npos) << entry.path();
  }
}

}  // namespace
}  // namespace cxlpool::fm
