#include "tools/cli/fsck_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "tools/cli/command_line.h"

namespace cxlpool::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class FsckCommandTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "cxlpool-cli-fsck-XXXXXX").string();
    directory_ = mkdtemp(pattern.data());
    path_ = directory_ + "/pool.db";
    fs::copy_file(std::string(CXLPOOL_STORES) + "/first-release.db", path_);
    fs::permissions(path_, fs::perms::owner_read | fs::perms::owner_write);
  }
  void TearDown() override { fs::remove_all(directory_); }

  int Run(bool repair, OutputFormat format = OutputFormat::kTable) {
    out_.str("");
    err_.str("");
    Printer printer{.out = out_, .err = err_, .format = format};
    return Execute(FsckCommand{path_, repair}, printer);
  }

  void Damage() {
    std::ifstream in(path_, std::ios::binary);
    std::string bytes{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    bytes[bytes.find("archive")] = 'A';
    std::ofstream(path_, std::ios::binary) << bytes;
  }

  std::string directory_, path_;
  std::ostringstream out_, err_;
};

TEST_F(FsckCommandTest, SoundDatabaseEndsWithZero) {
  EXPECT_EQ(Run(false), kFsckSound);
  EXPECT_THAT(out_.str(), HasSubstr("schema 1, revision 63, 15 records; sound"));
}

TEST_F(FsckCommandTest, FindingsEndWithOneAndSayWhatARepairDoes) {
  Damage();
  EXPECT_EQ(Run(false), kFsckFindings);
  EXPECT_THAT(out_.str(), HasSubstr("record 42: it fails its checksum\n  repair: it is set aside"));
  EXPECT_THAT(out_.str(), HasSubstr("nothing was changed"));
  EXPECT_EQ(Run(true, OutputFormat::kJson), kFsckFindings);
  EXPECT_THAT(out_.str(), HasSubstr("\"repaired\": true"));
  EXPECT_TRUE(fs::exists(path_ + ".before-fsck"));
  EXPECT_EQ(Run(false), kFsckSound);
}

TEST_F(FsckCommandTest, ATerminalIsToldWhatTakesLong) {
  Printer printer{.out = out_, .err = err_, .progress = true};
  EXPECT_EQ(Execute(FsckCommand{path_, true}, printer), kFsckSound);
  EXPECT_EQ(err_.str(), "cxlpool: reading " + path_ + "\ncxlpool: examining 15 records\n");
  EXPECT_EQ(Run(false), kFsckSound);
  EXPECT_EQ(err_.str(), "") << "it is none";
  Damage();
  EXPECT_EQ(Execute(FsckCommand{path_, true}, printer), kFsckFindings);
  EXPECT_THAT(err_.str(), HasSubstr("cxlpool: writing what is sound into a new file\n"));
}

TEST_F(FsckCommandTest, WhatCannotBeCheckedEndsWithTwo) {
  path_ += "-not-there";
  EXPECT_EQ(Run(false), kFsckCannotRun);
  EXPECT_THAT(err_.str(), HasSubstr("STORE_MISSING"));
  EXPECT_EQ(out_.str(), "");
  EXPECT_EQ(Run(false, OutputFormat::kJson), kFsckCannotRun);
  EXPECT_THAT(err_.str(), HasSubstr("\"reason\": \"STORE_MISSING\""));
}

// A pool of the first release has no trail.
TEST_F(FsckCommandTest, AnAnchorIsHeldAgainstTheTrail) {
  Printer printer{.out = out_, .err = err_};
  EXPECT_EQ(Execute(FsckCommand{path_, false, "17:" + std::string(64, 'a')}, printer),
            kFsckFindings);
  EXPECT_THAT(out_.str(), HasSubstr("and the anchor is row 17"));
  EXPECT_EQ(Execute(FsckCommand{path_, true, "17:" + std::string(64, 'a')}, printer),
            kFsckFindings);
  EXPECT_FALSE(fs::exists(path_ + ".before-fsck")) << "there is nothing to repair";
  EXPECT_EQ(Execute(FsckCommand{path_, false, "seventeen"}, printer), kFsckCannotRun);
  EXPECT_THAT(err_.str(), HasSubstr("BAD_ANCHOR"));
}

TEST_F(FsckCommandTest, IsReadFromTheCommandLine) {
  const char* const argv[] = {"cxlpool", "fsck", "pool.db", "--repair", "--anchor", "4:ab"};
  const auto parsed = ParseCommandLine(6, argv);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  const auto& command = std::get<FsckCommand>(std::get<Invocation>(*parsed).command);
  EXPECT_EQ(command.database, "pool.db");
  EXPECT_TRUE(command.repair);
  EXPECT_EQ(command.anchor, "4:ab");
}

}  // namespace
}  // namespace cxlpool::cli
