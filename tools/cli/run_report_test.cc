// How `report` asks the manager. What it makes of the answers is tried in render/pool_use_test.cc.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "tools/cli/execute.h"
#include "tools/cli/print.h"
#include "tools/cli/testing.h"

namespace cxlpool::cli {
namespace {

using testing::HasSubstr;

class RunReportTest : public testing::Test {
 protected:
  // Of a pool that has these Regions, of which holders may be asked for, and nothing else.
  absl::Status Report(const std::vector<std::string>& names, bool at_terminal = false) {
    v1::ListRegionsResponse regions;
    for (const std::string& name : names) {
      v1::Region& region = *regions.add_regions();
      region.set_name(name);
      region.set_state(v1::Region::ALLOCATED);
      region.mutable_create_time()->set_seconds(1);
    }
    FakeManager& manager = fake_.manager;
    manager.ListDevices_calls.answers = {v1::ListDevicesResponse()};
    manager.ListHosts_calls.answers = {v1::ListHostsResponse()};
    manager.ListRegions_calls.answers = {regions};
    manager.ListTenants_calls.answers = {v1::ListTenantsResponse()};
    manager.GetTopology_calls.answers = {v1::Topology()};
    holders_.requests.clear();
    out_.str("");
    Printer printer{.out = out_,
                    .err = err_,
                    .progress = at_terminal,
                    .progress_interval = absl::ZeroDuration()};
    return Execute(ShowReport(), fake_.connection, printer);
  }

  FakeConnection fake_;
  decltype(fake_.manager.ListRegionHolders_calls)& holders_ = fake_.manager.ListRegionHolders_calls;
  std::ostringstream out_, err_;
};

TEST_F(RunReportTest, AsksWhoHasTheOldestRegionsOpen) {
  holders_.answers = {v1::ListRegionHoldersResponse()};
  ASSERT_TRUE(Report({"regions/kv"}).ok());
  ASSERT_EQ(holders_.requests.size(), 1u);
  EXPECT_EQ(holders_.requests[0].name(), "regions/kv");
  EXPECT_THAT(out_.str(), HasSubstr("OLDEST Regions"));
}

TEST_F(RunReportTest, WhatNobodyKnowsOfIsLeftOut) {
  holders_.answers = {absl::NotFoundError("it has gone meanwhile"),
                      v1::ListRegionHoldersResponse()};
  EXPECT_TRUE(Report({"regions/one", "regions/two"}).ok());
  EXPECT_EQ(holders_.requests.size(), 2u) << "the other one is asked for all the same";
  holders_.answers = {absl::UnimplementedError("of an earlier release")};
  EXPECT_TRUE(Report({"regions/one", "regions/two"}).ok());
  EXPECT_EQ(holders_.requests.size(), 1u) << "it will not say of the other one either";
}

// Without what was not answered it would say that there is nothing that nobody has opened.
TEST_F(RunReportTest, OneThatIsNotAnsweredToItsEndIsNone) {
  holders_.answers = {v1::ListRegionHoldersResponse(), absl::InternalError("it broke")};
  EXPECT_TRUE(absl::IsInternal(Report({"regions/one", "regions/two", "regions/three"})));
  EXPECT_EQ(holders_.requests.size(), 2u);
  EXPECT_EQ(out_.str(), "");
}

TEST_F(RunReportTest, ATerminalIsToldHowFarItIs) {
  const v1::ListRegionHoldersResponse nobody;
  holders_.answers = {nobody, nobody};
  ASSERT_TRUE(Report({"regions/one", "regions/two"}, /*at_terminal=*/true).ok());
  EXPECT_EQ(err_.str(), "cxlpool: asked who has 1 of 2 Regions open\n");
  err_.str("");
  holders_.answers = {nobody, nobody};
  ASSERT_TRUE(Report({"regions/one", "regions/two"}).ok());
  EXPECT_EQ(err_.str(), "");
}

}  // namespace
}  // namespace cxlpool::cli
