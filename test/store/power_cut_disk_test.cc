#include "test/store/power_cut_disk.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "absl/strings/str_cat.h"
#include "fabric-manager/adapters/store_sqlite/store_file.h"

namespace cxlpool::fm {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kSeeds = 400;

class PowerCutDiskTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "cxlpool-disk-XXXXXX").string();
    directory_ = fs::canonical(mkdtemp(pattern.data())).string();
  }
  void TearDown() override {
    WatchDisk(nullptr);
    fs::remove_all(directory_);
  }

  std::string Path(const std::string& name) const { return absl::StrCat(directory_, "/", name); }

  void Write(PowerCutDisk& disk, int file, uint64_t offset, const std::string& bytes) {
    DiskCall call;
    call.op = DiskOp::kWrite;
    call.file = file;
    call.offset = offset;
    call.bytes = bytes;
    disk.After(call);
  }
  void Do(PowerCutDisk& disk, DiskOp op, int file, uint64_t size = 0) {
    DiskCall call;
    call.op = op;
    call.file = file;
    call.offset = size;
    call.path = directory_;
    disk.After(call);
  }
  void Name(PowerCutDisk& disk, DiskOp op, const std::string& from, const std::string& to) {
    const std::string path = Path(from), new_path = Path(to);
    DiskCall call;
    call.op = op;
    call.path = path;
    call.to = new_path;
    disk.After(call);
  }

  // What `file` is found to be, over many cuts at the end of the recording.
  std::set<std::string> Outcomes(const PowerCutDisk& disk, const std::string& name) {
    std::set<std::string> outcomes;
    for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
      const DiskImage image = disk.Cut(disk.position(), seed);
      const auto found = image.names.find(name);
      outcomes.insert(found == image.names.end() ? "(none)" : image.files[found->second]);
    }
    return outcomes;
  }

  std::string directory_;
};

TEST_F(PowerCutDiskTest, WhatIsThereAtFirstIsSynced) {
  std::ofstream(Path("old")) << "bytes";
  const PowerCutDisk disk(directory_);
  EXPECT_EQ(Outcomes(disk, "old"), std::set<std::string>{"bytes"});
}

TEST_F(PowerCutDiskTest, SyncedBytesAndNamesStay) {
  PowerCutDisk disk(directory_);
  const int file = disk.Opened(Path("a"), true);
  Write(disk, file, 0, std::string(1500, 'x'));
  Do(disk, DiskOp::kSync, file);
  EXPECT_TRUE(Outcomes(disk, "a").contains("(none)")) << "its name is not synced yet";
  Do(disk, DiskOp::kSyncDirectory, -1);
  EXPECT_EQ(Outcomes(disk, "a"), std::set<std::string>{std::string(1500, 'x')});
}

TEST_F(PowerCutDiskTest, UnsyncedSectorsAreKeptDroppedTornAndReordered) {
  PowerCutDisk disk(directory_);
  const int file = disk.Opened(Path("a"), true);
  Write(disk, file, 0, std::string(2 * kSectorBytes, 'o'));
  Do(disk, DiskOp::kSync, file);
  Do(disk, DiskOp::kSyncDirectory, -1);
  Write(disk, file, 100, std::string(2 * kSectorBytes - 200, 'n'));
  std::set<std::string> kinds;
  for (const std::string& found : Outcomes(disk, "a")) {
    ASSERT_EQ(found.size(), 2 * kSectorBytes);
    EXPECT_EQ(found.substr(0, 100), std::string(100, 'o')) << "a byte that was not written";
    EXPECT_EQ(found.substr(2 * kSectorBytes - 100), std::string(100, 'o'));
    const auto kind = [](const std::string& sector) {
      const auto news = std::count(sector.begin(), sector.end(), 'n');
      if (news == 0) return "dropped";
      if (static_cast<size_t>(news) == sector.size()) return "kept";
      // A prefix, never another part.
      return sector[static_cast<size_t>(news) - 1] == 'n' ? "torn" : "WRONG";
    };
    kinds.insert(absl::StrCat(kind(found.substr(100, kSectorBytes - 100)), " ",
                              kind(found.substr(kSectorBytes, kSectorBytes - 100))));
  }
  for (const char* kind : {"kept kept", "dropped dropped", "kept dropped", "dropped kept",
                           "torn dropped", "kept torn"}) {
    EXPECT_TRUE(kinds.contains(kind)) << kind;
  }
  for (const std::string& kind : kinds) EXPECT_EQ(kind.find("WRONG"), std::string::npos);
}

TEST_F(PowerCutDiskTest, UnsyncedGrowthLeavesZerosOrNothing) {
  PowerCutDisk disk(directory_);
  const int file = disk.Opened(Path("a"), true);
  Do(disk, DiskOp::kSyncDirectory, -1);
  Write(disk, file, 0, std::string(kSectorBytes, 'n'));
  const std::set<std::string> outcomes = Outcomes(disk, "a");
  EXPECT_TRUE(outcomes.contains(""));
  EXPECT_TRUE(outcomes.contains(std::string(kSectorBytes, '\0')));
  EXPECT_TRUE(outcomes.contains(std::string(kSectorBytes, 'n')));
}

TEST_F(PowerCutDiskTest, UnsyncedTruncationIsKeptOrDropped) {
  std::ofstream(Path("a")) << "long text";
  PowerCutDisk disk(directory_);
  Do(disk, DiskOp::kTruncate, disk.Opened(Path("a"), false), 4);
  EXPECT_EQ(Outcomes(disk, "a"), (std::set<std::string>{"long", "long text"}));
}

TEST_F(PowerCutDiskTest, RenameIsWhole) {
  std::ofstream(Path("a")) << "new";
  std::ofstream(Path("b")) << "old";
  PowerCutDisk disk(directory_);
  Name(disk, DiskOp::kRename, "a", "b");
  EXPECT_EQ(Outcomes(disk, "b"), (std::set<std::string>{"new", "old"}));
  EXPECT_EQ(Outcomes(disk, "a"), (std::set<std::string>{"new", "(none)"}));
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const DiskImage image = disk.Cut(disk.position(), seed);
    EXPECT_EQ(image.names.contains("a"), image.files[image.names.at("b")] == "old");
  }
}

TEST_F(PowerCutDiskTest, LaterWritesAreNotSeenAndEarlierCutsAreTheSame) {
  PowerCutDisk disk(directory_);
  const int file = disk.Opened(Path("a"), true);
  Write(disk, file, 0, std::string(3000, 'x'));
  const size_t position = disk.position();
  const DiskImage before = disk.Cut(position, 7);
  Write(disk, file, 0, std::string(3000, 'y'));
  Do(disk, DiskOp::kSync, file);
  Do(disk, DiskOp::kSyncDirectory, -1);
  EXPECT_EQ(disk.Cut(position, 7), before);
}

TEST_F(PowerCutDiskTest, ImageIsFoundInTheDirectory) {
  std::ofstream(Path("stray")) << "x";
  DiskImage image;
  image.files = {"one", "two"};
  image.names = {{"a", 0}, {"b", 1}, {"c", 1}};
  ASSERT_TRUE(WriteImage(image, directory_).ok());
  EXPECT_FALSE(fs::exists(Path("stray")));
  EXPECT_EQ(fs::file_size(Path("a")), 3u);
  EXPECT_TRUE(fs::equivalent(Path("b"), Path("c")));
  EXPECT_EQ(fs::hard_link_count(Path("b")), 2u);
}

// A cut between a link and an unlink would leave two, and then the store refuses the file.
TEST_F(PowerCutDiskTest, CreatedDatabaseNeverHasTwoNames) {
  PowerCutDisk disk(directory_);
  WatchDisk(&disk);
  ASSERT_TRUE(CreateStoreFile(Path("pool.db"), std::string(5000, 'x')).ok());
  WatchDisk(nullptr);
  uint64_t whole = 0, absent = 0;
  for (size_t position = 0; position <= disk.position(); ++position) {
    for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
      const DiskImage image = disk.Cut(position, seed);
      std::set<size_t> files;
      for (const auto& [name, file] : image.names) {
        EXPECT_TRUE(files.insert(file).second) << name << " is another's name, too";
      }
      const auto found = image.names.find("pool.db");
      if (found == image.names.end()) {
        ++absent;
        EXPECT_LT(position, disk.position()) << "it was acknowledged";
      } else {
        ++whole;
        EXPECT_EQ(image.files[found->second], std::string(5000, 'x'));
      }
    }
  }
  EXPECT_GT(whole, 0u);
  EXPECT_GT(absent, 0u);
}

// The log that was emptied, but not for good, must not be found beside the file that took its
// place.
TEST_F(PowerCutDiskTest, ReplacedDatabaseNeverHasTheOldLog) {
  std::ofstream(Path("pool.db")) << "old";
  std::ofstream(Path("pool.db-wal")) << "frames";
  PowerCutDisk disk(directory_);
  const int log = disk.Opened(Path("pool.db-wal"), false);
  fs::resize_file(Path("pool.db-wal"), 0);
  Do(disk, DiskOp::kTruncate, log, 0);
  std::ofstream(Path("fresh")) << "new";
  const int fresh = disk.Opened(Path("fresh"), true);
  Write(disk, fresh, 0, "new");
  WatchDisk(&disk);
  ASSERT_TRUE(ReplaceStoreFile(Path("fresh"), Path("pool.db")).ok());
  WatchDisk(nullptr);
  for (size_t position = 0; position <= disk.position(); ++position) {
    for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
      const DiskImage image = disk.Cut(position, seed);
      const std::string& found = image.files[image.names.at("pool.db")];
      ASSERT_TRUE(found == "old" || found == "new") << found;
      EXPECT_FALSE(found == "new" && image.names.contains("pool.db-wal"));
    }
  }
}

}  // namespace
}  // namespace cxlpool::fm
