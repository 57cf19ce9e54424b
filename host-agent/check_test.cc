#include "host-agent/check.h"

#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/support/refusal.h"
#include "test/rigs/fake_host_for_test.h"

namespace cxlpool::agent {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::vector<Finding> kFindings = {
    {"kernel", Verdict::kOk, "Linux 6.12.95", ""},
    {"dax_autoprobe", Verdict::kWarning, "DAX autoprobe is on",
     "start cxlpool-agent; if it runs, find what switched autoprobe on again after that"},
    {"kmem", Verdict::kMissing, "no driver \"kmem\"", "modprobe kmem"},
};

constexpr char kConfig[] =
    "host = \"host-a\"\nadapter = \"emulated\"\n[manager]\naddress = \"unix:/nowhere\"\n"
    "insecure = true\n[emulated]\nroot = \"/nowhere\"\n[[emulated.bridge]]\n"
    "name = \"ACPI0016:00\"\nslots = [1]\n";

std::string Verdicts(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings) {
    text += finding.id + (finding.verdict == Verdict::kOk ? " ok;" : " missing;");
  }
  return text;
}

TEST(CheckTest, TableHasEachFindingAndARemedyUnderWhatIsNotInOrder) {
  EXPECT_EQ(CheckTable(kFindings),
            "ok       kernel           Linux 6.12.95\n"
            "warning  dax_autoprobe    DAX autoprobe is on\n"
            "                          remedy: start cxlpool-agent; if it runs, find what\n"
            "                                  switched autoprobe on again after that\n"
            "missing  kmem             no driver \"kmem\"\n"
            "                          remedy: modprobe kmem\n"
            "\n"
            "This machine cannot use pool memory yet: 1 missing, 1 warning.\n");
}

TEST(CheckTest, JsonHasTheSame) {
  EXPECT_EQ(CheckJson(kFindings),
            "{\n"
            "  \"fit\": false,\n"
            "  \"findings\": [\n"
            "    {\"id\": \"kernel\", \"verdict\": \"ok\",\n"
            "     \"what\": \"Linux 6.12.95\",\n"
            "     \"remedy\": \"\"},\n"
            "    {\"id\": \"dax_autoprobe\", \"verdict\": \"warning\",\n"
            "     \"what\": \"DAX autoprobe is on\",\n"
            "     \"remedy\": \"start cxlpool-agent; if it runs, find what switched autoprobe on "
            "again after that\"},\n"
            "    {\"id\": \"kmem\", \"verdict\": \"missing\",\n"
            "     \"what\": \"no driver \\\"kmem\\\"\",\n"
            "     \"remedy\": \"modprobe kmem\"}\n"
            "  ]\n"
            "}\n");
}

TEST(CheckTest, WarningsDoNotMakeAMachineUnfit) {
  EXPECT_FALSE(IsFit(kFindings));
  EXPECT_TRUE(IsFit({kFindings[0], kFindings[1]}));
  EXPECT_THAT(CheckTable({kFindings[0]}), HasSubstr("can use pool memory: 0 missing, 0 warnings."));
}

TEST(CheckTest, LongWordsStandInLinesOfTheirOwn) {
  const std::string word(90, 'x');
  const std::string table = CheckTable({{"id", Verdict::kOk, "a " + word + " b", ""}});
  EXPECT_THAT(table, HasSubstr("a\n                          " + word + "\n    "));
}

TEST(CheckTest, WithoutAConfigurationTheMachineIsExaminedAll) {
  FakeHost host;
  const auto findings = CheckAgent(host.files(), host.Path("none.toml"), {});
  EXPECT_THAT(Verdicts(findings), HasSubstr("cxl_bus missing;"));
  EXPECT_EQ(findings.back().id, "config");
  EXPECT_EQ(findings.back().verdict, Verdict::kMissing);
}

TEST(CheckTest, EmulatedAdapterNeedsNothingOfTheMachine) {
  FakeHost host;
  host.Put("agent.toml", kConfig);
  CheckQuestions questions{.credentials = [](const AgentConfig&) { return absl::OkStatus(); },
                           .manager = {}};
  EXPECT_EQ(Verdicts(CheckAgent(host.files(), host.Path("agent.toml"), questions)),
            "adapter ok;config ok;credentials ok;");
  questions.manager = [](const AgentConfig&) {
    return Refuse(absl::StatusCode::kUnavailable, "MANAGER_UNREACHABLE", "no \x1b[31manswer\n",
                  "start it");
  };
  const auto findings = CheckAgent(host.files(), host.Path("agent.toml"), questions);
  EXPECT_EQ(Verdicts(findings), "adapter ok;config ok;credentials ok;manager missing;");
  EXPECT_EQ(findings.back().what, "no ?[31manswer ");
  EXPECT_EQ(findings.back().remedy, "start it");
}

TEST(CheckTest, TheDrainHookIsLookedAtWhereThereIsOne) {
  FakeHost host;
  CheckQuestions questions{.credentials = [](const AgentConfig&) { return absl::OkStatus(); },
                           .manager = {}};
  questions.drain_hook = [](const AgentConfig& config) {
    return absl::FailedPreconditionError(config.drain_hook);
  };
  host.Put("agent.toml", kConfig);
  EXPECT_EQ(Verdicts(CheckAgent(host.files(), host.Path("agent.toml"), questions)),
            "adapter ok;config ok;credentials ok;");
  host.Put("agent.toml", std::string(kConfig) + "[release]\ndrain_hook = \"/drain\"\n");
  const auto findings = CheckAgent(host.files(), host.Path("agent.toml"), questions);
  EXPECT_EQ(Verdicts(findings), "adapter ok;config ok;drain-hook missing;credentials ok;");
  EXPECT_EQ(findings[2].what, "/drain");
}

TEST(CheckTest, ManagerIsNotAskedWithCredentialsThatCannotBeUsed) {
  FakeHost host;
  host.Put("agent.toml", kConfig);
  const CheckQuestions questions{
      .credentials = [](const AgentConfig&) { return absl::InvalidArgumentError("no key"); },
      .manager =
          [](const AgentConfig&) {
            ADD_FAILURE();
            return absl::OkStatus();
          }};
  const auto findings = CheckAgent(host.files(), host.Path("agent.toml"), questions);
  EXPECT_EQ(Verdicts(findings), "adapter ok;config ok;credentials missing;");
  EXPECT_EQ(findings.back().what, "no key");
  EXPECT_THAT(findings.back().remedy, Not(testing::IsEmpty()));
}

TEST(CheckTest, TieringIsExaminedWhereItIsConfigured) {
  FakeHost host;
  const std::string config =
      "host = \"host-a\"\nadapter = \"linux\"\n[manager]\naddress = \"unix:/nowhere\"\n"
      "insecure = true\n";
  const CheckQuestions questions{.credentials = [](const AgentConfig&) { return absl::OkStatus(); },
                                 .manager = {}};
  auto verdicts = [&](const std::string& tiering) {
    host.Put("agent.toml", config + tiering);
    return Verdicts(CheckAgent(host.files(), host.Path("agent.toml"), questions));
  };
  EXPECT_THAT(verdicts(""), Not(HasSubstr("tiering")));
  EXPECT_THAT(verdicts("[tiering]\ndemotion = true\n"), HasSubstr("tiering missing;config ok;"));
  host.Put("sys/kernel/mm/numa/demotion_enabled", "false\n");
  EXPECT_THAT(verdicts("[tiering]\ndemotion = true\n"), HasSubstr("tiering ok;config ok;"));
}

TEST(CheckTest, AHostOfWholeDevicesIsAskedForThemAndForNoSlots) {
  FakeHost host;
  const std::string config =
      "host = \"host-a\"\nadapter = \"shared\"\n[manager]\naddress = \"unix:/nowhere\"\n"
      "insecure = true\n";
  const CheckQuestions questions{.credentials = [](const AgentConfig&) { return absl::OkStatus(); },
                                 .manager = {}};
  host.Put("agent.toml", config);
  const std::string real = Verdicts(CheckAgent(host.files(), host.Path("agent.toml"), questions));
  EXPECT_THAT(real, HasSubstr("whole_devices missing;config ok;"));
  EXPECT_THAT(real, Not(HasSubstr("hotplug_slots")));
  host.Put("agent.toml", config + "[shared]\nfiles = [\"/nowhere/cmm-0\"]\n");
  EXPECT_EQ(Verdicts(CheckAgent(host.files(), host.Path("agent.toml"), questions)),
            "adapter ok;config ok;credentials ok;");
}

TEST(CheckTest, BrokenConfigurationIsAFindingWithItsLine) {
  FakeHost host;
  host.Put("agent.toml", "host = \"host-a\"\nadapter = \"linux\"\nwhat = 1\n");
  const auto findings = CheckAgent(host.files(), host.Path("agent.toml"), {});
  EXPECT_EQ(findings.back().id, "config");
  EXPECT_THAT(findings.back().what, HasSubstr("agent.toml"));
}

}  // namespace
}  // namespace cxlpool::agent
