#include "tools/cli/slurm/hooks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <deque>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/time/clock.h"
#include "proto/support/refusal.h"
#include "tools/cli/testing.h"

namespace cxlpool::cli {
namespace {

using testing::HasSubstr;
using SlurmVerb = SlurmCommand::Verb;

constexpr uint64_t kHookMiB = 1 << 20;
constexpr char kPoolFull[] = "POOL_FULL";

absl::Status Silent() { return Refused(absl::StatusCode::kUnavailable, "SLURM_UNKNOWN"); }

class FakeSlurm : public SlurmCluster {
 public:
  absl::StatusOr<std::set<uint32_t>> LiveJobs() override {
    ++asked;
    return live;
  }
  // The last one again and again.
  absl::StatusOr<std::optional<SlurmJob>> FindJob(uint32_t) override {
    auto job = jobs.front();
    if (jobs.size() > 1) jobs.pop_front();
    return job;
  }
  absl::StatusOr<std::vector<std::string>> NodeNames(const std::string&) override { return nodes; }
  absl::StatusOr<std::vector<std::string>> AllNodes() override { return nodes; }
  absl::StatusOr<std::string> BurstBuffers() override { return std::string("PoolName[0]=cxl "); }

  int asked = 0;
  absl::StatusOr<std::set<uint32_t>> live = std::set<uint32_t>();
  std::deque<absl::StatusOr<std::optional<SlurmJob>>> jobs = {
      SlurmJob{.state = "PENDING", .user = 1000}};
  std::vector<std::string> nodes = {"node0"};
};

class HooksTest : public testing::Test {
 protected:
  HooksTest() {
    char name[] = "/tmp/cxlpool-hooks-XXXXXX";
    directory_ = ::mkdtemp(name);
    settings_.state = directory_;
    settings_.wait = absl::Seconds(20);
  }
  ~HooksTest() override { std::filesystem::remove_all(directory_); }

  std::string Script(const std::string& words) {
    const std::string file = directory_ + "/script";
    std::ofstream(file) << "#!/bin/bash\n#CXLPOOL pool=cxl capacity=64MiB " << words
                        << "\nsleep 1\n";
    return file;
  }

  absl::Status Run(const SlurmCommand& command) {
    Printer printer{.out = out_, .err = err_};
    return Execute(
        command, settings_, [&]() -> absl::StatusOr<Connection*> { return &connection_; }, slurm_,
        printer);
  }
  absl::Status Setup(const std::string& words = "") {
    return Run({.verb = SlurmVerb::kSetup,
                .job = 5,
                .user = 1000,
                .size_bytes = 64 * kHookMiB,
                .script = Script(words)});
  }

  v1::Region SlurmRegion(const std::string& id, v1::Region::State state = v1::Region::ALLOCATED) {
    v1::Region region = MakeRegion(state, 3, "regions/" + id);
    region.mutable_expire_time()->set_seconds(absl::ToUnixSeconds(absl::Now() + absl::Hours(24)));
    return region;
  }
  v1::AllocateRegionResponse Allocated(const std::string& id) {
    v1::AllocateRegionResponse response;
    *response.mutable_region() = SlurmRegion(id);
    return response;
  }
  v1::ReleaseRegionResponse Releasing(const std::string& id) {
    v1::ReleaseRegionResponse response;
    *response.mutable_region() = SlurmRegion(id, v1::Region::RELEASING);
    return response;
  }
  v1::ListRegionsResponse List(const std::vector<v1::Region>& regions) {
    v1::ListRegionsResponse list;
    for (const v1::Region& region : regions) *list.add_regions() = region;
    return list;
  }
  // The next wait for `id` to be gone ends well.
  void Goes(const std::string& id) {
    ScriptedStream stream;
    stream.events = {Removed(SlurmRegion(id), 9)};
    manager_.streams.push_back(stream);
  }

  std::string directory_;
  SlurmSettings settings_;
  FakePacer pacer_;
  FakeManager manager_{pacer_};
  CountRetries listener_;
  Connection connection_{manager_, pacer_, listener_, absl::Seconds(10), /*fail_fast=*/true};
  FakeSlurm slurm_;
  std::ostringstream out_, err_;
};

TEST_F(HooksTest, SetupAllocatesForTheJobsUserOnly) {
  manager_.AllocateRegion_calls.answers = {Allocated("slurm-5")};
  ASSERT_TRUE(Setup().ok());
  const v1::AllocateRegionRequest& request = manager_.AllocateRegion_calls.requests.at(0);
  EXPECT_EQ(request.region_id(), "slurm-5");
  EXPECT_EQ(request.size_bytes(), 256 * kHookMiB);  // A whole granule.
  EXPECT_EQ(request.sharing(), v1::EXCLUSIVE);
  EXPECT_EQ(request.ttl().seconds(), 24 * 3600);
  EXPECT_THAT(request.open_to().uids(), testing::ElementsAre(1000u));
  EXPECT_EQ(request.tenant(), "");
  EXPECT_FALSE(request.has_expected_lifetime());
}

TEST_F(HooksTest, SetupWaitsWhileThePoolIsFull) {
  const auto full = Refused(absl::StatusCode::kResourceExhausted, kPoolFull);
  manager_.AllocateRegion_calls.answers = {full, full, Allocated("slurm-5")};
  manager_.ListRegions_calls.answers = {List({}), List({})};
  EXPECT_TRUE(Setup().ok());
  EXPECT_EQ(pacer_.sleeps.size(), 2u);
}

TEST_F(HooksTest, SetupEndsWithTheManagersWordsWhenItsTimeIsOver) {
  for (int i = 0; i < 20; ++i) {
    manager_.AllocateRegion_calls.answers.push_back(
        Refused(absl::StatusCode::kResourceExhausted, kPoolFull));
  }
  const absl::Status status = Setup();
  EXPECT_EQ(ReasonOf(status), kPoolFull);
  EXPECT_EQ(OneLine(status), "the manager says no; do better (POOL_FULL)");
  EXPECT_LE(pacer_.Elapsed(), absl::Hours(1) + settings_.wait);
}

TEST_F(HooksTest, SetupDoesNotTryAgainWhatCannotPass) {
  manager_.AllocateRegion_calls.answers = {Refused(absl::StatusCode::kNotFound, "UNKNOWN_TENANT")};
  EXPECT_EQ(ReasonOf(Setup()), "UNKNOWN_TENANT");
  EXPECT_TRUE(pacer_.sleeps.empty());
}

// Its teardown may have come before there was a Region.
TEST_F(HooksTest, SetupReleasesAgainWhatACancelledJobWouldLeave) {
  manager_.AllocateRegion_calls.answers = {Allocated("slurm-5")};
  slurm_.jobs = {SlurmJob{.state = "PENDING"}, SlurmJob{.state = "CANCELLED"}};
  manager_.ListRegions_calls.answers = {List({SlurmRegion("slurm-5")})};
  manager_.ReleaseRegion_calls.answers = {Releasing("slurm-5")};
  Goes("slurm-5");
  EXPECT_EQ(ReasonOf(Setup()), "JOB_GONE");
  EXPECT_EQ(manager_.ReleaseRegion_calls.requests.size(), 1u);
}

TEST_F(HooksTest, SetupKeepsTheMemoryIfSlurmCannotBeAskedAfterwards) {
  manager_.AllocateRegion_calls.answers = {Allocated("slurm-5")};
  slurm_.jobs = {SlurmJob{.state = "PENDING"}, Silent()};
  EXPECT_TRUE(Setup().ok());
  EXPECT_TRUE(manager_.ReleaseRegion_calls.requests.empty());
}

// A job must not get the bytes of an earlier one.
TEST_F(HooksTest, SetupReplacesARegionThatIsThere) {
  manager_.AllocateRegion_calls.answers = {
      Refused(absl::StatusCode::kAlreadyExists, "REGION_EXISTS"), Allocated("slurm-5")};
  manager_.GetRegion_calls.answers = {SlurmRegion("slurm-5")};
  manager_.ReleaseRegion_calls.answers = {Releasing("slurm-5")};
  Goes("slurm-5");
  EXPECT_TRUE(Setup().ok());
  EXPECT_EQ(manager_.ReleaseRegion_calls.requests.at(0).name(), "regions/tag of regions/slurm-5");
  EXPECT_TRUE(manager_.ReleaseRegion_calls.requests.at(0).detach_all());
}

// A setup that outlived its slurmctld, while a later one got the job started.
TEST_F(HooksTest, SetupTakesNothingFromAJobThatHasBegun) {
  manager_.AllocateRegion_calls.answers = {
      Refused(absl::StatusCode::kAlreadyExists, "REGION_EXISTS")};
  manager_.GetRegion_calls.answers = {SlurmRegion("slurm-5")};
  slurm_.jobs = {SlurmJob{.state = "PENDING"}, SlurmJob{.state = "RUNNING"}};
  EXPECT_EQ(ReasonOf(Setup()), "JOB_STARTED");
  EXPECT_TRUE(manager_.ReleaseRegion_calls.requests.empty());
}

TEST_F(HooksTest, ATeardownThatWaitedTakesNothingFromAJobThatRunsAgain) {
  manager_.ListRegions_calls.answers = {
      Refused(absl::StatusCode::kUnavailable, "MANAGER_UNREACHABLE")};
  slurm_.jobs = {SlurmJob{.state = "RUNNING"}};
  EXPECT_TRUE(Run({.verb = SlurmVerb::kTeardown, .job = 5}).ok());
  EXPECT_EQ(manager_.ListRegions_calls.requests.size(), 1u);
  EXPECT_TRUE(manager_.ReleaseRegion_calls.requests.empty());
}

TEST_F(HooksTest, SetupLeavesAPersonsRegionAlone) {
  manager_.AllocateRegion_calls.answers = {
      Refused(absl::StatusCode::kAlreadyExists, "REGION_EXISTS")};
  manager_.GetRegion_calls.answers = {MakeRegion(v1::Region::ALLOCATED, 3, "regions/slurm-5")};
  EXPECT_EQ(ReasonOf(Setup()), "REGION_EXISTS");
  EXPECT_TRUE(manager_.ReleaseRegion_calls.requests.empty());
}

TEST_F(HooksTest, PerNodeIsAllOrNothing) {
  slurm_.jobs = {SlurmJob{.state = "PENDING", .nodes = 2}};
  manager_.AllocateRegion_calls.answers = {Allocated("slurm-5-0"),
                                           Refused(absl::StatusCode::kResourceExhausted, kPoolFull),
                                           Allocated("slurm-5-0"), Allocated("slurm-5-1")};
  manager_.ListRegions_calls.answers = {List({SlurmRegion("slurm-5-0")})};
  manager_.ReleaseRegion_calls.answers = {Releasing("slurm-5-0")};
  Goes("slurm-5-0");
  EXPECT_TRUE(Setup("per=node").ok());
  EXPECT_EQ(manager_.ReleaseRegion_calls.requests.size(), 1u);
  EXPECT_EQ(manager_.AllocateRegion_calls.requests.at(3).region_id(), "slurm-5-1");
  EXPECT_EQ(manager_.AllocateRegion_calls.requests.at(3).sharing(), v1::EXCLUSIVE);
}

// The job is held then, and lives: nothing else would give the Region back.
TEST_F(HooksTest, SetupReleasesWhatIsNotThereInTime) {
  slurm_.jobs = {SlurmJob{.state = "PENDING", .nodes = 2}};
  v1::AllocateRegionResponse late;
  *late.mutable_region() = SlurmRegion("slurm-5-1", v1::Region::RESERVED);
  manager_.AllocateRegion_calls.answers = {Allocated("slurm-5-0"), late};
  manager_.streams = {Quiet()};
  manager_.ReleaseRegion_calls.answers = {Releasing("slurm-5-1"), Releasing("slurm-5-0")};
  Goes("slurm-5-1");
  Goes("slurm-5-0");
  EXPECT_EQ(ReasonOf(Setup("per=node")), "WAIT_TIMEOUT");
  const auto& released = manager_.ReleaseRegion_calls.requests;
  ASSERT_EQ(released.size(), 2u);
  EXPECT_EQ(released[0].name(), "regions/tag of regions/slurm-5-1");
  EXPECT_EQ(released[1].name(), "regions/tag of regions/slurm-5-0");
}

TEST_F(HooksTest, OneRegionForSeveralNodesIsShared) {
  slurm_.jobs = {
      SlurmJob{.state = "PENDING", .account = "ml", .nodes = 2, .limit = absl::Minutes(5)}};
  settings_.tenant_is_account = true;
  manager_.AllocateRegion_calls.answers = {Allocated("slurm-5")};
  EXPECT_TRUE(Setup().ok());
  EXPECT_EQ(manager_.AllocateRegion_calls.requests.at(0).sharing(), v1::SINGLE_WRITER);
  EXPECT_EQ(manager_.AllocateRegion_calls.requests.at(0).tenant(), "tenants/ml");
  EXPECT_EQ(manager_.AllocateRegion_calls.requests.at(0).expected_lifetime().seconds(), 300);
}

TEST_F(HooksTest, PreRunLetsOneNodeWrite) {
  slurm_.jobs = {SlurmJob{.state = "CONFIGURING", .nodes = 2}};
  slurm_.nodes = {"Node0", "node1"};
  v1::Region region = SlurmRegion("slurm-5");
  region.set_sharing(v1::SINGLE_WRITER);
  v1::Region online = WithAttachment(region, v1::Attachment::ONLINE, 1, "hosts/node0");
  online = WithAttachment(online, v1::Attachment::ONLINE, 2, "hosts/node1");
  manager_.GetRegion_calls.answers = {region, region, online, online};
  manager_.AttachRegion_calls.answers = {v1::AttachRegionResponse(), v1::AttachRegionResponse()};
  ASSERT_TRUE(
      Run({.verb = SlurmVerb::kPreRun, .job = 5, .script = Script("mode=system-ram")}).ok());
  const auto& calls = manager_.AttachRegion_calls.requests;
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(calls[0].host(), "hosts/node0");
  EXPECT_EQ(calls[0].name(), "regions/tag of regions/slurm-5");
  EXPECT_EQ(calls[0].access(), v1::READ_WRITE);
  EXPECT_EQ(calls[0].mode(), v1::SYSTEM_RAM);
  EXPECT_EQ(calls[1].access(), v1::READ_ONLY);
}

// Until the job below it on the host's bridge has ended.
TEST_F(HooksTest, PreRunWaitsWhileABridgeIsBlocked) {
  slurm_.jobs = {SlurmJob{.state = "CONFIGURING"}};
  const v1::Region region = SlurmRegion("slurm-5");
  manager_.GetRegion_calls.answers = {
      region, region, WithAttachment(region, v1::Attachment::ONLINE, 1, "hosts/node0")};
  manager_.AttachRegion_calls.answers = {
      Refused(absl::StatusCode::kResourceExhausted, "BRIDGE_BLOCKED"), v1::AttachRegionResponse()};
  EXPECT_TRUE(Run({.verb = SlurmVerb::kPreRun, .job = 5, .script = Script("")}).ok());
}

// Numbers of jobs are no secret: a program on a host takes the name of a job's Region before the
// job has it, and another host's agent even with a lease.
TEST_F(HooksTest, PreRunAttachesNothingThatOthersHave) {
  slurm_.jobs = {SlurmJob{.state = "CONFIGURING"}};
  manager_.GetRegion_calls.answers = {
      MakeRegion(v1::Region::ALLOCATED, 3, "regions/slurm-5"),
      WithAttachment(SlurmRegion("slurm-5"), v1::Attachment::ONLINE, 1, "hosts/node7")};
  for (const char* why : {"no setup made", "hosts/node7 has"}) {
    const absl::Status status = Run({.verb = SlurmVerb::kPreRun, .job = 5, .script = Script("")});
    EXPECT_EQ(ReasonOf(status), "REGION_EXISTS");
    EXPECT_THAT(OneLine(status), HasSubstr(why));
  }
  EXPECT_TRUE(manager_.AttachRegion_calls.requests.empty());
}

TEST_F(HooksTest, TeardownWaitsForTheManager) {
  const auto away = Refused(absl::StatusCode::kUnavailable, "MANAGER_UNREACHABLE");
  manager_.ListRegions_calls.answers = {away, away,
                                        List({SlurmRegion("slurm-5"), SlurmRegion("slurm-50")})};
  manager_.ReleaseRegion_calls.answers = {Releasing("slurm-5")};
  Goes("slurm-5");
  EXPECT_TRUE(Run({.verb = SlurmVerb::kTeardown, .job = 5}).ok());
  EXPECT_EQ(manager_.ReleaseRegion_calls.requests.size(), 1u);
}

TEST_F(HooksTest, PoolsIsTheLastFigureWhileTheManagerIsAway) {
  const auto away = Refused(absl::StatusCode::kUnavailable, "MANAGER_UNREACHABLE");
  v1::Capacity capacity;
  capacity.set_free_bytes(512 * kHookMiB);
  manager_.ListRegions_calls.answers = {away, List({SlurmRegion("slurm-5")}), away};
  manager_.GetCapacity_calls.answers = {capacity};
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Run({.verb = SlurmVerb::kPools}).ok());
  EXPECT_EQ(out_.str(),
            "{\"pools\":[{\"id\":\"cxl\",\"quantity\":0,\"granularity\":268435456}]}\n"
            "{\"pools\":[{\"id\":\"cxl\",\"quantity\":4,\"granularity\":268435456}]}\n"
            "{\"pools\":[{\"id\":\"cxl\",\"quantity\":4,\"granularity\":268435456}]}\n");
}

TEST_F(HooksTest, ASweepReleasesNothingWhileSlurmIsSilent) {
  manager_.ListRegions_calls.answers = {List({SlurmRegion("slurm-5")})};
  slurm_.live = Silent();
  EXPECT_EQ(ReasonOf(Run({.verb = SlurmVerb::kSweep})), "SLURM_UNKNOWN");
  EXPECT_TRUE(manager_.ReleaseRegion_calls.requests.empty());
  EXPECT_GT(slurm_.asked, 1);
}

TEST_F(HooksTest, ASweepReleasesWhatHasNoJob) {
  manager_.ListRegions_calls.answers = {List({SlurmRegion("slurm-5"), SlurmRegion("slurm-6")})};
  manager_.ReleaseRegion_calls.answers = {Releasing("slurm-6")};
  slurm_.live = std::set<uint32_t>{5};
  EXPECT_TRUE(Run({.verb = SlurmVerb::kSweep}).ok());
  EXPECT_EQ(out_.str(), "slurm-6 is released: its job is gone\n");
  EXPECT_TRUE(manager_.RenewRegion_calls.requests.empty());
}

TEST_F(HooksTest, ValidateAndPathsNeedNoManager) {
  const auto run = [&](SlurmCommand command) {
    Printer printer{.out = out_, .err = err_};
    return Execute(
        command, settings_,
        []() -> absl::StatusOr<Connection*> { return absl::InternalError("no manager"); }, slurm_,
        printer);
  };
  EXPECT_TRUE(run({.verb = SlurmVerb::kValidate, .script = Script("")}).ok());
  settings_.pool = "far";
  EXPECT_THAT(OneLine(run({.verb = SlurmVerb::kValidate, .script = Script("")})),
              HasSubstr("ask for pool=far (BAD_DIRECTIVE)"));
  settings_.pool = "cxl";
  const std::string file = directory_ + "/path";
  const auto paths = [&](const std::string& words) {
    EXPECT_TRUE(
        run({.verb = SlurmVerb::kPaths, .job = 5, .script = Script(words), .path_file = file})
            .ok());
    std::ostringstream text;
    text << std::ifstream(file).rdbuf();
    return text.str();
  };
  EXPECT_EQ(paths(""), "CXLPOOL_REGION=slurm-5\n");
  EXPECT_EQ(paths("per=node"), "CXLPOOL_REGION_PREFIX=slurm-5-\n");
}

TEST_F(HooksTest, RealSizeIsWhatTheJobHolds) {
  manager_.ListRegions_calls.answers = {
      List({SlurmRegion("slurm-5-0"), SlurmRegion("slurm-5-1"), SlurmRegion("slurm-6")})};
  EXPECT_TRUE(Run({.verb = SlurmVerb::kRealSize, .job = 5}).ok());
  EXPECT_EQ(out_.str(), "1073741824\n");
}

TEST_F(HooksTest, CheckSaysAllThatIsWrong) {
  v1::ListHostsResponse hosts;
  hosts.add_hosts()->set_name("hosts/node0");
  slurm_.nodes = {"node0", "Node1"};
  slurm_.live = Silent();
  settings_.state = directory_ + "/none";
  manager_.ListRegions_calls.answers = {List({})};
  v1::Capacity capacity;
  capacity.set_free_bytes(512 * kHookMiB);
  manager_.GetCapacity_calls.answers = {capacity};
  manager_.ListHosts_calls.answers = {hosts};
  EXPECT_EQ(ReasonOf(Run({.verb = SlurmVerb::kCheck})), "SLURM_NOT_READY");
  EXPECT_THAT(out_.str(), HasSubstr("cannot be kept in"));
  EXPECT_THAT(out_.str(), HasSubstr("SLURM_UNKNOWN"));
  EXPECT_THAT(out_.str(),
              HasSubstr("node Node1 is no host of the pool: its name has to be `node1` there"));
}

}  // namespace
}  // namespace cxlpool::cli
