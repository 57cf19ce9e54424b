// The trials can fail, and fail for the same reason twice.
#include "test/store/power_trial.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "test/store/seeded.h"
#include "test/store/watched_vfs.h"

namespace cxlpool::fm {
namespace {

namespace fs = std::filesystem;

class PowerTrialTest : public ::testing::Test {
 protected:
  void SetUp() override {
    RegisterWatchedVfs(true);
    std::string pattern = (fs::temp_directory_path() / "cxlpool-trial-XXXXXX").string();
    directory_ = mkdtemp(pattern.data());
    found_ = Empty("found");
  }
  void TearDown() override { fs::remove_all(directory_); }

  std::string Empty(const std::string& name) {
    const std::string path = absl::StrCat(directory_, "/", name);
    fs::create_directory(path);
    fs::permissions(path, fs::perms::owner_all);
    return path;
  }

  // The first failure over every moment of the story, `rounds` times.
  absl::Status TryAll(PowerStory& story, uint64_t rounds) {
    PowerTrialCounts counts;
    uint64_t seed = 0;
    for (uint64_t round = 0; round < rounds; ++round) {
      for (const size_t position : story.disk->Moments()) {
        absl::Status status = TryPowerCut(story, position, ++seed, found_, false, counts);
        if (!status.ok()) return status;
      }
    }
    return absl::OkStatus();
  }

  std::string directory_, found_;
};

TEST_F(PowerTrialTest, HonestDiskLosesNothing) {
  auto story = TellCommits(Empty("story"), 3);
  ASSERT_TRUE(story.ok()) << story.status();
  const absl::Status status = TryAll(*story, 1);
  EXPECT_TRUE(status.ok()) << status;
}

TEST_F(PowerTrialTest, LogThatIsNotSyncedIsCaught) {
  auto story =
      TellCommits(Empty("story"), 3, [](absl::string_view name) { return name == "pool.db-wal"; });
  ASSERT_TRUE(story.ok()) << story.status();
  EXPECT_FALSE(TryAll(*story, 2).ok());
}

TEST_F(PowerTrialTest, CheckpointThatIsNotSyncedIsCaught) {
  auto story =
      TellCommits(Empty("story"), 3, [](absl::string_view name) { return name == "pool.db"; });
  ASSERT_TRUE(story.ok()) << story.status();
  EXPECT_FALSE(TryAll(*story, 2).ok());
}

TEST_F(PowerTrialTest, DirectoryThatIsNotSyncedIsCaught) {
  auto story = TellCommits(Empty("story"), 3, [](absl::string_view name) { return name.empty(); });
  ASSERT_TRUE(story.ok()) << story.status();
  EXPECT_FALSE(TryAll(*story, 2).ok());
}

TEST_F(PowerTrialTest, SameScriptTellsTheSameStory) {
  auto one = TellCommits(Empty("one"), 5), two = TellCommits(Empty("two"), 5);
  ASSERT_TRUE(one.ok()) << one.status();
  ASSERT_TRUE(two.ok()) << two.status();
  ASSERT_EQ(one->disk->position(), two->disk->position());
  Seeded random(1);
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    const size_t position = random.Below(one->disk->position() + 1);
    EXPECT_TRUE(one->disk->Cut(position, seed) == two->disk->Cut(position, seed))
        << "at " << position << ": " << one->disk->Describe(position);
  }
}

}  // namespace
}  // namespace cxlpool::fm
