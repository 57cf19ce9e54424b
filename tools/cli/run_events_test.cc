#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <utility>

#include "proto/support/refusal.h"
#include "tools/cli/execute.h"
#include "tools/cli/testing.h"

namespace cxlpool::cli {
namespace {

using testing::HasSubstr;

class RunEventsTest : public testing::Test {
 protected:
  absl::Status Run(PoolCommand command) {
    Printer printer{.out = out_, .err = err_, .format = OutputFormat::kTable};
    return Execute(std::move(command), fake_.connection, printer);
  }

  FakeConnection fake_;
  std::ostringstream out_;
  std::ostringstream err_;
};

TEST_F(RunEventsTest, EventsComeFromAllPagesTheNewestLast) {
  v1::ListEventsResponse first, second;
  first.add_events()->set_resource("regions/new");
  first.mutable_events(0)->set_refused("NO_ROLE");
  first.set_next_page_token("t");
  second.add_events()->set_resource("regions/old");
  second.set_next_page_token("u");
  fake_.manager.ListEvents_calls.answers = {first, second};
  ASSERT_TRUE(Run(ListEvents{.request = {}, .most = 2}).ok());
  const auto& requests = fake_.manager.ListEvents_calls.requests;
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_EQ(requests[0].page_size(), 2u);
  EXPECT_EQ(requests[1].page_size(), 1u);
  EXPECT_EQ(requests[1].page_token(), "t");
  EXPECT_LT(out_.str().find("regions/old"), out_.str().find("regions/new"));
  EXPECT_THAT(out_.str(), HasSubstr("NO_ROLE"));
}

TEST_F(RunEventsTest, ATrailThatWasAlteredIsAnError) {
  v1::VerifyAuditResponse verified;
  verified.set_first_row(3);
  verified.set_head("9:00ff");
  fake_.manager.VerifyAudit_calls.answers = {verified};
  EXPECT_TRUE(Run(VerifyAudit{}).ok());
  EXPECT_THAT(out_.str(), HasSubstr("rows from 3 on are kept; the trail ends at 9:00ff"));
  verified.add_flaws()->set_what("row 5 is missing");
  fake_.manager.VerifyAudit_calls.answers = {verified};
  EXPECT_EQ(ReasonOf(Run(VerifyAudit{})), "AUDIT_ALTERED");
  EXPECT_THAT(out_.str(), HasSubstr("row 5 is missing"));
}

}  // namespace
}  // namespace cxlpool::cli
