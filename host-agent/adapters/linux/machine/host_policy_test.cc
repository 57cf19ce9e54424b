#include "host-agent/adapters/linux/machine/host_policy.h"

#include <sys/stat.h>

#include <filesystem>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/support/refusal.h"
#include "test/rigs/fake_host_for_test.h"

namespace cxlpool::agent {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kDemotion[] = "sys/kernel/mm/numa/demotion_enabled";
constexpr char kBalancing[] = "proc/sys/kernel/numa_balancing";
constexpr char kWeights[] = "sys/kernel/mm/mempolicy/weighted_interleave";

class HostPolicyTest : public testing::Test {
 protected:
  HostPolicyTest() {
    Boot("boot-1");
    host_.Put(kDemotion, "false\n");
    host_.Put(kBalancing, "0\n");
    for (const char* name : {"/node0", "/node1"}) host_.Put(std::string(kWeights) + name, "1\n");
    host_.Put("sys/devices/system/node/has_cpu", "0\n");
  }
  void Boot(const std::string& id) { host_.Put("proc/sys/kernel/random/boot_id", id + "\n"); }
  std::string File() const { return host_.Path("kernel-policy"); }
  LinuxHostPolicy Policy() const { return {host_.files(), File()}; }

  FakeHost host_;
  const SavedPolicy saved_ = {{"demotion_enabled", {"false", "true"}},
                              {"weighted_interleave/node0", {"1", "3"}}};
};

TEST_F(HostPolicyTest, ReadsWhatTheKernelHas) {
  EXPECT_EQ(Policy().Read(), (PolicyValues{{"demotion_enabled", "false"},
                                           {"numa_balancing", "0"},
                                           {"weighted_interleave/node0", "1"},
                                           {"weighted_interleave/node1", "1"}}));
  host_.Put(std::string(kWeights) + "/auto", "true\n");
  host_.Put(std::string(kWeights) + "/other", "1\n");
  host_.Put(kDemotion, "not one word\n");
  EXPECT_EQ(Policy().Read(), (PolicyValues{{"numa_balancing", "0"},
                                           {"weighted_interleave/auto", "true"},
                                           {"weighted_interleave/node0", "1"},
                                           {"weighted_interleave/node1", "1"}}));
  EXPECT_TRUE(LinuxHostPolicy(HostFiles(host_.Path("none")), File()).Read().empty());
}

TEST_F(HostPolicyTest, WritesEachToItsFile) {
  LinuxHostPolicy policy = Policy();
  for (const auto& [name, value] : PolicyValues{{"demotion_enabled", "true"},
                                                {"numa_balancing", "2"},
                                                {"weighted_interleave/node1", "7"}}) {
    const absl::Status status = policy.Write(name, value);
    EXPECT_TRUE(status.ok()) << status;
  }
  EXPECT_EQ(host_.files().Read(kDemotion), "true");
  EXPECT_EQ(host_.files().Read(kBalancing), "2");
  EXPECT_EQ(host_.files().Read(std::string(kWeights) + "/node1"), "7");
}

TEST_F(HostPolicyTest, WriteIsNotBelieved) {
  std::filesystem::remove(host_.Path(kDemotion));
  std::filesystem::create_symlink("/dev/null", host_.Path(kDemotion));
  const absl::Status status = Policy().Write("demotion_enabled", "true");
  EXPECT_EQ(ReasonOf(status), "POLICY_WRITE");
  EXPECT_THAT(std::string(status.message()), HasSubstr("without effect"));
  EXPECT_THAT(std::string(Policy().Write("weighted_interleave/node5", "1").message()),
              HasSubstr("ENOENT"));
  EXPECT_FALSE(Policy().Write("weighted_interleave/../../x", "1").ok());
  EXPECT_FALSE(Policy().Write("numa_balancing", "0\n1").ok());
}

TEST_F(HostPolicyTest, NextAgentKnowsWhatWasSaved) {
  ASSERT_TRUE(Policy().Save(saved_).ok());
  EXPECT_EQ(Policy().Saved(), saved_);
  struct stat file = {};
  ASSERT_EQ(stat(File().c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 0777, 0600u);
  ASSERT_TRUE(Policy().Save({}).ok());
  EXPECT_TRUE(Policy().Saved().empty());
  EXPECT_FALSE(std::filesystem::exists(File()));
  EXPECT_TRUE(Policy().Save({}).ok());
}

TEST_F(HostPolicyTest, FileOfAnotherBootIsIgnored) {
  ASSERT_TRUE(Policy().Save(saved_).ok());
  Boot("boot-2");
  EXPECT_TRUE(Policy().Saved().empty());
}

TEST_F(HostPolicyTest, FileThatIsNotUnderstoodIsIgnored) {
  EXPECT_TRUE(Policy().Saved().empty());
  const std::string first = "cxlpool kernel policy 1 boot-1\n";
  for (const char* text : {"", "x", "numa_balancing 0 2", "numa_balancing 0\n",
                           "numa_balancing 0 2 3\n", "numa_balancing  2\n", "modprobe a b\n"}) {
    host_.Put("kernel-policy", first + text);
    EXPECT_TRUE(Policy().Saved().empty()) << text;
  }
  host_.Put("kernel-policy", first + "numa_balancing 0 2\n");
  EXPECT_EQ(Policy().Saved(), (SavedPolicy{{"numa_balancing", {"0", "2"}}}));
  std::filesystem::permissions(File(), std::filesystem::perms::others_write,
                               std::filesystem::perm_options::add);
  EXPECT_TRUE(Policy().Saved().empty());
}

TEST_F(HostPolicyTest, FileThatCannotBeWrittenIsAnError) {
  const absl::Status status =
      LinuxHostPolicy(host_.files(), host_.Path("none/policy")).Save(saved_);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("cannot be written"));
}

TEST_F(HostPolicyTest, ExaminesWhatIsConfigured) {
  const TieringConfig config = {true, TieringConfig::NumaBalancing::kTiering, 3, 1};
  EXPECT_EQ(ExamineTiering(host_.files(), config).verdict, Verdict::kOk);
  std::filesystem::remove(host_.Path(kBalancing));
  Finding finding = ExamineTiering(host_.files(), config);
  EXPECT_EQ(finding.id, "tiering");
  EXPECT_EQ(finding.verdict, Verdict::kWarning);
  EXPECT_THAT(finding.what, HasSubstr("TIERING_UNSUPPORTED"));
  EXPECT_THAT(finding.what, HasSubstr("/proc/sys/kernel/numa_balancing"));
  EXPECT_THAT(finding.what, Not(HasSubstr("weighted")));
  EXPECT_FALSE(finding.remedy.empty());
  EXPECT_EQ(ExamineTiering(host_.files(), {.demotion = true}).verdict, Verdict::kOk);
  std::filesystem::remove_all(host_.Path(kWeights));
  EXPECT_EQ(ExamineTiering(host_.files(), {.pool_weight = 1}).verdict, Verdict::kWarning);
  EXPECT_EQ(ExamineTiering(host_.files(), {.local_weight = 1}).verdict, Verdict::kWarning);
}

}  // namespace
}  // namespace cxlpool::agent
