#include "fabric-manager/adapters/store_sqlite/store_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "proto/support/refusal.h"

namespace cxlpool::fm {
namespace {

namespace fs = std::filesystem;

constexpr uid_t kNobody = 65534;  // On every Debian.

class StoreFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "cxlpool-file-XXXXXX").string();
    directory_ = mkdtemp(pattern.data());
    path_ = directory_ + "/pool.db";
  }
  void TearDown() override { fs::remove_all(directory_); }

  void Write(const std::string& path, const std::string& bytes) {
    std::ofstream(path) << bytes;
    chmod(path.c_str(), 0600);
  }

  std::string directory_, path_;
};

TEST_F(StoreFileTest, MissingDirectoryIsMadePrivate) {
  const auto real = CheckStorePath(directory_ + "/state/pool.db");
  ASSERT_TRUE(real.ok()) << real.status();
  struct stat found;
  ASSERT_EQ(stat((directory_ + "/state").c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0700u);
}

TEST_F(StoreFileTest, LinkAboveTheDirectoryIsResolved) {
  fs::create_directory(directory_ + "/real");
  fs::permissions(directory_ + "/real", fs::perms::owner_all);
  fs::create_directory(directory_ + "/real/state");
  fs::permissions(directory_ + "/real/state", fs::perms::owner_all);
  fs::create_directory_symlink(directory_ + "/real", directory_ + "/link");
  const auto real = CheckStorePath(directory_ + "/link/state/pool.db");
  ASSERT_TRUE(real.ok()) << real.status();
  EXPECT_EQ(*real, fs::canonical(directory_).string() + "/real/state/pool.db");
}

TEST_F(StoreFileTest, DirectoryThatOthersCanWriteIsRefused) {
  chmod(directory_.c_str(), 0777);
  const auto real = CheckStorePath(path_);
  EXPECT_EQ(ReasonOf(real.status()), "STORE_UNSAFE_PATH") << real.status();
  EXPECT_NE(real.status().message().find("chmod 0700"), absl::string_view::npos);
}

// A copy whose log could not be copied into it lacks what it is a copy of.
TEST_F(StoreFileTest, ADatabaseWithALogIsNotWhole) {
  Write(path_, "x");
  EXPECT_TRUE(CheckLogIsEmpty(path_).ok());
  Write(path_ + "-wal", "");
  EXPECT_TRUE(CheckLogIsEmpty(path_).ok());
  Write(path_ + "-wal", "frames");
  EXPECT_EQ(ReasonOf(CheckLogIsEmpty(path_)), "STORE_IO");
}

TEST_F(StoreFileTest, LinkedDirectoryIsRefused) {
  fs::create_directory(directory_ + "/real");
  fs::create_directory_symlink(directory_ + "/real", directory_ + "/link");
  EXPECT_EQ(ReasonOf(CheckStorePath(directory_ + "/link/pool.db").status()), "STORE_UNSAFE_PATH");
}

TEST_F(StoreFileTest, LinkedFileOrLogIsRefused) {
  Write(directory_ + "/elsewhere", "x");
  for (const std::string suffix : {"", "-wal", "-journal"}) {
    fs::create_symlink(directory_ + "/elsewhere", path_ + suffix);
    EXPECT_EQ(ReasonOf(CheckStorePath(path_).status()), "STORE_UNSAFE_PATH") << suffix;
    fs::remove(path_ + suffix);
  }
}

TEST_F(StoreFileTest, FileOpenToOthersOrWithTwoNamesIsRefused) {
  Write(path_, "x");
  chmod(path_.c_str(), 0640);
  EXPECT_EQ(ReasonOf(CheckStorePath(path_).status()), "STORE_UNSAFE_PATH");
  chmod(path_.c_str(), 0600);
  fs::create_hard_link(path_, directory_ + "/second");
  EXPECT_EQ(ReasonOf(CheckStorePath(path_).status()), "STORE_UNSAFE_PATH");
}

TEST_F(StoreFileTest, AnotherUsersFileIsRefusedAndEachIsToldItsWay) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a file to another user";
  Write(path_, "x");
  const auto told = [&](StoreOpener opener) {
    const absl::Status status = CheckStorePath(path_, opener).status();
    EXPECT_EQ(ReasonOf(status), "STORE_UNSAFE_PATH") << status;
    const auto refusal = RefusalOf(status);
    return refusal.has_value() ? std::pair(refusal->message, refusal->remedy)
                               : std::pair<std::string, std::string>();
  };
  const std::string as_owner =
      "run the same command as that user, which root does with `runuser -u nobody --` before it, "
      "and leave the owner as it is";
  // The file, and then the directory that it is in.
  ASSERT_EQ(chown(path_.c_str(), kNobody, kNobody), 0);
  for (const std::string& what : {path_, "directory " + directory_}) {
    EXPECT_EQ(told(StoreOpener::kManager),
              std::pair(what + " belongs to user 65534, the manager runs as 0",
                        std::string("chown it, or run the manager as its owner")));
    EXPECT_EQ(told(StoreOpener::kCommand),
              std::pair(what + " belongs to user nobody, and this command runs as root", as_owner));
    ASSERT_EQ(chown(directory_.c_str(), kNobody, kNobody), 0);
  }
}

TEST_F(StoreFileTest, FsckIsNamedAsTheOwnerRunsIt) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  EXPECT_EQ(FsckCommand("/d/pool.db", " --repair"), "`cxlpool fsck /d/pool.db --repair`");
  ASSERT_EQ(seteuid(kNobody), 0);
  const std::string named = FsckCommand("/d/pool.db");
  ASSERT_EQ(seteuid(0), 0);
  EXPECT_EQ(named, "`runuser -u nobody -- cxlpool fsck /d/pool.db`");
}

TEST_F(StoreFileTest, EmptyFileIsDamageNotANewPool) {
  Write(path_, "");
  EXPECT_EQ(ReasonOf(CheckStorePath(path_).status()), "STORE_CORRUPT");
}

TEST_F(StoreFileTest, LogWithoutItsDatabaseIsDamage) {
  Write(path_ + "-wal", "frames");
  EXPECT_EQ(ReasonOf(CheckStorePath(path_).status()), "STORE_CORRUPT");
}

TEST_F(StoreFileTest, CreatedFileIsPrivateAndNeverReplacesAnother) {
  ASSERT_TRUE(CreateStoreFile(path_, "first").ok());
  ASSERT_TRUE(CreateStoreFile(path_, "second").ok());
  std::string text;
  std::ifstream(path_) >> text;
  EXPECT_EQ(text, "first");
  struct stat found;
  ASSERT_EQ(stat(path_.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0600u);
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_), fs::directory_iterator()), 1);
}

TEST_F(StoreFileTest, PathWithoutAFileIsRefused) {
  EXPECT_EQ(ReasonOf(CheckStorePath(directory_ + "/").status()), "STORE_UNSAFE_PATH");
  EXPECT_EQ(ReasonOf(CheckStorePath("").status()), "STORE_UNSAFE_PATH");
}

}  // namespace
}  // namespace cxlpool::fm
