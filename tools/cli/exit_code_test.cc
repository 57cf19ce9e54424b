#include "tools/cli/exit_code.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace cxlpool::cli {
namespace {

int Code(absl::StatusCode code) { return static_cast<int>(ExitCodeOf(absl::Status(code, "x"))); }

TEST(ExitCodeTest, TellsApartWhatTheCallerDoes) {
  EXPECT_EQ(static_cast<int>(ExitCodeOf(absl::OkStatus())), 0);
  EXPECT_EQ(Code(absl::StatusCode::kInternal), 1);
  EXPECT_EQ(Code(absl::StatusCode::kUnknown), 1);
  EXPECT_EQ(Code(absl::StatusCode::kInvalidArgument), 2);
  EXPECT_EQ(Code(absl::StatusCode::kOutOfRange), 2);
  EXPECT_EQ(Code(absl::StatusCode::kNotFound), 3);
  EXPECT_EQ(Code(absl::StatusCode::kFailedPrecondition), 4);
  EXPECT_EQ(Code(absl::StatusCode::kAlreadyExists), 4);
  EXPECT_EQ(Code(absl::StatusCode::kUnimplemented), 4) << "NO_FENCE, NO_BACKUP: refused";
  EXPECT_EQ(Code(absl::StatusCode::kResourceExhausted), 5);
  EXPECT_EQ(Code(absl::StatusCode::kUnavailable), 6);
  EXPECT_EQ(Code(absl::StatusCode::kPermissionDenied), 7);
  EXPECT_EQ(Code(absl::StatusCode::kUnauthenticated), 7);
  EXPECT_EQ(Code(absl::StatusCode::kDeadlineExceeded), 8);
  EXPECT_EQ(Code(absl::StatusCode::kAborted), 9);
}

TEST(ExitCodeTest, HelpListsEachOnce) {
  const std::string help = ExitCodeHelp();
  for (int code = 0; code <= 9; ++code) {
    EXPECT_THAT(help, testing::HasSubstr("\n  " + std::to_string(code) + "  "));
  }
}

TEST(ExitCodeTest, TheGuideSaysTheSame) {
  std::ifstream in(CXLPOOL_SOURCE_DIR "/docs/cli.md");
  std::string text{std::istreambuf_iterator<char>(in), {}};
  std::erase(text, '`');
  for (absl::string_view line : absl::StrSplit(ExitCodeHelp(), '\n', absl::SkipEmpty())) {
    if (absl::ConsumePrefix(&line, "  ")) {
      EXPECT_THAT(text, testing::HasSubstr(std::string(line.substr(3))));
    }
  }
}

}  // namespace
}  // namespace cxlpool::cli
