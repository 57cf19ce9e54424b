// A store that lacks something acknowledged is refused, whichever of its files was damaged; a store
// that lacks nothing opens.

#include "fabric-manager/adapters/store_sqlite/store_end.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "fabric-manager/adapters/store_sqlite/salvage.h"
#include "fabric-manager/adapters/store_sqlite/sqlite_store.h"
#include "proto/support/refusal.h"
#include "test/contract/store_client.h"
#include "test/store/disk_faults.h"

namespace cxlpool::fm {
namespace {

namespace fs = std::filesystem;

constexpr size_t kFrame = 24 + 4096;

class StoreEndTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "cxlpool-end-XXXXXX").string();
    directory_ = mkdtemp(pattern.data());
    fs::create_directory(directory_ + "/life");
    fs::create_directory(directory_ + "/found");
    for (const char* name : {"/life", "/found"}) {
      fs::permissions(directory_ + name, fs::perms::owner_all);
    }
    path_ = directory_ + "/found/pool.db";
    options_.path = directory_ + "/life/pool.db";
  }
  void TearDown() override { fs::remove_all(directory_); }

  static std::unique_ptr<StoreClient> Client(const SqliteStoreOptions& options) {
    return std::make_unique<StoreClient>(*MakeSqliteStore(options));
  }
  std::unique_ptr<StoreClient> Client() { return Client(options_); }

  // The files as they are now: what a kill of the process leaves.
  void TakeFiles() {
    fs::remove_all(directory_ + "/taken");
    fs::copy(directory_ + "/life", directory_ + "/taken");
  }

  // A store that was killed after `commits` changes.
  void Kill(uint64_t commits) {
    auto client = Client();
    ASSERT_TRUE(client->Open().ok());
    for (uint64_t key = 1; key <= commits; ++key) {
      ASSERT_TRUE(client->CommitNext({{key, absl::StrCat("record ", key)}}).ok());
    }
    TakeFiles();
  }

  static std::string Read(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }

  using Change = std::function<void(std::string&)>;

  // Opens what was taken, with the file PATHsuffix changed; or removed, without `change`.
  absl::StatusOr<StoreImage> OpenWith(const std::string& suffix, const Change& change) {
    fs::remove_all(directory_ + "/found");
    fs::copy(directory_ + "/taken", directory_ + "/found");
    const std::string file = path_ + suffix;
    if (change == nullptr) {
      fs::remove(file);
    } else {
      std::string bytes = Read(file);
      change(bytes);
      std::ofstream(file, std::ios::binary) << bytes;
    }
    return Open();
  }
  absl::StatusOr<StoreImage> Open() {
    SqliteStoreOptions options;
    options.path = path_;
    return Client(options)->Open();
  }
  absl::StatusOr<StoreImage> OpenAsTaken() {
    return OpenWith("", [](std::string&) {});
  }

  void ExpectIncomplete(const absl::StatusOr<StoreImage>& image, const std::string& says) {
    ASSERT_FALSE(image.ok()) << "opened at revision " << image->revision;
    EXPECT_EQ(ReasonOf(image.status()), "STORE_INCOMPLETE") << image.status();
    EXPECT_EQ(image.status().code(), absl::StatusCode::kDataLoss);
    EXPECT_TRUE(absl::StrContains(image.status().message(), says)) << image.status();
  }

  std::string directory_, path_;
  SqliteStoreOptions options_;
};

TEST_F(StoreEndTest, AKilledStoreOpensWithAllThatWasAcknowledged) {
  Kill(12);
  const auto image = OpenAsTaken();
  ASSERT_TRUE(image.ok()) << image.status();
  EXPECT_EQ(image->revision, 12u);
  EXPECT_EQ(image->rows.size(), 12u);
}

TEST_F(StoreEndTest, ABitOfAnyFrameOfTheLogIsNoEnd) {
  Kill(6);
  const size_t frames = (Read(directory_ + "/taken/pool.db-wal").size() - 32) / kFrame;
  ASSERT_GE(frames, 12u);
  for (size_t frame = 0; frame < frames; ++frame) {
    for (const size_t at : {size_t{3}, size_t{9}, size_t{18}, size_t{300}}) {
      ExpectIncomplete(
          OpenWith("-wal", [&](std::string& log) { log[32 + frame * kFrame + at] ^= 4; }),
          "revision 6 of epoch 1 was acknowledged");
      if (HasFailure()) FAIL() << "frame " << frame << ", byte " << at;
    }
  }
}

TEST_F(StoreEndTest, ALogThatIsCutEmptiedOrGoneIsNoEnd) {
  Kill(6);
  ExpectIncomplete(OpenWith("-wal", nullptr), "revision 6");
  ExpectIncomplete(OpenWith("-wal", [](std::string& log) { log.clear(); }), "revision 6");
  ExpectIncomplete(OpenWith("-wal", [](std::string& log) { log.resize(log.size() - 1); }),
                   "revision 6");
  for (size_t at = 0; at < 32; ++at) {
    ExpectIncomplete(OpenWith("-wal", [&](std::string& log) { log[at] ^= 1; }), "revision 6");
  }
}

TEST_F(StoreEndTest, WhatIsRefusedIsLeftAsItWas) {
  Kill(6);
  ExpectIncomplete(OpenWith("-wal", [](std::string& log) { log[32 + 100] ^= 1; }), "fsck");
  EXPECT_EQ(Read(path_), Read(directory_ + "/taken/pool.db"));
  EXPECT_EQ(Read(path_ + "-head"), Read(directory_ + "/taken/pool.db-head"));
  EXPECT_EQ(Read(path_ + "-wal").size(), Read(directory_ + "/taken/pool.db-wal").size());
  ExpectIncomplete(Open(), "revision 6");
}

TEST_F(StoreEndTest, ATornHeadSlotIsNoDamageAndAHeadFileWithoutAnyIs) {
  Kill(6);
  for (const size_t slot : {size_t{0}, size_t{4096}}) {
    const auto image = OpenWith("-head", [&](std::string& head) { head[slot + 20] ^= 1; });
    ASSERT_TRUE(image.ok()) << image.status();
    EXPECT_EQ(image->revision, 6u);
  }
  ExpectIncomplete(OpenWith("-head", nullptr),
                   "head file, which says what was acknowledged last, is "
                   "missing");
  ExpectIncomplete(OpenWith("-head", [](std::string& head) { head.assign(head.size(), '\0'); }),
                   "is damaged");
}

// The manager runs: its log and its head file are lost, and the database says by itself that it
// does.
TEST_F(StoreEndTest, TheDatabaseAloneSaysThatItIsInUse) {
  Kill(6);
  fs::remove(directory_ + "/taken/pool.db-head");
  ExpectIncomplete(OpenWith("-wal", nullptr), "the manager did not stop in order");
}

TEST_F(StoreEndTest, AfterAnOrderlyEndOnlyTheDatabaseCounts) {
  Kill(6);
  TakeFiles();
  ASSERT_FALSE(fs::exists(directory_ + "/taken/pool.db-wal"));
  EXPECT_EQ(OpenAsTaken()->revision, 6u);
  EXPECT_EQ(OpenWith("-head", nullptr)->revision, 6u);
  for (const size_t at : {size_t{0}, size_t{30}, size_t{4096 + 30}}) {
    const auto image = OpenWith("-head", [&](std::string& head) { head[at] ^= 1; });
    EXPECT_TRUE(image.ok()) << image.status();
  }
  const auto emptied = OpenWith("-head", [](std::string& head) { head.clear(); });
  EXPECT_TRUE(emptied.ok()) << emptied.status();
}

TEST_F(StoreEndTest, ADatabaseThatIsGoneBesideItsHeadFileIsNoNewPool) {
  Kill(6);
  TakeFiles();
  EXPECT_EQ(ReasonOf(OpenWith("", nullptr).status()), "STORE_CORRUPT");
}

// Frames of an earlier round lie behind the end of the log, and are no commits of this one.
TEST_F(StoreEndTest, AnEarlierRoundOfTheLogIsNotTakenForCommitsBehindDamage) {
  options_.checkpoint_pages = 20;
  options_.checkpoint_idle = absl::Milliseconds(1);
  auto client = Client();
  ASSERT_TRUE(client->Open().ok());
  for (uint64_t key = 1; key <= 60; ++key) {
    ASSERT_TRUE(client->CommitNext({{key, std::string(3000, 'x')}}).ok());
    if (key % 15 == 0) absl::SleepFor(absl::Milliseconds(20));
    TakeFiles();
    const auto image = OpenAsTaken();
    ASSERT_TRUE(image.ok()) << key << ": " << image.status();
    EXPECT_EQ(image->revision, key);
  }
}

// A change of many frames finds no space for the last of them; a small one follows. At each length
// of the log, and at the beginning of a round of it too.
TEST_F(StoreEndTest, WhatAFullDiskRefusedIsNotInTheLog) {
  DiskSwitches disk;
  options_.vfs = kWatchedVfs;
  options_.checkpoint_pages = 10;
  options_.checkpoint_idle = absl::Milliseconds(1);
  auto client = Client();
  ASSERT_TRUE(client->Open().ok());
  for (uint64_t key = 1; key <= 200; ++key) {
    ASSERT_TRUE(client->CommitNext({{key, std::string(3000, 'x')}}).ok());
  }
  for (uint64_t key = 1; key <= 60; ++key) {
    if (key % 7 == 0) absl::SleepFor(absl::Milliseconds(10));
    std::vector<Row> many;
    for (uint64_t other = 1; other <= 200; other += 10) {
      many.push_back({other, std::string(3000, 'y')});
    }
    disk.writes_until_full = static_cast<int64_t>(key * 7 % 40);
    const absl::Status refused = client->Commit(client->Next(many));
    ASSERT_EQ(ReasonOf(refused), "STORE_FULL") << refused;
    const auto log = LogFile::Read(options_.path + "-wal");
    ASSERT_TRUE(log.ok()) << log.status();
    EXPECT_FALSE(log->has_more()) << key;
    disk.writes_until_full = INT64_MAX;
    ASSERT_TRUE(client->CommitNext({{key, "small"}}).ok());
    TakeFiles();
    const auto image = OpenAsTaken();
    ASSERT_TRUE(image.ok()) << key << ": " << image.status();
    EXPECT_EQ(image->revision, 200 + key);
  }
}

// The next change would come over it; so there is none.
TEST_F(StoreEndTest, WhatWasRefusedAndCannotBeCutOffStopsTheStore) {
  DiskSwitches disk;
  options_.vfs = kWatchedVfs;
  auto client = Client();
  ASSERT_TRUE(client->Open().ok());
  ASSERT_TRUE(client->CommitNext({{1, "one"}}).ok());
  disk.writes_until_full = 3;
  disk.truncation_fails = true;
  const absl::Status failed = client->Commit(client->Next({{2, std::string(30000, 'x')}}));
  EXPECT_EQ(failed.code(), absl::StatusCode::kDataLoss) << failed;
  EXPECT_EQ(ReasonOf(failed), "STORE_IO") << failed;
  disk.writes_until_full = INT64_MAX;
  disk.truncation_fails = false;
  EXPECT_EQ(client->Commit(client->Next({{3, "three"}})).code(), absl::StatusCode::kDataLoss);
  client.reset();
  TakeFiles();
  const auto image = OpenAsTaken();
  ASSERT_TRUE(image.ok()) << image.status();
  EXPECT_EQ(image->revision, 1u);
}

TEST_F(StoreEndTest, TheHeadFileIsSyncedWhenNothingHasComeForAWhile) {
  DiskSwitches disk;
  options_.vfs = kWatchedVfs;
  options_.settle_idle = absl::Milliseconds(5);
  auto client = Client();
  ASSERT_TRUE(client->Open().ok());
  ASSERT_TRUE(client->CommitNext({{1, "one"}}).ok());
  const auto slot = [&](size_t number) {
    const auto slots = ReadHead(HeadPath(options_.path));
    return slots.ok() && (*slots)[number].has_value() ? (*slots)[number]->revision : 0;
  };
  EXPECT_EQ(slot(0), 1u) << "written before the change was acknowledged";
  for (int i = 0; i < 2000 && slot(1) != 1; ++i) absl::SleepFor(absl::Milliseconds(5));
  EXPECT_EQ(slot(1), 1u);
}

TEST_F(StoreEndTest, ABackupOpensByItselfAndNotBesideTheFilesOfAnother) {
  auto client = Client();
  ASSERT_TRUE(client->Open().ok());
  ASSERT_TRUE(client->CommitNext({{1, "one"}}).ok());
  const std::string backup = directory_ + "/backup.db";
  ASSERT_TRUE(client->Backup(backup).ok());
  ASSERT_TRUE(client->CommitNext({{2, "two"}}).ok());
  TakeFiles();
  client.reset();
  // Put back over the store, its head file left there.
  fs::remove_all(directory_ + "/found");
  fs::copy(directory_ + "/taken", directory_ + "/found");
  fs::remove(path_ + "-wal");
  fs::copy_file(backup, path_, fs::copy_options::overwrite_existing);
  ExpectIncomplete(Open(),
                   "it holds revision 1 of epoch 1; revision 2 of epoch 1 was acknowledged");
  EXPECT_TRUE(absl::StrContains(Open().status().message(),
                                absl::StrCat("move ", path_, "-head and ", path_, "-wal")))
      << "the remedy";
  fs::rename(path_ + "-head", directory_ + "/old-head");
  EXPECT_EQ(Open()->revision, 1u);
}

TEST_F(StoreEndTest, AHeadFileOfAnotherStoreIsRefused) {
  Kill(3);
  TakeFiles();
  const std::string head = Read(directory_ + "/taken/pool.db-head");
  fs::remove_all(directory_ + "/life");
  fs::create_directory(directory_ + "/life");
  fs::permissions(directory_ + "/life", fs::perms::owner_all);
  Kill(9);
  ExpectIncomplete(OpenWith("-head", [&](std::string& bytes) { bytes = head; }),
                   "belongs to another database");
}

// A database of the release before has no head file and no mark: its log speaks for itself.
class StoreOfTheReleaseBefore : public StoreEndTest {
 protected:
  void SetUp() override {
    StoreEndTest::SetUp();
    fs::create_directory(directory_ + "/taken");
    fs::permissions(directory_ + "/taken", fs::perms::owner_all);
    for (const char* suffix : {"", "-wal"}) {
      const std::string file = absl::StrCat(directory_, "/taken/pool.db", suffix);
      fs::copy_file(absl::StrCat(CXLPOOL_STORES, "/schema-2-killed.db", suffix), file);
      fs::permissions(file, fs::perms::owner_read | fs::perms::owner_write);
    }
  }
};

TEST_F(StoreOfTheReleaseBefore, OpensWithWhatItsLogHolds) {
  for (int open = 0; open < 2; ++open) {
    const auto image = open == 0 ? OpenAsTaken() : Open();
    ASSERT_TRUE(image.ok()) << image.status();
    EXPECT_EQ(image->revision, 18u);
    EXPECT_EQ(image->rows.size(), 11u);
    EXPECT_EQ(image->epoch, 3u + open);
  }
}

TEST_F(StoreOfTheReleaseBefore, CommitsBehindADamagedFrameAreSeen) {
  // Five frames: the take-over's one, then two changes of two frames each.
  for (const size_t frame : {size_t{0}, size_t{1}, size_t{2}}) {
    ExpectIncomplete(
        OpenWith("-wal", [&](std::string& log) { log[32 + frame * kFrame + 300] ^= 4; }),
        "changes that were committed lie behind it");
    if (HasFailure()) FAIL() << "frame " << frame;
  }
}

TEST_F(StoreOfTheReleaseBefore, ADamagedHeaderOfTheLogIsSeen) {
  for (const size_t at : {size_t{1}, size_t{10}, size_t{17}, size_t{21}, size_t{30}}) {
    ExpectIncomplete(OpenWith("-wal", [&](std::string& log) { log[at] ^= 1; }),
                     "the header of its log is damaged");
  }
}

// What fsck would make of it.
class SalvageTest : public StoreEndTest {
 protected:
  Salvage Salvaged() {
    auto damaged = DamagedDatabase::Open(path_);
    EXPECT_TRUE(damaged.ok()) << damaged.status();
    auto found = (*damaged)->Read();
    EXPECT_TRUE(found.ok()) << found.status();
    return *std::move(found);
  }
  Salvage SalvagedWith(const std::string& suffix, const Change& change) {
    (void)OpenWith(suffix, change).status();
    return Salvaged();
  }
};

TEST_F(SalvageTest, AFrameWhosePageWasWrittenAgainLosesNothing) {
  Kill(6);
  const Salvage found = SalvagedWith("-wal", [](std::string& log) { log[32 + 300] ^= 4; });
  EXPECT_FALSE(found.damage.empty()) << "it is no sound store";
  EXPECT_FALSE(found.records_lost);
  EXPECT_FALSE(found.maybe_stale);
  EXPECT_EQ(found.meta.revision, 6u);
  EXPECT_EQ(found.rows.size(), 6u);
}

TEST_F(SalvageTest, ALogThatIsGoneLeavesRecordsOfAnEarlierMoment) {
  Kill(6);
  const Salvage found = SalvagedWith("-wal", nullptr);
  ASSERT_FALSE(found.damage.empty());
  EXPECT_TRUE(absl::StartsWith(found.damage.back(), "STORE_INCOMPLETE")) << found.damage.back();
  EXPECT_TRUE(found.records_lost);
  EXPECT_TRUE(found.maybe_stale);
  EXPECT_EQ(found.newest.revision, 6u) << "known from the head file";
}

TEST_F(SalvageTest, ABrokenSchemaLosesNoRecord) {
  Kill(40);
  TakeFiles();  // Closed by now.
  const Salvage found = SalvagedWith("", [](std::string& file) {
    const size_t at = file.find("CREATE TABLE packs");
    ASSERT_NE(at, std::string::npos);
    file[at] = '#';
  });
  EXPECT_FALSE(found.damage.empty());
  EXPECT_FALSE(found.records_lost);
  EXPECT_EQ(found.rows.size(), 40u);
  EXPECT_EQ(found.meta.revision, 40u);
}

TEST_F(SalvageTest, ALargeRecordIsFoundOnItsOverflowPages) {
  auto client = Client();
  ASSERT_TRUE(client->Open().ok());
  std::string large(30000, 'a');
  for (size_t i = 0; i < large.size(); ++i) large[i] = static_cast<char>(i * 7);
  ASSERT_TRUE(client->CommitNext({{1, "small"}, {2, large}, {3, "small"}}).ok());
  client.reset();
  TakeFiles();
  const Salvage found =
      SalvagedWith("", [](std::string& file) { file[file.find("CREATE TABLE packs")] = '#'; });
  ASSERT_EQ(found.rows.size(), 3u);
  EXPECT_EQ(found.rows[1].value, large);
}

TEST_F(SalvageTest, AMetaRowThatIsLostIsKnownFromTheHeadFile) {
  Kill(6);
  TakeFiles();
  ASSERT_TRUE(OpenAsTaken().ok());
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(path_.c_str(), &db), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(db, "DELETE FROM meta", nullptr, nullptr, nullptr), SQLITE_OK);
  sqlite3_close(db);
  const Salvage found = Salvaged();
  EXPECT_FALSE(found.records_lost);
  EXPECT_EQ(found.meta.revision, 6u);
  EXPECT_EQ(found.damage.front(), "the meta row is missing");
}

}  // namespace
}  // namespace cxlpool::fm
