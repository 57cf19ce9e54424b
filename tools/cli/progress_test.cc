// What a terminal is told while a command is at work.

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "tools/cli/execute.h"
#include "tools/cli/print.h"
#include "tools/cli/testing.h"

namespace cxlpool::cli {
namespace {

class ProgressTest : public testing::Test {
 protected:
  ProgressTest() {
    std::string name = (std::filesystem::temp_directory_path() / "cxlpool-cli-XXXXXX").string();
    directory_ = mkdtemp(name.data());
  }
  ~ProgressTest() override { std::filesystem::remove_all(directory_); }

  // What is said before it ends, which is with `code`.
  std::string Run(PoolCommand command, bool at_terminal, absl::Duration interval,
                  absl::StatusCode code = absl::StatusCode::kOk) {
    std::ostringstream out, err;
    Printer printer{.out = out, .err = err, .progress = at_terminal, .progress_interval = interval};
    EXPECT_EQ(Execute(std::move(command), fake_.connection, printer).code(), code);
    return err.str();
  }
  std::string File(const std::string& name) const { return (directory_ / name).string(); }

  FakeConnection fake_;
  std::filesystem::path directory_;
};

TEST_F(ProgressTest, OfABatchAfterEachThousand) {
  std::ofstream file(File("batch"));
  for (int i = 0; i < 2001; ++i) file << "{\"size_bytes\": \"1\"}\n";
  file.close();
  const v1::BatchAllocateRegionsResponse answer;
  auto& calls = fake_.manager.BatchAllocateRegions_calls;
  calls.answers = {answer, answer, answer};
  EXPECT_EQ(Run(AllocateBatch{File("batch")}, true, absl::ZeroDuration()),
            "cxlpool: 1000 of 2001 requests are answered\n"
            "cxlpool: 2000 of 2001 requests are answered\n");
  calls.answers = {answer, answer, answer};
  EXPECT_EQ(Run(AllocateBatch{File("batch")}, true, absl::Hours(1)), "") << "it is over so soon";
  calls.answers = {answer, answer, answer};
  EXPECT_EQ(Run(AllocateBatch{File("batch")}, false, absl::ZeroDuration()), "");
}

TEST_F(ProgressTest, OfABatchThatIsRefusedOnlyWhatWasAnswered) {
  std::ofstream file(File("batch"));
  for (int i = 0; i < 3001; ++i) file << "{\"size_bytes\": \"1\"}\n";
  file.close();
  fake_.manager.BatchAllocateRegions_calls.answers = {v1::BatchAllocateRegionsResponse(),
                                                      absl::PermissionDeniedError("no")};
  EXPECT_EQ(Run(AllocateBatch{File("batch")}, true, absl::ZeroDuration(),
                absl::StatusCode::kPermissionDenied),
            "cxlpool: 1000 of 3001 requests are answered\n");
}

TEST_F(ProgressTest, OfABackupBySize) {
  v1::BackupResponse first, last;
  first.set_revision(41);
  first.set_total_bytes(5);
  first.set_data("abc");
  last.set_data("de");
  last.set_last(true);
  fake_.manager.backup_pieces = {first, last};
  EXPECT_EQ(Run(Backup{File("pool.db")}, true, absl::ZeroDuration()), "cxlpool: 60% of 5 B\n");
  EXPECT_EQ(Run(Backup{File("next.db")}, false, absl::ZeroDuration()), "");
}

}  // namespace
}  // namespace cxlpool::cli
