#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <variant>

#include "tools/cli/command_line.h"
#include "tools/cli/exit_code.h"

namespace cxlpool::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string Page() {
  const char* const argv[] = {"cxlpool", "help", "--man"};
  const auto parsed = ParseCommandLine(3, argv);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  return parsed.ok() ? std::get<PrintText>(*parsed).text : "";
}

TEST(ManPageTest, HasEachCommandWithItsOptions) {
  const std::string page = Page();
  EXPECT_THAT(page, HasSubstr("\n.SS region attach NAME \\-\\-host HOST [OPTIONS]\n"
                              "Let a host use a Region.\n"));
  EXPECT_THAT(page, HasSubstr("\n.TP\n\\fB\\-\\-mode\\fR \\fIdevdax|system\\-ram\\fR\n"));
  EXPECT_THAT(page, HasSubstr("\n.SS completion bash|zsh|fish\n"));
  EXPECT_THAT(page, HasSubstr("\n.SS region release NAME... [OPTIONS]\n"));
  EXPECT_THAT(page, HasSubstr("Needs \\-\\-wait."));
  EXPECT_THAT(page, HasSubstr("\n.TP\n\\fB\\-o\\fR, \\fB\\-\\-output\\fR \\fI"
                              "table|json|yaml|name\\fR\n"));
  EXPECT_THAT(page, Not(HasSubstr("\\-\\-man\\fR"))) << "it is hidden";
  EXPECT_THAT(page, HasSubstr("\n9  failed while waiting"));
}

// What is behind the dashes is another program's.
TEST(ManPageTest, AProgramStandsBehindTheOptions) {
  EXPECT_THAT(Page(), HasSubstr("\n.SS run [OPTIONS] \\-\\- PROGRAM...\n"));
}

// roff takes these for typographic quotes and accents: a command that is copied from the page would
// be another one.
TEST(ManPageTest, CharactersOfCommandsStayWhatTheyAre) {
  EXPECT_EQ(Page().find_first_of("~^`'"), std::string::npos);
  EXPECT_THAT(Page(), HasSubstr("the memory\\(aqs place"));
}

}  // namespace
}  // namespace cxlpool::cli
