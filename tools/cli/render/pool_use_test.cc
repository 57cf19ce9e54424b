#include "tools/cli/render/pool_use.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tools/cli/golden.h"

namespace cxlpool::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

PoolFacts Facts() {
  const auto topology = ReadMessage<v1::Topology>("use.textproto");
  PoolFacts facts;
  *facts.devices.mutable_devices() = topology.devices();
  *facts.hosts.mutable_hosts() = topology.hosts();
  facts.regions = ReadMessage<v1::ListRegionsResponse>("use-regions.textproto");
  facts.tenants = ReadMessage<v1::ListTenantsResponse>("use-tenants.textproto");
  v1::ListRegionHoldersResponse& open = facts.holders["regions/old"];
  v1::HostHolders& host = *open.add_hosts();
  host.mutable_report_time()->set_seconds(1);
  host.add_holders();
  host.set_more(2);
  facts.holders["regions/silent"].add_hosts();
  v1::HostHolders& never = *facts.holders["regions/mine"].add_hosts();
  never.mutable_report_time()->set_seconds(1);
  never.mutable_unopened_since()->set_seconds(999'991);
  return facts;
}
absl::Time Now() { return absl::FromUnixSeconds(1'000'000); }

TEST(PoolUseTest, TopShowsTheLargestFirst) {
  const std::vector<Section> top = TopSections(Facts());
  ExpectGolden("top.txt", SectionsText(top, 0, 0));
  ExpectGolden("top-80.txt", SectionsText(top, 2, 80));
  ExpectGolden("top.json", SectionsJson(top));
}

TEST(PoolUseTest, BarsFitOnTheTerminalOrAreLeftOut) {
  const std::vector<Section> top = TopSections(Facts());
  for (const int columns : {20, 60, 72, 80, 120, 200}) {
    size_t longest = 0;
    std::istringstream lines(SectionsText(top, 0, columns));
    for (std::string line; std::getline(lines, line);) {
      if (!line.empty() && line.back() == ']') longest = std::max(longest, line.size());
    }
    EXPECT_LE(longest, static_cast<size_t>(columns));
  }
  EXPECT_THAT(SectionsText(top, 0, 20), Not(HasSubstr("#")));
}

TEST(PoolUseTest, Report) {
  const std::vector<Section> report = ReportSections(Facts(), Now());
  ExpectGolden("report.txt", SectionsText(report, 0, 0));
  ExpectGolden("report.json", SectionsJson(report));
}

TEST(PoolUseTest, ADeviceThatNoLinkLeadsToIsStranded) {
  PoolFacts facts;
  v1::Device& device = *facts.devices.add_devices();
  device.set_name("devices/cmm-0");
  device.set_capacity_bytes(uint64_t{1} << 30);
  device.set_state(v1::Device::READY);
  for (const char* name : {"hosts/host-a", "hosts/host-b"}) {
    v1::Host& host = *facts.hosts.add_hosts();
    host.set_name(name);
    host.set_state(v1::Host::ONLINE);
  }
  const auto text = [&facts] { return SectionsText(ReportSections(facts, Now()), 0, 0); };
  EXPECT_THAT(text(), Not(HasSubstr("no host reaches it"))) << "without links all is reached";
  v1::TopologyTables::LinkEntry& link = *facts.topology.mutable_tables()->add_links();
  link.set_from("host-a");
  link.set_to("a-switch");
  EXPECT_THAT(text(), HasSubstr("no host reaches it"));
  v1::Path& path = *facts.topology.add_paths();
  path.set_host("hosts/host-a");
  path.set_device("devices/cmm-1");
  EXPECT_THAT(text(), HasSubstr("no host reaches it"));
  path.set_device("devices/cmm-0");
  EXPECT_THAT(text(), Not(HasSubstr("no host reaches it")));
  facts.hosts.mutable_hosts(0)->set_state(v1::Host::RETIRED);
  EXPECT_THAT(text(), HasSubstr("no host reaches it")) << "host-b is not led there";
}

// The names of a section's Regions.
std::vector<std::string> NamesIn(const std::vector<Section>& sections, absl::string_view key) {
  std::vector<std::string> names;
  for (const Section& section : sections) {
    if (section.key != key) continue;
    for (const Section::Row& row : section.rows) names.push_back(row.cells.front().text);
  }
  return names;
}

TEST(PoolUseTest, WhatOneUserLeakedStandsTogether) {
  PoolFacts facts;
  const auto add = [&facts](const char* name, uint32_t uid, uint64_t size_bytes) {
    v1::Region& region = *facts.regions.add_regions();
    region.set_name(absl::StrCat("regions/", name));
    region.set_size_bytes(size_bytes);
    region.mutable_maker()->set_host("hosts/gone");
    region.mutable_maker()->set_uid(uid);
  };
  add("one", 1000, 100);
  add("two", 1001, 300);
  add("three", 1000, 250);
  const std::vector<Section> report = ReportSections(facts, Now());
  EXPECT_THAT(NamesIn(report, "leaked"), ElementsAre("three", "one", "two"));
  EXPECT_THAT(SectionsJson(report),
              HasSubstr("\"host\": \"gone\", \"uid\": \"1001\", \"pid\": null"));
}

TEST(PoolUseTest, WhatNobodyOpenedIsFoundBehindTheOldest) {
  PoolFacts facts;
  for (size_t i = 0; i < 3 * kOldestRegions; ++i) {
    v1::Region& region = *facts.regions.add_regions();
    region.set_name(absl::StrCat("regions/r-", i));
    region.set_state(v1::Region::ALLOCATED);
    region.mutable_create_time()->set_seconds(1 + static_cast<int64_t>(i));
    v1::HostHolders& host = *facts.holders[region.name()].add_hosts();
    host.mutable_report_time()->set_seconds(1);
    if (i % kOldestRegions == 5) host.mutable_unopened_since()->set_seconds(1);
  }
  const std::vector<Section> report = ReportSections(facts, Now());
  EXPECT_EQ(NamesIn(report, "oldest").size(), kOldestRegions);
  EXPECT_THAT(NamesIn(report, "never_opened"), ElementsAre("r-5", "r-15", "r-25"));
}

TEST(PoolUseTest, AnEmptyPoolHasNothingToReport) {
  const std::string text = SectionsText(ReportSections({}, Now()), 0, 0);
  EXPECT_THAT(text, HasSubstr("and nobody can be given it\nnothing\n"));
  EXPECT_THAT(text, Not(HasSubstr("OLDEST")));
  EXPECT_EQ(SectionsJson(TopSections({})), "{\"devices\": [], \"hosts\": [], \"tenants\": []}\n");
  EXPECT_THAT(SectionsText(TopSections({}), 0, 80), HasSubstr("The pool has no device."));
}

}  // namespace
}  // namespace cxlpool::cli
