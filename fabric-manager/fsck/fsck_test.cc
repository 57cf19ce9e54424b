// fsck on databases as they are found: sound, of the first release, in use, damaged in each way.

#include "fabric-manager/fsck/fsck.h"

#include <google/protobuf/message.h>
#include <google/protobuf/unknown_field_set.h>
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cxlpool/store/v1/record.pb.h"
#include "fabric-manager/adapters/store_sqlite/sqlite_store.h"
#include "fabric-manager/model/pool/pool_state.h"
#include "fabric-manager/service/record_codec.h"
#include "proto/support/refusal.h"
#include "test/contract/store_client.h"

namespace cxlpool::fm {
namespace {

namespace fs = std::filesystem;

class FsckTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "cxlpool-fsck-XXXXXX").string();
    directory_ = mkdtemp(pattern.data());
    path_ = directory_ + "/pool.db";
    fs::copy_file(std::string(CXLPOOL_STORES) + "/first-release.db", path_);
    fs::permissions(path_, fs::perms::owner_read | fs::perms::owner_write);
  }
  void TearDown() override { fs::remove_all(directory_); }

  std::unique_ptr<StoreClient> Client() {
    SqliteStoreOptions options;
    options.path = path_;
    return std::make_unique<StoreClient>(*MakeSqliteStore(options));
  }

  // As the manager does at its start. Answers the records.
  std::map<uint64_t, store::v1::Record> OpenAsManager() {
    std::map<uint64_t, store::v1::Record> records;
    const absl::StatusOr<StoreImage> image = Client()->Open();
    EXPECT_TRUE(image.ok()) << image.status();
    if (!image.ok()) return records;
    Change devices, others;
    for (const Row& row : image->rows) {
      records[row.key].ParseFromString(row.value);
      auto decoded = DecodeRecord(row.key, row.value);
      EXPECT_TRUE(decoded.ok()) << decoded.status();
      if (!decoded.ok() || !std::holds_alternative<Item>(*decoded)) continue;
      Item& item = std::get<Item>(*decoded);
      if (std::holds_alternative<AuditRowPtr>(item)) continue;  // No part of the pool.
      (std::holds_alternative<Device>(item) ? devices : others).push_back(std::move(item));
    }
    PoolState state;
    EXPECT_TRUE(state.Apply(devices).ok());
    const auto applied = state.Apply(others);
    EXPECT_TRUE(applied.ok()) << applied.status();
    return records;
  }

  // Moves the copy to this release's schema.
  void Migrate() { ASSERT_TRUE(Client()->Open().ok()); }

  void Sql(const std::string& sql) {
    sqlite3* db = nullptr;
    ASSERT_EQ(sqlite3_open(path_.c_str(), &db), SQLITE_OK);
    EXPECT_EQ(sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK)
        << sqlite3_errmsg(db);
    sqlite3_close(db);
  }

  // Changes records through the store, so that the file itself is sound.
  void Edit(uint64_t key, const std::function<void(store::v1::Record&)>& change) {
    auto client = Client();
    const auto image = client->Open();
    ASSERT_TRUE(image.ok());
    for (const Row& row : image->rows) {
      if (row.key != key) continue;
      store::v1::Record record;
      ASSERT_TRUE(record.ParseFromString(row.value));
      change(record);
      ASSERT_TRUE(client->CommitNext({{key, record.SerializeAsString()}}).ok());
    }
  }

  std::string Bytes(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }

  absl::StatusOr<FsckReport> Run(bool repair = false) {
    return RunFsck(path_, repair, absl::FromUnixSeconds(1'800'000'000));
  }

  // Finds something, repairs it, and leaves a database that the manager opens and fsck likes.
  std::map<uint64_t, store::v1::Record> ExpectRepairs() {
    const std::string before = Bytes(path_);
    const auto found = Run();
    EXPECT_TRUE(found.ok()) << found.status();
    if (!found.ok()) return {};
    EXPECT_FALSE(found->findings.empty());
    EXPECT_EQ(found->copy, "");
    EXPECT_EQ(Bytes(path_), before) << "checking changes nothing";
    EXPECT_FALSE(fs::exists(path_ + "-wal")) << "and leaves nothing";
    const auto repaired = Run(/*repair=*/true);
    EXPECT_TRUE(repaired.ok()) << repaired.status();
    if (!repaired.ok()) return {};
    EXPECT_EQ(repaired->findings.size(), found->findings.size());
    EXPECT_EQ(repaired->copy, path_ + ".before-fsck");
    EXPECT_TRUE(fs::exists(repaired->copy));
    const auto again = Run();
    EXPECT_TRUE(again.ok()) << again.status();
    if (again.ok()) {
      for (const FsckFinding& finding : again->findings) {
        ADD_FAILURE() << "after the repair: " << finding.key << ": " << finding.what;
      }
    }
    return OpenAsManager();
  }

  std::string directory_, path_;
};

TEST_F(FsckTest, FirstReleasesDatabaseIsSoundBeforeAndAfterItIsMovedOver) {
  auto report = Run();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->schema, 1);
  EXPECT_EQ(report->records, 15u);
  EXPECT_EQ(report->regions, 6u);
  EXPECT_EQ(report->revision, 63u);
  for (const FsckFinding& finding : report->findings) ADD_FAILURE() << finding.key << finding.what;
  Migrate();
  report = Run(/*repair=*/true);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->schema, 3);
  EXPECT_TRUE(report->findings.empty());
  EXPECT_EQ(report->copy, "") << "nothing to repair";
  const auto records = OpenAsManager();
  EXPECT_EQ(records.at(22).region().id(), "kv");
  EXPECT_EQ(records.at(44).region().extents_size(), 2);
}

TEST_F(FsckTest, DatabaseInUseIsLeftAlone) {
  auto client = Client();
  ASSERT_TRUE(client->Open().ok());
  EXPECT_EQ(ReasonOf(Run().status()), "STORE_BUSY");
  EXPECT_EQ(ReasonOf(Run(true).status()), "STORE_BUSY");
  EXPECT_TRUE(client->CommitNext({{5000, "x"}}).ok());
}

TEST_F(FsckTest, NoDatabaseAtAll) {
  fs::remove(path_);
  EXPECT_EQ(ReasonOf(Run().status()), "STORE_MISSING");
  EXPECT_FALSE(fs::exists(path_));
}

TEST_F(FsckTest, BackupIsCheckedAsItIs) {
  {
    auto client = Client();
    ASSERT_TRUE(client->Open().ok());
    ASSERT_TRUE(client->Backup(directory_ + "/backup.db").ok());
  }
  path_ = directory_ + "/backup.db";
  const auto report = Run();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_TRUE(report->findings.empty());
}

TEST_F(FsckTest, OverlappingRegionsAreQuarantined) {
  Edit(44, [](auto& record) { record.mutable_region()->mutable_extents(1)->set_dpa_bytes(0); });
  const auto records = ExpectRepairs();
  EXPECT_EQ(records.at(22).region().state(), 6u);
  EXPECT_EQ(records.at(22).region().attachments_size(), 1);
  EXPECT_EQ(records.at(44).region().state(), 6u);
  EXPECT_EQ(records.at(44).region().attachments_size(), 0);
  EXPECT_EQ(records.at(44).region().extents_size(), 1);
}

TEST_F(FsckTest, RecordThatFailsItsChecksumIsSetAside) {
  for (const bool old : {true, false}) {
    if (!old) {
      TearDown();
      SetUp();
      Migrate();
    }
    std::string bytes = Bytes(path_);
    const size_t at = bytes.find("archive");
    ASSERT_NE(at, std::string::npos);
    bytes[at] = 'A';
    std::ofstream(path_, std::ios::binary) << bytes;
    const auto records = ExpectRepairs();
    EXPECT_FALSE(records.contains(42)) << "archive";
    EXPECT_EQ(records.at(22).region().id(), "kv");
    EXPECT_EQ(Run()->set_aside_before, 1u);
  }
}

TEST_F(FsckTest, LostRecordsAreFoundByTheirSum) {
  Migrate();
  Sql("UPDATE packs SET body = CAST(substr(body, 1, 56) AS BLOB);");  // The first: 16 and 40 bytes.
  const auto records = ExpectRepairs();
  EXPECT_TRUE(records.contains(1));
}

// The way to the records is broken, and nothing else: no byte may look free for that.
TEST_F(FsckTest, ABrokenSchemaLosesNothing) {
  Migrate();
  const auto before = OpenAsManager();
  std::string bytes = Bytes(path_);
  for (const char* table : {"CREATE TABLE packs", "CREATE TABLE meta"}) {
    const size_t at = bytes.find(table);
    ASSERT_NE(at, std::string::npos);
    bytes[at + 3] = '#';
  }
  std::ofstream(path_, std::ios::binary) << bytes;
  EXPECT_EQ(ReasonOf(Client()->Open().status()), "STORE_CORRUPT");
  const auto records = ExpectRepairs();
  ASSERT_EQ(records.size(), before.size());
  for (const auto& [key, record] : before) {
    EXPECT_EQ(records.at(key).SerializeAsString(), record.SerializeAsString()) << key;
  }
}

// Nothing can be read: what comes of it may give nothing away, though there is no device to hold.
TEST_F(FsckTest, WhereEveryRecordIsLostEveryDeviceIsHeld) {
  Migrate();
  std::string bytes = Bytes(path_);
  for (size_t page = 1; page * 4096 < bytes.size(); ++page) {
    bytes.replace(page * 4096, 4096, std::string(4096, '\x7f'));
  }
  std::ofstream(path_, std::ios::binary) << bytes;
  const auto records = ExpectRepairs();
  ASSERT_EQ(records.size(), 3u);
  EXPECT_TRUE(std::next(records.begin())->second.has_role_binding()) << "of nobody";
  EXPECT_TRUE(records.rbegin()->second.has_audit_row()) << "what was repaired";
  EXPECT_NE(records.at(1).pool().hold_reason(), "");
  EXPECT_GT(records.at(1).pool().next_id(), 1'000'000u);
}

TEST_F(FsckTest, ADeviceWhoseRecordIsLostIsHeldWhenItComesBack) {
  Migrate();
  std::string bytes = Bytes(path_);
  const size_t at = bytes.find("cmm-1");  // Of the device's record, which is the first to name it.
  ASSERT_NE(at, std::string::npos);
  bytes[at] = 'C';
  std::ofstream(path_, std::ios::binary) << bytes;
  const auto records = ExpectRepairs();
  EXPECT_NE(records.at(1).pool().hold_reason(), "");
}

// Etags, watches and plans go by these numbers.
TEST_F(FsckTest, RevisionsAndEpochsAreNotGivenOutAgain) {
  Migrate();
  const auto before = Client()->Open();
  ASSERT_TRUE(before.ok());
  Sql("DELETE FROM meta");
  ExpectRepairs();
  auto after = Client()->Open();
  ASSERT_TRUE(after.ok());
  EXPECT_GT(after->revision, before->revision);
  EXPECT_GT(after->epoch, before->epoch + 1);
  // Also where the records alone know of them.
  for (const char* suffix : {"", "-wal", "-head"}) fs::remove(path_ + ".before-fsck" + suffix);
  Edit(22, [](auto& record) { record.mutable_region()->set_revision(90'000'000); });
  Sql("DELETE FROM meta");
  fs::remove(path_ + "-head");
  ExpectRepairs();
  after = Client()->Open();
  ASSERT_TRUE(after.ok());
  EXPECT_GT(after->revision, 90'000'000u);
}

// The log is gone, and with it changes: what the database knows may no longer be so.
TEST_F(FsckTest, WhereChangesAreMissingEveryRegionIsHeldForAnOperator) {
  Migrate();
  const std::string killed = directory_ + "/killed";
  {
    auto client = Client();
    ASSERT_TRUE(client->Open().ok());
    ASSERT_TRUE(client->CommitNext({}, {22}).ok());  // "kv" goes.
    fs::create_directory(killed);
    fs::copy(path_, killed + "/pool.db");
    fs::copy(path_ + "-head", killed + "/pool.db-head");
  }
  fs::permissions(killed, fs::perms::owner_all);
  path_ = killed + "/pool.db";
  EXPECT_EQ(ReasonOf(Client()->Open().status()), "STORE_INCOMPLETE");
  fs::remove(path_ + "-wal");  // Of no bytes; looking made it.
  const auto found = Run();
  ASSERT_TRUE(found.ok()) << found.status();
  ASSERT_FALSE(found->findings.empty());
  EXPECT_TRUE(absl::StrContains(found->findings[0].what, "STORE_INCOMPLETE"))
      << found->findings[0].what;
  const auto records = ExpectRepairs();
  int regions = 0;
  for (const auto& [key, record] : records) {
    if (!record.has_region()) continue;
    ++regions;
    EXPECT_EQ(record.region().state(), 6u) << record.region().id();
  }
  EXPECT_GT(regions, 6);
  EXPECT_EQ(records.at(22).region().id(), "kv")
      << "it came back, and cannot be released by its user";
  EXPECT_NE(records.at(1).pool().hold_reason(), "");
}

TEST_F(FsckTest, LostOrForgedMetaRowIsMadeAgain) {
  for (const char* damage : {"DELETE FROM meta", "UPDATE meta SET revision = 9e18"}) {
    TearDown();
    SetUp();
    Migrate();
    Sql(damage);
    const auto records = ExpectRepairs();
    EXPECT_EQ(records.at(22).region().id(), "kv") << damage;
  }
}

TEST_F(FsckTest, BrokenPackKeepsWhatCanBeRead) {
  Migrate();
  Sql("UPDATE packs SET body = CAST(substr(body, 1, length(body) - 5) AS BLOB)"
      " WHERE first = (SELECT max(first) FROM packs);");
  const auto records = ExpectRepairs();
  EXPECT_EQ(records.at(22).region().id(), "kv");
}

TEST_F(FsckTest, FileThatIsNoDatabaseCannotBeChecked) {
  std::ofstream(path_, std::ios::binary) << std::string(20000, '#');
  EXPECT_EQ(ReasonOf(Run(true).status()), "STORE_CORRUPT");
}

TEST_F(FsckTest, DamagedPagesGiveUpTheirRecordsAlone) {
  Migrate();
  {
    auto client = Client();
    ASSERT_TRUE(client->Open().ok());
    std::vector<Row> puts;
    for (uint64_t key = 5000; key < 8000; ++key) {
      store::v1::Record record;
      record.mutable_host()->set_id(absl::StrCat("h", key));
      record.mutable_host()->set_identity(absl::StrCat("cxlpool://host/h", key));
      record.mutable_host()->set_retired(true);
      puts.push_back({key, record.SerializeAsString()});
    }
    ASSERT_TRUE(client->CommitNext(std::move(puts)).ok());
  }
  Edit(1, [](auto& record) { record.mutable_pool()->set_next_id(9000); });
  std::string bytes = Bytes(path_);
  const size_t at = bytes.find("cxlpool://host/h6500") / 4096 * 4096;
  bytes.replace(at, 100, std::string(100, '\x7f'));  // The page's header and pointers.
  std::ofstream(path_, std::ios::binary) << bytes;
  const auto records = ExpectRepairs();
  EXPECT_GT(records.size(), 2500u);
  EXPECT_TRUE(records.contains(7999)) << "from behind the damage, too";
}

TEST_F(FsckTest, EarlierCopyIsNeverOverwritten) {
  Edit(44, [](auto& record) { record.mutable_region()->mutable_extents(1)->set_dpa_bytes(0); });
  std::ofstream(path_ + ".before-fsck") << "an earlier one";
  const std::string before = Bytes(path_);
  EXPECT_EQ(ReasonOf(Run(true).status()), "BACKUP_EXISTS");
  EXPECT_EQ(Bytes(path_), before);
  EXPECT_EQ(Bytes(path_ + ".before-fsck"), "an earlier one");
}

TEST_F(FsckTest, AnotherUsersDatabaseIsToBeCheckedAsThatUser) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a file to another user";
  ASSERT_EQ(chown(directory_.c_str(), 65534, 65534), 0);
  const absl::Status status = Run().status();
  EXPECT_EQ(ReasonOf(status), "STORE_UNSAFE_PATH") << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "`runuser -u nobody --`")) << status;
}

TEST_F(FsckTest, LaterReleasesRecordsAreLeftAlone) {
  Edit(1, [](auto& record) { record.mutable_pool()->set_schema_version(99); });
  EXPECT_EQ(ReasonOf(Run(true).status()), "STORE_TOO_NEW");
  // Of fields and of kinds of records this one does not know it would make damage.
  for (const bool of_a_field : {true, false}) {
    TearDown();
    SetUp();
    Edit(22, [&](auto& record) {
      if (of_a_field) {
        auto& region = *record.mutable_region();
        region.GetReflection()->MutableUnknownFields(&region)->AddVarint(900, 1);
      } else {
        const std::string message = record.region().SerializeAsString();
        record.Clear();
        record.GetReflection()->MutableUnknownFields(&record)->AddLengthDelimited(11, message);
      }
    });
    const std::string before = Bytes(path_);
    EXPECT_EQ(ReasonOf(Run(true).status()), "STORE_TOO_NEW") << of_a_field;
    EXPECT_EQ(Bytes(path_), before);
    EXPECT_FALSE(fs::exists(path_ + ".before-fsck"));
  }
}

TEST_F(FsckTest, WhatWasSetAsideStaysThroughLaterRepairs) {
  Edit(44, [](auto& record) { record.mutable_region()->mutable_extents(1)->set_dpa_bytes(0); });
  ExpectRepairs();
  for (const char* suffix : {"", "-wal", "-head"}) fs::remove(path_ + ".before-fsck" + suffix);
  Edit(40, [](auto& record) { record.mutable_region()->set_state(77); });
  ExpectRepairs();
  EXPECT_EQ(Run()->set_aside_before, 2u);
}

}  // namespace
}  // namespace cxlpool::fm
