#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "proto/support/refusal.h"
#include "tools/cli/execute.h"
#include "tools/cli/golden.h"
#include "tools/cli/testing.h"

namespace cxlpool::cli {
namespace {

using testing::HasSubstr;

v1::Self ALeader(uint64_t epoch, uint64_t revision) {
  v1::Self self;
  self.set_epoch(epoch);
  self.set_revision(revision);
  return self;
}
absl::Status AStandby(uint64_t epoch, uint64_t revision) {
  return Refuse(absl::StatusCode::kUnavailable, "NOT_LEADER", "a standby", "call the leader",
                {{"leader", "fm-1:7600"},
                 {"epoch", std::to_string(epoch)},
                 {"revision", std::to_string(revision)}});
}
absl::Status ManagerAway() {
  return Refuse(absl::StatusCode::kUnavailable, "MANAGER_UNREACHABLE",
                "cannot reach the fabric manager at fm-3:7600: Connection refused", "start it");
}

class RunStatusTest : public testing::Test {
 protected:
  absl::Status Run(OutputFormat format = OutputFormat::kTable, bool headers = true) {
    out_.str("");
    Printer printer{.out = out_, .err = out_, .format = format, .headers = headers};
    return Execute(ShowStatus(), fake_.connection, printer);
  }

  FakeConnection fake_;
  std::ostringstream out_;
};

TEST_F(RunStatusTest, ShowsWhoLeadsWhoFollowsAndWhoIsAway) {
  fake_.manager.selves = {{"fm-1:7600", ALeader(7, 1042)},
                          {"fm-2:7600", AStandby(7, 1040)},
                          {"fm-3:7600", ManagerAway()}};
  ASSERT_TRUE(Run().ok());
  ExpectGolden("status.txt", out_.str());
  ASSERT_TRUE(Run(OutputFormat::kJson).ok());
  ExpectGolden("status.json", out_.str());
  ASSERT_TRUE(Run(OutputFormat::kName).ok());
  EXPECT_EQ(out_.str(), "fm-1:7600\nfm-2:7600\nfm-3:7600\n");
  ASSERT_TRUE(Run(OutputFormat::kTable, /*headers=*/false).ok());
  EXPECT_THAT(out_.str(), testing::StartsWith("fm-1:7600"));
  ASSERT_TRUE(Run(OutputFormat::kYaml).ok());
  EXPECT_THAT(out_.str(), HasSubstr("role: standby"));
  for (const absl::Duration limit : fake_.manager.self_limits) {
    EXPECT_LE(limit, absl::Seconds(10) / 3) << "all together have the timeout";
  }
}

TEST_F(RunStatusTest, AManagerWithoutReplicasLeads) {
  fake_.manager.selves = {{"fm-1:7600", ALeader(0, 12)}};
  ASSERT_TRUE(Run().ok());
  EXPECT_THAT(out_.str(), testing::ContainsRegex("fm-1:7600  leader +0 +12 +0  -"));
}

TEST_F(RunStatusTest, WithoutALeaderTheTableIsAnErrorAsWell) {
  fake_.manager.selves = {{"fm-2:7600", AStandby(7, 1040)}, {"fm-3:7600", ManagerAway()}};
  const absl::Status status = Run();
  EXPECT_EQ(ReasonOf(status), "NO_LEADER");
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_THAT(out_.str(), testing::ContainsRegex("fm-2:7600  standby +7 +1040 +-  -"));
  fake_.manager.selves = {{"fm-3:7600", ManagerAway()}};
  EXPECT_EQ(ReasonOf(Run()), "MANAGER_UNREACHABLE");
}

TEST_F(RunStatusTest, AManagerThatRefusesTheCallerLeads) {
  fake_.manager.selves = {{"fm-1:7600", Refused(absl::StatusCode::kPermissionDenied, "NO_ROLE")},
                          {"fm-2:7600", AStandby(7, 1040)}};
  EXPECT_EQ(ReasonOf(Run()), "NO_ROLE");
  EXPECT_THAT(out_.str(),
              testing::ContainsRegex("fm-1:7600  leader +- +- +-  the manager says no"));
}

TEST_F(RunStatusTest, OfTwoThatSayThatTheyLeadTheLaterOneCounts) {
  fake_.manager.selves = {{"fm-1:7600", ALeader(7, 1040)}, {"fm-2:7600", ALeader(8, 1050)}};
  ASSERT_TRUE(Run().ok());
  EXPECT_THAT(out_.str(), testing::ContainsRegex("fm-1:7600  leader +7 +1040 +10"));
}

}  // namespace
}  // namespace cxlpool::cli
