#include "tools/cli/slurm/accounting.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/support/refusal.h"
#include "tools/cli/slurm/slurm_cluster.h"

namespace cxlpool::cli {
namespace {

using testing::ElementsAre;

constexpr uint64_t kAccountMiB = 1 << 20;
const absl::Time kSweepTime = absl::FromUnixSeconds(1'000'000);

v1::Region HeldRegion(const std::string& id, uint64_t size_bytes = 256 * kAccountMiB,
                      v1::Region::State state = v1::Region::ALLOCATED) {
  v1::Region region;
  region.set_name("regions/" + id);
  region.set_size_bytes(size_bytes);
  region.set_state(state);
  region.mutable_expire_time()->set_seconds(absl::ToUnixSeconds(kSweepTime + absl::Hours(24)));
  return region;
}

v1::ListRegionsResponse ListOf(const std::vector<v1::Region>& regions) {
  v1::ListRegionsResponse list;
  for (const v1::Region& region : regions) *list.add_regions() = region;
  return list;
}

std::vector<std::string> NamesOf(const std::vector<v1::Region>& regions) {
  std::vector<std::string> names;
  for (const v1::Region& region : regions) names.push_back(region.name());
  return names;
}

TEST(AccountingTest, NamesThereAndBack) {
  SlurmSettings settings;
  EXPECT_EQ(JobRegionId(settings, {.job = 5}), "slurm-5");
  EXPECT_EQ(JobRegionId(settings, {.job = 5, .node = 0}), "slurm-5-0");
  settings.tenant = "ml";
  settings.prefix = "east";
  for (const JobRegion& which :
       {JobRegion{.job = 5}, JobRegion{.job = 4'294'967'295, .node = 70}}) {
    EXPECT_EQ(FindJobRegion(settings, HeldRegion(JobRegionId(settings, which))), which);
  }
  EXPECT_EQ(JobRegionId(settings, {.job = 5}), "ml.east-5");
}

TEST(AccountingTest, WhatPeopleMadeIsNotSlurms) {
  const SlurmSettings settings;
  for (const char* id : {"slurm", "slurm-", "slurm-x", "slurm-05", "slurm-5-", "slurm-5-x",
                         "slurm-5-1-2", "slurm-99999999999", "xslurm-5", "ml.slurm-5", "kv"}) {
    EXPECT_EQ(FindJobRegion(settings, HeldRegion(id)), std::nullopt) << id;
  }
  v1::Region for_good = HeldRegion("slurm-5");
  for_good.clear_expire_time();
  EXPECT_EQ(FindJobRegion(settings, for_good), std::nullopt);
}

TEST(AccountingTest, TheRegionsOfOneJobInOrder) {
  const auto list = ListOf({HeldRegion("slurm-5-10"), HeldRegion("slurm-5-2"),
                            HeldRegion("slurm-50"), HeldRegion("slurm-6")});
  EXPECT_THAT(NamesOf(RegionsOfJob(SlurmSettings(), list, 5)),
              ElementsAre("regions/slurm-5-2", "regions/slurm-5-10"));
}

// Slurm takes off what its jobs have.
TEST(AccountingTest, SlurmSeesWhatIsFreeAndWhatItsJobsHave) {
  v1::Capacity capacity;
  capacity.set_total_bytes(4096 * kAccountMiB);
  capacity.set_free_bytes(1000 * kAccountMiB);
  const SlurmSettings settings;
  EXPECT_EQ(BytesForSlurm(settings, capacity, ListOf({})), 1000 * kAccountMiB);
  EXPECT_EQ(
      BytesForSlurm(settings, capacity,
                    ListOf({HeldRegion("slurm-5"), HeldRegion("kv"), HeldRegion("slurm-6-0")})),
      1512 * kAccountMiB);
  // What leaves may be free already when Slurm counts.
  EXPECT_EQ(
      BytesForSlurm(settings, capacity,
                    ListOf({HeldRegion("slurm-5", 256 * kAccountMiB, v1::Region::SCRUBBING),
                            HeldRegion("slurm-6", 256 * kAccountMiB, v1::Region::RELEASING),
                            HeldRegion("slurm-7", 256 * kAccountMiB, v1::Region::QUARANTINED)})),
      1000 * kAccountMiB);
}

TEST(AccountingTest, AQuantityIsANumberOfWholeGranules) {
  const SlurmSettings settings;
  EXPECT_EQ(PoolsJson(settings, 1000 * kAccountMiB),
            "{\"pools\":[{\"id\":\"cxl\",\"quantity\":3,\"granularity\":268435456}]}\n");
  EXPECT_EQ(WholeGranules(settings, 1), 256 * kAccountMiB);
  EXPECT_EQ(WholeGranules(settings, 256 * kAccountMiB), 256 * kAccountMiB);
  EXPECT_EQ(WholeGranules(settings, 256 * kAccountMiB + 1), 512 * kAccountMiB);
}

TEST(AccountingTest, JobsThatMayUseTheirMemory) {
  const auto jobs = ReadJobs(
      "12 RUNNING\n13 PENDING\n14 COMPLETED\n15 COMPLETING\n16 CANCELLED\n"
      "17 NODE_FAIL\n18 REQUEUED\n19 TIMEOUT\n20 SUSPENDED\n");
  ASSERT_TRUE(jobs.ok());
  EXPECT_THAT(*jobs, ElementsAre(12, 13, 15, 18, 20));
  EXPECT_TRUE(ReadJobs("").ok());
  for (const char* listing :
       {"12 RUNNING\nslurm_load_jobs error: Unable to contact slurm controller\n", "12\n",
        "JOBID STATE\n", "12_4 RUNNING\n"}) {
    EXPECT_EQ(ReasonOf(ReadJobs(listing).status()), "SLURM_UNKNOWN") << listing;
  }
}

TEST(AccountingTest, WhoDoesNotSeeAllJobsConcludesNothing) {
  const std::string open =
      "Configuration data as of x\nPrivateData             = none\nSlurmUser               = "
      "slurm(64030)\n";
  const std::string hidden =
      "PrivateData             = jobs,usage\nSlurmUser               = slurm(64030)\n";
  EXPECT_TRUE(CheckSeesAllJobs(open, 1000).ok());
  EXPECT_TRUE(CheckSeesAllJobs(hidden, 0).ok());
  EXPECT_TRUE(CheckSeesAllJobs(hidden, 64030).ok());
  EXPECT_EQ(ReasonOf(CheckSeesAllJobs(hidden, 1000)), "SLURM_HIDES_JOBS");
  EXPECT_EQ(ReasonOf(CheckSeesAllJobs(hidden, 4030)), "SLURM_HIDES_JOBS");
  EXPECT_EQ(ReasonOf(CheckSeesAllJobs("", 1000)), "SLURM_HIDES_JOBS");
}

TEST(AccountingTest, ASweepRenewsWhatLivesAndReleasesWhatDoesNot) {
  v1::Region old = HeldRegion("slurm-5");
  old.mutable_expire_time()->set_seconds(absl::ToUnixSeconds(kSweepTime + absl::Hours(17)));
  v1::Region for_good = HeldRegion("slurm-9");
  for_good.clear_expire_time();
  const SweepPlan plan =
      PlanSweep(SlurmSettings(),
                ListOf({old, HeldRegion("slurm-6"), HeldRegion("slurm-7"),
                        HeldRegion("slurm-7-1", 1, v1::Region::RESERVED), for_good,
                        HeldRegion("slurm-8", 1, v1::Region::QUARANTINED),
                        HeldRegion("slurm-8-1", 1, v1::Region::RELEASING), HeldRegion("kv")}),
                {5, 6}, kSweepTime);
  EXPECT_THAT(NamesOf(plan.renew), ElementsAre("regions/slurm-5"));
  EXPECT_THAT(NamesOf(plan.release), ElementsAre("regions/slurm-7", "regions/slurm-7-1"));
}

TEST(AccountingTest, TimeLimitsAsSlurmWritesThem) {
  EXPECT_EQ(ReadTimeLimit("0:30"), absl::Seconds(30));
  EXPECT_EQ(ReadTimeLimit("3:04:05"), absl::Seconds(3 * 3600 + 4 * 60 + 5));
  EXPECT_EQ(ReadTimeLimit("2-03:04:05"), absl::Seconds(51 * 3600 + 4 * 60 + 5));
  for (const char* text : {"", "UNLIMITED", "NOT_SET", "5", "1-2-3:00", "a:00", "1:2:3:4",
                           "9223372036854775807-00:00", "9223372036854775807:00:00"}) {
    EXPECT_EQ(ReadTimeLimit(text), absl::InfiniteDuration()) << text;
  }
}

TEST(AccountingTest, AJobAsSqueueShowsIt) {
  const char* listing = "12|PENDING|1000|ml|2|5:00|\n13|RUNNING|1001|(null)|3|UNLIMITED|n[1-3]\n";
  EXPECT_EQ(ReadJob(listing, 12)->account, "ml");
  EXPECT_EQ(ReadJob(listing, 12)->nodes, 2u);
  EXPECT_EQ(ReadJob(listing, 13)->node_list, "n[1-3]");
  EXPECT_EQ(ReadJob(listing, 13)->account, "");
  EXPECT_EQ(ReadJob(listing, 13)->user, 1001u);
  EXPECT_EQ(ReadJob(listing, 12)->limit, absl::Minutes(5));
  EXPECT_EQ(ReadJob(listing, 13)->limit, absl::InfiniteDuration());
  EXPECT_EQ(ReadJob(listing, 1), std::nullopt);
  EXPECT_EQ(ReadJob("", 12), std::nullopt);
}

}  // namespace
}  // namespace cxlpool::cli
