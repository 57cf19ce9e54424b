#include "tools/cli/context_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "proto/support/refusal.h"

namespace cxlpool::cli {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using Verb = ContextCommand::Verb;

class ContextCommandTest : public testing::Test {
 protected:
  ContextCommandTest() {
    std::string name = (std::filesystem::temp_directory_path() / "cxlpool-ctx-XXXXXX").string();
    dir_ = mkdtemp(name.data());
    file_ = (dir_ / "cli.toml").string();
    std::ofstream(file_) << "# Two pools.\n[contexts.prod]\nmanager = \"fm.prod:1\"\n"
                            "cert = \"op.pem\"\n[contexts.lab]\nmanager = \"unix:/lab\"\n";
  }
  ~ContextCommandTest() override { std::filesystem::remove_all(dir_); }

  absl::Status Run(Verb verb, const std::optional<std::string>& name = std::nullopt,
                   OutputFormat format = OutputFormat::kTable) {
    return RunWith({}, {}, verb, name, format);
  }
  absl::Status RunWith(ConnectionFlags flags, Environment environment, Verb verb,
                       const std::optional<std::string>& name = std::nullopt,
                       OutputFormat format = OutputFormat::kTable) {
    out_.str("");
    flags.config = file_;
    Printer printer{.out = out_, .err = out_, .format = format};
    return Execute(ContextCommand{verb, name}, flags, environment, printer);
  }
  std::string Text() const {
    std::ifstream in(file_);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  std::filesystem::path dir_;
  std::string file_;
  std::ostringstream out_;
};

TEST_F(ContextCommandTest, ListsAndMarksTheCurrentOne) {
  ASSERT_TRUE(Run(Verb::kUse, "prod").ok());
  ASSERT_TRUE(Run(Verb::kList).ok());
  EXPECT_EQ(out_.str(),
            "NAME  CURRENT  MANAGER    CERTIFICATE\n"
            "lab   -        unix:/lab  -\n"
            "prod  current  fm.prod:1  " +
                (dir_ / "op.pem").string() + "\n");
  ASSERT_TRUE(Run(Verb::kList, std::nullopt, OutputFormat::kName).ok());
  EXPECT_EQ(out_.str(), "lab\nprod\n");
  ASSERT_TRUE(Run(Verb::kList, std::nullopt, OutputFormat::kYaml).ok());
  EXPECT_THAT(out_.str(), HasSubstr("- name: prod\n  current: true\n  manager: fm.prod:1\n"));
}

TEST_F(ContextCommandTest, UseWritesTheFileWholeAndKeepsItsModeAndComments) {
  ASSERT_EQ(chmod(file_.c_str(), 0640), 0);
  const std::string link = (dir_ / "link.toml").string();
  std::filesystem::create_symlink(file_, link);
  const std::string file = file_;
  file_ = link;
  const std::string before = Text();
  ASSERT_TRUE(Run(Verb::kUse, "lab").ok());
  EXPECT_THAT(out_.str(), HasSubstr("lab (current)"));
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_EQ(Text(), "current = \"lab\"\n" + before);
  struct stat found;
  ASSERT_EQ(stat(file.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0640u);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir_), {}), 2) << "no file is left";
}

// Of a group's file one member's `context use` must not be the last thing that the others read.
TEST_F(ContextCommandTest, UseLeavesTheFileToWhomItBelongs) {
  if (geteuid() != 0) GTEST_SKIP() << "only root gives files away";
  ASSERT_EQ(chown(file_.c_str(), 12345, 23456), 0);
  ASSERT_EQ(chmod(file_.c_str(), 0640), 0);
  ASSERT_TRUE(Run(Verb::kUse, "lab").ok());
  struct stat found;
  ASSERT_EQ(stat(file_.c_str(), &found), 0);
  EXPECT_EQ(found.st_uid, 12345u);
  EXPECT_EQ(found.st_gid, 23456u);
  EXPECT_EQ(found.st_mode & 0777, 0640u);
}

TEST_F(ContextCommandTest, AnUnknownOneChangesNothing) {
  const std::string before = Text();
  const absl::Status status = Run(Verb::kUse, "labb");
  EXPECT_EQ(ReasonOf(status), "UNKNOWN_CONTEXT");
  EXPECT_THAT(status.message(), HasSubstr("did you mean \"lab\"?"));
  EXPECT_EQ(Text(), before);
  EXPECT_EQ(ReasonOf(Run(Verb::kShow, "labb")), "UNKNOWN_CONTEXT");
  EXPECT_EQ(ReasonOf(Run(Verb::kUse, "")), "UNKNOWN_CONTEXT");
  EXPECT_EQ(ReasonOf(Run(Verb::kShow, "")), "UNKNOWN_CONTEXT");
}

TEST_F(ContextCommandTest, ShowsTheOneThatCounts) {
  ASSERT_TRUE(Run(Verb::kShow).ok());
  EXPECT_THAT(out_.str(), HasSubstr("(none: the settings at the top of the file)"));
  ASSERT_TRUE(Run(Verb::kShow, "prod", OutputFormat::kJson).ok());
  EXPECT_THAT(out_.str(), HasSubstr("\"context\": {\"name\": \"prod\", \"current\": false, "));
}

TEST_F(ContextCommandTest, ShowsWhatCountsBeforeTheFile) {
  Environment environment{.manager = "env:1"};
  ASSERT_TRUE(RunWith({}, environment, Verb::kShow).ok());
  EXPECT_THAT(out_.str(), ContainsRegex("Manager: +env:1 \\(CXLPOOL_MANAGER\\)\n"));
  ASSERT_TRUE(RunWith({.manager = "flag:1", .ca = "ca"}, environment, Verb::kShow).ok());
  EXPECT_THAT(out_.str(), ContainsRegex("Manager: +flag:1 \\(--manager\\)\nCA: +ca\n"));
  ASSERT_TRUE(RunWith({}, {.token_file = "/t"}, Verb::kShow).ok());
  EXPECT_THAT(out_.str(), ContainsRegex("Token: +/t\n"));
  // Another manager's name is meant.
  ASSERT_TRUE(RunWith({}, environment, Verb::kShow, "prod").ok());
  EXPECT_THAT(out_.str(), HasSubstr(" fm.prod:1\n"));
  ASSERT_TRUE(
      RunWith({.context = "lab"}, environment, Verb::kShow, std::nullopt, OutputFormat::kJson)
          .ok());
  EXPECT_THAT(out_.str(), HasSubstr("\"manager\": \"unix:/lab\""));
}

}  // namespace
}  // namespace cxlpool::cli
